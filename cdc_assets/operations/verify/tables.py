"""Compares the histories of a feed with the tables of the source, and waits for rows that have changed at the source since.

MySQL and MariaDB cannot be read as of a position. So rows of theirs that changed after the position differ, until a run of
the pipeline has applied the changes. Such rows are in the history later as the source had them. A row that a lost or wrong
change has left in the history never is.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from logging import Logger
from typing import TypeVar

from cdc_assets.config import Feed, SourceComparison
from cdc_assets.errors import first_line
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.query import engine_for
from cdc_assets.operations.diff import DEFAULT_SAMPLES
from cdc_assets.operations.finality import find_final_position
from cdc_assets.operations.holds import describe_hold
from cdc_assets.operations.verify.compare import ColumnsChangedError, Comparison, compare_rows, read_samples
from cdc_assets.operations.verify.differences import Image, RowImages, count_by_kind, read_source_images
from cdc_assets.operations.verify.sides import RowVersion, count_rows
from cdc_assets.operations.verify.verification import Grade, NotCompared, Verification
from cdc_assets.sources.mysql import MissingTableError, SourceError, open_snapshot
from cdc_assets.stages.history.progress_file import list_holds

T = TypeVar("T")
Name = tuple[str, str]  # database, table
Outcome = Verification | NotCompared

# Of each kind of difference, so many rows of a table are waited for.
MOST_EXAMINED = 1000
_POLL_SECONDS = 5
_LOG_SECONDS = 60

_ADVICE = "Mend the cause and run the job again, or leave the table out of tables: of verify: in the feeds file."
_READ_AS_IT_IS_NOW = (
    "The source was read as it is now: rows that differed were compared with later versions of the history, too. A "
    "difference that the source has undone since does not show."
)
_HISTORY_UNCHANGED = (
    "No run has changed the history since the source was read. If the pipeline has not run meanwhile, run it, and then this "
    "job again."
)


@dataclass
class _Waiting:
    """A table of which rows differ, and may be in the history later as the source had them.

    Attributes:
        comparison: the comparison in which the rows differ.
        images: those of them that the history has not held yet as the source had them.
        until: the monotonic time at which the wait is over.
        compared_sequence: the number of the history's cursor before the comparison.
        sequence: the number of the history's cursor when the rows were looked for last; None: they have not been yet.
    """

    comparison: Comparison
    images: dict[bytes, RowImages]
    until: float
    compared_sequence: int
    sequence: int | None = None

    @property
    def name(self) -> Name:
        """Database and table."""
        return self.comparison.name


def verify_tables(
    lake: Lakehouse, feed: Feed, settings: SourceComparison, names: Sequence[Name], log: Logger
) -> Iterator[tuple[Name, Outcome]]:
    """Compare histories with the source, each as of its final position, and yield each outcome as soon as it is known.

    A table that cannot be compared does not stop the others.

    Args:
        lake: the feed's tables.
        feed: the feed's settings.
        settings: the source, and how long to wait for the histories.
        names: database and table of each history.
        log: shows the progress.
    """
    waiting: list[_Waiting] = []
    for name in names:
        outcome = _attempt(name, log, partial(_compare, lake, feed, settings, name))
        if isinstance(outcome, _Waiting):
            log.info(
                f"{'.'.join(name)}: {len(outcome.images)} rows differ from the source as it is now; waiting at most "
                f"{settings.settle_minutes} minutes until the history shows them as they were read"
            )
            waiting.append(outcome)
        else:
            yield name, outcome
    for table, failure in _wait(lake, waiting, log):
        conclude = partial(_conclude, lake, feed, settings, table)
        yield table.name, _attempt(table.name, log, conclude) if failure is None else failure


def _attempt(name: Name, log: Logger, action: Callable[[], T]) -> T | NotCompared:
    """Return the result of an action on a table, or why it failed, so that the other tables go on."""
    try:
        return action()
    except ColumnsChangedError:
        return NotCompared(
            Grade.WARNING,
            "The table was not compared: its columns changed while it was compared. The next run of the job compares it.",
        )
    except SourceError as error:
        reason = str(error)
    except Exception as error:
        log.exception(f"{'.'.join(name)}: the comparison with the source failed")
        reason = first_line(error)
    return NotCompared(Grade.ERROR, f"The table was not compared: {reason.rstrip('.')}. {_ADVICE}")


def _compare(lake: Lakehouse, feed: Feed, settings: SourceComparison, name: Name) -> Outcome | _Waiting:
    """Compare one history with the source, once."""
    holds = [hold for hold in list_holds(lake) if (hold.database, hold.table) == name]
    if holds:
        return NotCompared(Grade.WARNING, f"The table was not compared: {describe_hold(holds[0], lake.feed)}.")
    history, final = lake.history(*name), find_final_position(lake, *name)
    cursor = history.cursor()
    if cursor is None or final.position < 0:
        return NotCompared(Grade.WARNING, f"The table was not compared, as it has no final position: {final.reason}.")
    with open_snapshot(settings.jdbc, final.position) as snapshot:
        try:
            comparison = compare_rows(lake, name, snapshot, final.position, MOST_EXAMINED)
        except MissingTableError:
            if count_rows(history, engine_for(lake.session, history), final.position):
                raise
            return NotCompared(
                Grade.PASSED, "The source has no such table, and the history has no row at its position."
            )
        images = comparison.images
        if comparison.is_at_position or not images:
            return replace(
                comparison.verification,
                samples=read_samples(lake, feed, comparison, snapshot, images, DEFAULT_SAMPLES),
            )
    until = time.monotonic() + settings.settle_minutes * 60
    return _Waiting(comparison, dict(images), until, cursor.sequence)


def _wait(lake: Lakehouse, waiting: list[_Waiting], log: Logger) -> Iterator[tuple[_Waiting, NotCompared | None]]:
    """Yield each table when its history has held all its rows or its time is over, or with why that is not known."""
    logged = time.monotonic()
    while waiting:
        began = time.monotonic()
        for table in list(waiting):
            is_over = time.monotonic() >= table.until  # before the last look, so that the history has had all the time
            failure = _attempt(table.name, log, partial(_look_for_rows, lake, table, log))
            if failure or is_over or not table.images:
                waiting.remove(table)
                yield table, failure
        if waiting:
            if began - logged >= _LOG_SECONDS:
                logged = began
                rows = sum(len(table.images) for table in waiting)
                minutes = (max(table.until for table in waiting) - began) / 60
                log.info(f"waiting for {rows} rows of {len(waiting)} tables, for {minutes:.0f} more minutes at most")
            time.sleep(max(_POLL_SECONDS, time.monotonic() - began))


def _look_for_rows(lake: Lakehouse, table: _Waiting, log: Logger) -> None:
    """Remove the rows from `images` that the history has held since, if a run has changed the history."""
    cursor = lake.history(*table.name).cursor()
    sequence = cursor.sequence if cursor else -1
    if sequence == table.sequence:
        return
    table.sequence = sequence
    for row_id in _find_rows_held_later(lake, table.comparison, table.images):
        del table.images[row_id]
    log.info(f"{'.'.join(table.name)}: {len(table.images)} rows are not in the history yet as the source had them")


def _find_rows_held_later(lake: Lakehouse, comparison: Comparison, images: Mapping[bytes, RowImages]) -> set[bytes]:
    """Return the ids of the rows that the history, as it is now, holds at the position or later as the source had them.

    Args:
        lake: the feed's tables.
        comparison: in which the rows differ.
        images: row id -> what both sides held of the row.
    """
    versions: dict[bytes, list[RowVersion]] = {row_id: [] for row_id in images}
    for version in comparison.history_side(lake).read_versions(images):
        versions[version.row_id].append(version)
    position, has_key = comparison.verification.position, bool(comparison.digests.key)
    return {
        row_id for row_id, row in images.items() if holds_image(versions[row_id], position, row.source, has_key=has_key)
    }


def holds_image(versions: Sequence[RowVersion], position: int, image: Image, *, has_key: bool) -> bool:
    """Return whether the versions of a row hold an image at a position or later.

    Args:
        versions: those that are valid at the position or later, or begin there.
        position: a commit_ts.
        image: what the source had of the row; empty: nothing.
        has_key: whether the table has a key, so that only one version of a row is valid at a time.
    """
    # A clock that has whole seconds gives a version no time if the row changes again within the second.
    if has_key and any(version.from_ts == version.to_ts and image == {version.digest: 1} for version in versions):
        return True
    changes: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int), {position: defaultdict(int)})
    for version in versions:
        changes[max(version.from_ts, position)][version.digest] += 1
        if version.to_ts is not None:
            changes[max(version.to_ts, position)][version.digest] -= 1
    held: dict[int, int] = {}
    for commit_ts in sorted(changes):
        for digest, change in changes[commit_ts].items():
            held[digest] = held.get(digest, 0) + change
        held = {digest: count for digest, count in held.items() if count}
        if held == image:
            return True
    return False


def _conclude(lake: Lakehouse, feed: Feed, settings: SourceComparison, table: _Waiting) -> Verification:
    """Read the rows that the history never held from the source again: those that are as they were differ indeed."""
    comparison, verification = table.comparison, table.comparison.verification
    examined = comparison.images
    real: dict[bytes, RowImages] = {}
    samples = []
    if table.images:
        with open_snapshot(settings.jdbc, verification.position) as snapshot:
            images = read_source_images(comparison.source_side(snapshot), list(table.images))
            real = {row_id: row for row_id, row in table.images.items() if images.get(row_id, {}) == row.source}
            samples = read_samples(lake, feed, comparison, snapshot, real, DEFAULT_SAMPLES)
    counts = count_by_kind(real.values())
    is_unchanged = table.sequence == table.compared_sequence
    return replace(
        verification,
        counts=counts,
        samples=samples,
        caveats=[
            *verification.caveats,
            _READ_AS_IT_IS_NOW,
            *([_HISTORY_UNCHANGED] if table.images and is_unchanged else []),
        ],
        later=_count_rows(examined) - _count_rows(table.images),
        unsettled=_count_rows(table.images) - sum(counts.values()),
        not_examined=sum(verification.counts.values()) - _count_rows(examined),
    )


def _count_rows(images: Mapping[bytes, RowImages]) -> int:
    return sum(row.rows for row in images.values())
