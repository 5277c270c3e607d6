"""The stage released_changes: the gate. Events below the watermark, each change once, in one commit with the watermark."""

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from cdc_assets.feeds import Feed
from cdc_assets.gate import order, positions
from cdc_assets.gate.changes import kept, net
from cdc_assets.gate.keys import keyed, keyed_pieces, with_schemas
from cdc_assets.gate.late import NO_LATE, Late, late_events, too_late
from cdc_assets.gate.transactions import bounds_of, held_back
from cdc_assets.gate.watermarks import PartitionWatermarks, Watermarks, advance, merge, topic_watermarks
from cdc_assets.gate.window import Waiting, at_or_above, inside_window, late_row, taken_tables, waiting_tables
from cdc_assets.lakehouse import STATISTICS, Cursor, Lakehouse, LakeTable, next_sequence
from cdc_assets.protocols import events_a_record, has_watermarks, may_have_watermarks, numbers_schemas
from cdc_assets.protocols.events import Kind
from cdc_assets.schema import BIGINT, INT, STRING, array, conform, struct
from cdc_assets.session import compile_for

# `release` numbers the commits; `key` is the JSON array of the key's values, or the row itself in a table without a key;
# `events` says how many row events the change stands for (2: a delete and an insert at one commit_ts), `repeats` how many
# copies of them were dropped; `ordinal` orders the changes of one key at one commit_ts.
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
    ordinal=INT,
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


_NEW_CURSOR: Cursor = {
    "sequence": 0,
    "batch": 0,
    "records": 0,
    "partition_watermarks": {},
    "watermarks": {},
    "tables": [],
    "highest": -1,
    "pending": 0,
    "waiting": [],
    "newest": 0,
    "totals": {},
    # Of feeds whose messages tell whether there are watermarks: the batches up to here were released before the first.
    "ungated": 0,
    # Whether changes tell their place in the binlog; whether there are transaction markers, and what they hold back.
    "placed": False,
    "transactions": {"marked": False, "bounds": {}, "lowest": 0},
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
    late_unseen: int = 0  # below what was released, and never seen
    excluded: int = 0  # of tables that the feeds file leaves out
    pending: int = 0  # at or above the watermark, as it stands after this run
    pending_before: int = 0
    ddl: int = 0
    watermarks: Watermarks = field(default_factory=dict)
    watermarks_before: Watermarks = field(default_factory=dict)
    partition_watermarks: PartitionWatermarks = field(default_factory=dict)
    late_sample: list[dict[str, Any]] = field(default_factory=list)
    # Tables with events that wait for a schema: database, table, events, and of the first of them since (commit_ts),
    # table_id, schema_version, topic, partition, offset, record_ms (Kafka's time).
    waiting: list[dict[str, Any]] = field(default_factory=list)
    newest: int = 0  # the newest Kafka time of any record that the gate has seen, in milliseconds
    total: dict[str, int] = field(default_factory=dict)


def release(lake: Lakehouse, feed: Feed) -> ReleaseReport:
    """Look at the new change events, advance the watermarks, and release what lies below them.

    The window is [previous watermark, watermark) by commit_ts over change_events; what is above stays there, pending. So
    does, where rows name their schema by number, what a table has from its first row on whose schema is not known: that
    table's window ends there, and begins there in a later run.
    One commit, whose cursor holds the watermarks that events are dropped by from then on; none without new events.

    Raises:
        ConcurrentRunError: another run released meanwhile.
    """
    events, table = lake.change_events, lake.released_changes
    table.create(SCHEMA, properties={STATISTICS: "release,commit_ts,kind,database,table"})
    cursor = table.cursor() or _NEW_CURSOR
    decoded = events.cursor() or {"batch": 0, "records": 0}
    if decoded["batch"] <= cursor["batch"]:
        return _unchanged(feed, cursor)
    compile_for(lake.spark, (decoded["records"] - cursor["records"]) * events_a_record(feed) + cursor["pending"])
    previous: Watermarks = cursor["watermarks"]
    held, waiting, transactions = waiting_tables(cursor), [], cursor["transactions"]
    every = events.read()
    new = every.where(F.col("batch") > cursor["batch"])
    arrived = _arrivals(new, previous, held, placed=feed.protocol == "debezium")
    taken = taken_tables(feed)
    seen, gated, ungated = _watermarks(lake, feed, cursor, arrived)
    if gated:
        marks = advance(previous, topic_watermarks(seen, feed.source.partitions, feed.gate_scope))
        # Events above the window are pending, and counted with the window's: one look at the files that reach that far.
        later = every.where(F.col("batch") > ungated) if ungated else every
        candidates, inside = later.where(at_or_above(previous, seen, held)), inside_window(previous, marks, held, {})
    else:
        marks = {}
        candidates, inside, transactions = _whole_transactions(every, new, cursor, arrived)
    if numbers_schemas(feed):
        candidates = with_schemas(candidates, lake)
    counts = _count(candidates.withColumn("inside", inside).withColumn("taken", taken))
    if counts.missing:
        inside = inside_window(previous, marks, held, counts.missing)
        counts = _count(candidates.withColumn("inside", inside).withColumn("taken", taken))
        waiting = _waiting(candidates.where(taken & ~inside & inside_window(previous, marks, held, {})))
    window = candidates.where(inside & taken)
    # Where changes tell their place in the binlog, equal rows of a table without a key are told apart by it.
    by_place = (arrived.placed or cursor["placed"]) and not gated
    rows = window.where(F.col("kind") == str(Kind.ROW))
    split = keyed_pieces(rows, lake, feed, unkeyed=counts.unkeyed, numbered=not by_place)
    number = next_sequence(cursor)
    if gated:
        late = late_events(keyed(new.where(late_row(previous, held)), lake, feed), table) if arrived.late else NO_LATE
        # Runs before the first watermark, which tells that TiCDC wrote the stream, have kept such pairs apart.
        changes, late_repeated = net(split, joined=feed.protocol != "debezium"), arrived.late - late.unseen
    else:
        changes, late = _in_order(split, _prior(table, cursor, arrived), positions if by_place else order)
        late_repeated = late.repeated
    out = changes.withColumn("kind", F.lit(str(Kind.ROW)))
    if counts.ddl:
        statements = _once(window.where(F.col("kind") == str(Kind.DDL)))
        out = out.unionByName(statements, allowMissingColumns=True)
    in_window = counts.rows - (0 if gated else late.unseen + late_repeated)
    totals = {"rows": arrived.rows, "excluded": counts.excluded, "window": in_window}
    totals |= {"late_repeated": late_repeated, "late_unseen": late.unseen}
    tables = {(d, t): n for d, t, n in cursor["tables"]} | dict.fromkeys(counts.tables, number)
    advanced: Cursor = {
        "sequence": number,
        "batch": decoded["batch"],
        "records": decoded["records"],
        "partition_watermarks": seen,
        "watermarks": marks,
        # The highest commit_ts that the gate has seen: above it no event can be a repeat.
        "highest": max(cursor["highest"], arrived.highest),
        "tables": sorted([d, t, n] for (d, t), n in tables.items()),
        "pending": counts.pending,
        "waiting": waiting,
        "newest": max(cursor["newest"], arrived.newest),
        "totals": _add(cursor["totals"], totals),
        "ungated": ungated,
        "placed": by_place,
        "transactions": transactions,
    }
    shaped = conform(out if counts.rows or counts.ddl else out.limit(0), SCHEMA, {"release": F.lit(number)})
    released, duplicate, ddl = _append(table, shaped, advanced)
    return ReleaseReport(
        release=number,
        rows=arrived.rows,
        window=in_window,
        released=released,
        duplicate=duplicate,
        late_repeated=late_repeated,
        late_unseen=late.unseen,
        excluded=counts.excluded,
        pending=counts.pending,
        pending_before=cursor["pending"],
        ddl=ddl,
        watermarks=marks,
        watermarks_before=previous,
        partition_watermarks=seen if gated else {},
        late_sample=late.sample,
        waiting=waiting,
        newest=advanced["newest"],
        total=advanced["totals"],
    )


def _unchanged(feed: Feed, cursor: Cursor) -> ReleaseReport:
    """The report of a run that finds nothing new."""
    known = cursor["partition_watermarks"]
    return ReleaseReport(
        watermarks=cursor["watermarks"],
        watermarks_before=cursor["watermarks"],
        partition_watermarks=known if has_watermarks(feed, known) else {},
        pending=cursor["pending"],
        pending_before=cursor["pending"],
        waiting=cursor["waiting"],
        newest=cursor["newest"],
        total=cursor["totals"],
    )


def _watermarks(
    lake: Lakehouse, feed: Feed, cursor: Cursor, arrived: "_Arrivals"
) -> tuple[PartitionWatermarks, bool, int]:
    """The watermarks seen, whether the feed is gated by them, and the batches up to which it was not."""
    if not may_have_watermarks(feed):
        return {}, False, 0
    seen = merge(merge(cursor["partition_watermarks"], _partitions_held(lake)), arrived.watermarks)
    gated = has_watermarks(feed, seen)
    first = gated and not has_watermarks(feed, cursor["partition_watermarks"])
    return seen, gated, cursor["batch"] if first else cursor["ungated"]


def _partitions_held(lake: Lakehouse) -> PartitionWatermarks:
    """Every partition that raw_records knows, without a watermark: a broker tells of those, too, that have no record yet."""
    offsets = (lake.raw_records.cursor() or {"offsets": {}})["offsets"]
    return {topic: dict.fromkeys(partitions) for topic, partitions in offsets.items()}


@dataclass(frozen=True)
class _Counts:
    """What the window holds, and what is pending behind it."""

    rows: int
    excluded: int
    pending: int
    ddl: int
    unkeyed: bool  # some messages name no primary key
    tables: set[tuple[str, str]]
    missing: Waiting  # where the schema of a row in the window is not known


def _count(candidates: DataFrame) -> _Counts:
    """Count row events and DDL in one look. In: change events, `inside` and `taken` BOOLEAN."""
    # Only `with_schemas` says whether a row's schema is known.
    missing = F.col("missing") if "missing" in candidates.columns else F.lit(False)
    unkeyed = (F.size("key_columns") == 0).alias("unkeyed")
    found = (
        candidates.where(F.col("kind").isin(str(Kind.ROW), str(Kind.DDL)))
        .groupBy("kind", "database", "table", "inside", "taken", unkeyed, missing.alias("missing"))
        .agg(F.count("*").alias("count"), F.min("commit_ts").alias("first"))
        .collect()
    )
    rows = [r for r in found if r["kind"] == Kind.ROW]
    window = [r for r in rows if r["inside"] and r["taken"]]
    return _Counts(
        rows=sum(r["count"] for r in window),
        excluded=sum(r["count"] for r in rows if r["inside"] and not r["taken"]),
        pending=sum(r["count"] for r in rows if not r["inside"]),
        ddl=sum(r["count"] for r in found if r["kind"] == Kind.DDL and r["inside"] and r["taken"]),
        unkeyed=any(r["unkeyed"] for r in window),
        tables={(r["database"], r["table"]) for r in window},
        missing={(r["database"], r["table"]): r["first"] for r in window if r["missing"]},
    )


def _waiting(rows: DataFrame) -> list[dict[str, Any]]:
    """What waits, one entry a table, as `ReleaseReport.waiting`. In: the events in the window that are not released."""
    first = F.struct(
        "table_id",
        "schema_version",
        "topic",
        "partition",
        "offset",
        F.unix_millis("record_timestamp").alias("record_ms"),
    )
    found = (
        rows.where(F.col("kind") == str(Kind.ROW))
        .groupBy("database", "table")
        .agg(
            F.count("*").alias("events"),
            F.min("commit_ts").alias("since"),
            F.min_by(F.when(F.col("missing"), first), F.when(F.col("missing"), F.col("commit_ts"))).alias("first"),
        )
        .orderBy("database", "table")
        .collect()
    )
    return [{k: v for k, v in r.asDict().items() if k != "first"} | r["first"].asDict() for r in found]


def _prior(table: LakeTable, cursor: Cursor, arrived: "_Arrivals") -> DataFrame | None:
    """The row changes released before at or above the lowest commit_ts of those to come; None when there are none."""
    transactions = cursor["transactions"]
    lows = [arrived.lowest] * bool(arrived.rows) + [transactions["lowest"]] * bool(transactions["bounds"])
    lowest = min(lows, default=None)
    if lowest is None or lowest > cursor["highest"]:
        return None
    return table.read().where((F.col("kind") == str(Kind.ROW)) & (F.col("commit_ts") >= lowest))


def _whole_transactions(
    every: DataFrame, new: DataFrame, cursor: Cursor, arrived: "_Arrivals"
) -> tuple[DataFrame, Column, dict[str, Any]]:
    """The events of feeds without watermarks, which of them are released, and what the cursor is to hold of the rest."""
    before = cursor["transactions"]
    if not before["marked"] and not arrived.marked:
        return new, F.lit(True), before
    candidates = every.where((F.col("batch") > cursor["batch"]) | held_back(before["bounds"]))
    bounds, lowest = bounds_of(candidates, every, {(d, t) for d, t, _ in cursor["tables"]})
    return candidates, ~held_back(bounds), {"marked": True, "bounds": bounds, "lowest": lowest}


def _in_order(split: DataFrame, prior: DataFrame | None, rules: ModuleType) -> tuple[DataFrame, Late]:
    """The changes among pieces of feeds without watermarks, by the rules of `order` or of `positions`."""
    judged = rules.group(split, prior)
    return kept(judged), NO_LATE if prior is None else too_late(judged)


@dataclass(frozen=True)
class _Arrivals:
    rows: int
    late: int
    lowest: int  # commit_ts of the row events
    highest: int
    newest: int  # Kafka's time, in milliseconds
    watermarks: PartitionWatermarks
    placed: bool  # row events tell their place in the binlog
    marked: bool  # there are markers of transactions


def _arrivals(new: DataFrame, previous: Watermarks, held: Waiting, *, placed: bool) -> _Arrivals:
    """Count the new row events and the late ones among them; the largest watermark that each partition shows.

    `placed`: look whether they tell their place in the binlog, and whether there are markers of transactions.
    """
    row = F.col("kind") == str(Kind.ROW)
    told = (
        {"placed": row & F.col("source").isNotNull(), "marked": F.col("kind") == str(Kind.TRANSACTION)}
        if placed
        else {}
    )
    found = (
        new.groupBy("topic", "partition")
        .agg(
            F.max(F.when(F.col("kind") == str(Kind.WATERMARK), F.col("commit_ts"))).alias("watermark"),
            F.count_if(row).alias("rows"),
            F.count_if(late_row(previous, held)).alias("late"),
            F.unix_millis(F.max("record_timestamp")).alias("newest"),
            F.min(F.when(row, F.col("commit_ts"))).alias("lowest"),
            F.max(F.when(row, F.col("commit_ts"))).alias("highest"),
            *[F.max(found).alias(name) for name, found in told.items()],
        )
        .collect()
    )
    watermarks: PartitionWatermarks = {}
    for r in found:
        watermarks.setdefault(r["topic"], {})[str(r["partition"])] = r["watermark"]
    return _Arrivals(
        rows=sum(r["rows"] for r in found),
        late=sum(r["late"] for r in found),
        lowest=min((r["lowest"] for r in found if r["rows"]), default=0),
        highest=max((r["highest"] for r in found if r["rows"]), default=0),
        newest=max((r["newest"] or 0 for r in found), default=0),
        watermarks=watermarks,
        placed=placed and any(r["placed"] for r in found),
        marked=placed and any(r["marked"] for r in found),
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


def _append(table: LakeTable, rows: DataFrame, cursor: Cursor) -> tuple[int, int, int]:
    """Commit a release; how many row events it releases, how many copies it drops, how many DDL statements it has.

    They are counted while they are written: the first look into a table after a commit costs as much as a small commit.
    """
    counted = Observation()
    statements = F.count_if(F.col("kind") == str(Kind.DDL))
    observed = [F.sum("events").alias("released"), F.sum("repeats").alias("duplicate"), statements.alias("ddl")]
    table.append(rows.observe(counted, *observed), cursor)
    found = counted.get
    return found["released"] or 0, found["duplicate"] or 0, found["ddl"] or 0


def _add(totals: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    return {name: totals.get(name, 0) + more.get(name, 0) for name in totals | more}
