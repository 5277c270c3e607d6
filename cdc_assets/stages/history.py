"""The stage history: the released changes of each table into its SCD2 table, several tables at once."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame

from cdc_assets.feeds import Feed
from cdc_assets.history.loads import adopt
from cdc_assets.history.plan import works
from cdc_assets.history.progress import Name, Progress, read_progress, write_progress
from cdc_assets.history.standing import rows_of
from cdc_assets.history.verify import Broken, broken_by_table
from cdc_assets.history.work import Work
from cdc_assets.history.writer import TableReport, apply, together
from cdc_assets.session import session_for
from cdc_assets.stages.quarantining import quarantine
from cdc_assets.tables.lakehouse import Lakehouse

STAGE = "history"


@dataclass(frozen=True)
class Failure:
    """A table whose part of a run failed; the next run takes it up where it stands."""

    database: str
    table: str
    error: Exception


@dataclass(frozen=True)
class HistoryReport:
    """What one run did: one entry a table."""

    tables: list[TableReport] = field(default_factory=list)
    unchanged: list[Name] = field(default_factory=list)  # that were due, and for which there was nothing to do
    failures: list[Failure] = field(default_factory=list)
    broken: dict[Name, list[Broken]] = field(
        default_factory=dict
    )  # versions, of the tables written, that break a promise


class History:
    """Brings the tables with releases that their history has not seen up to date."""

    name = "history"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:  # noqa: ARG002 -- every stage has the same signature
        """Whether there are such tables."""
        return bool(self.tables(lake))

    def tables(self, lake: Lakehouse) -> set[Name]:
        """The tables that may have releases to apply."""
        releases = lake.released_changes.pinned()
        released = releases.cursor()
        if released is None:
            return set()
        progress = read_progress(lake)
        if progress is None or progress.release > released.sequence:
            return lake.released_tables()
        due, last = set(progress.behind), progress.release
        for cursor in releases.cursors():
            if cursor.sequence <= last:
                return due
            due |= {(database, table) for database, table, _ in cursor.tables}
        return lake.released_tables() if last else due

    def run(
        self,
        lake: Lakehouse,
        feed: Feed,
        told: Callable[[TableReport, int, int], None] = lambda *_: None,
    ) -> HistoryReport:
        """Bring them up to date, each in one commit, as many at once as there are cores.

        What goes wrong with one table is its failure; the others go on.

        Args:
            lake: the feed's tables.
            feed: the feed.
            told: is called for each table as it is done; with how many of how many are done then.
        """
        due, released = self.tables(lake), lake.released_changes.cursor()
        if not due or released is None:
            return HistoryReport()
        report = HistoryReport()

        def failed(name: Name, error: Exception) -> None:
            report.failures.append(Failure(*name, error))

        adopted = adopt(lake, feed, due, read_progress(lake), failed)
        due -= {(f.database, f.table) for f in report.failures}
        todo = works(lake, feed, due, released.sequence, failed)
        working = {part.name for unit in todo for part in unit}
        total, done = len(working | adopted.keys()), 0
        for name in adopted.keys() - working:
            done += 1
            report.tables.append(adopted[name])
            told(adopted[name], done, total)
        for outcomes in _outcomes(lake, feed, todo):
            for outcome in outcomes:
                done += 1
                if isinstance(outcome, TableReport):
                    made = _begun_and(lake, adopted.get((outcome.database, outcome.table)), outcome)
                    report.tables.append(made)
                    told(made, done, total)
                else:
                    report.failures.append(outcome)
        behind = {(f.database, f.table) for f in report.failures}
        write_progress(lake, Progress(released.sequence, frozenset(behind)))
        left = due - working - behind - set(adopted)
        report.unchanged.extend(sorted(name for name in left if lake.history(*name).exists()))
        report.tables.sort(key=lambda t: (t.database, t.table))
        report.broken.update(broken_by_table(lake, report.tables))
        return report


def _begun_and(lake: Lakehouse, begun: TableReport | None, more: TableReport) -> TableReport:
    """What was done to a table that began with typed rows of a load, before other changes."""
    return more if begun is None else replace(together(lake, [begun, more]), changes=begun.changes + more.changes)


def _outcomes(lake: Lakehouse, feed: Feed, todo: list[list[Work]]) -> Iterator[list[TableReport | Failure]]:
    """What came of each unit of tables, one entry a table."""
    if not todo:
        return  # nor is there anything to start Spark for
    spark = lake.spark

    def unit(parts: list[Work]) -> list[TableReport | Failure]:
        done: dict[Name, list[TableReport]] = {}
        failures: dict[Name, Failure] = {}
        for work in parts:
            if failures:
                linked = LinkedTableError(next(iter(failures)))
                failures.setdefault(work.name, Failure(*work.name, linked))
                continue
            try:
                made = apply(lake, session_for(spark, rows_of(work)), feed, work, partial(_lost, lake, work))
                done.setdefault(work.name, []).append(made)
            except Exception as error:  # noqa: BLE001 -- it is told with the table, and fails the run when all others are done
                failures.setdefault(work.name, Failure(*work.name, error))
        return [*(together(lake, made) for made in done.values()), *failures.values()]

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for done in as_completed([pool.submit(copy_context().run, unit, parts) for parts in todo]):
            yield done.result()


def _lost(lake: Lakehouse, work: Work, rows: DataFrame, by_driver: bool) -> int:  # noqa: FBT001
    return quarantine(lake, rows, STAGE, work.after, work.through, by_driver=by_driver)


class LinkedTableError(Exception):
    """A table's rows come from another, or go to it, and that one failed."""

    def __init__(self, other: Name) -> None:
        super().__init__(
            f"A RENAME links it to {'.'.join(other)}, which failed: it goes on with the run that mends that."
        )
