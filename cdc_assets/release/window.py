"""The row events of a run in groups: counts by table, layout and `Part`, which one aggregation of the events gives."""

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.release.base import EventGroup, QualifiedName
from cdc_assets.release.changes import hash_group
from cdc_assets.release.source_snapshots import snapshot_aggregates, snapshot_read


def group_events(
    events: DataFrame, group_columns: Sequence[str], batch: int, *, has_snapshots: bool, collects_keys: bool
) -> list[EventGroup]:
    """Count row events in groups.

    Args:
        events: row events with `part` STRING, `taken` BOOLEAN and `reached` BOOLEAN.
        group_columns: as `Gate.group_columns`.
        batch: the newest raw batch of the release before.
        has_snapshots: whether the protocol has connector snapshots.
        collects_keys: whether to collect the hash of each event's key; for few events only.
    """
    columns = ["part", "taken", "new", "database", "table", "layout_id", "unkeyed", "placed", "reached"]
    with_hash = events.withColumns(
        {"hash": hash_group(*group_columns)} | ({"read": snapshot_read()} if has_snapshots else {})
    )
    selected = with_hash.selectExpr(
        *(["read", "detail", "record_timestamp"] if has_snapshots else []),
        "part",
        "taken",
        "reached",
        "hash",
        f"batch > {batch} AS new",
        "database",
        "table",
        "layout_id",
        "key IS NULL AS unkeyed",
        "source IS NOT NULL AS placed",
        "commit_ts",
        "batch",
        "key_before",
        "struct(layout, jdbc_types, schema_version, table_id, key_columns) AS sample",
    )
    groups = selected.groupBy(*columns, *(["read"] if has_snapshots else [])).agg(
        *(snapshot_aggregates() if has_snapshots else []),
        F.expr("count(*) AS count"),
        F.expr("min(commit_ts) AS first"),
        F.expr("max(commit_ts) AS last"),
        F.expr("min(batch) AS batch"),
        F.expr("count(key_before) AS moved"),
        F.expr("collect_list(hash) AS keys" if collects_keys else "CAST(array() AS ARRAY<BIGINT>) AS keys"),
        F.expr("any_value(sample) AS sample"),
    )
    return [EventGroup(**r) for r in groups.toArrow().to_pylist()]


def have_distinct_keys(groups: Iterable[EventGroup]) -> bool:
    """Return whether no two events of groups with `keys` have the same hash."""
    keys = [key for g in groups for key in g.keys]
    return len(set(keys)) == len(keys)


def count_by_table(groups: Iterable[EventGroup]) -> dict[QualifiedName, int]:
    """Return (database, table) -> the number of row events."""
    counts: dict[QualifiedName, int] = {}
    for g in groups:
        counts[g.database, g.table] = counts.get((g.database, g.table), 0) + g.count
    return counts


def find_first_events(events: DataFrame, is_missing: Column) -> dict[QualifiedName, dict[str, Any]]:
    """Return (database, table) -> the coordinates, schema number and Kafka time of the first event without a schema.

    Args:
        events: row events.
        is_missing: whether an event's schema is missing.
    """
    first = F.struct(
        "table_id",
        "schema_version",
        "topic",
        "partition",
        "offset",
        F.unix_millis("record_timestamp").alias("record_ms"),
    )
    rows = events.where(is_missing).groupBy("database", "table").agg(F.min_by(first, "commit_ts").alias("first"))
    return {(r["database"], r["table"]): r["first"].asDict() for r in rows.collect()}
