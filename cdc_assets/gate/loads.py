"""Initial loads at the gate: the rows of a dump as released changes, and which events a load has the outcome of."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, Observation, Row
from pyspark.sql import functions as F

from cdc_assets import tso
from cdc_assets.executors import prove_seen
from cdc_assets.feeds import Feed
from cdc_assets.gate.base import Part
from cdc_assets.mysql_types.ddl import TableSchema, apply_ddl
from cdc_assets.mysql_types.types import MySQLType, UnknownType, parse_type
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Protocol
from cdc_assets.protocols.keys import whole_row
from cdc_assets.protocols.loaded import loaded_layout
from cdc_assets.session import gathered, session_for
from cdc_assets.sources.dump_rows import Columns, read_rows
from cdc_assets.sources.dumps import DumpError, DumpFile, line_number, unreadable
from cdc_assets.tables.change_events import Kind, Op
from cdc_assets.tables.initial_load import LAST_ORDINAL, LOAD_TOPIC, LoadsCursor, RefusedLoad, told_apart
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.released_changes import RELEASED_CHANGES, HoldReason, Loaded, ReleaseCursor, ReleasedKind
from cdc_assets.tables.schema import conform
from cdc_assets.tables.table import Staged

# Dumps of fewer bytes are read in one task.
_FEW_BYTES = 8 << 20
_ROW_BYTES = 1 << 7  # of a dumped row, about
_LOADED = str(ReleasedKind.LOADED)


def loads_due(plan: LoadsCursor | None, cursor: ReleaseCursor) -> bool:
    """Whether there is a plan of what to load that was not gone through; `plan`: the newest of initial_load."""
    return plan is not None and plan.sequence > cursor.planned


def reached(lake: Lakehouse, plan: LoadsCursor | None, cursor: ReleaseCursor) -> list[dict[str, Any]]:
    """The tables to load anew of which all changes up to their dump are released; rows of initial_load."""
    if plan is None or plan.tables == len(cursor.loads):
        return []
    mark = min((cursor.watermarks.get(topic, 0) for topic in cursor.partition_watermarks), default=0)
    held = {(h.database, h.table): h.since for h in cursor.holds}
    refused = {r.dump for r in cursor.refused}
    return [
        row
        for row in _not_loaded(lake, cursor)
        if row["anew"]
        and row["position"] < min(mark, held.get((row["database"], row["table"]), mark))
        and told_apart(row) not in refused
    ]


def _not_loaded(lake: Lakehouse, cursor: ReleaseCursor) -> list[dict[str, Any]]:
    return [r for r in lake.load_rows() if (r["database"], r["table"], r["position"]) not in cursor.loaded]


def release_loads(lake: Lakehouse, feed: Feed, plan: LoadsCursor, cursor: ReleaseCursor) -> list[Loaded]:
    """Release the rows of tables whose histories begin with a load: a commit a table, so that a run that dies goes on there.

    A table whose dump is damaged is refused, until its files are others.

    Raises:
        ConcurrentRunError: another run released meanwhile.
    """
    todo = _not_loaded(lake, cursor)
    dumps = {told_apart(row) for row in todo}
    known = [r for r in cursor.refused if r.dump in dumps]
    planned = replace(cursor, refused=[*plan.refused, *known])
    done = _each_released(lake, feed, planned, [row for row in todo if not row["anew"]])
    through = replace(done, sequence=done.sequence + 1, tables=[], planned=plan.sequence)
    lake.released_changes.commit(lake.released_changes.stage_rows([]), through)
    return done.loads[len(cursor.loads) :]


def release_anew(lake: Lakehouse, feed: Feed, cursor: ReleaseCursor, rows: list[dict[str, Any]]) -> list[Loaded]:
    """Release the rows of tables that are `reached`; as `release_loads`."""
    done = _each_released(lake, feed, cursor, rows)
    if done.refused != cursor.refused:
        through = replace(done, sequence=done.sequence + 1, tables=[])
        lake.released_changes.commit(lake.released_changes.stage_rows([]), through)
    return done.loads[len(cursor.loads) :]


def _each_released(lake: Lakehouse, feed: Feed, cursor: ReleaseCursor, rows: list[dict[str, Any]]) -> ReleaseCursor:
    """Release the rows of tables; the cursor of the last commit, with what was refused since."""
    refused = {r.dump for r in cursor.refused}
    for row in rows:
        if (dump := told_apart(row)) in refused:
            continue
        try:
            cursor = _released(lake, feed, cursor, row)
        except DumpError as error:
            why = RefusedLoad(row["database"], row["table"], str(error), dump)
            cursor = replace(cursor, refused=[*cursor.refused, why])
    return cursor


def _released(lake: Lakehouse, feed: Feed, cursor: ReleaseCursor, row: Mapping[str, Any]) -> ReleaseCursor:
    """Release the rows of one table; the cursor of that commit."""
    number, name = cursor.sequence + 1, (row["database"], row["table"])
    columns, key = _columns_of(protocol_of(feed), _schema_of(row))
    kept = _is_kept(lake, row)
    staged = _kept(lake, row, number) if kept else _dumped(lake, feed, row, columns, key, number)
    loaded = Loaded(*name, row["position"], staged.rows, row["anew"])
    cursor = replace(cursor, sequence=number, tables=[(*name, staged.rows)], loads=[*cursor.loads, loaded])
    layout = {"kind": str(ReleasedKind.LAYOUT), "release": number, "database": name[0], "table": name[1]}
    layout |= {"layout_id": _layout_id(columns), "layout": _layout(columns), "key_columns": key}
    layout |= {"commit_ts": row["position"], "last_ts": row["position"]}
    lake.released_changes.commit(staged + lake.released_changes.stage_rows([layout]), cursor)
    return cursor


def _is_kept(lake: Lakehouse, row: Mapping[str, Any]) -> bool:
    """Whether the rows of a load are there that a rebuild takes over."""
    before = lake.loaded_before.cursor()
    return before is not None and (row["database"], row["table"], row["position"]) in before.loaded


def _kept(lake: Lakehouse, row: Mapping[str, Any], number: int) -> Staged:
    files = lake.loaded_before.files(kind=str(ReleasedKind.LOADED))
    spark = session_for(lake.spark, sum(f.rows for f in files))
    mine = (F.col("database") == row["database"]) & (F.col("table") == row["table"])
    mine &= F.col("commit_ts") == row["position"]
    found = lake.loaded_before.scan(spark, files).where(mine)
    return lake.released_changes.stage(found.withColumn("release", F.lit(number).cast("bigint")))


def _dumped(
    lake: Lakehouse, feed: Feed, row: Mapping[str, Any], columns: Columns, key: list[str], number: int
) -> Staged:
    """The rows of a dump, in files of released_changes.

    Raises:
        DumpError: a file of it is damaged, or gone.
    """
    files = [DumpFile(f["path"], f["size"]) for f in row["files"]]
    if not files:
        return lake.released_changes.stage_rows([])
    try:
        staged, bad = _written(lake, feed, row, files, columns, key, number)
    except (PySparkException, Py4JJavaError) as error:
        if not (told := unreadable(lake.store, row["format"], files)):
            raise  # it is not the dump's
        raise DumpError(told) from error
    if bad is not None:
        path, line = line_number(lake.store, files, bad["checksum"])
        raise DumpError(
            f"{path}: line {line} is no row of {row['database']}.{row['table']}, in UTF-8 and in the default form of "
            f"{row['format']}: {bad['line']}: mend it, or take the dump anew."
        )
    return staged


def _written(
    lake: Lakehouse,
    feed: Feed,
    row: Mapping[str, Any],
    files: list[DumpFile],
    columns: Columns,
    key: list[str],
    number: int,
) -> tuple[Staged, Row | None]:
    """The rows of files in files of released_changes, and a line that is no row of the table, if there is one."""
    table, size = lake.released_changes, sum(f.size for f in files)
    spark, protocol = session_for(lake.spark, size // _ROW_BYTES), protocol_of(feed)
    prove_seen(spark, files[0].path, "initial_load")
    found = read_rows(spark, lake.store, row["format"], files, columns, row["time_zone"])
    watch = Observation()
    told = found.observe(watch, F.max("bad").alias("bad"))
    rows = told.select(
        F.lit(_LOADED).alias("kind"),
        F.lit(number).alias("release"),
        F.lit(row["position"]).alias("commit_ts"),
        F.lit(str(Op.SNAPSHOT)).alias("op"),
        F.lit(row["database"]).alias("database"),
        F.lit(row["table"]).alias("table"),
        F.lit(LOAD_TOPIC).alias("topic"),
        F.lit(0).alias("partition"),
        F.monotonically_increasing_id().alias("offset"),
        F.lit(0).alias("index"),
        F.lit(LAST_ORDINAL if row["anew"] else 1).alias("ordinal"),
        _key(protocol, key, columns).alias("key"),
        F.array(*map(F.lit, key)).cast("array<string>").alias("key_columns"),
        F.lit(0).alias("events"),
        F.lit(0).alias("repeats"),
        F.to_json("values", {"ignoreNullFields": "false"}).alias("after"),
        F.lit(_layout_id(columns)).alias("layout_id"),
        F.lit(row["position"] >> tso.TSO_LOGICAL_BITS).alias("source_ms"),
    )
    shaped = conform(rows, RELEASED_CHANGES.columns)
    staged = table.stage(gathered(shaped) if size < _FEW_BYTES else shaped)
    return staged, watch.get["bad"]


def _key(protocol: Protocol, key: list[str], columns: Columns) -> Column:
    """The key as messages have it; of a table without one, the whole row."""
    types = {name.lower(): (name, mysql_type) for name, mysql_type in columns}

    def value(name: str) -> Column:
        own, mysql_type = types[name.lower()]
        found = protocol.dumped_key(F.col("values").getField(own), mysql_type)
        return F.lit(None).cast("string") if found is None else found

    if key:
        return F.to_json(F.array(*[value(name) for name in key]))
    return whole_row(F.to_json(F.struct(*[value(name).alias(name) for name, _ in columns])))


def _layout(columns: Columns) -> str:
    return loaded_layout([(name, str(mysql_type)) for name, mysql_type in columns])


def _layout_id(columns: Columns) -> int:
    return int.from_bytes(hashlib.blake2b(_layout(columns).encode(), digest_size=8).digest(), signed=True)


def covered(part: Column, loads: Iterable[Loaded]) -> Column:
    """The `Part` of a row event, STRING: `covered` where its table was loaded at its commit_ts or later."""
    mine = [
        (F.col("database") == each.database) & (F.col("table") == each.table) & (F.col("commit_ts") <= each.position)
        for each in loads
    ]
    if not mine:
        return part
    settled = part.isin(str(Part.INSIDE), str(Part.LATE))
    return F.when(settled & reduce(or_, mine), str(Part.COVERED)).otherwise(part)


def check_key(lake: Lakehouse, feed: Feed, row: Mapping[str, Any]) -> None:
    """Fail where the rows of a dump cannot be told apart as messages do; `row`: of initial_load.

    Raises:
        DumpError: why they cannot.
    """
    _ = lake.spark  # which no expression can be built without
    _, key = _columns_of(protocol_of(feed), _schema_of(row))
    if row["anew"] and not key:
        raise DumpError(
            f"{row['database']}.{row['table']}: has no key, which would tell the dump's rows from those that the "
            "history has: begin the table in a feed of its own."
        )


def check_position(lake: Lakehouse, row: Mapping[str, Any]) -> None:
    """Fail where what has gone by is not known to go on from the position of a dump. Without Spark.

    Args:
        lake: the feed's tables.
        row: of initial_load.

    Raises:
        DumpError: why it cannot.
    """
    name, position = (row["database"], row["table"]), row["position"]
    called = f"{'.'.join(name)}: the dump at {row['path']} was taken at {position} ({tso.time_text(position)})"
    if (expired := _expired(lake, position)) is not None:
        topic, partition, begins, oldest = expired
        raise DumpError(
            f"{called}; {topic} {partition} begins at offset {begins}, with {oldest} ({tso.time_text(oldest)}): changes "
            "between the two may have expired. Take a dump now."
        )
    cursor = lake.released_changes.cursor()
    if cursor is None:
        return
    if row["anew"]:
        before = max((p for *loaded, p in cursor.loaded if tuple(loaded) == name), default=-1)
        if position <= before:
            raise DumpError(f"{called}; it was loaded at {before} ({tso.time_text(before)}): take a dump now.")
        if position <= cursor.trimmed.highest:
            trimmed = f"{cursor.trimmed.highest} ({tso.time_text(cursor.trimmed.highest)})"
            raise DumpError(f"{called}; maintenance has deleted released changes up to {trimmed}: take a dump now.")
        return
    # What waits for its dump has lost nothing since.
    waits = next((h.since for h in cursor.holds if (h.database, h.table) == name and h.reason == HoldReason.LOAD), None)
    highest = max(cursor.watermarks.values(), default=0) if waits is None else waits
    if cursor.totals.get("excluded") and position < highest:
        raise DumpError(
            f"{called}; the feed has left out changes of tables up to {highest} ({tso.time_text(highest)}): take a dump at "
            "that position or a later one."
        )


def _expired(lake: Lakehouse, position: int) -> tuple[str, int, int, int] | None:
    """A partition that has lost its first records, and of which nothing that is kept lies at or below a position.

    Returns:
        topic, partition, its lowest offset, and the lowest commit_ts of what it has; None: there is no such partition.
    """
    raw = lake.raw_records.cursor()
    begins = {
        (t, int(n)): low for t, each in (raw.offsets if raw else {}).items() for n, (low, _) in each.items() if low
    }
    oldest: dict[tuple[str, int], int] = {}
    for kind in (Kind.WATERMARK, Kind.ROW):  # of rows there are many, and few partitions need them
        if not begins:
            return None
        found = lake.change_events.fetch(lake.change_events.files(kind=str(kind)), "topic", "partition", "commit_ts")
        lowest = found.group_by(["topic", "partition"]).aggregate([("commit_ts", "min")]).to_pylist()
        for r in lowest:
            place = r["topic"], r["partition"]
            oldest[place] = min(r["commit_ts_min"], oldest.get(place, r["commit_ts_min"]))
        begins = {place: low for place, low in begins.items() if oldest.get(place, position + 1) > position}
    return min(((*place, low, oldest[place]) for place, low in begins.items() if place in oldest), default=None)


def _schema_of(row: Mapping[str, Any]) -> TableSchema:
    name = row["database"], row["table"]
    effect = apply_ddl({}, row["statement"], row["database"])
    if effect.error or name not in effect.tables:
        raise DumpError(f"{row['path']}: the schema file of {'.'.join(name)} cannot be read: {effect.error}")
    return effect.tables[name]


def _columns_of(protocol: Protocol, schema: TableSchema) -> tuple[Columns, list[str]]:
    """The columns that a dump has, without generated ones; and those of them that make the key, in messages' order.

    Raises:
        DumpError: a type is unknown, or the key, or a column of it, cannot be told as messages have it.
    """
    called = f"{schema.database}.{schema.table}"
    found: list[tuple[str, MySQLType]] = []
    for column in schema.columns:
        try:
            mysql_type = parse_type(column.type or "")
        except UnknownType as error:
            raise DumpError(f"{called}: the type of {column.name} is unknown: {error}") from None
        if not column.generated:
            found.append((column.name, mysql_type))
    required = {c.name.lower() for c in schema.columns if not c.nullable}
    unique = [key for key in schema.unique_keys if required.issuperset(name.lower() for name in key)]
    if not schema.primary_key and len(unique) > 1:
        raise DumpError(
            f"{called}: has no primary key, and several unique ones, of which the changefeed takes one: leave the "
            "table out of the dump."
        )
    types, own_key = {name.lower(): t for name, t in found}, protocol.sent_key_columns(schema)
    for name in own_key or [n for n, _ in found]:
        key_type = types.get(name.lower())
        if key_type is None or protocol.dumped_key(F.lit(""), key_type) is None:
            raise DumpError(
                f"{called}: {name}, {key_type or 'a generated column'}, tells its rows apart, and how the changefeed's "
                "messages have its values cannot be told from a dump: leave the table out of the dump."
            )
    return found, own_key
