"""The verdicts of the checks `matches_source`. Only runs import it, because the comparison needs a database driver."""

from collections.abc import Iterator, Sequence
from logging import Logger

from dagster import AssetCheckSeverity, AssetKey

from cdc_assets.assets.checks.source import matches_source, matches_source_of_database
from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.assets.table_assets import TableAsset
from cdc_assets.config import Feed, SourceComparison
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.operations.verify.tables import Outcome, verify_tables
from cdc_assets.operations.verify.verification import Grade


def compare_assets(
    lake: Lakehouse, feed: Feed, settings: SourceComparison, assets: Sequence[TableAsset], log: Logger
) -> Iterator[tuple[AssetKey, Verdict, AssetCheckSeverity]]:
    """Compare tables with the source; yield the verdict and the severity of each asset.

    The verdict on a table comes as soon as it is known; at the end come those on databases that are one asset each.
    """
    by_name = {(each.database, each.table): each for each in assets}
    by_database: dict[AssetKey, dict[str, Outcome]] = {}
    for name, outcome in verify_tables(lake, feed, settings, list(by_name), log):
        asset = by_name[name]
        if asset.partition is None:
            yield asset.key, matches_source(outcome), _find_severity([outcome.grade])
        else:
            by_database.setdefault(asset.key, {})[asset.table] = outcome
    for key, outcomes in by_database.items():
        grades = [outcome.grade for outcome in outcomes.values()]
        yield key, matches_source_of_database(outcomes), _find_severity(grades)


def _find_severity(grades: Sequence[Grade]) -> AssetCheckSeverity:
    only_warns = Grade.WARNING in grades and Grade.ERROR not in grades
    return AssetCheckSeverity.WARN if only_warns else AssetCheckSeverity.ERROR
