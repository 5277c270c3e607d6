"""One table's part of a run: its changes typed, chained into versions, and written in one commit."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets import tso
from cdc_assets.config import Feed
from cdc_assets.history import days
from cdc_assets.history.arrivals import arrivals_of, gone_since, rows_that_arrive
from cdc_assets.history.chain_breaks import NO_BREAKS, ChainBreaks, chain_breaks, value_changes
from cdc_assets.history.changes import are_ordered_by_clock, as_sent, changes_of, with_copy_numbers
from cdc_assets.history.columns import SourceColumn, Typing, measure_scales, parse_images
from cdc_assets.history.completeness import NEVER, CompletenessTracker
from cdc_assets.history.contradictions import Contradiction, find_contradictions
from cdc_assets.history.ddl_report import merge_reports, report_statements
from cdc_assets.history.effects import Unapplied, effects_of, unapplied
from cdc_assets.history.planned_columns import plan_columns, resolve_columns
from cdc_assets.history.row_keys import eras_without_key, fill_deleted_rows, key_by_row
from cdc_assets.history.shape import Shape, plan_shape
from cdc_assets.history.standing import open_versions, unmade
from cdc_assets.history.versions import boundaries, continue_versions, timeline, versions
from cdc_assets.history.work import Work
from cdc_assets.lakehouse.history import COPY, HistoryCursor
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.schema import literal, quoted
from cdc_assets.lakehouse.table import Staged
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Watermarks
from cdc_assets.spark.session import checkpointed, compiled_plans

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
    statements: list[dict[str, Any]] = field(default_factory=list)  # as `report_statements`
    unapplied: list[Unapplied] = field(default_factory=list)  # of these those of which not everything could be done
    reload: list[dict[str, Any]] = field(default_factory=list)  # as `HistoryCursor.reload`
    complete: int = NEVER  # as `HistoryCursor.complete`
    met: int = 0  # as `HistoryCursor.met`
    breaks: ChainBreaks = NO_BREAKS  # changes that found another row than the history has
    contradictions: list[Contradiction] = field(default_factory=list)  # rows that contradict a statement before them
    days: dict[str, int] = field(default_factory=dict)  # as `HistoryCursor.days`
    loaded: int = -1  # the position of the last load anew that was applied; -1: there was none
    commits: int = 1  # that it made


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
        statements=merge_reports(each for part in parts for each in part.statements),
        unapplied=[each for part in parts for each in part.unapplied],
        loaded=max(part.loaded for part in parts),
        breaks=ChainBreaks(
            sum(part.breaks.count for part in parts), [row for part in parts for row in part.breaks.sample]
        ),
        contradictions=[each for part in parts for each in part.contradictions],
        commits=len(parts),
    )


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
    changes = changes_of(lake, session, work)
    if lost_key := eras_without_key(work):
        changes = fill_deleted_rows(changes)
    work = as_sent(work, changes)
    planned = plan_columns(feed, work)
    scales = {}
    if planned.unknown_scale:
        names = {slot.id: planned.names[slot] for slot in planned.unknown_scale}
        scales = measure_scales(parse_images(changes, {n: n for n in names.values()}), names)
    columns = resolve_columns(work, planned, scales)
    shape = plan_shape(work, columns)
    for each in shape.alterations:
        now = replace(work.cursor, naming=dict(each.naming))
        work.table.alter(session, now, lambda _, s=each.statement: session.sql(s))  # type: ignore[misc]
    typing = Typing(protocol_of(feed), feed.time_zone, work.layouts, columns)
    effects = effects_of(work, columns, feed.time_zone)
    if effects.replacement is not None and not are_ordered_by_clock(lake, session, work, effects.replacement):
        effects = replace(effects, replacement=None)

    # A plan that went on from expressions for every column would take seconds to make.
    typed, watch = checkpointed(typing.type_rows(changes), eager=False), Observation()
    if lost_key:
        typed = key_by_row(work, columns, lost_key, typed)
    # Whether a value was lost is seen while the versions are written, as another pass over the changes costs as much again.
    watched = typed.observe(watch, F.max(F.col("lost").cast("int")).alias("lost"))
    standing = open_versions(session, work, shape, typing.schema, typed, unmade(work, columns))
    arrivals = arrivals_of(lake, feed, work)
    arrived = rows_that_arrive(session, work, arrivals, columns, effects)
    numbered = with_copy_numbers(work, watched, standing, arrived, effects)
    if work.anew:
        gone = gone_since(work, typed, standing, arrived, typing.schema)
        numbered = numbered.unionByName(gone, allowMissingColumns=True)
    line = timeline(numbered, standing, arrived)
    completeness, first = CompletenessTracker(lake, work), Observation()
    bounds = boundaries(line, effects, first, completeness.since)
    chained = versions(continue_versions(bounds, effects), effects)
    table = work.table.with_schema(shape.columns, shape.properties)
    rows = version_rows(chained, shape.columns, columns, all_open=work.takes_all)
    staged = table.stage(rows, by=_PART)
    lost = quarantine(typing.find_problems(typed)) if watch.get["lost"] else 0
    report = _counted(session, work, staged, lost)
    open_ones = unapplied(work, columns, staged, feed.time_zone) if report.versions else []
    complete, met = completeness.advance(first.get["met"])
    exact = protocol_of(feed).watermarks(feed) is Watermarks.ALWAYS
    breaks = NO_BREAKS
    if first.get.get("unlike"):
        breaks = chain_breaks(line, columns, effects, value_changes(work), exact=exact)
    contradicting = find_contradictions(changes, work.suspicions, exact=exact) if work.suspicions else []
    report = replace(
        report,
        columns=shape.columns,
        told=shape.messages,
        statements=report_statements(work, staged),
        unapplied=open_ones,
        reload=_reload(work, open_ones),
        complete=complete,
        met=met,
        breaks=breaks,
        contradictions=contradicting,
        loaded=max(work.anew, default=-1),
    )
    return _committed(session, work, shape, staged, report)


def _reload(work: Work, open_ones: list[Unapplied]) -> list[dict[str, Any]]:
    """The statements after which rows are wrong; a load that came after one has put them right."""
    found = [*work.cursor.reload, *(asdict(each) for each in open_ones if each.reload)]
    after = [r for r in found if r["commit_ts"] > max(work.anew, default=-1)]
    # What is applied anew is found once more.
    return [r for n, r in enumerate(after) if r not in after[:n]]


def _gone(work: Work) -> str:
    """Which versions are written anew."""
    if not work.rewinds:
        return f"_cdc_is_current = true OR {work.reopens}" if work.reopens else "_cdc_is_current = true"
    return f"_cdc_from_ts >= {work.replay} OR _cdc_to_ts >= {work.replay} OR _cdc_is_current = true"


def version_rows(
    chained: DataFrame, shape: StructType, columns: Iterable[SourceColumn], more: Iterable[str] = (), *, all_open: bool
) -> DataFrame:
    """Versions as rows of the table of this shape, with what becomes of them, and with `more` columns.

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
    return kept.selectExpr(*[f"{value(f.name)} AS {quoted(f.name)}" for f in shape], part, *more)


def _counted(session: SparkSession, work: Work, staged: Staged, lost: int) -> TableReport:
    """What the files say of the run."""
    opened, closed = staged.in_partition(**{_PART: _OPENED}), staged.in_partition(**{_PART: _CLOSED})
    still_open = opened.in_partition(_cdc_is_current=True)
    versions, current = work.cursor.versions + opened.rows, work.cursor.current + still_open.rows - closed.rows
    written, gone = opened, None
    if work.rewinds:
        before, gone = days.counted_by_spark(work.table.read(session).where(_gone(work)))
        versions, written = work.cursor.versions - before + staged.rows, staged
    if work.rewinds or work.reopens:
        # Not only open versions are written anew.
        current = staged.in_partition(_cdc_is_current=True).rows
    # File by file: a load opens as many as there are rows.
    began = sum((days.counted(work.table.fetch([f], "_cdc_from_ts", "_cdc_op")) for f in written.files), Counter[str]())
    database, name = work.name
    return TableReport(
        database=database,
        table=name,
        after=work.after,
        through=work.through,
        created=work.present is None,
        changes=work.changes,
        opened=opened.rows,
        closed=0 if work.reopens else closed.rows,  # the part before has counted them
        quarantined=lost,
        versions=versions,
        current=current,
        days=days.after(work.cursor.days, began, gone),
    )


def _committed(session: SparkSession, work: Work, shape: Shape, staged: Staged, report: TableReport) -> TableReport:
    """Make the versions part of the table and advance its cursor, in one commit."""
    table = work.table.with_schema(shape.columns, shape.properties)
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
        days=report.days,
        adopted=work.cursor.adopted,
    )
    if shape.properties:
        table.create_by_spark(session)
    else:
        table.create()
    before = {f.path for f in table.files()}
    if work.rewinds or work.changes_open or (work.takes_all and report.closed):
        _replace(session, work, shape, staged, cursor)
    elif report.closed:
        _merge(session, work, shape, staged, cursor)
    else:
        _append(session, work, shape, staged, cursor)
    return replace(report, files=[f for f in table.files() if f.path not in before])


def _append(session: SparkSession, work: Work, shape: Shape, staged: Staged, cursor: HistoryCursor) -> None:
    """Add the versions that open; no open version closes or gets other values."""
    rows = work.table.read_staged(session, staged.in_partition(**{_PART: _OPENED}), shape.columns)
    work.table.transact(session, cursor, lambda _: rows.write.format("delta").mode("append").save(work.table.path))


def _replace(session: SparkSession, work: Work, shape: Shape, staged: Staged, cursor: HistoryCursor) -> None:
    """Write all open versions anew, those that close now among them."""
    rows = work.table.read_staged(session, staged, shape.columns)
    writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", _gone(work))
    # Versions that close are no longer where they were.
    session.conf.set("spark.databricks.delta.replaceWhere.constraintCheck.enabled", "false")
    work.table.transact(session, cursor, lambda _: writer.save(work.table.path))


def _merge(session: SparkSession, work: Work, shape: Shape, staged: Staged, cursor: HistoryCursor) -> None:
    """Close the open versions that the staged rows close, and insert those that they open."""
    opened, closed = staged.in_partition(**{_PART: _OPENED}), staged.in_partition(**{_PART: _CLOSED})
    rows = [
        work.table.read_staged(session, part, shape.columns).withColumn("_cdc_closes", F.lit(part is closed))
        for part in (opened, closed)
    ]
    same = ["new._cdc_closes", "old._cdc_key = new._cdc_key", "old._cdc_is_current = true"]
    if COPY.name in shape.columns.names:
        same.append(f"old.{COPY.name} <=> new.{COPY.name}")
    # By literals Delta passes over whole files. Parquet states no bounds of long keys.
    if all("_cdc_key" in file.high for file in closed.files):
        low, high = (min(f.low["_cdc_key"] for f in closed.files), max(f.high["_cdc_key"] for f in closed.files))
        same.append(f"old._cdc_key BETWEEN {literal(low)} AND {literal(high)}")

    def merge(table: DeltaTable) -> None:
        merging = table.alias("old").merge(reduce(DataFrame.unionAll, rows).alias("new"), " AND ".join(same))
        merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    # However few rows close, all files that may hold them are read.
    with compiled_plans(session):
        work.table.transact(session, cursor, merge)
