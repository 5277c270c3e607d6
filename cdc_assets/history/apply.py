"""The stage history: the released changes of each table into its SCD2 table, one Delta transaction a table and run."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Observation, Row
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from cdc_assets import quarantine
from cdc_assets.feeds import Feed
from cdc_assets.history.columns import (
    SourceColumn,
    history_name,
    needs_scale,
    parse_images,
    problems,
    resolve_type,
    scales_seen,
    target_type,
    type_rows,
    wire_types,
)
from cdc_assets.history.readings import Layout, Readings, as_mysql_text, readings
from cdc_assets.history.versions import boundaries, number_copies, timeline, versions
from cdc_assets.lakehouse import Cursor, Lakehouse, LakeTable
from cdc_assets.mysql_types.types import MySQLType, UnknownType, parse_type
from cdc_assets.protocols.events import TSO_LOGICAL_BITS, Kind
from cdc_assets.schema import BIGINT, BOOLEAN, INT, STRING, TIMESTAMP, struct
from cdc_assets.session import compile_for, together

STAGE = "history"

# Beside the source's own columns. `_cdc_key` is the key's identity on the wire: typed key columns may hold NULL for what
# no Spark type holds (a zero date), or change their type.
CDC_COLUMNS = struct(
    _cdc_key=STRING,
    _cdc_from_ts=BIGINT,
    _cdc_to_ts=BIGINT,
    _cdc_valid_from=TIMESTAMP,
    _cdc_valid_to=TIMESTAMP,
    _cdc_is_current=BOOLEAN,
    _cdc_op=STRING,
    _cdc_closed_by=STRING,
    _cdc_topic=STRING,
    _cdc_partition=INT,
    _cdc_offset=BIGINT,
)
# In tables without a key only: which of several equal rows, from 1.
COPY = "_cdc_copy"
_PARTITION_BY = ["_cdc_is_current"]
_PROPERTIES = {
    "delta.columnMapping.mode": "name",  # any name that MySQL allows
    "delta.enableTypeWidening": "true",
    "delta.enableDeletionVectors": "true",
}
# Fewer keys than this are sent to every task that reads open versions, instead of shuffling those.
BROADCAST_CHANGES = 200_000

_Shape = tuple[int, dict[str, str]]  # the columns' types, by name in lower case, from a commit_ts on
Due = dict[tuple[str, str], tuple[int, int]]  # (database, table) -> the releases (after, through] to apply


@dataclass(frozen=True)
class TableReport:
    """What one run did to one history table."""

    database: str
    table: str
    after: int  # the releases in (after, through] were applied
    through: int
    created: bool
    changes: int  # released changes read
    since: int  # the lowest commit_ts of these changes
    opened: int  # versions
    closed: int  # versions that were open before
    quarantined: int  # values
    versions: int  # in the whole table, after the run
    current: int
    columns: dict[str, str] = field(default_factory=dict)  # name -> Spark type


@dataclass(frozen=True)
class _Work:
    """The releases in (after, through] that one history table has not seen, and the types they show."""

    database: str
    table: str
    after: int
    through: int
    changes: int
    since: int
    keyless: bool
    types: dict[str, str]
    declared: dict[str, str]
    layouts: list[Layout]  # Debezium's, those of the newest changes last


def pending_tables(lake: Lakehouse) -> Due:
    """The tables with releases that their history has not seen."""
    released = lake.released_changes.cursor() or {"tables": []}
    due: Due = {}
    for database, table, through in released["tables"]:
        after = (lake.history(database, table).cursor() or {"sequence": 0})["sequence"]
        if after < through:
            due[database, table] = (after, through)
    return due


def apply(lake: Lakehouse, feed: Feed, due: Due) -> Iterator[TableReport]:
    """Bring the history tables `due` up to date, one after the other; a table first seen is created.

    Raises:
        ConcurrentRunError: another run wrote one of the tables meanwhile.
    """
    for work in _plan(lake, feed, due):
        yield _apply_table(lake, feed, work)


def _plan(lake: Lakehouse, feed: Feed, due: Due) -> list[_Work]:
    """One look over the new releases for the types of every table."""
    if not due:
        return []
    after = min(a for a, _ in due.values())
    rows = lake.released_changes.read().where((F.col("release") > after) & (F.col("kind") == str(Kind.ROW)))
    groups = rows.groupBy("database", "table", "release", "mysql_types").agg(
        F.count("*").alias("changes"),
        F.max("commit_ts").alias("commit_ts"),
        F.min("commit_ts").alias("since"),
        F.min("jdbc_types").alias("jdbc_types"),
        F.max(F.size("key_columns")).alias("key_size"),
    )
    shapes = (
        lake.table_schemas.read()
        .where(F.col("columns").isNotNull())
        .select("database", "table", "commit_ts", "columns")
    )
    seen, described = together(groups.collect, shapes.collect)
    declared: dict[tuple[str, str], list[_Shape]] = {}
    for s in sorted(described, key=lambda s: s["commit_ts"]):
        held = declared.setdefault((s["database"], s["table"]), [])
        told = {c["name"].lower(): c["type"] for c in s["columns"]}
        if not held or held[-1][1] != told:  # a connector describes a table again and again
            held.append((s["commit_ts"], told))
    plan = []
    for (database, table), (first, last) in sorted(due.items()):
        mine = [r for r in seen if (r["database"], r["table"]) == (database, table) and first < r["release"] <= last]
        if not mine:
            continue  # all that came of the table were repeats
        types: dict[str, str] = {}
        layouts: list[Layout] = []
        known = declared.get((database, table), [])
        if feed.protocol == "debezium":
            layouts = _layouts(mine, known)
        else:
            types = wire_types((r["commit_ts"], r["mysql_types"], r["jdbc_types"]) for r in mine)
        shape = known[-1][1] if known else {}
        changes, since = sum(r["changes"] for r in mine), min(r["since"] for r in mine)
        keyless = all(r["key_size"] == 0 for r in mine)
        plan.append(_Work(database, table, first, last, changes, since, keyless, types, shape, layouts))
    return plan


def _layouts(seen: list[Row], shapes: list[_Shape]) -> list[Layout]:
    """What each row of a table is read by: its message's own layout, and the shape that the table had then."""
    spans: dict[str, tuple[int, int]] = {}
    for r in seen:
        first, last = spans.get(r["mysql_types"], (r["since"], r["commit_ts"]))
        spans[r["mysql_types"]] = min(first, r["since"]), max(last, r["commit_ts"])
    layouts = []
    for text, (first, last) in sorted(spans.items(), key=lambda span: span[1][1]):
        # Statements may be stamped a little later than the rows before which they ran: the first shape known counts.
        before = [types for since, types in shapes if since <= first] or [types for _, types in shapes[:1]] or [{}]
        layouts.append(Layout(text, 0, before[-1]))
        layouts += [Layout(text, since, types) for since, types in shapes if first < since <= last]
    return layouts


def _apply_table(lake: Lakehouse, feed: Feed, work: _Work) -> TableReport:
    compile_for(lake.spark, work.changes)
    table = lake.history(work.database, work.table)
    created = not table.exists()
    present = {} if created else {f.name.lower(): f for f in table.read().schema}
    within = (F.col("release") > work.after) & (F.col("release") <= work.through)
    mine = (F.col("database") == work.database) & (F.col("table") == work.table) & (F.col("kind") == str(Kind.ROW))
    changes = lake.released_changes.read().where(within & mine)
    read = _readings(feed, work)
    columns = _columns(feed, work, changes, present, read)
    _shape_table(table, columns, present, created=created, keyless=work.keyless)
    schema = StructType([StructField(c.column, c.target) for c in columns])
    held = _held(table)
    present_names = {f.name for f in present.values()} | set(schema.names)

    # All counts are taken while `new` is computed: another pass over the changes costs as much again. A checkpoint holds
    # it, as a persisted frame that reads the table it is merged into would be planned again after the merge.
    typing, chaining = Observation(), Observation()
    parsed = parse_images(changes, columns)
    if read:
        # Apart from the rest: planned together with it, so many expressions within expressions take minutes to plan.
        parsed = as_mysql_text(parsed, work.layouts, read).localCheckpoint()
    typed = type_rows(parsed, columns, feed.protocol, feed.time_zone)
    watched = typed.observe(typing, F.count_if("has_problem").alias("lost"))
    standing = _open_versions(table, changes, work, schema)
    numbered = number_copies(watched, standing) if work.keyless else watched.withColumn("copy", F.lit(0))
    opens = F.col("op").isNotNull()
    counts = {"closed": ~opens, "opened": opens, "left_open": opens & F.col("to_ts").isNull()}
    chained = versions(boundaries(timeline(numbered, standing)))
    new = chained.observe(chaining, *[F.count_if(c).alias(name) for name, c in counts.items()]).localCheckpoint()
    closed, opened, left_open = (chaining.get[name] for name in counts)
    quarantined = 0
    if typing.get["lost"]:
        lost = problems(typed, columns)
        quarantined = quarantine.add(lake.quarantine, lost, STAGE, work.after, work.through)
    held = {"versions": held["versions"] + opened, "current": held["current"] + left_open - closed}
    _write(table, new, schema, {"sequence": work.through} | held, closes=closed > 0, keyless=work.keyless)
    return TableReport(
        database=work.database,
        table=work.table,
        after=work.after,
        through=work.through,
        created=created,
        changes=work.changes,
        since=work.since,
        opened=opened,
        closed=closed,
        quarantined=quarantined,
        versions=held["versions"],
        current=held["current"],
        columns={f.name: f.dataType.simpleString() for f in table.read().schema if f.name in present_names},
    )


def _readings(feed: Feed, work: _Work) -> Readings:
    """How the columns are read where each message brings its own schema; elsewhere none."""

    def known(name: str, declared: str | None) -> MySQLType | None:
        told = feed.columns.get(f"{work.database}.{work.table}.{name}") or declared
        try:
            return parse_type(told) if told else None
        except UnknownType:
            return None

    return readings(work.layouts, known)


def _columns(
    feed: Feed, work: _Work, changes: DataFrame, present: dict[str, StructField], read: Readings
) -> list[SourceColumn]:
    """The source's columns in this run, in the table's order, each with the type that its history column is to have."""
    place = f"{work.database}.{work.table}."
    types = {name: each[-1].type for name, each in read.items()} or {
        name: resolve_type(wire, work.declared.get(name.lower()), feed.columns.get(place + name))
        for name, wire in work.types.items()
    }
    order = {name: n for n, name in enumerate(work.declared)}
    names = sorted(types, key=lambda name: order.get(name.lower(), len(order)))
    unknown_scale = [n for n in names if needs_scale(types[n]) and history_name(n).lower() not in present]
    scales = {}
    if unknown_scale:
        plain = [SourceColumn(n, types[n], target_type(types[n], 0, None)) for n in unknown_scale]
        scales = dict(scales_seen(parse_images(changes, plain), unknown_scale))

    def present_type(name: str) -> DataType | None:
        column = present.get(history_name(name).lower())
        return column.dataType if column else None

    return [SourceColumn(n, types[n], target_type(types[n], scales.get(n), present_type(n))) for n in names]


def _shape_table(
    table: LakeTable, columns: list[SourceColumn], present: dict[str, StructField], *, created: bool, keyless: bool
) -> None:
    """Create the table, or add and widen columns. Each step is one that a run that comes again finds done."""
    if created:
        own = [StructField(c.column, c.target) for c in columns]
        copy = [StructField(COPY, INT)] if keyless else []
        table.create(StructType([*CDC_COLUMNS, *copy, *own]), _PARTITION_BY, _PROPERTIES)
        return
    name = f"delta.{quoted(table.path)}"
    added = [c for c in columns if c.column.lower() not in present]
    if added:
        listed = ", ".join(f"{quoted(c.column)} {c.target.simpleString()}" for c in added)
        table.spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({listed})")
    for c in columns:
        if c.column.lower() in present and present[c.column.lower()].dataType != c.target:
            table.spark.sql(f"ALTER TABLE {name} ALTER COLUMN {quoted(c.column)} TYPE {c.target.simpleString()}")


def _held(table: LakeTable) -> dict[str, int]:
    """How many versions, and current rows, the table holds: in its cursor, as counting reads every file's footer."""
    cursor = table.cursor() or {"versions": 0, "current": 0}
    return {name: cursor[name] for name in ("versions", "current")}


def _open_versions(table: LakeTable, changes: DataFrame, work: _Work, schema: StructType) -> DataFrame:
    """The open versions of the keys of `changes`: key, copy, commit_ts, row. Only the partition of open ones is read."""
    row = F.struct(*[F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in schema])
    current = table.read().where(F.col("_cdc_is_current") == F.lit(True))
    rows = current.select(
        F.col("_cdc_key").alias("key"),
        (F.col(COPY) if work.keyless else F.lit(0)).alias("copy"),
        F.col("_cdc_from_ts").alias("commit_ts"),
        row.alias("row"),
    )
    if not work.after:
        return rows.limit(0)  # nothing has been written yet: no need to gather the keys
    keys = changes.select("key").distinct()
    return rows.join(F.broadcast(keys) if work.changes <= BROADCAST_CHANGES else keys, on="key", how="left_semi")


def _write(
    table: LakeTable, new: DataFrame, schema: StructType, cursor: Cursor, *, closes: bool, keyless: bool
) -> None:
    """Close and open versions, and advance the table's cursor, in one transaction."""
    own = {f.name: F.col("row").getField(f.name) for f in schema}
    copy = {COPY: F.col("copy")} if keyless else {}
    filled: dict[str, Column] = {
        "_cdc_key": F.col("key"),
        "_cdc_from_ts": F.col("commit_ts"),
        "_cdc_to_ts": F.col("to_ts"),
        "_cdc_valid_from": _instant("commit_ts"),
        "_cdc_valid_to": _instant("to_ts"),
        "_cdc_is_current": F.col("to_ts").isNull(),
        "_cdc_op": F.col("op"),
        "_cdc_closed_by": F.col("closed_by"),
        "_cdc_topic": F.col("topic"),
        "_cdc_partition": F.col("partition"),
        "_cdc_offset": F.col("offset"),
        **copy,
        **own,
    }
    rows = new.select("op", *[c.alias(name) for name, c in filled.items()])
    if not closes:
        table.append(rows.drop("op"), cursor)
        return
    # A row that closes a version finds it by its key; one that opens a version must find none.
    key = F.when(F.col("op").isNull(), F.col("_cdc_key"))
    source = rows.withColumn("_cdc_close_key", key).drop("op").alias("s")
    same = "t._cdc_is_current = true AND t._cdc_key = s._cdc_close_key"
    if keyless:
        same += f" AND t.{COPY} = s.{COPY}"
    update = {c: F.col(f"s.{c}") for c in ("_cdc_to_ts", "_cdc_valid_to", "_cdc_is_current", "_cdc_closed_by")}
    with table.transaction(cursor):
        (
            table.delta()
            .alias("t")
            .merge(source, same)
            .whenMatchedUpdate(set=dict(update))
            .whenNotMatchedInsert(
                "s._cdc_close_key IS NULL", values={quoted(c): F.col(f"s.{quoted(c)}") for c in filled}
            )
            .execute()
        )


def _instant(commit_ts: str) -> Column:
    """The physical part of a TSO as an instant."""
    return F.timestamp_millis(F.shiftright(commit_ts, TSO_LOGICAL_BITS))


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return "`" + name.replace("`", "``") + "`"
