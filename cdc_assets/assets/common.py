"""What the assets share: how they are described, and how counts and verdicts become Dagster's metadata."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

from dagster import (
    AssetCheckEvaluation,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    AssetSpec,
    DataVersion,
    MetadataValue,
    TableColumn,
    TableRecord,
    TableSchema,
)
from pyspark.sql.types import StructType

from cdc_assets.assets import page
from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.raw_records import Offsets
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.version import code_version

CODE_VERSION = code_version()

# Above this a browser rounds a number, and a commit_ts is above it.
_BROWSER_INTEGER = 2**53


class Described(TypedDict):
    """The keyword arguments that every asset of a feed has."""

    group_name: str
    owners: list[str]
    code_version: str
    tags: dict[str, str]
    metadata: dict[str, MetadataValue]


def described(name: str, feed: Feed) -> Described:
    """The policy of all assets of a feed: one group a feed, the feed's owners, tags to search by, its page."""
    return {
        "group_name": name,
        "owners": list(feed.owners),
        "code_version": CODE_VERSION,
        "tags": {"cdc/feed": name, "cdc/protocol": feed.wire_format},
        "metadata": {"report": MetadataValue.path(page.place(name))},
    }


class Stopwatch:
    """Seconds since it was made, for log lines and metadata."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start, to a hundredth."""
        return round(time.monotonic() - self._start, 2)


@dataclass(frozen=True)
class Told:
    """What a stage tells Dagster of its asset after a run.

    Attributes:
        version: the asset's contents, by name.
        metadata: of the asset.
        table: whose rows and columns the asset shows, too.
        checks: the verdicts on what the run did.
        of_time: the verdicts that change though nothing else does.
        of_tables: the verdicts on history tables, which the stage has logged.
        worked: whether the stage did something that its table's version does not show.
        error: what went wrong while everything else was done.
    """

    version: DataVersion
    metadata: Mapping[str, Any]
    table: LakeTable[Any] | None = None
    checks: Sequence[AssetCheckResult] = ()
    of_time: Sequence[AssetCheckResult] = ()
    of_tables: Sequence[AssetCheckResult] = ()
    worked: bool = False
    error: Exception | None = None


def told_of(
    table: LakeTable[Any],
    metadata: Mapping[str, Any],
    checks: Sequence[AssetCheckResult] = (),
    of_time: Sequence[AssetCheckResult] = (),
) -> Told:
    """What there is to tell of a table as it stands now, and `metadata`."""
    now = table.at_current_version()
    return Told(data_version(now), metadata, now, checks, of_time)


class StageAsset(Protocol):
    """What the module of a stage's asset has."""

    def key_of(self, name: str) -> AssetKey:
        """The asset's key."""

    def spec(self, name: str, feed: Feed) -> AssetSpec:
        """The asset of one feed."""

    def check_specs(self, name: str, feed: Feed) -> list[AssetCheckSpec]:
        """Its checks."""

    def run(self, context: AssetExecutionContext, lake: Lakehouse, feed: Feed) -> Told:
        """Run the stage."""


def table_metadata(table: LakeTable[Any], rows: int | None = None) -> dict[str, Any]:
    """Row count (as the log has it, unless it is known), columns with their meaning, and place, under Dagster's own keys."""
    return {
        "dagster/row_count": sum(file.rows for file in table.files()) if rows is None else rows,
        "dagster/column_schema": column_schema(table.schema() or table.definition.columns),
        "dagster/table_name": table.name,
        "dagster/uri": table.path,
    }


def column_schema(schema: StructType) -> TableSchema:
    """A Spark schema as Dagster shows it."""
    return TableSchema(
        [TableColumn(f.name, type=f.dataType.simpleString(), description=f.metadata.get("comment")) for f in schema]
    )


def data_version(table: LakeTable[Any]) -> DataVersion:
    """The table's contents, by name: the same as long as its stage has nothing new, so that nothing below looks stale."""
    cursor = table.cursor()
    return DataVersion(str(cursor.sequence if cursor else 0))


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


def evaluation(key: AssetKey, result: AssetCheckResult, *, blocking: bool = False) -> AssetCheckEvaluation:
    """A result as Dagster's log takes it: of a check that its run was not started for."""
    return AssetCheckEvaluation(
        asset_key=key,
        check_name=str(result.check_name),
        passed=result.passed,
        metadata=result.metadata,
        severity=result.severity,
        description=result.description,
        blocking=blocking,
    )
