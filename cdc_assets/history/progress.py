"""How far the histories of a feed have come, and which could not be written: one small file, which saves a look at each.

Each table's own cursor states how far its history has come. So a missing or damaged file is made again from the cursors,
and a file that is behind the cursors costs only an unnecessary look at a table. Failures are in this file only: without it,
a run tries the failed tables again.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta

from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import Hold, HoldReason
from cdc_assets.stores.storage import make_folder
from cdc_assets.version import code_version

Name = tuple[str, str]  # database, table

# A run tries a blocked table again after the time for which the table has been failing, within these limits.
SHORTEST_WAIT, LONGEST_WAIT = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, order=True)
class FailedTable:
    """A table that the last run which tried could not write.

    Attributes:
        database: the table's database.
        table: the table's name.
        release: the release up to which the run tried to bring the history.
        since: the lowest commit_ts of the changes and statements that the history lacks.
        events: how many row events the history lacks.
        error: type and first line of the error.
        settings: `hash_settings` of the feed at that try.
        version: `code_version` at that try.
        failing_since: time of the first failing try since the table was last written, as ISO text.
        tried_at: time of the last try, as ISO text.
        is_blocked: whether the table has failed twice in a row: it then waits, and no longer fails runs.
    """

    database: str
    table: str
    release: int
    since: int
    events: int
    error: str
    settings: str
    version: str
    failing_since: str
    tried_at: str
    is_blocked: bool = False

    @property
    def name(self) -> Name:
        """Database and table."""
        return self.database, self.table

    def is_due(self, feed: Feed, now: datetime) -> bool:
        """Return whether the next run tries the table again, even if no change of the table was released."""
        if not self.is_blocked or not self.is_same_try(hash_settings(feed), code_version()):
            return True
        tried_at = datetime.fromisoformat(self.tried_at)
        failing_time = tried_at - datetime.fromisoformat(self.failing_since)
        return now - tried_at >= min(max(failing_time, SHORTEST_WAIT), LONGEST_WAIT)

    def is_same_try(self, settings: str, version: str) -> bool:
        """Return whether the last try was made with these settings and this version."""
        return (self.settings, self.version) == (settings, version)

    @property
    def hold(self) -> Hold:
        """The table's entry in the list of holds."""
        first = {"why": self.error, "failing_since": self.failing_since, "tried_at": self.tried_at}
        return Hold(*self.name, self.since, HoldReason.WRITE, self.events, first)


@dataclass(frozen=True)
class Progress:
    """How far the histories of a feed have come.

    Attributes:
        release: the release up to which every table is applied, except the tables `behind`.
        behind: the tables whose histories lack changes of these releases.
        failed: those of the tables `behind` that could not be written.
    """

    release: int = 0
    behind: frozenset[Name] = field(default_factory=frozenset)
    failed: tuple[FailedTable, ...] = ()

    @property
    def holds(self) -> list[Hold]:
        """The holds of the blocked tables."""
        return [each.hold for each in self.failed if each.is_blocked]


def hash_settings(feed: Feed) -> str:
    """Return a digest of a feed's settings."""
    # Pydantic warns that default values are serialised as the models state them, which is intended here.
    return hashlib.sha256(feed.model_dump_json(warnings=False).encode()).hexdigest()[:16]


def now_text() -> str:
    """Return the current time as ISO text."""
    return datetime.now(UTC).isoformat(timespec="seconds")


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
    progress, names = read_progress(lake) or Progress(), set(tables)
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
            content = json.loads(stream.read())
        failed = tuple(FailedTable(**each) for each in content["failed"])
        return Progress(int(content["release"]), frozenset((str(d), str(t)) for d, t in content["behind"]), failed)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_progress(lake: Lakehouse, progress: Progress) -> None:
    """Write the file for the next run."""
    files, path = lake.store.files(_uri(lake))
    make_folder(files, path.rpartition("/")[0])
    failed = [asdict(each) for each in sorted(progress.failed)]
    text = json.dumps({"release": progress.release, "behind": sorted(progress.behind), "failed": failed})
    with files.open_output_stream(path) as stream:
        stream.write(text.encode())


def _uri(lake: Lakehouse) -> str:
    return lake.place("history_progress", f"{lake.feed}.json")
