"""Initial loads at the gate: the rows of a dump as released changes, and which events a load has the outcome of."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets import tso
from cdc_assets.config import Feed
from cdc_assets.ddl.shapes import TableSchema, apply_ddl
from cdc_assets.initial_load.dumps import DumpError, DumpFile
from cdc_assets.initial_load.released_rows import Dump, Typed, layout, layout_id
from cdc_assets.initial_load.rows import Columns
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.initial_load import LoadsCursor, RefusedLoad, dump_digest
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import HoldReason, LoadedTable, ReleaseCursor, ReleasedKind
from cdc_assets.lakehouse.table import Staged
from cdc_assets.mysql_types.types import MySQLType, UnknownType, parse_type
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Protocol
from cdc_assets.release.base import Part
from cdc_assets.spark.session import session_for


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
        and dump_digest(row) not in refused
    ]


def _not_loaded(lake: Lakehouse, cursor: ReleaseCursor) -> list[dict[str, Any]]:
    return [r for r in lake.load_rows() if (r["database"], r["table"], r["position"]) not in cursor.loaded]


def release_loads(lake: Lakehouse, feed: Feed, plan: LoadsCursor, cursor: ReleaseCursor) -> list[LoadedTable]:
    """Release the rows of tables whose histories begin with a load: a commit a table, so that a run that dies goes on there.

    A table whose dump is damaged is refused, until its files are others.

    Raises:
        ConcurrentRunError: another run released meanwhile.
    """
    todo = _not_loaded(lake, cursor)
    dumps = {dump_digest(row) for row in todo}
    known = [r for r in cursor.refused if r.dump in dumps]
    planned = replace(cursor, refused=[*plan.refused, *known])
    done = _each_released(lake, feed, planned, [row for row in todo if not row["anew"]])
    through = replace(done, sequence=done.sequence + 1, tables=[], read=[], planned=plan.sequence)
    lake.released_changes.commit(lake.released_changes.stage_rows([]), through)
    return done.loads[len(cursor.loads) :]


def release_anew(lake: Lakehouse, feed: Feed, cursor: ReleaseCursor, rows: list[dict[str, Any]]) -> list[LoadedTable]:
    """Release the rows of tables that are `reached`; as `release_loads`."""
    done = _each_released(lake, feed, cursor, rows)
    if done.refused != cursor.refused:
        through = replace(done, sequence=done.sequence + 1, tables=[], read=[])
        lake.released_changes.commit(lake.released_changes.stage_rows([]), through)
    return done.loads[len(cursor.loads) :]


def _each_released(lake: Lakehouse, feed: Feed, cursor: ReleaseCursor, rows: list[dict[str, Any]]) -> ReleaseCursor:
    """Release the rows of tables; the cursor of the last commit, with what was refused since."""
    refused = {r.dump for r in cursor.refused}
    for row in rows:
        if (dump := dump_digest(row)) in refused:
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
    before = _loaded_before(lake, row)
    if before is None:
        staged, typed = _dumped(lake, feed, row, columns, key, number)
    else:
        staged, typed = _kept(lake, row, before, number), Typed(before.typed, before.folder)
    loaded = LoadedTable(*name, row["position"], staged.rows + typed.rows, row["anew"])
    if typed.folder:
        loaded = replace(loaded, typed=typed.rows, folder=typed.folder, release=number)
    cursor = replace(cursor, sequence=number, tables=[(*name, staged.rows)], read=[], loads=[*cursor.loads, loaded])
    described = {"kind": str(ReleasedKind.LAYOUT), "release": number, "database": name[0], "table": name[1]}
    described |= {"layout_id": layout_id(columns), "layout": layout(columns), "key_columns": key}
    described |= {"commit_ts": row["position"], "last_ts": row["position"]}
    lake.released_changes.commit(staged + lake.released_changes.stage_rows([described]), cursor)
    return cursor


def _loaded_before(lake: Lakehouse, row: Mapping[str, Any]) -> LoadedTable | None:
    """The load whose rows are there, and that a rebuild takes over; None: there is none."""
    before = lake.loaded_before.cursor()
    wanted = row["database"], row["table"], row["position"]
    return next((e for e in before.loads if (e.database, e.table, e.position) == wanted), None) if before else None


def _kept(lake: Lakehouse, row: Mapping[str, Any], before: LoadedTable, number: int) -> Staged:
    """The rows of a load that are in released_changes, for another release."""
    if before.rows == before.typed:
        return lake.released_changes.stage_rows([])
    files = lake.loaded_before.files(kind=str(ReleasedKind.LOADED))
    spark = session_for(lake.spark, sum(f.rows for f in files))
    mine = (F.col("database") == row["database"]) & (F.col("table") == row["table"])
    mine &= (F.col("kind") == str(ReleasedKind.LOADED)) & (F.col("commit_ts") == row["position"])
    found = lake.loaded_before.read(spark).where(mine)
    return lake.released_changes.stage(found.withColumn("release", F.lit(number).cast("bigint")))


def _dumped(
    lake: Lakehouse, feed: Feed, row: Mapping[str, Any], columns: Columns, key: list[str], number: int
) -> tuple[Staged, Typed]:
    """The rows of a dump, as `Dump.released`; none where it has no files."""
    files = [DumpFile(f["path"], f["size"]) for f in row["files"]]
    if not files:
        return lake.released_changes.stage_rows([]), Typed()
    return Dump(lake, feed, row, files, columns, key).released(number)


def covered(part: Column, loads: Iterable[LoadedTable]) -> Column:
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
