"""What a history table promises: versions in order, and the source's statements carried over."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.errors import first_line
from cdc_assets.history.completeness import NEVER, complete
from cdc_assets.history.writer import TableReport
from cdc_assets.lakehouse.initial_load import RefusedLoad
from cdc_assets.lakehouse.released_changes import Hold, HoldReason
from cdc_assets.tso import time_text


def intervals(broken: list[dict[str, Any]]) -> Verdict:
    """`broken`: the versions that break a rule, at most as many as are shown."""
    told = (
        f"{len(broken)} or more versions are wrong."
        if broken
        else "Versions neither overlap nor leave unexplained gaps."
    )
    return Verdict(not broken, told, broken)


def column_changes(before: Mapping[str, str] | None, now: Mapping[str, str]) -> Verdict:
    """Whether the columns, name -> type, are those of `before`; None: nothing is known of before."""
    known = now if before is None else before
    rows = [
        {"column": name, "before": known.get(name), "now": now.get(name)}
        for name in dict.fromkeys([*known, *now])
        if known.get(name) != now.get(name)
    ]
    told = ", ".join(f"{r['column']} ({r['before'] or 'absent'} -> {r['now'] or 'absent'})" for r in rows)
    return Verdict(not rows, f"Columns changed: {told}." if rows else "The columns are those of before.", rows)


def not_written(error: Exception) -> Verdict:
    """The failing `conservation` of a table that could not be written, and that fails the run."""
    told = f"The table was not written, and the next run takes it up where it stands: {first_line(error)}"
    return Verdict(passed=False, description=told)


def waits_after_errors(hold: Hold, feed: str) -> Verdict:
    """The failing `conservation` of a table that could not be written twice in a row, and waits."""
    told = (
        f"The table was not written, twice in a row, and waits from commit_ts {hold.since} ({time_text(hold.since)}) on, "
        f"with {hold.events} row events: {hold.first['why']}. Mend the cause, and have it tried again: "
        f"`cdc-assets retry {feed} {hold.database}.{hold.table}`. It is tried again, too, when changes of it are released, "
        "when the feed's settings or the version of cdc-assets change, and from time to time. All else goes on."
    )
    return Verdict(passed=False, description=told, violations=[hold.row()])


def written_again() -> Verdict:
    """The `conservation` of a table that failed, and that has nothing left to apply."""
    return Verdict(passed=True, description="The table has every released change.")


def waits_for_decision(feed: str, hold: Hold) -> Verdict:
    """The failing `ddl_applied` of a table that waits at a statement."""
    told = f"The table waits at a DDL statement, with {hold.events} row events: {hold.first['why']}. All else goes on."
    if hold.reason == HoldReason.DDL:
        told += (
            f" Decide about it: `cdc-assets acknowledge {feed} {hold.first['statement_id']}` with --apply, --ignore or "
            "--as, or the job acknowledge."
        )
    return Verdict(passed=False, description=told, violations=[hold.row()])


def nothing_waits() -> Verdict:
    """The `ddl_applied` of a table that has no statement left."""
    return Verdict(passed=True, description="There is no DDL statement left to apply.")


def type_mapping(hold: Hold | None) -> Verdict:
    """Whether the table waits at an event whose types are not as the mappings prescribe; `hold`: where it waits."""
    if hold is None:
        return Verdict(passed=True, description="The table waits at no broken type mapping.")
    advice = hold.first.get(
        "advice", "Give the column's type under columns: in the feeds file, or set type_mapping: warn for the table"
    )
    told = (
        f"The table waits at an event that breaks a type mapping, with {hold.events} row events: {hold.first['column']}: "
        f"{hold.first['told']}. {advice}. All else goes on."
    )
    return Verdict(passed=False, description=told, violations=[hold.row()])


def ddl_applied(report: TableReport) -> Verdict:
    """Whether everything was done that the statements of this run ask for, and no row contradicts a statement before it."""
    open_ones = [asdict(each) for each in report.unapplied if not each.reload]
    count = len(report.statements)
    told = f"{count} DDL statements were applied." if count else "There was no DDL statement."
    if open_ones:
        told = (
            f"Of {count} DDL statements {len(open_ones)} could not be applied in full: see what is left open, and why."
        )
    if report.contradictions:
        told += " " + contradicted(report)
    failures = [*open_ones, *(asdict(each) for each in report.contradictions)]
    return Verdict(not failures, told, failures, {"statements": report.statements} if count else {})


def contradicted(report: TableReport) -> str:
    """Say which rows contradict a statement before them, and what to do."""
    first, *others = report.contradictions
    more = f", and {len(others)} more like it below" if others else ""
    return (
        f"Rows of `{report.database}`.`{report.table}` contradict a statement before them, about the column "
        f"`{first.column}`: after `{first.statement}` at commit_ts {first.commit_ts} ({time_text(first.commit_ts)}) "
        f"{first.stated}, but in {first.rows} rows after it {first.found}; the first of them is at topic {first.topic}, "
        f"partition {first.partition}, offset {first.offset}{more}. The rows are applied as they were sent. Compare with "
        "SHOW CREATE TABLE at the source. If the statement did not happen there as it stands, set schema_changes: stop for "
        "the table, run the job rebuild, and decide about the statement (`cdc-assets acknowledge`, --ignore or --as). If it "
        "did, the rows come from a sender with an older schema: restart the sender, and load the table anew from a dump "
        "that is taken after that."
    )


def reload_required(report: TableReport) -> Verdict:
    """Whether rows came or went that no row event tells of."""
    told = "No statement moved rows past the changefeed."
    if report.reload:
        told = (
            "Rows came or went that no row event tells of: the history is wrong from the first of these statements on. "
            "Load the table anew from a dump that was taken after them (initial_load: in the feeds file); of a connector, "
            "have it take a snapshot of the table, with snapshots: whole in the feeds file, or begin it in another feed."
        )
    return Verdict(not report.reload, told, report.reload)


def changes_continue(report: TableReport) -> Verdict:
    """Whether the row before each UPDATE and DELETE, as its message has it, is the row that the history has."""
    breaks = report.breaks
    told = "Each UPDATE and DELETE found the row as the history has it."
    if breaks.count:
        told = (
            f"{breaks.count} changes of `{report.database}`.`{report.table}` found another row than the history has, so a "
            "change before them was lost, or came in another order. They are applied, and the rows are right from them on; "
            "the versions before them may not be. Look for lost records before the ones shown: a gap in the offsets, a "
            "topic with compaction or too short a retention, quarantine. `cdc-assets verify` compares the open rows with "
            "the source."
        )
    return Verdict(not breaks.count, told, breaks.sample)


def not_loaded(refused: RefusedLoad) -> Verdict:
    """The failing `history_complete` of a table whose dump cannot be loaded."""
    told = f"The table's dump is not loaded: {refused.why} The next run after that loads it. All else goes on."
    return Verdict(passed=False, description=told)


def history_complete(report: TableReport) -> Verdict:
    """Whether it is known from where on the history has every row that the source had."""
    found = complete(report.complete, report.met)
    since = "never" if found.position == NEVER else f"{found.position} ({time_text(found.position)})"
    told = {"complete_from": since, "met_first_by_update_or_delete": found.met}
    return Verdict(found.holds, found.reason, metadata=told)
