"""What a history table promises, held against what was written: one look at all tables that a run wrote."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets.history.progress import Name
from cdc_assets.history.writer import TableReport
from cdc_assets.session import SMALL, gathered, session_for
from cdc_assets.tables.change_events import Op
from cdc_assets.tables.history import CDC_COLUMNS, COPY
from cdc_assets.tables.lakehouse import Lakehouse, path_segment
from cdc_assets.tables.log import DataFile
from cdc_assets.tables.released_changes import ReleasedKind

# What closes a version so that the next one need not begin where it ends.
_ENDINGS = ("delete", "truncate", "drop", "rename")
_SLIM = StructType(
    [
        f
        for f in [*CDC_COLUMNS, COPY]
        if f.name not in {"_cdc_valid_from", "_cdc_valid_to"}
    ]
)
SHOWN = 50

Broken = dict[str, Any]  # `rule`, and what tells the version


def verify(lake: Lakehouse, reports: Sequence[TableReport]) -> dict[Name, list[Broken]]:
    """Check the versions that these parts of a run wrote.

    Per key: no overlap, no gap that a delete does not explain, at most one open version; and after its last change one open
    version, or none if that change was a delete.

    Returns:
        (database, table) -> the versions, or keys, that break a promise; at most `SHOWN` of each.
    """
    written = [r for r in reports if r.files]
    if not written:
        return {}
    rows = sum(f.rows for r in written for f in r.files)
    spark = session_for(lake.spark, rows)
    found = _versions(lake, spark, written)
    changes = _changes(lake, spark, written)
    if rows <= SMALL:
        found, changes = gathered(found), gathered(changes)
    chained = violations(found, ["place", "_cdc_key", COPY.name]).select("place", *_REPORTED)
    broken = chained.unionByName(_unreflected(found, changes), allowMissingColumns=True)
    names = {_place(r): (r.database, r.table) for r in written}
    shown: dict[Name, list[Broken]] = {}
    for r in broken.limit(SHOWN * len(written)).collect():
        row = r.asDict()
        shown.setdefault(names[row.pop("place")], []).append(row)
    return shown


def _place(report: TableReport) -> str:
    """Where a table's files lie, as Spark spells it."""
    return "/".join(quote(path_segment(name)) for name in (report.database, report.table))


def _versions(lake: Lakehouse, spark: SparkSession, written: Sequence[TableReport]) -> DataFrame:
    """The versions in the files that the run wrote. Out: `place` STRING, the columns of `_SLIM`."""
    plain: list[DataFile] = []
    frames = []
    for report in written:
        table = lake.history(report.database, report.table)
        log = table.log()
        if log and log.properties.get("delta.columnMapping.mode", "none") == "none":
            plain += report.files
            continue
        rows = table.read(spark).where(F.col("_metadata.file_name").isin(*[f.path.rsplit("/", 1)[-1] for f in report.files]))
        slim = [c if c in rows.columns else F.lit(None).cast("int").alias(c) for c in _SLIM.names]
        frames.append(rows.select(F.lit(_place(report)).alias("place"), *slim))
    if plain:
        inner = StructType([f for f in _SLIM if f.name != "_cdc_is_current"])
        for current in (True, False):
            paths = [f.path for f in plain if f.partition["_cdc_is_current"] is current]
            if paths:
                rows = spark.read.schema(inner).parquet(*paths)
                place = F.split("_metadata.file_path", "/")
                named = F.concat_ws("/", F.element_at(place, -4), F.element_at(place, -3)).alias("place")
                slim = [F.lit(current).alias(c) if c == "_cdc_is_current" else F.col(c) for c in _SLIM.names]
                frames.append(rows.select(named, *slim))
    found = frames[0]
    for frame in frames[1:]:
        found = found.unionByName(frame)
    return found.withColumn(COPY.name, F.coalesce(COPY.name, F.lit(0)))


def _changes(lake: Lakehouse, spark: SparkSession, written: Sequence[TableReport]) -> DataFrame:
    """The changes that the run applied. Out: `place` STRING, key, op, and what orders them."""
    files = lake.released_changes.files(kind=str(ReleasedKind.ROW))
    after = min(r.after for r in written)
    rows = lake.released_changes.scan(spark, [f for f in files if f.high["release"] > after])
    spans = [(_place(r), r.database, r.table, r.after, r.through) for r in written]
    span = spark.createDataFrame(spans, "place STRING, database STRING, table STRING, _after BIGINT, _through BIGINT")
    joined = rows.join(F.broadcast(span), on=["database", "table"])
    mine = (F.col("release") > F.col("_after")) & (F.col("release") <= F.col("_through"))
    at = F.struct("commit_ts", "release", "ordinal", "offset").alias("at")
    return joined.where(mine).select("place", "key", "op", "topic", "partition", "offset", at)


def _unreflected(versions: DataFrame, changes: DataFrame) -> DataFrame:
    """The keys whose last change does not show. Of equal rows in a table without a key, others may be open after a delete."""
    last = changes.groupBy("place", "key").agg(F.max_by(F.struct("op", "topic", "partition", "offset"), "at").alias("last"))
    held = versions.groupBy("place", F.col("_cdc_key").alias("key")).agg(
        F.count_if("_cdc_is_current").alias("found_open"), F.max(COPY.name).alias("copies")
    )
    wanted = F.when(F.col("last.op") == str(Op.DELETE), 0).otherwise(1)
    opened = F.col("found_open")
    broken = F.when(F.col("copies") > 0, (wanted > 0) & (opened == 0)).otherwise(opened != wanted)
    return last.join(held, on=["place", "key"]).where(broken).select(
        "place",
        F.lit("the last change of the key does not show").alias("rule"),
        F.col("key").alias("_cdc_key"),
        wanted.alias("expected_open"),
        "found_open",
        F.col("last.topic").alias("_cdc_topic"),
        F.col("last.partition").alias("_cdc_partition"),
        F.col("last.offset").alias("_cdc_offset"),
    )  # fmt: skip


_REPORTED = [
    "rule", "_cdc_key", "_cdc_from_ts", "_cdc_to_ts", "next_from", "_cdc_topic", "_cdc_partition", "_cdc_offset"
]  # fmt: skip


def violations(versions: DataFrame, row: list[str]) -> DataFrame:
    """The versions that break a rule; `row` are the columns that identify a source row.

    In: versions of a history table. Out: their columns, `rule` STRING and `next_from` BIGINT.
    """
    order = [F.col("_cdc_from_ts"), F.coalesce("_cdc_to_ts", F.lit(2**63 - 1))]
    by_key = Window.partitionBy(*row).orderBy(*order)
    opened = F.sum(F.col("_cdc_to_ts").isNull().cast("int")).over(Window.partitionBy(*row))
    chained = versions.withColumn("next_from", F.lead("_cdc_from_ts").over(by_key)).withColumn("open_versions", opened)
    return chained.withColumn("rule", _broken_rule()).where(F.col("rule").isNotNull())


def _broken_rule() -> Column:
    start, end, following = F.col("_cdc_from_ts"), F.col("_cdc_to_ts"), F.col("next_from")
    ended = F.coalesce(F.col("_cdc_closed_by").isin(*_ENDINGS), F.lit(False))
    return (
        F.when(F.col("open_versions") > 1, "more than one open version")
        .when(F.col("_cdc_is_current") != end.isNull(), "_cdc_is_current disagrees with _cdc_to_ts")
        # from = to: superseded within one commit_ts of a source that has no finer clock.
        .when(end < start, "ends before it begins")
        .when(end.isNull() & following.isNotNull(), "open, but not the last")
        .when(following < end, "overlaps the next")
        .when((following > end) & ~ended, "a gap that no delete explains")
        .when(end.isNotNull() & following.isNull() & ~ended, "closed by an update that is not there")
    )
