"""The checks of a history table: versions in order, the source's DDL applied, and no change lost."""

from collections.abc import Mapping
from typing import Any

from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.errors import first_line
from cdc_assets.history.completeness import NEVER, describe_completeness
from cdc_assets.history.missing_parents import MissingParents
from cdc_assets.history.table_report import TableReport
from cdc_assets.lakehouse.initial_load import RefusedLoad
from cdc_assets.lakehouse.raw_records import record_place
from cdc_assets.lakehouse.released_changes import Hold, HoldReason
from cdc_assets.tso import time_text

_TYPE_ADVICE = "Give the column's type under columns: in the feeds file, or set type_mapping: warn for the table"


def history_intervals(broken: list[dict[str, Any]]) -> Verdict:
    """Return whether the intervals of the versions are right.

    Args:
        broken: the versions that break a rule, at most `history.version_rules.SHOWN`.
    """
    description = "Versions neither overlap nor leave unexplained gaps."
    if broken:
        description = (
            f"At least {len(broken)} versions overlap another version of their key or leave a gap that no delete explains. "
            "The table was written by hand, or the pipeline has a bug: run the job audit, and rebuild the feed."
        )
    return Verdict(not broken, description, broken)


def column_schema_change(before: Mapping[str, str] | None, now: Mapping[str, str]) -> Verdict:
    """Return whether a table still has the columns that it had before.

    Args:
        before: name -> type, of the last run that wrote the table; None: no such run is known.
        now: name -> type.
    """
    before = now if before is None else before
    rows = [
        {"column": name, "before": before.get(name), "now": now.get(name)}
        for name in dict.fromkeys([*before, *now])
        if before.get(name) != now.get(name)
    ]
    if not rows:
        return Verdict(passed=True, description="The columns are unchanged.")
    changes = ", ".join(f"{r['column']} ({r['before'] or 'absent'} -> {r['now'] or 'absent'})" for r in rows)
    description = f"Columns changed: {changes}. The check ddl_applied names the statement. Adapt the table's readers."
    return Verdict(passed=False, description=description, violations=rows)


def conservation_of_failed(error: Exception) -> Verdict:
    """Return the failing `conservation` of a table whose write failed for the first time; it fails the run, too."""
    description = (
        f"The table was not written: {first_line(error)}. Mend the cause: the next run tries again, and blocks the table if "
        "the write fails again."
    )
    return Verdict(passed=False, description=description)


def conservation_of_blocked(hold: Hold, feed: str) -> Verdict:
    """Return the failing `conservation` of a table that is blocked because its write failed twice in a row."""
    description = (
        f"Blocked: the table could not be written twice in a row. {hold.events} row events wait, from commit_ts "
        f"{hold.since} ({time_text(hold.since)}) on. The error is: {hold.first['why']}. Mend the cause, then have the table "
        f"tried again: `cdc-assets retry {feed} {hold.database}.{hold.table}`. The pipeline also tries again when it "
        "releases changes of the table, when the feed's settings or the version of cdc-assets change, and from time to "
        "time. The other tables go on."
    )
    return Verdict(passed=False, description=description, violations=[hold.row()])


def conservation_of_recovered() -> Verdict:
    """Return the passing `conservation` of a table that could not be written before and has nothing left to apply."""
    return Verdict(passed=True, description="The table has every released change.")


def ddl_applied(report: TableReport) -> Verdict:
    """Return whether this run applied its statements in full, and rows have the columns that statements say."""
    unapplied = [each for each in report.unapplied if not each["reload"]]
    count = len(report.statements)
    description = f"{count} DDL statements were applied." if count else "There was no DDL statement."
    if unapplied:
        description = (
            f"{len(unapplied)} of {count} DDL statements could not be applied in full: open rows have NULL in a column for "
            "which only the source knows the value. The violations name the statement and the reason. Each row is right "
            "again with its next change."
        )
    if report.contradictions:
        description += f" {_describe_contradictions(report)}"
    if report.unstated:
        description += f" {_describe_unstated_columns(report)}"
    if report.unordered:
        description += f" {_describe_unordered_rows(report)}"
    failures = [*unapplied, *report.contradictions, *report.unstated, *report.unordered]
    return Verdict(not failures, description, failures, {"statements": report.statements} if count else {})


def _describe_contradictions(report: TableReport) -> str:
    """Return a text that says which rows contradict a statement before them, and what to do."""
    first, *others = report.contradictions
    more = f", and {len(others)} more like it below" if others else ""
    return (
        f"Rows of `{report.database}`.`{report.table}` contradict a statement before them, about the column "
        f"`{first['column']}`: after {_describe_statement(first)} {first['stated']}, but in {first['rows']} rows after it "
        f"{first['observed']}; the first of them is at {record_place(first)}{more}. "
        "The rows are applied as they were sent. Compare with SHOW CREATE TABLE at the source. If the statement did not "
        "happen there as it stands, set schema_changes: stop for "
        "the table, run the job rebuild, and decide about the statement (`cdc-assets acknowledge`, --ignore or --as). If it "
        "did, the rows come from a sender with an older schema: restart the sender, and load the table again from a dump "
        "that is taken after that."
    )


def _describe_unstated_columns(report: TableReport) -> str:
    """Return a text that names the columns that no statement has added, and says what to do."""
    names = ", ".join(f"`{each['column']}`" for each in report.unstated)
    first = report.unstated[0]
    return (
        f"Rows of `{report.database}`.`{report.table}` have the columns {names}, which earlier rows lack, and no statement "
        f"has added them: the first such row is at {record_place(first)}. "
        "The earlier rows have NULL there, which need not be the source's value; each is right with its next change. The "
        "statement was lost, or is not sent: send statements, too (Canal: canal.instance.filter.query.ddl=false; Debezium: "
        "the schema-change topic in topics:), and load the table again from a dump."
    )


def _describe_unordered_rows(report: TableReport) -> str:
    """Return a text that says which rows no clock orders against a statement, and what to do."""
    first, *others = report.unordered
    more = f" The violations name {len(others)} more statements." if others else ""
    return (
        f"{_describe_statement(first)} ended all rows of `{report.database}`.`{report.table}`. {first['rows']} rows of "
        f"other partitions may have come before or after it: their times do not tell. The first of them is at "
        f"{record_place(first)}.{more} A row counts as later than the statement only if the source's clock says so or, "
        "within one tick of that clock, the sender's. Compare the rows with the source, and load the table again from a "
        "dump if they differ. Canal keeps the order if all messages of a table are in one partition (canal.mq.partition)."
    )


def _describe_statement(row: Mapping[str, Any]) -> str:
    """Return a statement and its position."""
    return f"`{row['statement']}` at commit_ts {row['commit_ts']} ({time_text(row['commit_ts'])})"


def ddl_applied_of_blocked(feed: str, hold: Hold) -> Verdict:
    """Return the failing `ddl_applied` of a table that is blocked at a statement."""
    description = (
        f"Blocked: `{hold.database}`.`{hold.table}` waits at a DDL statement, with {hold.events} row events: "
        f"{hold.first['why']}. The other tables go on."
    )
    if hold.reason == HoldReason.DDL:
        description += (
            f" Decide about the statement: `cdc-assets acknowledge {feed} {hold.first['statement_id']}` with --apply, "
            "--ignore or --as, or the job acknowledge."
        )
    elif hold.reason == HoldReason.LINKED:
        description += " It goes on as soon as that table does: see the failing checks of that table."
    return Verdict(passed=False, description=description, violations=[hold.row()])


def ddl_applied_of_unblocked() -> Verdict:
    """Return the passing `ddl_applied` of a table that no statement blocks and that this run did not write."""
    return Verdict(passed=True, description="There is no DDL statement left to apply.")


def type_mapping(hold: Hold | None) -> Verdict:
    """Return whether no event that breaks a type mapping blocks the table; `hold`: the hold of a blocked table."""
    if hold is None:
        return Verdict(passed=True, description="No broken type mapping blocks the table.")
    first = hold.first
    description = (
        f"Blocked: column `{first['column']}` of `{hold.database}`.`{hold.table}` breaks a type mapping at "
        f"{record_place(first)}: {first['problem']}. {hold.events} row events wait. "
        f"{first.get('advice', _TYPE_ADVICE)}. The other tables go on."
    )
    return Verdict(passed=False, description=description, violations=[hold.row()])


def reload_required(report: TableReport) -> Verdict:
    """Return whether no rows came, went or changed without a row event."""
    description = "No statement added, removed or changed rows without row events."
    if report.reload:
        description = (
            "Rows came, went or changed without row events that the feed takes: the history is wrong from the first "
            "position in the violations on. Load the table again from a dump that was taken after the last one "
            "(initial_load: in the feeds file). With a connector, have it take a snapshot of the table, with snapshots: "
            "whole in the feeds file; or begin the table in another feed."
        )
    return Verdict(not report.reload, description, report.reload)


def changes_continue(report: TableReport) -> Verdict:
    """Return whether the row before each change, as its message has it, is the row of the history; none for an INSERT."""
    breaks = report.breaks
    description = (
        "Each UPDATE and DELETE had the history's row as its row before the change, and no INSERT had a row before it."
    )
    if breaks.count:
        description = (
            f"{breaks.count} changes of `{report.database}`.`{report.table}` had another row before the change than the "
            "history (an INSERT has none): an earlier change was lost, or came in another order. They are applied, and the "
            "rows are right from then on; the versions before may be wrong. Look for lost records before the coordinates in "
            "the violations: a gap in the offsets, a topic with compaction or too short a retention, records in quarantine. "
            "`cdc-assets verify` compares the open rows with the source."
        )
    return Verdict(not breaks.count, description, breaks.sample)


def parents_exist(table: str, missing: MissingParents) -> Verdict:
    """Return whether each open row of a table still has its parent rows, as foreign keys that change rows require.

    Args:
        table: database and table, for the message.
        missing: the open rows without a parent.
    """
    description = (
        "Each open row has the parent rows that the table's foreign keys refer to, unless they were never seen."
    )
    violations = [
        *({"table": table} | row | {"removed": time_text(row["removed_ts"])} for row in missing.sample),
        *({"table": table, "error": error} for error in missing.errors),
    ]
    if missing.count:
        parents = ", ".join(sorted({f"`{row['parent']}` (foreign key {row['foreign_key']})" for row in missing.sample}))
        description = (
            f"{missing.count} open rows of `{table}` have lost their parent row in {parents}: it was deleted, or its key "
            "changed, while these rows were open. The foreign key has CASCADE, SET NULL or SET DEFAULT, so the source "
            "deleted or changed the rows too, but MySQL before 9.6 and MariaDB do not write that to the binlog. The history "
            "still has the rows as they were. Load the table again from a dump that was taken after that (initial_load: in "
            "the feeds file), or have the connector take a snapshot of the table, with snapshots: whole. So that it does "
            "not happen again, delete or change the child rows by statements of their own before those of the parent. If "
            "the source still has the rows, it did not enforce the foreign key (foreign_key_checks=0, or an engine other "
            "than InnoDB): delete them there."
        )
    if missing.errors:
        description += (
            f" Not compared: {'; '.join(missing.errors)}. The next run that changes the tables compares them again."
        )
    return Verdict(not violations, description, violations)


def history_complete(report: TableReport) -> Verdict:
    """Return whether a position is known from which on the history has every row that the source had."""
    completeness = describe_completeness(report.complete, report.met)
    position = completeness.position
    since = "never" if position == NEVER else f"{position} ({time_text(position)})"
    metadata = {"complete_from": since, "met_first_by_update_or_delete": completeness.met}
    return Verdict(completeness.is_complete, completeness.reason, metadata=metadata)


def history_complete_of_refused(refused: RefusedLoad) -> Verdict:
    """Return the failing `history_complete` of a table whose dump cannot be loaded."""
    description = (
        f"The table's dump is not loaded: {refused.why} The first run after the problem is mended loads it. The other "
        "tables go on."
    )
    return Verdict(passed=False, description=description)
