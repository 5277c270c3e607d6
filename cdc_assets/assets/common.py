"""Helpers of all asset modules: the common part of asset specs, and conversions of counts and verdicts to metadata."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from pyspark.sql.types import StructType

from cdc_assets.assets import page
from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.raw_records import Offsets
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.version import code_version

CODE_VERSION = code_version()

# A browser rounds integers above 2^53, and every commit_ts is above 2^53.
_BROWSER_INTEGER = 2**53


def add_feed_attributes(spec: dg.AssetSpec, name: str, feed: Feed) -> dg.AssetSpec:
    """Return a spec with what all assets of a feed share: its group, owners, code version, tags to search by, report."""
    return spec.replace_attributes(
        group_name=name,
        owners=list(feed.owners),
        code_version=CODE_VERSION,
        tags={"cdc/feed": name, "cdc/protocol": feed.wire_format},
        metadata={"report": dg.MetadataValue.path(page.build_page_path(name))},
    )


class Stopwatch:
    """Counts the seconds since its creation, for log lines and metadata."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds since the creation, rounded to hundredths."""
        return round(time.monotonic() - self._start, 2)


@dataclass(frozen=True)
class StageResult:
    """What a stage reports to Dagster about its asset after a run.

    Attributes:
        version: identifies the contents of the asset.
        metadata: of the materialization.
        table: the Delta table whose row count and columns are added to the metadata.
        verdicts: the verdicts on what the run did, by check. Those on checks that the feed does not have are ignored.
        timed_verdicts: the verdicts that depend on the time of day, and so change without new input.
        table_checks: the verdicts on history tables, which the stage has logged already.
        has_worked: whether the stage did something that `version` does not show.
        error: an error to raise after all stages have run.
    """

    version: dg.DataVersion
    metadata: Mapping[str, Any]
    table: LakeTable[Any] | None = None
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    timed_verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    table_checks: Sequence[dg.AssetCheckResult] = ()
    has_worked: bool = False
    error: Exception | None = None


def build_stage_result(
    table: LakeTable[Any],
    metadata: Mapping[str, Any],
    verdicts: Mapping[str, Verdict] | None = None,
    timed_verdicts: Mapping[str, Verdict] | None = None,
) -> StageResult:
    """Return the result of a stage whose table is `table` at its current version."""
    current = table.at_current_version()
    return StageResult(read_data_version(current), metadata, current, verdicts or {}, timed_verdicts or {})


@dataclass(frozen=True)
class StageAsset:
    """The asset of a stage in every feed.

    Attributes:
        name: the stage's name.
        upstream: the names of the stages whose assets the asset is derived from.
        kinds: of the asset.
        description: of the asset, with `{protocol}` in place of the feed's protocol.
        run: runs the stage and returns what to report.
        describe_checks: returns the descriptions of the checks that a feed's protocol and settings have, by name. A failing
            `conservation` stops the feed.
        choose_freshness: returns the freshness policy that the feed's protocol and settings ask for.
    """

    name: str
    upstream: Sequence[str]
    kinds: set[str]
    description: str
    run: Callable[[dg.AssetExecutionContext, Lakehouse, Feed], StageResult]
    describe_checks: Callable[[Feed], Mapping[str, str]] = lambda _feed: {}
    choose_freshness: Callable[[Feed], dg.FreshnessPolicy | None] = lambda _feed: None

    def build_key(self, feed: str) -> dg.AssetKey:
        """Return the key of a feed's asset.

        The feed is the first part, unlike in the table's path: Dagster's graph labels an asset with the last part of its
        key, so each of a feed's assets would be labelled with the feed's name.
        """
        return dg.AssetKey([feed, self.name])

    def build_spec(self, name: str, feed: Feed) -> dg.AssetSpec:
        """Return the spec of the asset of the feed `name`."""
        spec = dg.AssetSpec(
            self.build_key(name),
            deps=[dg.AssetKey([name, each]) for each in self.upstream],
            skippable=True,
            kinds=self.kinds,
            description=self.description.format(protocol=feed.protocol),
            freshness_policy=self.choose_freshness(feed),
        )
        return add_feed_attributes(spec, name, feed)

    def build_check_specs(self, name: str, feed: Feed) -> list[dg.AssetCheckSpec]:
        """Return the specs of the asset's checks in the feed `name`."""
        key = self.build_key(name)
        return [
            dg.AssetCheckSpec(check, asset=key, blocking=check == "conservation", description=description)
            for check, description in self.describe_checks(feed).items()
        ]


def describe_table(table: LakeTable[Any], rows: int | None = None) -> dict[str, Any]:
    """Return row count (from the Delta log if `rows` is None), columns, name and URI under Dagster's own metadata keys."""
    return {
        "dagster/row_count": sum(file.rows for file in table.files()) if rows is None else rows,
        "dagster/column_schema": describe_columns(table.schema() or table.definition.columns),
        "dagster/table_name": table.name,
        "dagster/uri": table.path,
    }


def describe_columns(schema: StructType) -> dg.TableSchema:
    """Return a Spark schema as Dagster's; the description of a column is its comment."""
    return dg.TableSchema(
        [dg.TableColumn(f.name, type=f.dataType.simpleString(), description=f.metadata.get("comment")) for f in schema]
    )


def read_data_version(table: LakeTable[Any]) -> dg.DataVersion:
    """Return the data version: the sequence number of the cursor, which changes only with new input.

    So Dagster does not show downstream assets as stale after a run without new input.
    """
    cursor = table.cursor()
    return dg.DataVersion(str(cursor.sequence if cursor else 0))


def format_offsets(offsets: Offsets) -> dg.MetadataValue:
    """Return a table with one row a partition: its lowest and highest offset."""
    return format_rows(
        {"topic": topic, "partition": int(partition), "from": lo, "to": hi}
        for topic, partitions in sorted(offsets.items())
        for partition, (lo, hi) in sorted(partitions.items(), key=lambda p: int(p[0]))
    )


def format_rows(rows: Iterable[Mapping[str, Any]]) -> dg.MetadataValue:
    """Return rows as a table of the UI, or the text "none"; values that no such table can hold become text."""
    records = [{name: _format_cell(value) for name, value in row.items()} for row in rows]
    if not records:
        return dg.MetadataValue.text("none")
    columns = dict.fromkeys(name for record in records for name in record)
    schema = dg.TableSchema([dg.TableColumn(name=name) for name in columns])
    table = [dg.TableRecord({name: record.get(name, "") for name in columns}) for record in records]
    return dg.MetadataValue.table(records=table, schema=schema)


def _format_cell(value: object) -> str | int | float | bool:
    if value is None:
        return ""  # Dagster's tables hold no null
    if isinstance(value, int) and abs(value) > _BROWSER_INTEGER:
        return str(value)
    return value if isinstance(value, (str, int, float)) else str(value)


def build_check_result(name: str, key: dg.AssetKey, verdict: Verdict) -> dg.AssetCheckResult:
    """Return a verdict as Dagster's result; the violating rows are the first entry of its metadata."""
    metadata: dict[str, Any] = {}
    if verdict.violations:
        metadata["violations"] = format_rows(verdict.violations)
    for label, value in verdict.metadata.items():
        metadata[label] = format_rows(value) if isinstance(value, list) else value
    return dg.AssetCheckResult(
        check_name=name,
        asset_key=key,
        passed=verdict.passed,
        severity=dg.AssetCheckSeverity.WARN if verdict.only_warns else dg.AssetCheckSeverity.ERROR,
        description=verdict.description,
        metadata=metadata,
    )


def build_evaluation(
    key: dg.AssetKey, result: dg.AssetCheckResult, *, blocking: bool = False
) -> dg.AssetCheckEvaluation:
    """Return a result as an event for Dagster's log, for a check that the run did not plan."""
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=str(result.check_name),
        passed=result.passed,
        metadata=result.metadata,
        severity=result.severity,
        description=result.description,
        blocking=blocking,
    )
