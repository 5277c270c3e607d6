"""How far a history table is final: up to which position nothing of it will change any more. Without Spark."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.history.progress import holds_of, read_progress
from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.query import engine_for
from cdc_assets.lakehouse.released_changes import Hold, ReleaseCursor, ReleasedKind
from cdc_assets.tso import time_text


@dataclass(frozen=True)
class Final:
    """How far a table is final.

    Attributes:
        position: the last commit_ts up to which its rows, and those that it held, stay as they are; -1: there is none.
        reason: what it ends at. Without a watermark it is the newest commit_ts that the table has, and what is behind in
            another partition may still come below it.
    """

    position: int
    reason: str


def final(lake: Lakehouse, database: str, table: str) -> Final:
    """How far a history table is final: by its topic's watermark, its hold, and what it has of the releases."""
    released, history = lake.released_changes.cursor(), lake.history(database, table).cursor()
    if released is None or history is None:
        return Final(-1, "nothing was released")
    has_watermarks = has_shown(released)
    ends = [_by_watermark(lake, released, database, table)] if has_watermarks else []
    ends += [
        (hold.since - 1, f"it is held from commit_ts {hold.since} on: {hold.reason}")
        for hold in holds_of(lake)
        if (hold.database, hold.table) == (database, table)
    ]
    behind = _behind(lake, released, database, table)
    if behind is not None:
        ends.append((behind - 1, f"its history waits for the next run from commit_ts {behind} on"))
    if not has_watermarks:
        ends.append((history.newest, "the newest commit_ts that it has; there are no watermarks"))
    position, reason = min(ends)
    return Final(position, reason)


def has_shown(released: ReleaseCursor) -> bool:
    """Whether there have been watermarks."""
    return any(mark is not None for marks in released.partition_watermarks.values() for mark in marks.values())


def hold_of(released: ReleaseCursor, database: str, table: str) -> Hold | None:
    """What holds a table at the gate."""
    return next((h for h in released.holds if (h.database, h.table) == (database, table)), None)


def _by_watermark(lake: Lakehouse, released: ReleaseCursor, database: str, table: str) -> tuple[int, str]:
    topics = list(released.partition_watermarks)
    if len(topics) > 1:
        history = lake.history(database, table)
        found = engine_for(lake.session, history).fetch("SELECT DISTINCT _cdc_topic FROM h", {"h": history})
        topics = [t for t in found["_cdc_topic"].to_pylist() if t != LOAD_TOPIC] or topics
    mark, topic = min((released.watermarks.get(t, 0), t) for t in topics)
    said = f"{mark} ({time_text(mark)})" if mark else "not there yet"
    return mark - 1, f"the watermark of topic {topic} is {said}"


def applied_release(lake: Lakehouse, database: str, table: str) -> int:
    """Up to which release the history has all of its changes."""
    history, progress = lake.history(database, table).cursor(), read_progress(lake)
    applied = history.release if history else 0
    if progress is None or (database, table) in progress.behind:
        return applied
    return max(applied, progress.release)


def _behind(lake: Lakehouse, released: ReleaseCursor, database: str, table: str) -> int | None:
    """The lowest commit_ts of a released change, or a statement, that the history may not have; None: it has all."""
    applied = applied_release(lake, database, table)
    files = [f for f in lake.released_changes.files() if f.high.get("release", 0) > applied]
    if applied >= released.sequence or not files:
        return None
    rows = lake.released_changes.fetch(files, "kind", "release", "commit_ts", "database", "table")
    mine = pc.and_(pc.equal(rows["database"], database), pc.equal(rows["table"], table))
    # A statement may lead to other tables than the one that it is sent for.
    wanted = pc.or_(mine, pc.equal(rows["kind"], str(ReleasedKind.DDL)))
    beside = pc.is_in(rows["kind"], pa.array([str(ReleasedKind.LAYOUT), str(ReleasedKind.REPEAT)]))
    new = pc.and_(pc.greater(rows["release"], applied), pc.invert(beside))
    lowest: int | None = pc.min(rows.filter(pc.and_(wanted, new))["commit_ts"]).as_py()
    return lowest
