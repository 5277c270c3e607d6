"""Initial loads at the gate: the rows of a dump become released changes, and a load covers the events that its dump has."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets import tso
from cdc_assets.config import Feed
from cdc_assets.ddl.apply import apply_ddl
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.initial_load.dumps import DumpError, DumpFile
from cdc_assets.initial_load.rows import DumpColumns
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
from cdc_assets.stages.load.released_rows import TableDump, TypedDumpRows, describe_layout, hash_layout

_NOT_WITH_THIS_FEED = "leave the table out of the dump"


def is_plan_due(plan: LoadsCursor | None, cursor: ReleaseCursor) -> bool:
    """Whether the newest plan of initial_load has not been released yet."""
    return plan is not None and plan.sequence > cursor.planned


def find_due_reloads(lake: Lakehouse, plan: LoadsCursor | None, cursor: ReleaseCursor) -> list[dict[str, Any]]:
    """Return the rows of initial_load that load a table again and whose position is below the released watermark.

    All changes up to the dump are released then.
    """
    if plan is None or plan.tables == len(cursor.loads):
        return []
    watermark = min((cursor.watermarks.get(topic, 0) for topic in cursor.partition_watermarks), default=0)
    held_from = {(h.database, h.table): h.since for h in cursor.holds}
    refused = {r.dump for r in cursor.refused}
    return [
        row
        for row in _rows_to_load(lake, cursor)
        if row["is_reload"]
        and row["position"] < min(watermark, held_from.get((row["database"], row["table"]), watermark))
        and dump_digest(row) not in refused
    ]


def _rows_to_load(lake: Lakehouse, cursor: ReleaseCursor) -> list[dict[str, Any]]:
    """Return the rows of initial_load whose load is not released."""
    return [r for r in lake.load_rows() if (r["database"], r["table"], r["position"]) not in cursor.loaded]


def release_loads(lake: Lakehouse, feed: Feed, plan: LoadsCursor, cursor: ReleaseCursor) -> list[LoadedTable]:
    """Release the loads that histories begin with, in one commit for each table.

    A killed run goes on at the next table. A table whose dump is damaged is refused until its files change.

    Raises:
        ConcurrentRunError: another run released at the same time.
    """
    rows = _rows_to_load(lake, cursor)
    dumps = {dump_digest(row) for row in rows}
    still_refused = [r for r in cursor.refused if r.dump in dumps]
    planned = replace(cursor, refused=[*plan.refused, *still_refused])
    done = _release_each(lake, feed, planned, [row for row in rows if not row["is_reload"]])
    last = replace(done.start_next(), planned=plan.sequence)
    lake.released_changes.commit(lake.released_changes.stage_rows([]), last)
    return done.loads[len(cursor.loads) :]


def release_reloads(
    lake: Lakehouse, feed: Feed, cursor: ReleaseCursor, rows: list[dict[str, Any]]
) -> list[LoadedTable]:
    """Release the loads that `find_due_reloads` returned, as `release_loads` does."""
    done = _release_each(lake, feed, cursor, rows)
    if done.refused != cursor.refused:
        lake.released_changes.commit(lake.released_changes.stage_rows([]), done.start_next())
    return done.loads[len(cursor.loads) :]


def _release_each(lake: Lakehouse, feed: Feed, cursor: ReleaseCursor, rows: list[dict[str, Any]]) -> ReleaseCursor:
    """Release one load after the other; return the cursor of the last commit, with the loads refused since then."""
    refused = {r.dump for r in cursor.refused}
    for row in rows:
        if (dump := dump_digest(row)) in refused:
            continue
        try:
            cursor = _release_table(lake, feed, cursor, row)
        except DumpError as error:
            refusal = RefusedLoad(row["database"], row["table"], str(error), dump)
            cursor = replace(cursor, refused=[*cursor.refused, refusal])
    return cursor


def _release_table(lake: Lakehouse, feed: Feed, cursor: ReleaseCursor, row: Mapping[str, Any]) -> ReleaseCursor:
    """Release the load of one table; return the cursor of the commit."""
    number, name = cursor.sequence + 1, (row["database"], row["table"])
    columns, key = _dumped_columns(protocol_of(feed), _read_schema(row))
    earlier = _find_earlier_load(lake, row)
    if earlier is None:
        staged, typed = _stage_dump(lake, feed, row, columns, key, number)
    else:
        staged, typed = _stage_earlier_rows(lake, row, earlier, number), TypedDumpRows(earlier.typed, earlier.folder)
    loaded = LoadedTable(*name, row["position"], staged.rows + typed.rows, row["is_reload"])
    if typed.folder:
        loaded = replace(loaded, typed=typed.rows, folder=typed.folder, release=number)
    cursor = replace(cursor.start_next(), tables=[(*name, staged.rows)], loads=[*cursor.loads, loaded])
    layout_row = {
        "kind": str(ReleasedKind.LAYOUT),
        "release": number,
        "database": name[0],
        "table": name[1],
        "layout_id": hash_layout(columns),
        "layout": describe_layout(columns),
        "key_columns": key,
        "commit_ts": row["position"],
        "last_ts": row["position"],
    }
    lake.released_changes.commit(staged + lake.released_changes.stage_rows([layout_row]), cursor)
    return cursor


def _find_earlier_load(lake: Lakehouse, row: Mapping[str, Any]) -> LoadedTable | None:
    """Return the load that was released before a rebuild and whose rows the rebuild keeps; None: there is none."""
    before = lake.loaded_before.cursor()
    load = row["database"], row["table"], row["position"]
    return next((e for e in before.loads if (e.database, e.table, e.position) == load), None) if before else None


def _stage_earlier_rows(lake: Lakehouse, row: Mapping[str, Any], earlier: LoadedTable, number: int) -> Staged:
    """Write the untyped rows of a load of before a rebuild for the release `number`."""
    if earlier.rows == earlier.typed:
        return lake.released_changes.stage_rows([])
    files = lake.loaded_before.files(kind=str(ReleasedKind.LOADED))
    spark = session_for(lake.spark, sum(f.rows for f in files))
    is_of_load = (F.col("database") == row["database"]) & (F.col("table") == row["table"])
    is_of_load &= (F.col("kind") == str(ReleasedKind.LOADED)) & (F.col("commit_ts") == row["position"])
    rows = lake.loaded_before.read(spark).where(is_of_load)
    return lake.released_changes.stage(rows.withColumn("release", F.lit(number).cast("bigint")))


def _stage_dump(
    lake: Lakehouse, feed: Feed, row: Mapping[str, Any], columns: DumpColumns, key: list[str], number: int
) -> tuple[Staged, TypedDumpRows]:
    """Write the rows of a dump as `TableDump.stage` does; a dump without files has no rows."""
    files = [DumpFile(f["path"], f["size"]) for f in row["files"]]
    if not files:
        return lake.released_changes.stage_rows([]), TypedDumpRows()
    return TableDump(lake, feed, row, files, columns, key).stage(number)


def mark_covered(part: Column, loads: Iterable[LoadedTable]) -> Column:
    """Return the `Part` of a row event, STRING: `covered` if a load of its table has the event's change.

    Args:
        part: the event's part without loads.
        loads: the released loads. A load has all changes of its table at or below its position.
    """
    conditions = [
        (F.col("database") == each.database) & (F.col("table") == each.table) & (F.col("commit_ts") <= each.position)
        for each in loads
    ]
    if not conditions:
        return part
    is_decided = part.isin(str(Part.INSIDE), str(Part.LATE))
    return F.when(is_decided & reduce(or_, conditions), str(Part.COVERED)).otherwise(part)


def check_key(lake: Lakehouse, feed: Feed, row: Mapping[str, Any]) -> None:
    """Fail if the keys of a dump's rows cannot be written as the feed's messages write them.

    Args:
        lake: the feed's tables.
        feed: the feed.
        row: of initial_load.

    Raises:
        DumpError: why they cannot.
    """
    _ = lake.spark  # starts the session, which every Spark expression needs
    _, key = _dumped_columns(protocol_of(feed), _read_schema(row))
    if row["is_reload"] and not key:
        raise DumpError(
            f"{row['database']}.{row['table']}: has no key by which the dump's rows could be compared with those of the "
            "history: begin the table in another feed."
        )


def check_position(lake: Lakehouse, row: Mapping[str, Any]) -> None:
    """Fail if changes after the position of a dump may be missing, without Spark.

    Args:
        lake: the feed's tables.
        row: of initial_load.

    Raises:
        DumpError: which changes may be missing.
    """
    name, position = (row["database"], row["table"]), row["position"]
    dump = f"{'.'.join(name)}: the dump at {row['path']} was taken at {_with_time(position)}"
    if (expired := _find_expired_partition(lake, position)) is not None:
        topic, partition, lowest_offset, lowest_ts = expired
        raise DumpError(
            f"{dump}; topic {topic}, partition {partition} begins at offset {lowest_offset} with commit_ts "
            f"{_with_time(lowest_ts)}: changes between the two may have expired. Take a new dump."
        )
    cursor = lake.released_changes.cursor()
    if cursor is None:
        return
    if row["is_reload"]:
        last_load = max((p for *loaded, p in cursor.loaded if tuple(loaded) == name), default=-1)
        if position <= last_load:
            raise DumpError(f"{dump}; the table is already loaded at {_with_time(last_load)}. Take a new dump.")
        if position <= cursor.trimmed.highest:
            raise DumpError(
                f"{dump}; maintenance has deleted released changes up to {_with_time(cursor.trimmed.highest)}. Take a new "
                "dump."
            )
        return
    # A table that is held until its dump can be loaded has lost no change since the hold began.
    held_from = next(
        (h.since for h in cursor.holds if (h.database, h.table) == name and h.reason == HoldReason.LOAD), None
    )
    highest = max(cursor.watermarks.values(), default=0) if held_from is None else held_from
    if cursor.totals.get("excluded") and position < highest:
        raise DumpError(
            f"{dump}; the feed has left out changes of excluded tables up to {_with_time(highest)}. Take a dump at that "
            "position or later."
        )


def _with_time(commit_ts: int) -> str:
    return f"{commit_ts} ({tso.time_text(commit_ts)})"


def _find_expired_partition(lake: Lakehouse, position: int) -> tuple[str, int, int, int] | None:
    """Find a partition that has lost its first records and whose remaining events all lie above a position.

    Returns:
        Its topic, number, lowest offset and lowest commit_ts; None: there is no such partition.
    """
    raw = lake.raw_records.cursor()
    # Partitions that do not begin at offset 0 -> their lowest offset.
    cut = {
        (topic, int(number)): low
        for topic, partitions in (raw.offsets if raw else {}).items()
        for number, (low, _) in partitions.items()
        if low
    }
    lowest_ts: dict[tuple[str, int], int] = {}
    # Watermarks first, as there are fewer: most partitions then need no look at the rows.
    for kind in (Kind.WATERMARK, Kind.ROW):
        if not cut:
            return None
        events = lake.change_events.fetch(lake.change_events.files(kind=str(kind)), "topic", "partition", "commit_ts")
        for row in events.group_by(["topic", "partition"]).aggregate([("commit_ts", "min")]).to_pylist():
            place = row["topic"], row["partition"]
            lowest_ts[place] = min(row["commit_ts_min"], lowest_ts.get(place, row["commit_ts_min"]))
        cut = {place: low for place, low in cut.items() if lowest_ts.get(place, position + 1) > position}
    return min(((*place, low, lowest_ts[place]) for place, low in cut.items() if place in lowest_ts), default=None)


def _read_schema(row: Mapping[str, Any]) -> TableSchema:
    """Return the table's schema by the dump's CREATE TABLE; `row`: of initial_load.

    Raises:
        DumpError: the statement is not understood.
    """
    name = row["database"], row["table"]
    effect = apply_ddl({}, row["statement"], row["database"])
    if effect.error or name not in effect.tables:
        raise DumpError(f"{row['path']}: the schema file of {'.'.join(name)} is not understood: {effect.error}")
    return effect.tables[name]


def _dumped_columns(protocol: Protocol, schema: TableSchema) -> tuple[DumpColumns, list[str]]:
    """Return the columns that a dump has, which are all but the generated ones, and the names of the key's columns.

    Raises:
        DumpError: a type is unknown, or the key cannot be written as the protocol's messages write it.
    """
    table = f"{schema.database}.{schema.table}"
    columns: list[tuple[str, MySQLType]] = []
    for column in schema.columns:
        try:
            mysql_type = parse_type(column.type or "")
        except UnknownType as error:
            raise DumpError(f"{table}: the type of {column.name} is unknown: {error}") from None
        if not column.generated:
            columns.append((column.name, mysql_type))
    not_null = {c.name.lower() for c in schema.columns if not c.nullable}
    unique_keys = [key for key in schema.unique_keys if not_null.issuperset(name.lower() for name in key)]
    if not schema.primary_key and len(unique_keys) > 1:
        raise DumpError(
            f"{table}: has no primary key but several unique keys, and which of them the changefeed uses is unknown: "
            f"{_NOT_WITH_THIS_FEED}."
        )
    types, key = {name.lower(): t for name, t in columns}, protocol.sent_key_columns(schema)
    for name in key or [n for n, _ in columns]:
        key_type = types.get(name.lower())
        if key_type is None or protocol.dumped_key(F.lit(""), key_type) is None:
            raise DumpError(
                f"{table}: {name}, {key_type or 'a generated column'}, identifies its rows, and a dump does not show how "
                f"the changefeed's messages write its values: {_NOT_WITH_THIS_FEED}."
            )
    return columns, key
