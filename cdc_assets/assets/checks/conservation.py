"""The conservation law: nothing is lost between a stage's input and its output.

Each check holds what came in against what went out, as the logs of the two tables have it after the commit.
"""

from cdc_assets.assets.checks.verdict import Verdict, balance
from cdc_assets.history.writer import TableReport
from cdc_assets.protocols.base import DeniedSetting
from cdc_assets.stages.decode import DecodeReport
from cdc_assets.stages.ingest import IngestReport
from cdc_assets.stages.release import ReleaseReport


def records_taken(report: IngestReport) -> Verdict:
    """Every record read, and every line of a file, is a record that the table holds, or is in quarantine."""
    if report.batch is None:
        return Verdict(passed=True, description="Nothing is new.")
    return balance(
        f"{report.lines} read: {report.taken} records taken in, {report.held_before} held before, "
        f"{report.quarantined} quarantined.",
        records=(report.records, report.taken + report.held_before),
        quarantined=(report.quarantined, report.in_quarantine),
    )


def records_decoded(report: DecodeReport) -> Verdict:
    """Every raw record of the batches that were decoded has an event, and what is undecodable is in quarantine."""
    if report.after >= report.through:
        return Verdict(passed=True, description="No record is new.")
    events = sum(report.events.values())
    return balance(
        f"{report.records} records: {events} events, of which {report.undecodable} are quarantined.",
        records=(report.records, report.decoded),
        quarantined=(report.undecodable, report.in_quarantine),
    )


def settings_fit_records(report: DecodeReport, feed: str, denied: DeniedSetting) -> Verdict:
    """Return whether no message says what the settings of the feed `feed` deny."""
    first = report.contradiction
    if first is None:
        return Verdict(passed=True, description="No message contradicts the feed's settings.")
    told = (
        f"{report.contradicting} events come from messages with {denied.evidence}, which the feed's settings leave out of "
        f"account; the first is at topic {first['topic']}, partition {first['partition']}, offset {first['offset']}. Set "
        f"{denied.right} for the feed {feed} in the feeds file, and run the job rebuild: until then {denied.consequence}."
    )
    return Verdict(passed=False, description=told, violations=[first | {"events": report.contradicting}])


def events_placed(report: ReleaseReport) -> Verdict:
    """Every row event is exactly one of released, duplicate, late, pending, covered by a load, or of a table left out."""
    late = report.late_repeated + report.late_unseen
    return balance(
        f"{report.rows} new and {report.pending_before} pending row events: {report.released} released, "
        f"{report.duplicate} duplicate, {late} late, {report.excluded} excluded, {report.covered} covered by a load, "
        f"{report.pending} pending.",
        row_events=(
            report.rows + report.pending_before,
            report.window + report.excluded + report.covered + late + report.pending,
        ),
        window=(report.window, report.released + report.duplicate),
    )


def changes_reflected(report: TableReport, broken: list[dict[str, object]]) -> Verdict:
    """After its last change a key has an open version, or none if that change was a delete. `broken`: those that do not."""
    description = f"{report.changes} changes: {report.opened} versions opened, {report.closed} of before closed."
    if broken:
        description = f"{len(broken)} or more keys do not show their last change."
    return Verdict(not broken, description, broken, {"changes": report.changes})
