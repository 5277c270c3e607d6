"""What the assets share: how they are described, and how counts and verdicts become Dagster's metadata."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetKey,
    DataVersion,
    MetadataValue,
    TableColumn,
    TableRecord,
    TableSchema,
)
from pyspark.sql.types import StructType

from cdc_assets.assets.columns import COLUMNS
from cdc_assets.checks.verdict import Verdict
from cdc_assets.feeds import Feed
from cdc_assets.lakehouse import LakeTable
from cdc_assets.sources.ingest import Offsets

CODE_VERSION = "1"

# Above this a browser rounds a number, and a commit_ts is above it.
_BROWSER_INTEGER = 2**53


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


def table_metadata(table: LakeTable, meanings: Mapping[str, str] = COLUMNS, rows: int | None = None) -> dict[str, Any]:
    """Row count (counted unless it is known), schema (with what the columns mean) and place, under Dagster's own keys."""
    frame = table.read()
    return {
        "dagster/row_count": frame.count() if rows is None else rows,
        "dagster/column_schema": column_schema(frame.schema, meanings),
        "dagster/table_name": table.name,
        "dagster/uri": table.path,
    }


def column_schema(schema: StructType, meanings: Mapping[str, str]) -> TableSchema:
    """A Spark schema as Dagster shows it."""
    return TableSchema(
        [TableColumn(f.name, type=f.dataType.simpleString(), description=meanings.get(f.name)) for f in schema]
    )


def data_version(table: LakeTable) -> DataVersion:
    """The table's contents, by name: the same as long as its stage has nothing new, so that nothing below looks stale."""
    return DataVersion(str((table.cursor() or {"sequence": 0})["sequence"]))


def offsets_metadata(offsets: Offsets) -> MetadataValue:
    """One row a partition, with its lowest and highest offset."""
    return rows_metadata(
        {"topic": topic, "partition": int(partition), "from": lo, "to": hi}
        for topic, partitions in sorted(offsets.items())
        for partition, (lo, hi) in sorted(partitions.items(), key=lambda p: int(p[0]))
    )


def rows_metadata(rows: Iterable[Mapping[str, Any]]) -> MetadataValue:
    """Rows as a table in the UI; lists and other values as text."""
    records = [{name: _shown(value) for name, value in row.items()} for row in rows]
    if not records:
        return MetadataValue.text("none")
    columns = dict.fromkeys(name for record in records for name in record)
    schema = TableSchema([TableColumn(name=name) for name in columns])
    shown = [TableRecord({name: record.get(name, "") for name in columns}) for record in records]
    return MetadataValue.table(records=shown, schema=schema)


def _shown(value: object) -> str | int | float | bool:
    if value is None:
        return ""  # Dagster's tables take no null
    if isinstance(value, int) and abs(value) > _BROWSER_INTEGER:
        return str(value)
    return value if isinstance(value, (str, int, float)) else str(value)


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
