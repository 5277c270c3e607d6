"""The verdicts of `conservation`: nothing is lost between a stage's input and its output.

Each verdict compares what a stage read with what the logs of its tables have after the commit.
"""

from cdc_assets.assets.checks.verdict import Verdict, compare_counts
from cdc_assets.history.table_report import TableReport
from cdc_assets.lakehouse.raw_records import record_place
from cdc_assets.protocols.base import DeniedSetting
from cdc_assets.stages.decode import DecodeReport
from cdc_assets.stages.ingest import IngestReport
from cdc_assets.stages.release.report import ReleaseReport


def records_taken(report: IngestReport) -> Verdict:
    """Return whether every line that was read is a record in raw_records or a row in quarantine."""
    if report.batch is None:
        return Verdict(passed=True, description="The source has no new record.")
    return compare_counts(
        f"{report.lines} read: {report.taken} records ingested, {report.held_before} ingested before, "
        f"{report.quarantined} quarantined.",
        records=(report.records, report.taken + report.held_before),
        quarantined=(report.quarantined, report.in_quarantine),
    )


def records_decoded(report: DecodeReport) -> Verdict:
    """Return whether every record of the decoded batches has an event, and every undecodable event is in quarantine."""
    if report.after >= report.through:
        return Verdict(passed=True, description="There is no new record to decode.")
    events = sum(report.events.values())
    return compare_counts(
        f"{report.records} records: {events} events, of which {report.undecodable} are quarantined.",
        records=(report.records, report.decoded),
        quarantined=(report.undecodable, report.in_quarantine),
    )


def settings_fit_records(report: DecodeReport, feed: str, denied: DeniedSetting) -> Verdict:
    """Return whether no message contradicts the settings of the feed `feed`."""
    first = report.contradiction
    if first is None:
        return Verdict(passed=True, description="No message contradicts the feed's settings.")
    description = (
        f"{report.contradicting} events come from messages with {denied.evidence}, which the settings of the feed {feed} "
        f"say do not exist. The first is at {record_place(first)}. "
        f"Set {denied.right} for the feed {feed} in the feeds file, and run the job rebuild. Until then "
        f"{denied.consequence}."
    )
    return Verdict(passed=False, description=description, violations=[first | {"events": report.contradicting}])


def events_placed(report: ReleaseReport) -> Verdict:
    """Return whether every row event is exactly one of released, duplicate, late, pending, excluded, covered by a load."""
    late = report.late_repeated + report.late_unseen
    return compare_counts(
        f"{report.rows} new and {report.pending_before} pending row events: {report.released} released, "
        f"{report.duplicate} duplicate, {late} late, {report.excluded} excluded, {report.covered} covered by a load, "
        f"{report.pending} pending.",
        row_events=(
            report.rows + report.pending_before,
            report.window + report.excluded + report.covered + late + report.pending,
        ),
        window=(report.window, report.released + report.duplicate),
    )


def changes_reflected(report: TableReport, unreflected: list[dict[str, object]]) -> Verdict:
    """Return whether each key has an open version after its last change, or none if that change was a delete.

    Args:
        report: of the table.
        unreflected: the keys that break the rule, at most `history.version_rules.SHOWN`.
    """
    description = f"{report.changes} changes: {report.opened} versions opened, {report.closed} earlier versions closed."
    if unreflected:
        description = (
            f"At least {len(unreflected)} keys of `{report.database}`.`{report.table}` do not show their last change. Run "
            "the job audit, and rebuild the feed."
        )
    return Verdict(not unreflected, description, unreflected, {"changes": report.changes})
