"""One table's part of a run: its changes typed, chained into versions, and written in one commit."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets import tso
from cdc_assets.feeds import Feed
from cdc_assets.history.columns import SourceColumn, Typing, parse_images, scales_seen, spellings
from cdc_assets.history.plan import Shape, Work, columns_of, readable, shape_of
from cdc_assets.history.versions import boundaries, number_copies, timeline, versions
from cdc_assets.protocols import protocol_of
from cdc_assets.session import SMALL, gathered
from cdc_assets.tables.history import COPY, HistoryCursor
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.log import DataFile
from cdc_assets.tables.schema import frame_of, quoted
from cdc_assets.tables.table import Staged

# Of a table with fewer open versions than this all of them are written anew, in one pass over them; of others only those
# that close, which a MERGE has to find first.
REWRITTEN = 20_000
_CLOSING = ("_cdc_to_ts", "_cdc_valid_to", "_cdc_is_current", "_cdc_closed_by")
# What becomes of a version in this run, and so which files it is written into.
_PART, _OPENED, _CLOSED, _UNTOUCHED = "_part", "opened", "closed", "untouched"


@dataclass(frozen=True)
class TableReport:
    """What one run did to one history table."""

    database: str
    table: str
    after: int  # the releases in (after, through] were applied
    through: int
    created: bool
    changes: int  # row events of these releases
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
    """The open versions that the changes meet; `all`: they are all that the table has, and small enough to write anew."""

    rows: DataFrame
    all: bool


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
    scales = {}
    if read.unknown_scale:
        scales = scales_seen(parse_images(changes, read.unknown_scale, spellings(read.readings)), read.unknown_scale)
    columns = columns_of(work, read, scales)
    shape = shape_of(work, columns)
    for statement in shape.statements:
        work.table.alter(session, work.cursor, lambda _, s=statement: session.sql(s))  # type: ignore[misc]
    typing = Typing(protocol_of(feed), feed.time_zone, work.layouts, columns)

    typed, watch = typing.typed(changes, few=few), Observation()
    if few:
        # A plan that went on from expressions for every column would take seconds to make.
        typed = typed.localCheckpoint(eager=False)
    # Whether a value was lost is seen while the versions are written, as another pass over the changes costs as much again.
    watched = typed.observe(watch, F.max(F.col("lost").cast("int")).alias("lost"))
    standing = _open_versions(session, work, shape, typing.schema, changes, few=few)
    numbered = number_copies(watched, standing.rows) if work.keyless else watched.withColumn("copy", F.lit(0))
    line = timeline(numbered, standing.rows)
    chained = versions(boundaries(gathered(line) if few else line))
    table = work.table.of_shape(shape.columns, shape.properties)
    staged = table.stage(_rows(chained, shape, columns, all_open=standing.all), by=[_PART])
    lost = quarantine(typing.problems(typed)) if watch.get["lost"] else 0
    report = _counted(work, staged, lost)
    return replace(_committed(session, work, shape, standing, staged, report), columns=shape.columns, told=shape.told)


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
        return _Open(shaped(frame_of(session, [], shape.columns)), all=False)
    log = work.table.log()
    if few and log and log.plain and work.cursor.current <= REWRITTEN:
        found = work.table.scan(session, log.files(_cdc_is_current=True), shape.columns)
        return _Open(gathered(shaped(found)), all=True)
    current = work.table.read(session).where(F.col("_cdc_is_current") == F.lit(True))
    keys = changes.select("key").distinct()
    if few:
        bounds = keys.agg(F.min("key"), F.max("key")).head() or ("", "")
        # By literal bounds Delta passes over whole files.
        current = current.where(F.col("_cdc_key").between(bounds[0], bounds[1]))
        keys = F.broadcast(keys)
    return _Open(shaped(current).join(keys, on="key", how="left_semi"), all=False)


def _rows(chained: DataFrame, shape: Shape, columns: list[SourceColumn], *, all_open: bool) -> DataFrame:
    """Versions as rows of the table, with what becomes of them.

    In: `versions`. Out: the table's columns, and `_part` STRING; open versions that stay so only if they are all there.
    """
    milliseconds = "timestamp_millis(shiftright({ts}, {bits}))"
    ours = {
        "_cdc_key": "key",
        "_cdc_from_ts": "commit_ts",
        "_cdc_to_ts": "to_ts",
        "_cdc_valid_from": milliseconds.format(ts="commit_ts", bits=tso.TSO_LOGICAL_BITS),
        "_cdc_valid_to": milliseconds.format(ts="to_ts", bits=tso.TSO_LOGICAL_BITS),
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
        return ours.get(name) or f"{'row' if name in own else 'rest'}.{quoted(name)}"

    part = f"CASE WHEN NOT standing THEN '{_OPENED}' WHEN to_ts IS NULL THEN '{_UNTOUCHED}' ELSE '{_CLOSED}' END AS {_PART}"
    kept = chained if all_open else chained.where(~F.col("standing") | F.col("to_ts").isNotNull())
    return kept.selectExpr(*[f"{value(f.name)} AS {quoted(f.name)}" for f in shape.columns], part)


def _counted(work: Work, staged: Staged, lost: int) -> TableReport:
    """What the files say of the run."""
    opened, closed = staged.only(**{_PART: _OPENED}), staged.only(**{_PART: _CLOSED})
    still_open = opened.only(_cdc_is_current=True)
    database, name = work.name
    return TableReport(
        database=database,
        table=name,
        after=work.after,
        through=work.through,
        created=work.present is None,
        changes=work.changes,
        opened=opened.rows,
        closed=closed.rows,
        quarantined=lost,
        versions=work.cursor.versions + opened.rows,
        current=work.cursor.current + still_open.rows - closed.rows,
    )


def _committed(
    session: SparkSession, work: Work, shape: Shape, standing: _Open, staged: Staged, report: TableReport
) -> TableReport:
    """Make the versions part of the table and advance its cursor, in one commit."""
    table = work.table.of_shape(shape.columns, shape.properties)
    cursor = HistoryCursor(
        sequence=work.cursor.sequence + 1,
        release=work.through,
        versions=report.versions,
        current=report.current,
    )
    if shape.properties:
        table.create_by_spark(session)
    else:
        table.create()
    log, opened = table.log(), staged.only(**{_PART: _OPENED})
    if log and log.open and not report.closed:
        table.commit(opened, cursor)
        return replace(report, files=opened.files)
    if log and log.open and standing.all:
        table.commit(staged, cursor, over={"_cdc_is_current": True})
        return replace(report, files=staged.files)
    before = {f.path for f in table.files()}
    if report.closed:
        _merge(session, work, shape, staged, cursor)
    else:
        rows = work.table.scan(session, opened.files, shape.columns)
        work.table.transact(session, cursor, lambda _: rows.write.format("delta").mode("append").save(work.table.path))
    return replace(report, files=[f for f in table.files() if f.path not in before])


def _merge(session: SparkSession, work: Work, shape: Shape, staged: Staged, cursor: HistoryCursor) -> None:
    """Close and open versions. A row that closes a version finds it by its key; one that opens a version must find none."""
    key: Column = F.col("_cdc_key")
    frames = [
        work.table.scan(session, staged.only(**{_PART: part}).files, shape.columns).withColumn(
            "_cdc_close_key", key if part == _CLOSED else F.lit(None).cast("string")
        )
        for part in (_OPENED, _CLOSED)
    ]
    source = frames[0].unionByName(frames[1]).alias("s")
    same = "t._cdc_is_current = true AND t._cdc_key = s._cdc_close_key"
    if work.keyless:
        same += f" AND t.{COPY.name} = s.{COPY.name}"
    update = {c: F.col(f"s.{c}") for c in _CLOSING}
    inserted: dict[str, str | Column] = {quoted(f.name): F.col(f"s.{quoted(f.name)}") for f in shape.columns}
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
