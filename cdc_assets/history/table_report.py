"""What a run did to one history table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.history.chain_breaks import NO_BREAKS, ChainBreaks
from cdc_assets.history.completeness import NEVER
from cdc_assets.history.contradictions import Contradiction
from cdc_assets.history.ddl_report import merge_statement_reports
from cdc_assets.history.effects import UnappliedStatement
from cdc_assets.history.unordered_rows import UnorderedRows
from cdc_assets.history.unstated_columns import UnstatedColumn
from cdc_assets.lakehouse.log import DataFile


@dataclass(frozen=True)
class TableReport:
    """What one run did to one history table.

    Attributes:
        database: of the table.
        table: its name.
        after: the last release that was applied before the run.
        through: the last release that is applied after it.
        created: whether the run created the table.
        changes: row events of the releases in (after, through].
        opened: versions that the run opened.
        closed: versions that were open before, and that the run closed.
        quarantined: values of these releases that are in quarantine.
        versions: all versions of the table after the run.
        current: its open versions after the run.
        files: files that the run wrote.
        columns: the table's columns.
        log_lines: for the log: which features of Delta the table uses from now on, and why.
        statements: DDL statements that were applied, as `report_statements` returns them.
        unapplied: those of these statements that could not be applied in full.
        reload: as `HistoryCursor.reload`.
        complete: as `HistoryCursor.complete`.
        met: as `HistoryCursor.met`.
        breaks: changes whose row before is not the row in the history.
        contradictions: rows that contradict a statement before them.
        unstated: columns that rows begin to have although no statement has added them.
        unordered: rows of which it is not known whether a statement ended them.
        days: as `HistoryCursor.days`.
        loaded: position of the last reload that was applied; -1 if there was none.
        commits: how many commits the run made to the table.
    """

    database: str
    table: str
    after: int
    through: int
    created: bool
    changes: int
    opened: int
    closed: int
    quarantined: int
    versions: int
    current: int
    files: list[DataFile] = field(default_factory=list)
    columns: StructType = field(default_factory=StructType)
    log_lines: list[str] = field(default_factory=list)
    statements: list[dict[str, Any]] = field(default_factory=list)
    unapplied: list[UnappliedStatement] = field(default_factory=list)
    reload: list[dict[str, Any]] = field(default_factory=list)
    complete: int = NEVER
    met: int = 0
    breaks: ChainBreaks = NO_BREAKS
    contradictions: list[Contradiction] = field(default_factory=list)
    unstated: list[UnstatedColumn] = field(default_factory=list)
    unordered: list[UnorderedRows] = field(default_factory=list)
    days: dict[str, int] = field(default_factory=dict)
    loaded: int = -1
    commits: int = 1


def merge_reports(parts: Sequence[TableReport], files: Iterable[DataFile]) -> TableReport:
    """Return one report of all commits that a run made to one table.

    Args:
        parts: the reports of the commits, in order.
        files: the table's present files.
    """
    *_, last = parts
    written = {f.path for part in parts for f in part.files}
    return replace(
        last,
        created=any(part.created for part in parts),
        opened=sum(part.opened for part in parts),
        closed=sum(part.closed for part in parts),
        quarantined=max(part.quarantined for part in parts),
        files=[f for f in files if f.path in written],
        log_lines=[line for part in parts for line in part.log_lines],
        statements=merge_statement_reports(each for part in parts for each in part.statements),
        unapplied=[each for part in parts for each in part.unapplied],
        loaded=max(part.loaded for part in parts),
        breaks=ChainBreaks(
            sum(part.breaks.count for part in parts), [row for part in parts for row in part.breaks.sample]
        ),
        contradictions=[each for part in parts for each in part.contradictions],
        unstated=[each for part in parts for each in part.unstated],
        unordered=[each for part in parts for each in part.unordered],
        commits=len(parts),
    )
