"""The stage history: it applies the released changes of each table to its history table, several tables at a time."""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from cdc_assets.config import Feed
from cdc_assets.errors import first_line
from cdc_assets.history.progress import FailedTable, Name, Progress, hash_settings
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.history.table_report import TableReport, merge_reports
from cdc_assets.history.version_rules import Violation
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.table import ConcurrentRunError
from cdc_assets.spark.session import session_for
from cdc_assets.stages.history.new_releases import measure_lags
from cdc_assets.stages.history.plan import LinkedTableError, plan_tables
from cdc_assets.stages.history.progress_file import read_progress, write_progress
from cdc_assets.stages.history.verify import verify_written_tables
from cdc_assets.stages.history.writer import STAGE, apply_plan
from cdc_assets.stages.load.history_start import adopt_loaded_rows
from cdc_assets.version import code_version


@dataclass(frozen=True)
class Failure:
    """A table that a run could not write.

    Attributes:
        database: of the table.
        table: its name.
        error: why the run could not write it.
        is_blocked: whether the run before failed at the table, too. A blocked table fails no run; it waits until there are
            new releases of it, or the settings or the version of this package change. A table that is not blocked fails the
            run, and the next run tries it again.
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
    """What one run did.

    Attributes:
        tables: the tables that it wrote.
        unchanged: tables that were due and needed no commit.
        failures: tables that it could not write.
        recovered: tables that failed in an earlier run, and needed no commit.
        broken: versions that break a rule, by table, in the tables that it wrote.
    """

    tables: list[TableReport] = field(default_factory=list)
    unchanged: list[Name] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    recovered: list[Name] = field(default_factory=list)
    broken: dict[Name, list[Violation]] = field(default_factory=dict)


class History:
    """Applies released changes to the history tables that lack them."""

    name = STAGE

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Return whether there are tables to bring up to date."""
        return bool(self.tables(lake, feed))

    def tables(self, lake: Lakehouse, feed: Feed) -> set[Name]:
        """Return the tables to bring up to date: without blocked tables for which nothing has changed."""
        progress, now = read_progress(lake), datetime.now(UTC)
        failed = progress.failed if progress else ()
        waiting = {each.name for each in failed if not each.is_due(feed, now)}
        return _find_changed_tables(lake, progress) | (progress.behind - waiting if progress else set())

    def behind(self, lake: Lakehouse) -> set[Name]:
        """Return all tables that may have releases to apply, including blocked ones."""
        progress = read_progress(lake)
        return _find_changed_tables(lake, progress) | (progress.behind if progress else set())

    def run(
        self,
        lake: Lakehouse,
        feed: Feed,
        on_report: Callable[[TableReport, int, int], None] = lambda *_: None,
    ) -> HistoryReport:
        """Bring the tables up to date, as many at a time as there are cores; an error at one table stops no other.

        Args:
            lake: the feed's tables.
            feed: the feed.
            on_report: is called after each table that was written, with the table's report, the number of tables that are
                done, and the number of all tables.
        """
        due, released = self.tables(lake, feed), lake.released_changes.cursor()
        if not due or released is None:
            return HistoryReport()
        report, before = HistoryReport(), read_progress(lake)
        errors: dict[Name, Exception] = {}
        adopted = adopt_loaded_rows(lake, feed, due, before, errors.__setitem__)
        before = before or Progress(0)
        failed_before = {each.name for each in before.failed}
        units = plan_tables(lake, feed, due, released.sequence, errors, failed_before)
        planned = {plan.name for plans in units for plan in plans}
        total = len(planned | adopted.keys())
        unplanned = [adopted[name] for name in adopted.keys() - planned]
        results = itertools.chain(unplanned, _apply_units(lake, feed, units, adopted))
        for number, result in enumerate(results, start=1):
            if isinstance(result, TableReport):
                report.tables.append(result)
                on_report(result, number, total)
            else:
                errors[result.name] = result.error
        tried = {*due, *planned, *errors}
        progress = _advance_progress(lake, feed, before, released.sequence, tried, errors)
        write_progress(lake, progress)
        _complete_report(lake, report, before, progress, tried, errors)
        return report


def _complete_report(
    lake: Lakehouse,
    report: HistoryReport,
    before: Progress,
    progress: Progress,
    tried: AbstractSet[Name],
    errors: Mapping[Name, Exception],
) -> None:
    """Complete the report of a run, except the tables that were written; put these in order.

    Args:
        lake: the feed's tables.
        report: the report.
        before: the progress before the run.
        progress: the progress after it.
        tried: the tables that the run tried.
        errors: the errors of the tables that failed.
    """
    blocked = {each.name for each in progress.failed if each.is_blocked}
    report.failures.extend(Failure(*name, error, name in blocked) for name, error in sorted(errors.items()))
    written = {(t.database, t.table) for t in report.tables}
    without_commit = tried - written - errors.keys()
    report.recovered.extend(sorted(without_commit & before.behind))
    report.unchanged.extend(sorted(name for name in without_commit if lake.history(*name).exists()))
    report.tables.sort(key=lambda t: (t.database, t.table))
    report.broken.update(verify_written_tables(lake, report.tables))


def _find_changed_tables(lake: Lakehouse, progress: Progress | None) -> set[Name]:
    """Return the tables of the releases after `progress`; all released tables if it is missing or does not fit."""
    releases = lake.released_changes.at_current_version()
    released = releases.cursor()
    if released is None:
        return set()
    if progress is None or progress.release > released.sequence:
        return lake.released_tables()
    changed, last = set[Name](), progress.release
    for cursor in releases.cursors():
        if cursor.sequence <= last:
            return changed
        changed |= {(database, table) for database, table, _ in cursor.tables}
    return lake.released_tables() if last else changed


def _advance_progress(
    lake: Lakehouse,
    feed: Feed,
    before: Progress,
    release: int,
    tried: AbstractSet[Name],
    errors: Mapping[Name, Exception],
) -> Progress:
    """Return the progress of the histories after a run.

    Args:
        lake: the feed's tables.
        feed: the feed.
        before: the progress before the run.
        release: the last release that the run applied.
        tried: the tables that the run tried.
        errors: the errors of the tables that failed.
    """
    waiting = [each for each in before.failed if each.name not in tried]
    behind = frozenset(errors) | (before.behind - tried)
    # A table must not become blocked because another run committed to it first.
    counted = {name: error for name, error in errors.items() if not isinstance(_cause(error), ConcurrentRunError)}
    failed_before = {each.name: each for each in before.failed}
    kept = [failed_before[name] for name in errors.keys() - counted.keys() if name in failed_before]
    if not counted:
        return Progress(release, behind, tuple(sorted([*waiting, *kept])))
    lags = measure_lags(lake, {name: _read_applied_release(lake, name) for name in counted})
    settings, version = hash_settings(feed), code_version()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    failed = []
    for name, error in counted.items():
        last, (since, events) = failed_before.get(name), lags[name]
        failed.append(
            FailedTable(
                *name,
                release=release,
                since=since,
                events=events,
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
    """Return the error of the table that failed first, if a RENAME links the tables."""
    return _cause(error.cause) if isinstance(error, LinkedTableError) else error


def _read_applied_release(lake: Lakehouse, name: Name) -> int:
    """Return the last release that is applied to a history table; 0 if its cursor cannot be read."""
    try:
        cursor = lake.history(*name).cursor()
    except Exception:  # noqa: BLE001 -- the table has failed, and an unreadable cursor may be the reason
        return 0
    return cursor.release if cursor else 0


def _apply_units(
    lake: Lakehouse, feed: Feed, units: list[list[TablePlan]], adopted: Mapping[Name, TableReport]
) -> Iterator[TableReport | Failure]:
    """Yield a report or a failure for each table, as soon as its unit is done.

    Args:
        lake: the feed's tables.
        feed: the feed.
        units: plans that must be applied one after the other.
        adopted: reports of the histories that the run began with a copy of a load's typed rows.
    """
    if not units:
        return  # without Spark
    spark = lake.spark

    def apply_unit(plans: list[TablePlan]) -> list[TableReport | Failure]:
        done: dict[Name, list[TableReport]] = {}
        errors: dict[Name, Exception] = {}
        for plan in plans:
            if errors:
                errors.setdefault(plan.name, LinkedTableError(*next(iter(errors.items()))))
                continue
            try:
                session = session_for(spark, plan.row_count)
                report = apply_plan(lake, session, feed, plan)
                done.setdefault(plan.name, []).append(report)
            except Exception as error:  # noqa: BLE001 -- reported with its table; it fails the run after all tables are done
                errors[plan.name] = error
        reports = []
        for name, parts in done.items():
            try:
                reports.append(_merge_with_adopted(lake, adopted.get(name), parts))
            except Exception as error:  # noqa: BLE001 -- as above
                errors.setdefault(name, error)
        return [*reports, *(Failure(*name, error) for name, error in errors.items())]

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for done in as_completed([pool.submit(copy_context().run, apply_unit, plans) for plans in units]):
            yield from done.result()


def _merge_with_adopted(lake: Lakehouse, adopted: TableReport | None, parts: list[TableReport]) -> TableReport:
    """Return one report of all commits to a table, including the one that began the history with a load's typed rows."""
    commits, last = [*([adopted] if adopted else []), *parts], parts[-1]
    if len(commits) == 1:
        return last
    merged = merge_reports(commits, lake.history(last.database, last.table).files())
    return replace(merged, changes=adopted.changes + merged.changes) if adopted else merged
