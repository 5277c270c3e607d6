"""The stage released_changes: the gate. Events below the watermark, each change once, in one commit with the watermark."""

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.feeds import Feed, split_pattern
from cdc_assets.gate.changes import net, pieces
from cdc_assets.gate.watermarks import PartitionWatermarks, Watermarks, advance, merge, topic_watermarks, windows
from cdc_assets.lakehouse import Cursor, Lakehouse, LakeTable, next_sequence
from cdc_assets.protocols.events import Kind
from cdc_assets.schema import BIGINT, INT, STRING, array, struct

# `release` numbers the commits; `key` is the JSON array of the key's values, or the row itself in a table without a key;
# `events` says how many row events the change stands for (2: a delete and an insert at one commit_ts), `repeats` how many
# copies of them were dropped.
SCHEMA = struct(
    release=BIGINT,
    commit_ts=BIGINT,
    kind=STRING,
    op=STRING,
    database=STRING,
    table=STRING,
    topic=STRING,
    partition=INT,
    offset=BIGINT,
    index=INT,
    key=STRING,
    key_columns=array(STRING),
    events=INT,
    repeats=BIGINT,
    before=STRING,
    after=STRING,
    mysql_types=STRING,
    jdbc_types=STRING,
    ddl_type=STRING,
    ddl_statement=STRING,
    source_ms=BIGINT,
    schema_version=BIGINT,
    table_id=BIGINT,
    source=struct(server_id=BIGINT, file=STRING, position=BIGINT, row=INT, gtid=STRING),
)

LATE_SAMPLE = 50

_NEW_CURSOR: Cursor = {
    "sequence": 0,
    "batch": 0,
    "partition_watermarks": {},
    "watermarks": {},
    "tables": [],
    "pending": 0,
    "totals": {},
}


@dataclass(frozen=True)
class ReleaseReport:
    """What one run of the stage did. The counts are of row events, `total` since the feed began."""

    release: int | None = None  # None: there was nothing to look at
    rows: int = 0  # row events that were new to the gate
    window: int = 0  # row events in the release window, as counted before their release
    released: int = 0
    duplicate: int = 0
    late_repeated: int = 0  # below the released watermark, and released before: harmless
    late_unseen: int = 0  # below the released watermark, and never seen: the source broke its promise
    excluded: int = 0  # of tables that the feeds file leaves out
    pending: int = 0  # at or above the watermark, as it stands after this run
    pending_before: int = 0
    ddl: int = 0
    watermarks: Watermarks = field(default_factory=dict)
    watermarks_before: Watermarks = field(default_factory=dict)
    partition_watermarks: PartitionWatermarks = field(default_factory=dict)
    late_sample: list[dict[str, Any]] = field(default_factory=list)
    total: dict[str, int] = field(default_factory=dict)


def release(lake: Lakehouse, feed: Feed) -> ReleaseReport:
    """Look at the new change events, advance the watermarks, and release what lies below them.

    The window is [previous watermark, watermark) by commit_ts over change_events; what is above stays there, pending.
    One commit, whose cursor holds the watermarks that events are dropped by from then on; none without new events.

    Raises:
        ConcurrentRunError: another run released meanwhile.
    """
    events, table = lake.change_events, lake.released_changes
    table.create(SCHEMA)
    cursor = table.cursor() or _NEW_CURSOR
    through = (events.cursor() or {"batch": 0})["batch"]
    if through <= cursor["batch"]:
        return ReleaseReport(
            watermarks=cursor["watermarks"],
            watermarks_before=cursor["watermarks"],
            partition_watermarks=cursor["partition_watermarks"],
            pending=cursor["pending"],
            pending_before=cursor["pending"],
            total=cursor["totals"],
        )
    every = events.read()
    previous: Watermarks = cursor["watermarks"]
    new = every.where(F.col("batch") > cursor["batch"])
    arrived = _arrivals(new, previous)
    seen = merge(cursor["partition_watermarks"], arrived.watermarks)
    marks = advance(previous, topic_watermarks(seen, feed.source.partitions, feed.gate_scope))

    unseen, sample = _late(new.where(_late_row(previous)), table, lake) if arrived.late else (0, [])
    # Events above the window are pending, and counted with the window's: one look at the files that reach that far.
    ahead = every.where(_at_or_above(previous, seen))
    inside = _inside(previous, marks)
    taken = _taken(feed)
    counts = (
        ahead.where(F.col("kind").isin(str(Kind.ROW), str(Kind.DDL)))
        .groupBy("kind", "database", "table", inside.alias("inside"), taken.alias("taken"))
        .count()
        .collect()
    )
    rows = [r for r in counts if r["kind"] == Kind.ROW]
    in_window = sum(r["count"] for r in rows if r["inside"] and r["taken"])
    excluded = sum(r["count"] for r in rows if r["inside"] and not r["taken"])
    number = next_sequence(cursor)
    window = ahead.where(inside & taken)
    resolved = _resolve_keys(window.where(F.col("kind") == str(Kind.ROW)), lake)
    changes = net(pieces(resolved)).withColumn("kind", F.lit(str(Kind.ROW)))
    statements = _once(window.where(F.col("kind") == str(Kind.DDL)))
    has_ddl = any(r["kind"] == Kind.DDL and r["inside"] for r in counts)
    out = changes.unionByName(statements, allowMissingColumns=True) if has_ddl else changes
    touched = {(r["database"], r["table"]) for r in rows if r["inside"] and r["taken"]}
    tables = {(d, t): n for d, t, n in cursor["tables"]} | dict.fromkeys(touched, number)
    late = {"late_repeated": arrived.late - unseen, "late_unseen": unseen}
    pending = sum(r["count"] for r in rows if not r["inside"])
    advanced: Cursor = {
        "sequence": number,
        "batch": through,
        "partition_watermarks": seen,
        "watermarks": marks,
        "tables": sorted([d, t, n] for (d, t), n in tables.items()),
        "pending": pending,
        # A window's repeats and the changes released from it: known only when they are collapsed, as their sum here.
        "totals": _add(cursor["totals"], late | {"rows": arrived.rows, "excluded": excluded, "window": in_window}),
    }
    if not (in_window or has_ddl):
        out = out.limit(0)
    table.append(_shaped(out, number), advanced)
    released, duplicate, ddl = _counted(table, number)
    return ReleaseReport(
        release=number,
        rows=arrived.rows,
        window=in_window,
        released=released,
        duplicate=duplicate,
        excluded=excluded,
        pending=pending,
        pending_before=cursor["pending"],
        ddl=ddl,
        watermarks=marks,
        watermarks_before=previous,
        partition_watermarks=seen,
        late_sample=sample,
        total=advanced["totals"],
        **late,
    )


@dataclass(frozen=True)
class _Arrivals:
    rows: int
    late: int
    watermarks: PartitionWatermarks


def _arrivals(new: DataFrame, previous: Watermarks) -> _Arrivals:
    """Count the new row events and the late ones among them; the largest watermark that each partition shows."""
    row = F.col("kind") == str(Kind.ROW)
    found = (
        new.groupBy("topic", "partition")
        .agg(
            F.max(F.when(F.col("kind") == str(Kind.WATERMARK), F.col("commit_ts"))).alias("watermark"),
            F.count_if(row).alias("rows"),
            F.count_if(_late_row(previous)).alias("late"),
        )
        .collect()
    )
    watermarks: PartitionWatermarks = {}
    for r in found:
        watermarks.setdefault(r["topic"], {})[str(r["partition"])] = r["watermark"]
    return _Arrivals(sum(r["rows"] for r in found), sum(r["late"] for r in found), watermarks)


def _at_or_above(previous: Watermarks, topics: Iterable[str]) -> Column:
    """Whether an event is at or above the watermark that its topic has been released up to."""
    bounds = {topic: previous.get(topic, 0) for topic in topics}
    exact = [(F.col("topic") == topic) & (F.col("commit_ts") >= bound) for topic, bound in bounds.items()]
    # By the lowest bound, a literal, Delta skips whole files.
    return (F.col("commit_ts") >= min(bounds.values(), default=0)) & functools.reduce(operator.or_, exact)


def _late_row(previous: Watermarks) -> Column:
    """Whether an event is a row event below the watermark that its topic has been released up to."""
    each = [(F.col("topic") == topic) & (F.col("commit_ts") < bound) for topic, bound in previous.items()]
    return (F.col("kind") == str(Kind.ROW)) & functools.reduce(operator.or_, each, F.lit(False))  # noqa: FBT003


def _inside(previous: Watermarks, marks: Watermarks) -> Column:
    """Whether an event lies in its topic's release window."""
    each = [
        F.col("topic").isin(topics) & (F.col("commit_ts") >= start) & (F.col("commit_ts") < end)
        for (start, end), topics in windows(previous, marks).items()
    ]
    return functools.reduce(operator.or_, each, F.lit(False))  # noqa: FBT003


def _taken(feed: Feed) -> Column:
    """Whether the feed's `tables:` take the event's table; DDL without a table goes by its database."""

    def matches(patterns: Iterable[str]) -> Column:
        each = []
        for pattern in patterns:
            database, table = split_pattern(pattern)
            name = F.col("table").like(_like(table)) | F.col("table").isNull()
            each.append(F.col("database").like(_like(database)) & name)
        return functools.reduce(operator.or_, each, F.lit(False))  # noqa: FBT003

    if feed.tables.include == ("*.*",) and not feed.tables.exclude:
        return F.lit(True)  # noqa: FBT003
    return F.coalesce(matches(feed.tables.include) & ~matches(feed.tables.exclude), F.lit(False))  # noqa: FBT003


def _like(pattern: str) -> str:
    """`*` and `?`, and nothing else, as SQL's LIKE has them."""
    escaped = "".join(f"\\{c}" if c in "\\%_" else c for c in pattern)
    return escaped.replace("*", "%").replace("?", "_")


def _resolve_keys(rows: DataFrame, lake: Lakehouse) -> DataFrame:
    """Fill in `key_columns` where the message names no primary key and the table's DDL tells of a not-null unique key."""
    unique = F.size("key_columns") > 0
    schemas = lake.table_schemas.read().where((F.size("primary_key") == 0) & F.col("columns").isNotNull())
    shapes = schemas.select("database", "table", "commit_ts", "key_columns").where(unique).collect()
    if not shapes:
        return rows
    # As of the event: the latest shape below it. Few tables are like that, so the shapes stand in the plan as literals.
    known = F.lit(None).cast("array<string>")
    for shape in sorted(shapes, key=lambda s: s["commit_ts"]):
        here = (F.col("database") == shape["database"]) & (F.col("table") == shape["table"])
        names = F.array(*[F.lit(c) for c in shape["key_columns"]])
        known = F.when(here & (F.col("commit_ts") > shape["commit_ts"]), names).otherwise(known)
    return rows.withColumn(
        "key_columns",
        F.when(F.size("key_columns") == 0, F.coalesce(known, "key_columns")).otherwise(F.col("key_columns")),
    )


def _once(ddl: DataFrame) -> DataFrame:
    """Each DDL statement once, under its first record, however often and in however many partitions it came."""
    columns = [
        c for c in SCHEMA.names if c in ddl.columns and c not in {"commit_ts", "database", "table", "ddl_statement"}
    ]
    first = F.min_by(F.struct(*columns), F.struct("topic", "partition", "offset", "index"))
    return (
        ddl.groupBy("commit_ts", "database", "table", "ddl_statement")
        .agg(first.alias("first"))
        .select("commit_ts", "database", "table", "ddl_statement", "first.*")
    )


def _late(late: DataFrame, table: LakeTable, lake: Lakehouse) -> tuple[int, list[dict[str, Any]]]:
    """How many late row events were never seen, and a sample of them; what was released before is read by commit_ts."""
    split = pieces(_resolve_keys(late, lake)).where("weight = 1").persist()
    try:
        bounds = split.agg(F.min("commit_ts"), F.max("commit_ts")).head()
        before = table.read().where((F.col("kind") == str(Kind.ROW)) & F.col("commit_ts").between(*bounds or (0, 0)))
        change = ["database", "table", "key", "commit_ts"]
        same = [F.col(f"late.{c}").eqNullSafe(F.col(f"released.{c}")) for c in change]
        unseen = split.alias("late").join(before.select(*change).alias("released"), on=same, how="left_anti").persist()
        shown = ["topic", "partition", "offset", "database", "table", "op", "commit_ts", "key"]
        # A copy of a late event that was never seen is a repeat, not another event.
        distinct = unseen.dropDuplicates([*change, "piece_op"])
        sample = [r.asDict() for r in distinct.select(*shown).orderBy(*shown[:3]).limit(LATE_SAMPLE).collect()]
        return distinct.count() if len(sample) == LATE_SAMPLE else len(sample), sample
    finally:
        split.unpersist()


def _shaped(out: DataFrame, number: int) -> DataFrame:
    given = {"release": F.lit(number)}
    have = set(out.columns)
    return out.select(
        *[
            given.get(f.name, F.col(f.name) if f.name in have else F.lit(None)).cast(f.dataType).alias(f.name)
            for f in SCHEMA
        ]
    )


def _counted(table: LakeTable, number: int) -> tuple[int, int, int]:
    """Row events released, copies dropped and DDL statements, as release `number` has them."""
    found = (
        table.read()
        .where(F.col("release") == number)
        .agg(F.sum("events"), F.sum("repeats"), F.count_if(F.col("kind") == str(Kind.DDL)))
        .head()
    )
    return (found[0] or 0, found[1] or 0, found[2]) if found else (0, 0, 0)


def _add(totals: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    return {name: totals.get(name, 0) + more.get(name, 0) for name in totals | more}
