"""The rule of `cdc_assets.release.deduplication` for the changes of one key, as plain Python: docs/protocols.md shows it."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Change:
    """A change of one row, in the order of the source.

    Attributes:
        time: the time of the source's clock.
        before: the row before the change; None: there was none.
        after: the row after the change; None: there is none.
        place: the binlog position, if the source states one; several changes of one transaction may have one.
        message: the number of the record.
    """

    time: int
    before: Any
    after: Any
    place: Any = None
    message: int = field(default=-1, compare=False)


@dataclass
class Key:
    """The state of a key: the changes that were applied, and whether its source is repeating changes."""

    applied: list[Change] = field(default_factory=list)
    in_replay: bool = False

    def follow(self, change: Change) -> bool:
        """Apply a change unless it is a duplicate; return whether it was applied."""
        state = self.applied[-1].after if self.applied else None
        newest = max((c.time for c in self.applied), default=None)
        same = [c for c in self.applied if c == change]
        is_one_of_several = any(c.place == change.place and c != change for c in self.applied)
        continues = not self.in_replay and change.before == state and change.time == newest
        of_one_message = any(c.message == change.message for c in same[-1:])
        if same and not of_one_message and ((change.place is not None and not is_one_of_several) or not continues):
            self.in_replay = change != self.applied[-1]
            return False
        self.applied.append(change)
        self.in_replay = False
        return True

    def positions(self) -> list[int]:
        """Return the commit_ts of the changes, which never falls."""
        return [max(c.time for c in self.applied[: n + 1]) for n in range(len(self.applied))]
