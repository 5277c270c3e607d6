"""One table's part of a run: its changes typed, chained into versions, and written in one commit."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets import tso
from cdc_assets.feeds import Feed
from cdc_assets.history.columns import SourceColumn, Typing, parse_images, quoted, scales_seen
from cdc_assets.history.plan import Shape, Work, columns_of, readable, shape_of
from cdc_assets.history.versions import boundaries, number_copies, timeline, versions
from cdc_assets.protocols import protocol_of
from cdc_assets.session import SMALL, gathered
from cdc_assets.tables.history import COPY, HistoryCursor
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.log import DataFile

# Of a table with fewer open versions than this all of them are written anew, in one pass over them; of others only those
# that close, which a MERGE has to find first.
REWRITTEN = 20_000
_CLOSED = ("_cdc_to_ts", "_cdc_valid_to", "_cdc_is_current", "_cdc_closed_by")


@dataclass(frozen=True)
class TableReport:
    """What one run did to one history table."""

    database: str
    table: str
    after: int  # the releases in (after, through] were applied
    through: int
    created: bool
    changes: int  # released changes read
    opened: int  # versions
    closed: int  # versions that were open before
    quarantined: int  # values of these releases that are in quarantine
    versions: int  # in the whole table, after the run
    current: int
    files: list[DataFile] = field(default_factory=list)  # that it wrote
    columns: StructType = field(default_factory=StructType)
    told: list[str] = field(default_factory=list)  # for the log


@dataclass(frozen=True)
class _Open:
    """The open versions that the changes meet, and how what comes of them is written."""

    rows: DataFrame
    rewritten: bool  # all of the table's open versions are there


def apply(
    lake: Lakehouse, session: SparkSession, feed: Feed, work: Work, quarantine: Callable[[DataFrame], int]
) -> TableReport:
    """Bring one history table up to date; a table first seen is created.

    Args:
        lake: the feed's tables.
        session: a session of its own.
        feed: the feed.
        work: what is to be done.
        quarantine: puts values that were lost in typing into quarantine, and says how many are there then.

    Raises:
        ConcurrentRunError: another run wrote the table meanwhile.
    """
    few = work.changes <= SMALL
    changes = _changes(lake, session, work, few=few)
    read = readable(feed, work)
    scales = scales_seen(parse_images(changes, read.unknown_scale), read.unknown_scale) if read.unknown_scale else {}
    columns = columns_of(work, read, scales)
    shape = shape_of(work, columns)
    for statement in shape.statements:
        work.table.alter(session, work.cursor, lambda _, s=statement: session.sql(s))  # type: ignore[misc]
    typing = Typing(protocol_of(feed), feed.time_zone, work.layouts, columns)

    # Whether a value was lost is seen while the versions are computed, as another pass over the changes costs as much again.
    typed, watch = typing.typed(changes, few=few), Observation()
    watched = typed.observe(watch, F.max(F.col("lost").cast("int")).alias("lost"), F.count("*").alias("changes"))
    standing = _open_versions(session, work, shape, typing.schema, changes, few=few)
    numbered = number_copies(watched, standing.rows) if work.keyless else watched.withColumn("copy", F.lit(0))
    line = timeline(numbered, standing.rows)
    new = versions(boundaries(gathered(line) if few else line)).localCheckpoint()
    lost = quarantine(typing.problems(typed)) if watch.get["lost"] else 0
    return _written(session, work, shape, columns, new, standing, lost)


def _changes(lake: Lakehouse, session: SparkSession, work: Work, *, few: bool) -> DataFrame:
    """The table's changes in the releases to apply."""
    (database, table), column = work.name, F.col
    mine = (column("database") == database) & (column("table") == table)
    within = (column("release") > work.after) & (column("release") <= work.through)
    found = lake.released_changes.scan(session, work.files).where(within & mine)
    return gathered(found) if few else found


def _open_versions(
    session: SparkSession, work: Work, shape: Shape, schema: StructType, changes: DataFrame, *, few: bool
) -> _Open:
    """The open versions that `timeline` takes: those of the keys of `changes`, or, of a small table, all."""
    names = set(schema.names)
    ours = {f.name for f in shape.columns if f.name.startswith("_cdc_")}
    rest = [f.name for f in shape.columns if f.name not in names and f.name not in ours]

    def shaped(rows: DataFrame) -> DataFrame:
        row = [f"CAST({quoted(f.name)} AS {f.dataType.simpleString()}) AS {quoted(f.name)}" for f in schema]
        return rows.selectExpr(
            "_cdc_key AS key",
            f"{COPY.name if work.keyless else 0} AS copy",
            "_cdc_from_ts AS commit_ts",
            "_cdc_op AS op",
            "_cdc_topic AS topic",
            "_cdc_partition AS partition",
            "_cdc_offset AS offset",
            f"struct({', '.join(row)}) AS row",
            f"struct({', '.join(quoted(c) for c in ['_cdc_key', *rest])}) AS rest",
        )

    if work.present is None:
        return _Open(shaped(session.createDataFrame([], shape.columns)), rewritten=False)
    log = work.table.log()
    if few and log and log.plain and work.cursor.current <= REWRITTEN:
        found = work.table.scan(session, log.files(_cdc_is_current=True), shape.columns)
        return _Open(gathered(shaped(found)), rewritten=True)
    current = work.table.read(session).where(F.col("_cdc_is_current") == F.lit(True))
    keys = changes.select("key").distinct()
    if few:
        bounds = keys.agg(F.min("key"), F.max("key")).head() or ("", "")
        # By literal bounds Delta passes over whole files.
        current = current.where(F.col("_cdc_key").between(bounds[0], bounds[1]))
        keys = F.broadcast(keys)
    return _Open(shaped(current).join(keys, on="key", how="left_semi"), rewritten=False)


def _written(
    session: SparkSession,
    work: Work,
    shape: Shape,
    columns: list[SourceColumn],
    new: DataFrame,
    standing: _Open,
    lost: int,
) -> TableReport:
    """Write the versions, and advance the table's cursor, in one transaction."""
    table, cursor = work.table, work.cursor
    counts = {
        (r["standing"], r["open"]): r["count"]
        for r in new.groupBy("standing", F.col("to_ts").isNull().alias("open")).count().collect()
    }
    closed = counts.get((True, False), 0)
    opened = counts.get((False, False), 0) + counts.get((False, True), 0)
    advanced = HistoryCursor(
        sequence=cursor.sequence + 1,
        release=work.through,
        versions=cursor.versions + opened,
        current=cursor.current + counts.get((False, True), 0) - closed,
    )
    if closed and standing.rewritten:
        files = table.overwrite(_rows(new, shape, columns, work), advanced, {"_cdc_is_current": True}).files
    elif closed:
        before = {f.path for f in table.files()}
        touched = new.where(~F.col("standing") | F.col("to_ts").isNotNull())
        _merge(session, work, shape, _rows(touched, shape, columns, work, "standing"), advanced)
        files = [f for f in table.files() if f.path not in before]
    else:
        shaped = table.of_shape(shape.columns, shape.properties)
        files = shaped.append(_rows(new.where(~F.col("standing")), shape, columns, work), advanced).files
    database, name = work.name
    return TableReport(
        database=database,
        table=name,
        after=work.after,
        through=work.through,
        created=work.present is None,
        changes=work.changes,
        opened=opened,
        closed=closed,
        quarantined=lost,
        versions=advanced.versions,
        current=advanced.current,
        files=files,
        columns=shape.columns,
        told=shape.told,
    )


def _rows(new: DataFrame, shape: Shape, columns: list[SourceColumn], work: Work, *more: str) -> DataFrame:
    """Versions as rows of the table. In: `versions`."""
    ours = {
        "_cdc_key": "key",
        "_cdc_from_ts": "commit_ts",
        "_cdc_to_ts": "to_ts",
        "_cdc_valid_from": "timestamp_millis(shiftright(commit_ts, {bits}))",
        "_cdc_valid_to": "timestamp_millis(shiftright(to_ts, {bits}))",
        "_cdc_is_current": "to_ts IS NULL",
        "_cdc_op": "op",
        "_cdc_closed_by": "closed_by",
        "_cdc_topic": "topic",
        "_cdc_partition": "partition",
        "_cdc_offset": "offset",
        COPY.name: "copy",
    }
    own = {c.column for c in columns}

    def value(name: str) -> str:
        if name in ours:
            return ours[name].format(bits=tso.TSO_LOGICAL_BITS)
        return f"{'row' if name in own else 'rest'}.{quoted(name)}"

    listed = [f"{value(f.name)} AS {quoted(f.name)}" for f in shape.columns]
    frame = new.selectExpr(*listed, *more)
    return frame if more else frame.to(shape.columns)


def _merge(session: SparkSession, work: Work, shape: Shape, rows: DataFrame, cursor: HistoryCursor) -> None:
    """Close and open versions. A row that closes a version finds it by its key; one that opens a version must find none."""
    key: Column = F.when(F.col("standing"), F.col("_cdc_key"))
    source = rows.withColumn("_cdc_close_key", key).drop("standing").alias("s")
    same = "t._cdc_is_current = true AND t._cdc_key = s._cdc_close_key"
    if work.keyless:
        same += f" AND t.{COPY.name} = s.{COPY.name}"
    update = {c: F.col(f"s.{c}") for c in _CLOSED}
    inserted = {quoted(f.name): F.col(f"s.{quoted(f.name)}") for f in shape.columns}
    work.table.transact(
        session,
        cursor,
        lambda table: (
            table.alias("t")
            .merge(source, same)
            .whenMatchedUpdate(set=dict(update))
            .whenNotMatchedInsert("s._cdc_close_key IS NULL", values=inserted)
            .execute()
        ),
    )
