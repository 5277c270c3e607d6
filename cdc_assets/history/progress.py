"""How far the histories of a feed have come, and which could not be written."""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cdc_assets.config import Feed
from cdc_assets.lakehouse.released_changes import Hold, HoldReason
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

    release: int
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
