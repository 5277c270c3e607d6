"""How far the histories of a feed are, and which could not be written: one small file, so that a run need not ask each.

How far a table is, its own cursor says: a file that is missing or damaged is made again of the cursors, and one that is
behind them costs a look at a table for nothing. A failure is known by the file alone: without it the table is tried again.
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

# A blocked table is tried again after as long as it has been failing, but neither sooner nor later than this.
SHORTEST_WAIT, LONGEST_WAIT = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, order=True)
class FailedTable:
    """A table that could not be written by the last run that tried.

    Attributes:
        database: of the table.
        table: its name.
        release: up to which its history was to be brought.
        since: the lowest commit_ts of what its history lacks.
        events: the row events that its history lacks.
        error: type and first line of the error.
        settings: `settings_of` the feed at that try.
        version: `code_version` at that try.
        failing_since: the first failing try since the table was last written, as ISO text.
        tried_at: the last try, as ISO text.
        is_blocked: whether it has failed twice in a row, so that the table waits and fails no run any more.
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
        """Return whether the table is to be tried again though no change of it was released."""
        if not self.is_blocked or not self.is_same_try(settings_of(feed), code_version()):
            return True
        tried = datetime.fromisoformat(self.tried_at)
        failing = tried - datetime.fromisoformat(self.failing_since)
        return now - tried >= min(max(failing, SHORTEST_WAIT), LONGEST_WAIT)

    def is_same_try(self, settings: str, version: str) -> bool:
        """Return whether the last try had these settings and this version."""
        return (self.settings, self.version) == (settings, version)

    @property
    def hold(self) -> Hold:
        """The entry of the hold list."""
        first = {"why": self.error, "failing_since": self.failing_since, "tried_at": self.tried_at}
        return Hold(*self.name, self.since, HoldReason.WRITE, self.events, first)


@dataclass(frozen=True)
class Progress:
    """Every table has all releases up to `release`, but for those `behind`; `failed`: those of them that failed."""

    release: int = 0
    behind: frozenset[Name] = field(default_factory=frozenset)
    failed: tuple[FailedTable, ...] = ()

    @property
    def holds(self) -> list[Hold]:
        """The holds of the blocked tables."""
        return [each.hold for each in self.failed if each.is_blocked]


def settings_of(feed: Feed) -> str:
    """Return a digest of a feed's settings."""
    # Defaults are as they are written, which Pydantic warns of.
    return hashlib.sha256(feed.model_dump_json(warnings=False).encode()).hexdigest()[:16]


def now_text() -> str:
    """Return the time of now as ISO text."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def blocked_tables(lake: Lakehouse) -> dict[Name, Hold]:
    """Return the holds of the tables that could not be written, by table."""
    progress = read_progress(lake)
    return {(hold.database, hold.table): hold for hold in progress.holds} if progress else {}


def holds_of(lake: Lakehouse) -> list[Hold]:
    """Return all holds of a feed: those of the gate, then those of the tables that could not be written."""
    released = lake.released_changes.cursor()
    return [*(released.holds if released else ()), *blocked_tables(lake).values()]


def retry(lake: Lakehouse, tables: Iterable[Name]) -> list[Name]:
    """Have the next run try blocked tables again; one of them that fails then is blocked again.

    Returns:
        Those of the tables that are blocked.
    """
    progress, wanted = read_progress(lake) or Progress(), set(tables)
    chosen = [each for each in progress.failed if each.is_blocked and each.name in wanted]
    if chosen:
        # No version of the package has an empty name, so the tables are due, and still blocked.
        failed = tuple(replace(each, version="") if each in chosen else each for each in progress.failed)
        write_progress(lake, replace(progress, failed=failed))
    return [each.name for each in chosen]


def read_progress(lake: Lakehouse) -> Progress | None:
    """Return what the file says; None where there is none that can be used."""
    files, path = lake.store.files(_uri(lake))
    try:
        with files.open_input_stream(path) as stream:
            said = json.loads(stream.read())
        failed = tuple(FailedTable(**each) for each in said["failed"])
        return Progress(int(said["release"]), frozenset((str(d), str(t)) for d, t in said["behind"]), failed)
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
