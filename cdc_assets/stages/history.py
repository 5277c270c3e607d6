"""The stage history: the released changes of each table into its SCD2 table, several tables at once."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from cdc_assets.feeds import Feed
from cdc_assets.history.plan import Work, works
from cdc_assets.history.progress import Name, Progress, read_progress, write_progress
from cdc_assets.history.verify import Broken, broken_by_table
from cdc_assets.history.writer import TableReport, apply
from cdc_assets.session import session_for
from cdc_assets.stages.quarantining import quarantine
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.released_changes import ReleasedKind

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
            return _every_table(lake)
        due, last = set(progress.behind), progress.release
        for cursor in releases.cursors():
            if cursor.sequence <= last:
                return due
            due |= {(database, table) for database, table, _ in cursor.tables}
        return _every_table(lake) if last else due

    def run(
        self,
        lake: Lakehouse,
        feed: Feed,
        only: Callable[[Name], bool] = lambda _: True,
        told: Callable[[TableReport, int, int], None] = lambda *_: None,
    ) -> HistoryReport:
        """Bring them up to date, each in one commit, as many at once as there are cores.

        What goes wrong with one table is its failure; the others go on.

        Args:
            lake: the feed's tables.
            feed: the feed.
            only: which of the tables.
            told: is called for each table as it is done; with how many of how many are done then.
        """
        due, released = self.tables(lake), lake.released_changes.cursor()
        if not due or released is None:
            return HistoryReport()
        chosen = {name for name in due if only(name)}
        report = HistoryReport()

        def failed(name: Name, error: Exception) -> None:
            report.failures.append(Failure(*name, error))

        todo = works(lake, feed, chosen, released.sequence, failed)
        for done, outcome in enumerate(_outcomes(lake, feed, todo), start=1):
            if isinstance(outcome, TableReport):
                report.tables.append(outcome)
                told(outcome, done, len(todo))
            else:
                report.failures.append(outcome)
        behind = (due - chosen) | {(f.database, f.table) for f in report.failures}
        write_progress(lake, Progress(released.sequence, frozenset(behind)))
        report.tables.sort(key=lambda t: (t.database, t.table))
        report.broken.update(broken_by_table(lake, report.tables))
        return report


def _every_table(lake: Lakehouse) -> set[Name]:
    """Every table of which anything was released, out of the rows themselves."""
    files = lake.released_changes.files(kind=str(ReleasedKind.LAYOUT))
    found = lake.released_changes.fetch(files, "database", "table").to_pylist()
    return {(r["database"], r["table"]) for r in found}


def _outcomes(lake: Lakehouse, feed: Feed, todo: list[Work]) -> Iterator[TableReport | Failure]:
    if not todo:
        return  # nor is there anything to start Spark for
    spark = lake.spark

    def one(work: Work) -> TableReport | Failure:
        def lost(rows: DataFrame) -> int:
            return quarantine(lake, rows, STAGE, work.after, work.through)

        try:
            return apply(lake, session_for(spark, work.changes), feed, work, lost)
        except Exception as error:  # noqa: BLE001 -- it is told with the table, and fails the run when all others are done
            return Failure(*work.name, error)

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for done in as_completed([pool.submit(one, work) for work in todo]):
            yield done.result()
