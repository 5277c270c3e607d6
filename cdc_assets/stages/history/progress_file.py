"""Keep in one small file how far the histories of a feed have come, and which tables could not be written.

Each table's own cursor states how far its history has come; the file saves reading all cursors. So a missing or
damaged file is made again from the cursors, and a file that is behind the cursors costs only an unnecessary read of
a table. Failures are in this file only: without it, a run tries the failed tables again.
"""

from collections.abc import Iterable
from dataclasses import replace

from pydantic import TypeAdapter

from cdc_assets.history.progress import Name, Progress
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import Hold
from cdc_assets.stores.storage import make_folder

_FORMAT = TypeAdapter(Progress)


def blocked_tables(lake: Lakehouse) -> dict[Name, Hold]:
    """Return the holds of the tables that could not be written, by table."""
    progress = read_progress(lake)
    return {(hold.database, hold.table): hold for hold in progress.holds} if progress else {}


def list_holds(lake: Lakehouse) -> list[Hold]:
    """Return all holds of a feed: first those of the gate, then those of the tables that could not be written."""
    released = lake.released_changes.cursor()
    return [*(released.holds if released else ()), *blocked_tables(lake).values()]


def retry_tables(lake: Lakehouse, tables: Iterable[Name]) -> list[Name]:
    """Make the next run try the blocked ones of `tables` again; a table that fails then is blocked again.

    Returns:
        The blocked ones of `tables`.
    """
    progress, names = read_progress(lake) or Progress(0), set(tables)
    chosen = [each for each in progress.failed if each.is_blocked and each.name in names]
    if chosen:
        # No version of the package has an empty name, so the tables become due and stay blocked.
        failed = tuple(replace(each, version="") if each in chosen else each for each in progress.failed)
        write_progress(lake, replace(progress, failed=failed))
    return [each.name for each in chosen]


def read_progress(lake: Lakehouse) -> Progress | None:
    """Return the content of the file; None if the file is missing or damaged."""
    files, path = lake.store.files(_uri(lake))
    try:
        with files.open_input_stream(path) as stream:
            return _FORMAT.validate_json(stream.read())
    except (OSError, ValueError):
        return None


def write_progress(lake: Lakehouse, progress: Progress) -> None:
    """Write the file for the next run."""
    files, path = lake.store.files(_uri(lake))
    make_folder(files, path.rpartition("/")[0])
    with files.open_output_stream(path) as stream:
        stream.write(_FORMAT.dump_json(progress))


def _uri(lake: Lakehouse) -> str:
    return lake.place("history_progress", f"{lake.feed}.json")
