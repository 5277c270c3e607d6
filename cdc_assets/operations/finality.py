"""Final positions: up to which commit_ts a history table can no longer change. Nothing here needs a JVM.

(A history whose types were widened is read by Spark.)
"""

from dataclasses import dataclass

from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.query import Arrow, engine_for
from cdc_assets.lakehouse.released_changes import ReleaseCursor, ReleasedKind
from cdc_assets.stages.history.progress_file import list_holds, read_progress
from cdc_assets.tso import time_text


@dataclass(frozen=True)
class FinalPosition:
    """Up to which position a history table can no longer change.

    Attributes:
        position: the highest final commit_ts; -1: no position is final.
        reason: what bounds it, a phrase. In a feed without watermarks the position is the table's newest commit_ts, and a
            partition that is behind may still bring a change below it.
    """

    position: int
    reason: str


def find_final_position(lake: Lakehouse, database: str, table: str) -> FinalPosition:
    """Return a history table's final position: the lowest bound that watermark, holds and unapplied changes set."""
    released, history = lake.released_changes.cursor(), lake.history(database, table).cursor()
    if released is None or history is None:
        return FinalPosition(-1, "the table has no released change in its history yet")
    # Of equal positions the first explains most: a hold needs a person.
    bounds = [
        FinalPosition(hold.since - 1, f"the table is blocked from commit_ts {hold.since} on, reason {hold.reason}")
        for hold in list_holds(lake)
        if (hold.database, hold.table) == (database, table)
    ]
    if has_shown_watermark(released):
        bounds.append(_bound_by_watermark(lake, released, database, table))
    else:
        bounds.append(FinalPosition(history.newest, "newest commit_ts of the table, as the feed has no watermarks"))
    unapplied = _find_lowest_unapplied(lake, released, database, table)
    if unapplied is not None:
        reason = f"the next run applies the table's released changes from commit_ts {unapplied} on"
        bounds.append(FinalPosition(unapplied - 1, reason))
    return min(bounds, key=lambda bound: bound.position)


def describe_position_not_final(lake: Lakehouse, database: str, table: str, position: int) -> list[str]:
    """Return one sentence if `position` is above a history table's final position, else nothing."""
    final = find_final_position(lake, database, table)
    if position <= final.position:
        return []
    return [f"Position {position} is not final yet: the table is {describe_final_position(final)}."]


def describe_final_position(final: FinalPosition) -> str:
    """Return up to where a table is final and what bounds it, as the end of a sentence."""
    until = f"{final.position}, {time_text(final.position)}" if final.position >= 0 else "no position"
    return f"final up to {until} ({final.reason})"


def has_shown_watermark(released: ReleaseCursor) -> bool:
    """Return whether any partition of the feed has shown a watermark."""
    return any(mark is not None for marks in released.partition_watermarks.values() for mark in marks.values())


def find_applied_release(lake: Lakehouse, database: str, table: str) -> int:
    """Return the newest release whose changes the history table has completely."""
    history, progress = lake.history(database, table).cursor(), read_progress(lake)
    applied = history.release if history else 0
    if progress is None or (database, table) in progress.behind:
        return applied
    return max(applied, progress.release)


def _bound_by_watermark(lake: Lakehouse, released: ReleaseCursor, database: str, table: str) -> FinalPosition:
    """Return the bound of the lowest released watermark among the topics that the table's versions came from."""
    topics = list(released.partition_watermarks)
    if len(topics) > 1:
        history = lake.history(database, table)
        rows = engine_for(lake.session, history).fetch("SELECT DISTINCT _cdc_topic FROM h", {"h": history})
        topics = [topic for topic in rows["_cdc_topic"].to_pylist() if topic != LOAD_TOPIC] or topics
    mark, topic = min((released.watermarks.get(topic, 0), topic) for topic in topics)
    return FinalPosition(mark - 1, f"watermark of topic {topic}" if mark else f"topic {topic} has no watermark yet")


def _find_lowest_unapplied(lake: Lakehouse, released: ReleaseCursor, database: str, table: str) -> int | None:
    """Return the lowest commit_ts of a released change or statement that the history may lack; None: it lacks none."""
    applied = find_applied_release(lake, database, table)
    if applied >= released.sequence:
        return None
    engine = Arrow()
    # A statement can also change other tables than the one that its message names.
    sql = (
        f"SELECT min(commit_ts) AS lowest FROM r WHERE release > {applied} AND (kind = '{ReleasedKind.DDL}' OR "
        f"kind IN ('{ReleasedKind.ROW}', '{ReleasedKind.LOADED}') AND database = {engine.text(database)} "
        f"AND {engine.name('table')} = {engine.text(table)})"
    )
    lowest: int | None = engine.run(sql, {"r": lake.released_changes})["lowest"][0].as_py()
    return lowest
