"""The stage history: the released changes of each table into its SCD2 table, several tables at once."""

import os
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame

from cdc_assets.config import Feed
from cdc_assets.errors import first_line
from cdc_assets.history.new_releases import measure_lags
from cdc_assets.history.plan import LinkedTableError, plan_tables
from cdc_assets.history.progress import (
    FailedTable,
    Name,
    Progress,
    hash_settings,
    now_text,
    read_progress,
    write_progress,
)
from cdc_assets.history.standing import rows_of
from cdc_assets.history.verify import Broken, broken_by_table
from cdc_assets.history.work import Work
from cdc_assets.history.writer import TableReport, apply, together
from cdc_assets.initial_load.apply import adopt_loaded_rows
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.table import ConcurrentRunError
from cdc_assets.spark.session import session_for
from cdc_assets.stages.quarantining import quarantine
from cdc_assets.version import code_version

STAGE = "history"


@dataclass(frozen=True)
class Failure:
    """A table that a run could not write.

    Attributes:
        database: of the table.
        table: its name.
        error: why.
        is_blocked: whether the try before this failed, too: the table then fails no run any more, and waits until its
            releases, the settings or the version change. Else it fails the run, and the next run tries it again.
    """

    database: str
    table: str
    error: Exception
    is_blocked: bool = False

    @property
    def name(self) -> Name:
        """Database and table."""
        return self.database, self.table


@dataclass(frozen=True)
class HistoryReport:
    """What one run did: one entry a table."""

    tables: list[TableReport] = field(default_factory=list)
    unchanged: list[Name] = field(default_factory=list)  # that were due, and for which there was nothing to do
    failures: list[Failure] = field(default_factory=list)
    recovered: list[Name] = field(
        default_factory=list
    )  # that failed before, and for which there was nothing left to do
    broken: dict[Name, list[Broken]] = field(
        default_factory=dict
    )  # versions, of the tables written, that break a promise


class History:
    """Brings the tables with releases that their history has not seen up to date."""

    name = "history"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Whether there are such tables."""
        return bool(self.tables(lake, feed))

    def tables(self, lake: Lakehouse, feed: Feed) -> set[Name]:
        """Return the tables that are to be brought up to date: not those that are blocked, as long as nothing changed."""
        progress, now = read_progress(lake), datetime.now(UTC)
        failed = progress.failed if progress else ()
        waiting = {each.name for each in failed if not each.is_due(feed, now)}
        return _changed(lake, progress) | (progress.behind - waiting if progress else set())

    def behind(self, lake: Lakehouse) -> set[Name]:
        """Return all tables that may have releases to apply, blocked ones among them."""
        progress = read_progress(lake)
        return _changed(lake, progress) | (progress.behind if progress else set())

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
        due, released = self.tables(lake, feed), lake.released_changes.cursor()
        if not due or released is None:
            return HistoryReport()
        report, before = HistoryReport(), read_progress(lake)
        errors: dict[Name, Exception] = {}
        adopted = adopt_loaded_rows(lake, feed, due, before, errors.__setitem__)
        before = before or Progress()
        todo = plan_tables(
            lake, feed, due, released.sequence, errors.__setitem__, {each.name for each in before.failed}, dict(errors)
        )
        working = {part.name for unit in todo for part in unit}
        total, done = len(working | adopted.keys()), 0
        for name in adopted.keys() - working:
            done += 1
            report.tables.append(adopted[name])
            told(adopted[name], done, total)
        for outcomes in _outcomes(lake, feed, todo, adopted):
            for outcome in outcomes:
                done += 1
                if isinstance(outcome, TableReport):
                    report.tables.append(outcome)
                    told(outcome, done, total)
                else:
                    errors[outcome.name] = outcome.error
        progress = _progress_after(lake, feed, before, released.sequence, {*due, *working}, errors)
        write_progress(lake, progress)
        blocked = {each.name for each in progress.failed if each.is_blocked}
        report.failures.extend(Failure(*name, error, name in blocked) for name, error in sorted(errors.items()))
        written = {(t.database, t.table) for t in report.tables}
        left = {*due, *working} - written - errors.keys()
        report.recovered.extend(sorted(left & before.behind))
        report.unchanged.extend(sorted(name for name in left if lake.history(*name).exists()))
        report.tables.sort(key=lambda t: (t.database, t.table))
        report.broken.update(broken_by_table(lake, report.tables))
        return report


def _changed(lake: Lakehouse, progress: Progress | None) -> set[Name]:
    """Return the tables of releases that no run of the stage has seen, as far as `progress` tells."""
    releases = lake.released_changes.at_current_version()
    released = releases.cursor()
    if released is None:
        return set()
    if progress is None or progress.release > released.sequence:
        return lake.released_tables()
    found, last = set[Name](), progress.release
    for cursor in releases.cursors():
        if cursor.sequence <= last:
            return found
        found |= {(database, table) for database, table, _ in cursor.tables}
    return lake.released_tables() if last else found


def _progress_after(
    lake: Lakehouse,
    feed: Feed,
    before: Progress,
    release: int,
    tried: AbstractSet[Name],
    errors: Mapping[Name, Exception],
) -> Progress:
    """Return how far the histories are after a run.

    Args:
        lake: the feed's tables.
        feed: the feed.
        before: how far they were before it.
        release: up to which it brought them.
        tried: the tables that it tried.
        errors: the errors of those that failed.
    """
    waiting = [each for each in before.failed if each.name not in tried and each.name not in errors]
    behind = frozenset(errors) | {name for name in before.behind if name not in tried}
    # That another run was faster is no fault of the table.
    counted = {name: error for name, error in errors.items() if not isinstance(_cause(error), ConcurrentRunError)}
    known = {each.name: each for each in before.failed}
    kept = [known[name] for name in errors.keys() - counted.keys() if name in known]
    if not counted:
        return Progress(release, behind, tuple(sorted([*waiting, *kept])))
    lags = measure_lags(lake, {name: _applied(lake, name) for name in counted})
    settings, version, now = hash_settings(feed), code_version(), now_text()
    failed = []
    for name, error in counted.items():
        last = known.get(name)
        failed.append(
            FailedTable(
                *name,
                release=release,
                since=lags[name].since,
                events=lags[name].events,
                error=first_line(error),
                settings=settings,
                version=version,
                failing_since=last.failing_since if last else now,
                tried_at=now,
                is_blocked=last is not None and (last.is_blocked or last.is_same_try(settings, version)),
            )
        )
    return Progress(release, behind, tuple(sorted([*waiting, *kept, *failed])))


def _cause(error: Exception) -> Exception:
    return _cause(error.cause) if isinstance(error, LinkedTableError) else error


def _applied(lake: Lakehouse, name: Name) -> int:
    """Return the release up to which a history has all changes; 0 where it does not even say that."""
    try:
        cursor = lake.history(*name).cursor()
    except Exception:  # noqa: BLE001 -- the table has failed, maybe by this
        return 0
    return cursor.release if cursor else 0


def _done(lake: Lakehouse, begun: TableReport | None, parts: list[TableReport]) -> TableReport:
    """What was done to a table, which may have begun with typed rows of a load."""
    made = together(lake, parts)
    return made if begun is None else replace(together(lake, [begun, made]), changes=begun.changes + made.changes)


def _outcomes(
    lake: Lakehouse, feed: Feed, todo: list[list[Work]], adopted: Mapping[Name, TableReport]
) -> Iterator[list[TableReport | Failure]]:
    """What came of each unit of tables, one entry a table; `adopted`: those that have begun with typed rows of a load."""
    if not todo:
        return  # nor is there anything to start Spark for
    spark = lake.spark

    def unit(parts: list[Work]) -> list[TableReport | Failure]:
        done: dict[Name, list[TableReport]] = {}
        errors: dict[Name, Exception] = {}
        for work in parts:
            if errors:
                errors.setdefault(work.name, LinkedTableError(*next(iter(errors.items()))))
                continue
            try:
                made = apply(lake, session_for(spark, rows_of(work)), feed, work, partial(_lost, lake, work))
                done.setdefault(work.name, []).append(made)
            except Exception as error:  # noqa: BLE001 -- it is told with the table, and fails the run when all others are done
                errors[work.name] = error
        reports = []
        for name, each in done.items():
            try:
                reports.append(_done(lake, adopted.get(name), each))
            except Exception as error:  # noqa: BLE001 -- as above
                errors.setdefault(name, error)
        return [*reports, *(Failure(*name, error) for name, error in errors.items())]

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for done in as_completed([pool.submit(copy_context().run, unit, parts) for parts in todo]):
            yield done.result()


def _lost(lake: Lakehouse, work: Work, rows: DataFrame) -> int:
    return quarantine(lake, rows, STAGE, work.after, work.through)
