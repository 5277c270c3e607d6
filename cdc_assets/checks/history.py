"""What a history table promises: no versions of a key overlap, or leave a gap that no delete explains."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc_assets.checks.verdict import SHOWN, Verdict
from cdc_assets.history.apply import COPY
from cdc_assets.lakehouse import LakeTable

# What closes a version so that the next one need not begin where it ends.
_ENDINGS = ("delete", "truncate", "drop", "rename")


def intervals(table: LakeTable, since: int = 0) -> Verdict:
    """Check the versions that were open at `since` (commit_ts) or later.

    A version that ended before is passed over, and Delta passes over the files that hold only such versions; `since` 0
    checks all.
    """
    alive = (F.col("_cdc_is_current") == F.lit(True)) | (F.col("_cdc_to_ts") >= since)
    versions = table.read().where(alive)
    if since:
        touched = versions.where((F.col("_cdc_from_ts") >= since) | (F.col("_cdc_to_ts") >= since)).select("_cdc_key")
        versions = versions.join(touched, on="_cdc_key", how="left_semi")
    broken = violations(versions, ["_cdc_key", COPY] if COPY in versions.columns else ["_cdc_key"])
    rows = [r.asDict() for r in broken.limit(SHOWN).collect()]
    told = (
        "Versions neither overlap nor leave unexplained gaps."
        if not rows
        else f"{len(rows)} or more versions are wrong."
    )
    return Verdict(not rows, told, rows)


def violations(versions: DataFrame, row: list[str]) -> DataFrame:
    """The versions that break a rule; `row` are the columns that identify a source row.

    In: versions of a history table. Out: `rule` STRING, _cdc_key, _cdc_from_ts, _cdc_to_ts, `next_from` BIGINT,
    _cdc_topic, _cdc_partition, _cdc_offset.
    """
    order = [F.col("_cdc_from_ts"), F.coalesce("_cdc_to_ts", F.lit(2**63 - 1))]
    by_key = Window.partitionBy(*row).orderBy(*order)
    opened = F.sum(F.col("_cdc_to_ts").isNull().cast("int")).over(Window.partitionBy(*row))
    columns = ["_cdc_key", "_cdc_from_ts", "_cdc_to_ts", "next_from", "_cdc_topic", "_cdc_partition", "_cdc_offset"]
    chained = versions.withColumn("next_from", F.lead("_cdc_from_ts").over(by_key)).withColumn("open_versions", opened)
    return chained.withColumn("rule", _broken_rule()).where(F.col("rule").isNotNull()).select("rule", *columns)


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
