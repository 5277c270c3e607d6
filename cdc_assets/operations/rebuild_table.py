"""Rebuild of one table: derives its history again from released_changes, and replaces it in one Delta commit.

The stage history builds the new history in a folder beside the existing one. No other table of the feed changes. If a
rebuild dies, the table has either the existing history or the new one, and the next rebuild starts again.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from cdc_assets.config import Feed
from cdc_assets.errors import OperationError, first_line
from cdc_assets.history.completeness import NEVER
from cdc_assets.history.progress import Name
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import HoldReason, ReleaseCursor
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.operations.diff import VersionDifference, compare_versions
from cdc_assets.operations.new_tables import (
    NewTables,
    ReplacedTable,
    delete_new_tables,
    overwrite_history,
)
from cdc_assets.stages import HISTORY
from cdc_assets.stages.history.progress_file import list_holds


@dataclass(frozen=True)
class _NewHistories(NewTables):
    """The new history of one table and of the tables that a RENAME links to it, derived from the feed's released changes.

    Attributes:
        name: database and table.
    """

    name: Name = field(kw_only=True)

    own_tables = NewTables.own_tables | {"table_schemas"}

    @cached_property
    def released_changes(self) -> LakeTable[ReleaseCursor]:
        """The feed's own released changes, at one version."""
        return self.of.released_changes.at_current_version()

    def released_tables(self) -> set[Name]:
        """Return the one table; the stage history adds those that a RENAME links to it."""
        return {self.name}


def compare_table_with_rebuild(lake: Lakehouse, feed: Feed, name: Name, start: int | None = None) -> VersionDifference:
    """Return how a rebuild of one table would change its history, and change nothing.

    Args:
        lake: the feed's tables.
        feed: the feed.
        name: database and table; the history must exist.
        start: the commit_ts from which on the history may change; None: all of it may change.

    Raises:
        OperationError: the history cannot be derived from what the feed has, or it would also change below `start`.
    """
    with _derive_history(lake, feed, name) as new:
        return _compare_histories(lake, new, start)


def rebuild_table(
    lake: Lakehouse,
    feed: Feed,
    name: Name,
    start: int | None = None,
    on_difference: Callable[[VersionDifference], object] = lambda _: None,
) -> ReplacedTable | None:
    """Derive one history again from released_changes, and replace it in one commit if it differs. Change no other table.

    Args:
        lake: the feed's tables.
        feed: the feed.
        name: database and table; the history must exist.
        start: the commit_ts from which on the history may change; None: all of it may change.
        on_difference: is called with the difference before the history is replaced.

    Returns:
        The replaced table; None if the history was equal, so that nothing was written.

    Raises:
        OperationError: the history cannot be derived from what the feed has, or it would also change below `start`.
        ConcurrentRunError: a run committed to the history in the meantime: rebuild again.
    """
    history = lake.history(*name)
    # Read the cursor before the history is derived, so that a commit of another run in the meantime is not overwritten.
    before = history.cursor() or HistoryCursor(sequence=0)
    with _derive_history(lake, feed, name) as new:
        difference = _compare_histories(lake, new, start)
        on_difference(difference)
        if difference.is_equal:
            return None
        new_history = new.history(*name)
        derived = new_history.cursor() or HistoryCursor(sequence=0)
        cursor = replace(derived, sequence=before.sequence + 1)
        if cursor.complete == NEVER:
            # The proof may have been in a commit of released_changes that Delta has removed from its log.
            cursor = replace(cursor, complete=before.complete, met=before.met)
        return overwrite_history(lake.spark.newSession(), history, new_history, cursor)


def format_outcome(replaced: ReplacedTable | None) -> str:
    """Return the result of `rebuild_table` as a line of text."""
    return f"{replaced.table}: replaced, {replaced.rows} versions" if replaced else "Nothing was written."


@contextmanager
def _derive_history(lake: Lakehouse, feed: Feed, name: Name) -> Iterator[_NewHistories]:
    """Derive the history of one table in a folder of its own, which is deleted at the end.

    Raises:
        OperationError: the history cannot be derived from what the feed has.
    """
    _check_rebuildable(lake, name)
    place = lake.place("rebuilding", lake.feed, f"table-{uuid.uuid4().hex}")
    new = _NewHistories(lake.session, place, lake.feed, lake.store, of=lake, name=name)
    try:
        for failure in HISTORY.run(new, feed).failures:
            raise OperationError(
                f"{'.'.join(failure.name)}: the history cannot be derived: {first_line(failure.error)}. Nothing was "
                "written: mend the cause, then rebuild again."
            ) from failure.error
        if not new.history(*name).exists():
            raise OperationError(
                f"{'.'.join(name)}: no history can be derived, because the feed's settings leave the table out, or "
                f"{lake.released_changes.name} has no change of it. Nothing was written: check the feed's "
                "setting tables."
            )
        yield new
    finally:
        delete_new_tables(new)


def _check_rebuildable(lake: Lakehouse, name: Name) -> None:
    """Check that one history can be derived from released_changes, and has all of them.

    Raises:
        OperationError: the feed is being rebuilt, released changes are deleted, or the table waits for something.
    """
    table, raw, released = ".".join(name), lake.raw_records.cursor(), lake.released_changes.cursor()
    if released is None:
        raise OperationError(f"{lake.released_changes.name} has no changes yet: run the feed's pipeline instead.")
    if raw is not None and raw.rebuilding:
        raise OperationError(
            f"{lake.raw_records.name}: this feed is being rebuilt. Wait until the job rebuild has ended; if it died, run "
            "it again."
        )
    if released.trimmed.release:
        raise OperationError(
            f"{lake.released_changes.name}: maintenance has deleted the changes up to release {released.trimmed.release}, "
            f"so the history of {table} cannot be derived from them. Run the job rebuild for the feed, which needs all raw "
            "records; if these are deleted too, keep the existing history."
        )
    for hold in list_holds(lake):
        if (hold.database, hold.table) == name:
            command = "retry" if hold.reason == HoldReason.WRITE else "holds"
            raise OperationError(
                f"{table}: the table is blocked from commit_ts {hold.since} on, reason {hold.reason}. Make it go on (see "
                f"cdc-assets {command} {lake.feed}), run the feed's pipeline, then rebuild again."
            )
    if name in HISTORY.behind(lake):
        raise OperationError(
            f"{table}: the history may lack released changes: run the feed's pipeline, then rebuild again."
        )


def _compare_histories(lake: Lakehouse, new: _NewHistories, start: int | None) -> VersionDifference:
    """Return how the new history differs from the existing one.

    Raises:
        OperationError: they differ below `start`.
    """
    difference = compare_versions(lake, new, *new.name)
    earliest = difference.earliest
    if start is not None and earliest is not None and earliest < start:
        raise OperationError(
            f"{difference.table}: the history would also change below commit_ts {start}, from {earliest} on. Nothing was "
            f"written: give a position up to {earliest}, or none."
        )
    return difference
