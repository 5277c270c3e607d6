"""One table's part of a run: its changes typed, chained into versions, and written in one commit."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets import tso
from cdc_assets.expressions import first_true
from cdc_assets.feeds import Feed
from cdc_assets.history.columns import SourceColumn, Typing, parse_images, scales_seen
from cdc_assets.history.completeness import NEVER, Completeness
from cdc_assets.history.effects import Unapplied, effects_of, unapplied
from cdc_assets.history.evolution import Arrive, Convert, Fill, Recover, Rekey
from cdc_assets.history.outcomes import outcomes
from cdc_assets.history.outcomes import together as statements_together
from cdc_assets.history.plan import Work, columns_of, readable
from cdc_assets.history.row_keys import row_key
from cdc_assets.history.shape import Shape, shape_of
from cdc_assets.history.statements import Spot
from cdc_assets.history.versions import DDL, GONE, Effects, boundaries, is_row, number_copies, timeline, versions
from cdc_assets.protocols import protocol_of
from cdc_assets.session import SMALL, gathered, settled
from cdc_assets.tables.change_events import Op
from cdc_assets.tables.history import COPY, HistoryCursor
from cdc_assets.tables.initial_load import LAST_ORDINAL, LOAD_TOPIC
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.log import DataFile
from cdc_assets.tables.schema import frame_of, literal, quoted
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
    statements: list[dict[str, Any]] = field(default_factory=list)  # of DDL that were applied, as `outcomes` has them
    unapplied: list[Unapplied] = field(default_factory=list)  # of these those of which not everything could be done
    reload: list[dict[str, Any]] = field(default_factory=list)  # as `HistoryCursor.reload`
    complete: int = NEVER  # as `HistoryCursor.complete`
    met: int = 0  # as `HistoryCursor.met`
    loaded: int = -1  # the position of the last load anew that was applied; -1: there was none


def together(lake: Lakehouse, parts: list[TableReport]) -> TableReport:
    """What the parts of one table's run did, one after the other."""
    *_, last = parts
    if len(parts) == 1:
        return last
    written = {f.path for part in parts for f in part.files}
    return replace(
        last,
        created=any(part.created for part in parts),
        opened=sum(part.opened for part in parts),
        closed=sum(part.closed for part in parts),
        quarantined=max(part.quarantined for part in parts),
        files=[f for f in lake.history(last.database, last.table).files() if f.path in written],
        told=[line for part in parts for line in part.told],
        statements=statements_together(each for part in parts for each in part.statements),
        unapplied=[each for part in parts for each in part.unapplied],
        loaded=max(part.loaded for part in parts),
    )


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
    if lost_key := _eras_without_key(work):
        changes = _shown(changes)
    work = _as_sent(work, changes)
    read = readable(feed, work)
    scales = {}
    if read.unknown_scale:
        names = {slot.id: read.names[slot] for slot in read.unknown_scale}
        scales = scales_seen(parse_images(changes, {n: n for n in names.values()}), names)
    columns = columns_of(work, read, scales)
    shape = shape_of(work, columns)
    for each in shape.alterations:
        now = replace(work.cursor, naming=dict(each.naming))
        work.table.alter(session, now, lambda _, s=each.statement: session.sql(s))  # type: ignore[misc]
    typing = Typing(protocol_of(feed), feed.time_zone, work.layouts, columns)
    effects = effects_of(work, columns, feed.time_zone)

    typed, watch = typing.typed(changes, few=few), Observation()
    if few:
        # A plan that went on from expressions for every column would take seconds to make.
        typed = settled(typed, eager=False)
    if lost_key:
        typed = _keyed_by_row(work, columns, lost_key, typed)
    # Whether a value was lost is seen while the versions are written, as another pass over the changes costs as much again.
    watched = typed.observe(watch, F.max(F.col("lost").cast("int")).alias("lost"))
    standing = _open_versions(session, work, shape, typing.schema, typed, _unmade(work, columns), few=few)
    arrived = _arrived(lake, session, feed, work, columns, effects)
    numbered = _numbered(work, watched, standing.rows, arrived, effects)
    if work.anew:
        gone = _gone_since(work, typed, standing.rows, arrived, typing.schema)
        numbered = numbered.unionByName(gone, allowMissingColumns=True)
    line = timeline(numbered, standing.rows, arrived)
    completeness, first = Completeness(lake, work), Observation()
    bounds = boundaries(gathered(line) if few else line, effects, first, completeness.since)
    chained = versions(bounds, effects)
    table = work.table.of_shape(shape.columns, shape.properties)
    staged = table.stage(_rows(chained, shape, columns, all_open=standing.all), by=_PART)
    lost = quarantine(typing.problems(typed)) if watch.get["lost"] else 0
    report = _counted(session, work, staged, lost)
    open_ones = unapplied(work, columns, staged, feed.time_zone) if report.versions else []
    complete, met = completeness.after(first.get["met"], first.get["read"])
    report = replace(
        report,
        columns=shape.columns,
        told=shape.told,
        statements=outcomes(work, staged),
        unapplied=open_ones,
        reload=_reload(work, open_ones),
        complete=complete,
        met=met,
        loaded=max(work.anew, default=-1),
    )
    return _committed(session, work, shape, standing, staged, report)


def _reload(work: Work, open_ones: list[Unapplied]) -> list[dict[str, Any]]:
    """The statements after which rows are wrong; a load that came after one has put them right."""
    found = [*work.cursor.reload, *(asdict(each) for each in open_ones if each.reload)]
    after = [r for r in found if r["commit_ts"] > max(work.anew, default=-1)]
    # What is applied anew is found once more.
    return [r for n, r in enumerate(after) if r not in after[:n]]


def _gone_since(
    work: Work, changes: DataFrame, standing: DataFrame, arrived: DataFrame | None, row: StructType
) -> DataFrame:
    """The rows that there were at the position of a load, and that it does not have: they end there.

    In: `changes`; open versions and rows that came from another table, as `timeline` has them; the type of rows. Out: as
    changes, of the op `GONE`.
    """
    frames = []
    for at in work.anew:
        before = F.col("commit_ts") <= at
        known = [frame.where(before).select("key") for frame in (standing, changes, arrived) if frame is not None]
        has = changes.where((F.col("commit_ts") == at) & (F.col("topic") == LOAD_TOPIC)).select("key")
        gone = reduce(DataFrame.unionAll, known).distinct().join(has, on="key", how="left_anti")
        frames.append(
            gone.select(
                "key",
                F.lit(0).alias("copy"),
                F.lit(at).cast("bigint").alias("commit_ts"),
                F.lit(work.through).cast("bigint").alias("release"),
                F.lit(LAST_ORDINAL).alias("ordinal"),
                F.lit(GONE).alias("op"),
                F.lit(None).cast(row).alias("row"),
                F.lit(LOAD_TOPIC).alias("topic"),
                F.lit(0).alias("partition"),
                F.lit(0).cast("bigint").alias("offset"),
                F.lit(None).cast("struct<file: string, position: bigint>").alias("source"),
            )
        )
    every = reduce(DataFrame.unionAll, frames).withColumn("era", _era(work)).drop("source")
    return every.where(F.col("era").between(*work.eras))


def _as_sent(work: Work, changes: DataFrame) -> Work:
    """The work with those layouts alone that its rows have: one that comes back after a statement has had none between."""
    if len({layout.era for layout in work.layouts}) <= 1:
        return work
    found = {(r["layout_id"], r["era"]) for r in changes.select("layout_id", "era").distinct().collect()}
    return replace(work, layouts=[each for each in work.layouts if (each.layout_id, each.era) in found])


def _eras_without_key(work: Work) -> list[int]:
    """The eras of the changes in which the table has lost its key."""
    first, last = work.among
    return [era for era in range(first, last + 1) if work.evolution.by_row(era)]


def _shown(changes: DataFrame) -> DataFrame:
    """Where the whole row is the key, also a deletion shows the row."""
    return changes.withColumn(
        "after", F.when(is_row(F.col("key")), F.coalesce("after", "key")).otherwise(F.col("after"))
    )


def _keyed_by_row(work: Work, columns: list[SourceColumn], eras: list[int], typed: DataFrame) -> DataFrame:
    """The changes with the key that they have where the table has lost its own: that of its rows of before, too.

    In: `Typing.typed`, of `_shown`; deletions show no row again.
    """
    told = [(F.col("era") == era, row_key(F.col("row"), work.evolution.live(era), columns)) for era in eras]
    key = F.when(is_row(F.col("key")), first_true(*told).otherwise(F.col("key"))).otherwise(F.col("key"))
    there = F.col("op") != str(Op.DELETE)
    return typed.withColumns({"key": key, "row": F.when(there, F.col("row")), "lost": F.col("lost") & there})


def _numbered(
    work: Work, changes: DataFrame, standing: DataFrame, arrived: DataFrame | None, effects: Effects
) -> DataFrame:
    """The changes with the `copy` of the row that each is about."""
    if not work.keyless:
        return changes.withColumn("copy", F.lit(0))
    there = standing if arrived is None else standing.unionByName(arrived, allowMissingColumns=True)
    return number_copies(changes, there, effects)


def _changes(lake: Lakehouse, session: SparkSession, work: Work, *, few: bool) -> DataFrame:
    """The table's changes in the releases to apply."""
    (database, table), column = work.name, F.col
    mine = (column("database") == database) & (column("table") == table)
    within = column("release") <= work.through
    within &= (column("release") > work.after) if work.replay is None else (column("commit_ts") >= work.replay)
    found = lake.released_changes.scan(session, work.files).where(within & mine).withColumn("era", _era(work))
    first, last = work.eras
    if first or last < len(work.evolution.steps):
        of_part = column("era").between(first, last)
        if work.cursor.partly is not None and work.cursor.partly[0] < work.through:
            of_part |= (column("release") > work.cursor.partly[0]) & (column("era") <= last)
        found = found.where(of_part)
    return gathered(found) if few else found


def _era(work: Work) -> Column:
    """How many statements have come before a change. INT."""
    low, high = work.among
    spots = [step.spot for step in work.evolution.steps[low:high]]
    return reduce(lambda era, spot: era + F.when(_after(spot), 1).otherwise(0), spots, F.lit(low))


def _after(spot: Spot) -> Column:
    """Whether a change came after a statement: by the binlog, else by the clock, and by Kafka within one partition.

    Debezium 1.9 stamps statements with its own clock.
    """
    same = F.col("commit_ts") == spot.commit_ts
    in_partition = (F.col("topic") == spot.topic) & (F.col("partition") == spot.partition)
    behind = in_partition & (F.col("offset") > spot.offset)
    later = (F.col("commit_ts") > spot.commit_ts) | (same & behind)
    if spot.place is None:
        return later
    file, position = spot.place
    in_file = (F.col("source.file") == file) & (F.col("source.position") > position)
    return F.coalesce((F.col("source.file") > file) | in_file, later)


def _unmade(work: Work, columns: list[SourceColumn]) -> set[str]:
    """The columns that statements after a load made, and filled in rows of before: these go back to what the load found."""
    if not (work.rewinds and work.anew):
        return set()
    made = [op for step in work.steps for op in step.ops if isinstance(op, Fill | Convert)]
    ids = {op.slot.id for op in made if isinstance(op, Fill) or op.slot.id != op.origin.id}
    return {c.column for c in columns if c.id in ids}


def _open_versions(
    session: SparkSession,
    work: Work,
    shape: Shape,
    schema: StructType,
    changes: DataFrame,
    unmade: set[str],
    *,
    few: bool,
) -> _Open:
    """The open versions that `timeline` takes: those of the keys of `changes`, or, of a small table, all.

    `unmade`: the columns that they do not have yet.
    """
    names = set(schema.names)
    ours = {f.name for f in shape.columns if f.name.startswith("_cdc_")}
    rest = [f.name for f in shape.columns if f.name not in names and f.name not in ours]

    def shaped(rows: DataFrame) -> DataFrame:
        value = {f.name: "NULL" if f.name in unmade else quoted(f.name) for f in schema}
        row = [f"CAST({value[f.name]} AS {f.dataType.simpleString()}) AS {quoted(f.name)}" for f in schema]
        return rows.selectExpr(
            "_cdc_key AS key",
            f"{_copy_in(shape.columns.names)} AS copy",
            "_cdc_from_ts AS commit_ts",
            f"{work.base} AS era",
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
    if work.rewinds:
        return _Open(shaped(work.table.read(session).where(_of_before(work))), all=True)
    if work.changes_open or work.anew:
        # Statements end them, or give them other values, or a load may not have them: all of them.
        return _Open(shaped(work.table.read(session).where(F.col("_cdc_is_current") == F.lit(True))), all=True)
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


def _copy_in(names: Iterable[str]) -> str:
    """The copy that a version of a history table with these columns is; 0 where its row has a key."""
    return f"coalesce({COPY.name}, 0)" if COPY.name in names else "0"


def _of_before(work: Work) -> Column:
    """The versions that were open at the commit_ts to which the table goes back."""
    begin = F.lit(work.replay)
    return (F.col("_cdc_from_ts") < begin) & ~F.coalesce(F.col("_cdc_to_ts") < begin, F.lit(False))


def _gone(work: Work) -> str:
    """Which versions are written anew."""
    if not work.rewinds:
        return "_cdc_is_current = true"
    return f"_cdc_from_ts >= {work.replay} OR _cdc_to_ts >= {work.replay} OR _cdc_is_current = true"


def _arrived(
    lake: Lakehouse, session: SparkSession, feed: Feed, work: Work, columns: list[SourceColumn], effects: Effects
) -> DataFrame | None:
    """Rows that statements bring into the table. Out: as changes, in `timeline`; None: there are none."""
    frames = []
    for era, step in enumerate(work.steps, start=work.base):
        for op in step.ops:
            if isinstance(op, Recover):
                frames.append(_came(step.spot, era, work.table.read(session), (-1, op.dropped), "drop", None, columns))
            elif isinstance(op, Rekey):
                frames.append(_rekeyed(session, work, step.spot, era, op, columns, effects))
            elif isinstance(op, Arrive) and feed.takes(*op.origin):
                origin = lake.history(*op.origin)
                if origin.exists():
                    named = {mine.id: theirs.column for mine, theirs in op.columns.items()}
                    at = step.spot.commit_ts
                    frames.append(_came(step.spot, era, origin.read(session), (op.since, at), "rename", named, columns))
    return reduce(DataFrame.unionByName, frames) if frames else None


def _rekeyed(
    session: SparkSession,
    work: Work,
    spot: Spot,
    era: int,
    op: Rekey,
    columns: list[SourceColumn],
    effects: Effects,
) -> DataFrame:
    """Rows that ended as their key changed, under the new one. Out: as `_came`."""
    ended, at = work.table.read(session), spot.commit_ts
    if op.by_row is not None:
        # Of one commit_ts another change of the key may have ended rows.
        ended = ended.where(is_row(F.col("_cdc_key")) == F.lit(op.by_row))
    if op.columns:
        key = ", ".join(f"CAST({quoted(s.column)} AS STRING)" for s in op.columns)
        ended = ended.withColumn("_cdc_key", F.expr(f"to_json(array({key}))"))
    came = _came(spot, era, ended, (at - 1, at), "ddl", None, columns).withColumn("copy", F.lit(0))
    if not op.columns:
        row = effects.kept(F.col("row"), F.lit(era), F.lit(era + 1))
        came = came.withColumn("key", row_key(row, work.evolution.live(era + 1), columns))
    of_key = Window.partitionBy("key").orderBy(F.desc("began"), "topic", "partition", "offset")
    numbered = came.withColumn("n", F.row_number().over(of_key))
    if op.columns:
        # Of rows that have one key now the one that was written last: under the key of before they were not told apart.
        return numbered.where("n = 1").drop("n")
    return numbered.withColumn("copy", F.col("n")).drop("n")


def _came(
    spot: Spot,
    era: int,
    rows: DataFrame,
    ended: tuple[int, int],
    reason: str,
    named: Mapping[str, str] | None,
    columns: list[SourceColumn],
) -> DataFrame:
    """Versions that ended after a commit_ts, up to another, for a reason, as rows that begin with a statement.

    `named`: ids of columns -> their names in `rows`; None: as in the table itself.
    """
    there = {name.lower() for name in rows.columns}

    def value(c: SourceColumn) -> str:
        own = c.column if named is None else named.get(c.id, "")
        held = quoted(own) if own.lower() in there else "NULL"
        return f"CAST({held} AS {c.target.simpleString()}) AS {quoted(c.column)}"

    after, until = ended
    within = (F.col("_cdc_to_ts") > after) & (F.col("_cdc_to_ts") <= until)
    ours = rows.where(within & (F.col("_cdc_closed_by") == reason))
    return ours.selectExpr(
        "_cdc_key AS key",
        f"{_copy_in(there)} AS copy",
        f"{era} AS era",
        f"CAST({spot.commit_ts} AS BIGINT) AS commit_ts",
        "CAST(0 AS BIGINT) AS release",
        "0 AS ordinal",
        f"'{DDL}' AS op",
        f"struct({', '.join(value(c) for c in columns)}) AS row",
        f"{literal(spot.topic)} AS topic",
        f"{spot.partition} AS partition",
        f"CAST({spot.offset} AS BIGINT) AS offset",
        "_cdc_from_ts AS began",
    )


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
        COPY.name: "nullif(copy, 0)",
    }
    own = {c.column for c in columns}

    def value(name: str) -> str:
        return ours.get(name) or f"{'row' if name in own else 'rest'}.{quoted(name)}"

    part = f"CASE WHEN NOT standing THEN '{_OPENED}' WHEN to_ts IS NULL THEN '{_UNTOUCHED}' ELSE '{_CLOSED}' END AS {_PART}"
    kept = chained if all_open else chained.where(~F.col("standing") | F.col("to_ts").isNotNull())
    return kept.selectExpr(*[f"{value(f.name)} AS {quoted(f.name)}" for f in shape.columns], part)


def _counted(session: SparkSession, work: Work, staged: Staged, lost: int) -> TableReport:
    """What the files say of the run."""
    opened, closed = staged.only(**{_PART: _OPENED}), staged.only(**{_PART: _CLOSED})
    still_open = opened.only(_cdc_is_current=True)
    versions, current = work.cursor.versions + opened.rows, work.cursor.current + still_open.rows - closed.rows
    if work.rewinds:
        versions = work.cursor.versions - work.table.read(session).where(_gone(work)).count() + staged.rows
        current = staged.only(_cdc_is_current=True).rows
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
        versions=versions,
        current=current,
    )


def _committed(
    session: SparkSession, work: Work, shape: Shape, standing: _Open, staged: Staged, report: TableReport
) -> TableReport:
    """Make the versions part of the table and advance its cursor, in one commit."""
    table = work.table.of_shape(shape.columns, shape.properties)
    cursor = HistoryCursor(
        sequence=work.cursor.sequence + 1,
        release=work.through if work.whole else work.after,
        versions=report.versions,
        current=report.current,
        statements=list(dict.fromkeys(work.statements)),
        newest=max([work.cursor.newest, work.last or -1, *(step.spot.commit_ts for step in work.steps)]),
        partly=None if work.whole else (work.through, work.eras[1], -1 if work.replay is None else work.replay),
        naming=None if work.whole else dict(shape.naming),
        reload=report.reload,
        complete=report.complete,
        met=report.met,
    )
    if shape.properties:
        table.create_by_spark(session)
    else:
        table.create()
    log, opened = table.log(), staged.only(**{_PART: _OPENED})
    if log and log.open and not report.closed and not work.changes_open and not work.rewinds:
        table.commit(opened, cursor)
        return replace(report, files=opened.files)
    if log and log.open and standing.all and not work.rewinds:
        table.commit(staged, cursor, over={"_cdc_is_current": True})
        return replace(report, files=staged.files)
    before = {f.path for f in table.files()}
    if standing.all:
        _replace(session, work, shape, staged, cursor)
    elif report.closed:
        _merge(session, work, shape, staged, cursor)
    else:
        rows = work.table.scan(session, opened.files, shape.columns)
        work.table.transact(session, cursor, lambda _: rows.write.format("delta").mode("append").save(work.table.path))
    return replace(report, files=[f for f in table.files() if f.path not in before])


def _replace(session: SparkSession, work: Work, shape: Shape, staged: Staged, cursor: HistoryCursor) -> None:
    """Write all open versions anew, those that close now among them."""
    rows = work.table.scan(session, staged.files, shape.columns)
    writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", _gone(work))
    # Versions that close are no longer where they were.
    session.conf.set("spark.databricks.delta.replaceWhere.constraintCheck.enabled", "false")
    work.table.transact(session, cursor, lambda _: writer.save(work.table.path))


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
        same += f" AND t.{COPY.name} <=> s.{COPY.name}"
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
