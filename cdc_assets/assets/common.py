"""What the assets share: how they are described, and how counts and verdicts become Dagster's metadata."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetKey,
    MetadataValue,
    TableColumn,
    TableRecord,
    TableSchema,
)
from pyspark.sql.types import StructType

from cdc_assets.checks.verdict import Verdict
from cdc_assets.feeds import Feed
from cdc_assets.lakehouse import LakeTable
from cdc_assets.sources.ingest import Offsets

CODE_VERSION = "1"


class Described(TypedDict):
    """The keyword arguments that every asset of a feed has."""

    group_name: str
    owners: list[str]
    code_version: str


def described(name: str, feed: Feed) -> Described:
    """The policy of all assets of a feed: one group a feed, the feed's owners."""
    return {"group_name": name, "owners": list(feed.owners), "code_version": CODE_VERSION}


class Stopwatch:
    """Seconds since it was made, for log lines and metadata."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start, to a hundredth."""
        return round(time.monotonic() - self._start, 2)


def table_metadata(table: LakeTable) -> dict[str, Any]:
    """Row count, schema and place, under Dagster's own keys."""
    frame = table.read()
    return {
        "dagster/row_count": frame.count(),
        "dagster/column_schema": column_schema(frame.schema),
        "dagster/table_name": table.name,
        "dagster/uri": table.path,
    }


def column_schema(schema: StructType) -> TableSchema:
    """A Spark schema as Dagster shows it."""
    return TableSchema([TableColumn(name=f.name, type=f.dataType.simpleString()) for f in schema])


def offsets_metadata(offsets: Offsets) -> MetadataValue:
    """One row a partition, with its lowest and highest offset."""
    return rows_metadata(
        {"topic": topic, "partition": int(partition), "from": lo, "to": hi}
        for topic, partitions in sorted(offsets.items())
        for partition, (lo, hi) in sorted(partitions.items(), key=lambda p: int(p[0]))
    )


def rows_metadata(rows: Iterable[Mapping[str, Any]]) -> MetadataValue:
    """Rows as a table in the UI; lists and other values as text."""
    records = [
        {k: v if isinstance(v, (str, int, float, bool, type(None))) else str(v) for k, v in r.items()} for r in rows
    ]
    if not records:
        return MetadataValue.text("none")
    columns = dict.fromkeys(name for record in records for name in record)
    schema = TableSchema([TableColumn(name=name) for name in columns])
    # Dagster's tables take no null.
    shown = [TableRecord({name: "" if (v := r.get(name)) is None else v for name in columns}) for r in records]
    return MetadataValue.table(records=shown, schema=schema)


def check_result(
    name: str,
    key: AssetKey,
    verdict: Verdict,
    severity: AssetCheckSeverity = AssetCheckSeverity.ERROR,
) -> AssetCheckResult:
    """A verdict as Dagster's result; the rows that broke the check go first in its metadata."""
    metadata: dict[str, Any] = {}
    if verdict.violations:
        metadata["violations"] = rows_metadata(verdict.violations)
    for label, value in verdict.metadata.items():
        metadata[label] = rows_metadata(value) if isinstance(value, list) else value
    return AssetCheckResult(
        check_name=name,
        asset_key=key,
        passed=verdict.passed,
        severity=severity,
        description=verdict.description,
        metadata=metadata,
    )
