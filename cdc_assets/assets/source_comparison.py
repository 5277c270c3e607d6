"""The checks `matches_source` of a feed with `verify:`, which compare its histories with the source's own rows.

The job `verify_<feed>` evaluates them, and a person can execute one of them on its page.
"""

from collections.abc import Iterator, Sequence

import dagster as dg

from cdc_assets.assets.check_steps import build_check_step
from cdc_assets.assets.common import build_check_result
from cdc_assets.assets.history_specs import build_table_checks
from cdc_assets.assets.table_assets import TableAsset, build_table_assets
from cdc_assets.config import Feed, SourceComparison
from cdc_assets.lakehouse.lakehouse import Lakehouse

MATCHES_SOURCE = "matches_source"
# One pool for the comparisons of all feeds, and none that a pipeline is in. So comparisons that wait for a pipeline's run
# take one place among the concurrent runs, and keep no pipeline from running.
POOL = "verify"
_DESCRIPTION = (
    "At its final position the history holds the rows of the source database. Rows that have changed at the source since "
    "are in the history later. If not, the violations show rows that differ, each with what became of its events (why): "
    "load the table again, or rebuild it."
)


def build_checks(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> list[dg.AssetChecksDefinition]:
    """Return the step that compares these history tables with the source; none if there is none to compare."""
    if (settings := feed.verify) is None:
        return []
    compared = [each for each in build_table_assets(name, feed, tables) if settings.takes(each.database, each.table)]
    specs = build_table_checks(compared, {MATCHES_SOURCE: _DESCRIPTION})
    if not specs:
        return []

    def compare(context: dg.AssetCheckExecutionContext, lake: Lakehouse) -> Iterator[dg.AssetCheckResult]:
        selected = {check.asset_key for check in context.selected_asset_check_keys}
        return _compare_tables(context, lake, feed, settings, [each for each in compared if each.key in selected])

    return [build_check_step(name, "source_comparison", specs, compare, pool=POOL)]


def _compare_tables(
    context: dg.AssetCheckExecutionContext,
    lake: Lakehouse,
    feed: Feed,
    settings: SourceComparison,
    assets: Sequence[TableAsset],
) -> Iterator[dg.AssetCheckResult]:
    """Compare tables with the source; yield the result of each asset.

    The result of a table comes as soon as it is known; at the end come those of databases that are one asset each.
    """
    # Import late: only runs compare, and the comparison needs a database driver.
    from cdc_assets.assets.checks.source import matches_source, matches_source_of_database  # noqa: PLC0415
    from cdc_assets.operations.verify.tables import Outcome, verify_tables  # noqa: PLC0415

    by_name = {(each.database, each.table): each for each in assets}
    by_database: dict[dg.AssetKey, dict[str, Outcome]] = {}
    for name, outcome in verify_tables(lake, feed, settings, list(by_name), context.log):
        asset = by_name[name]
        if asset.partition is None:
            yield build_check_result(MATCHES_SOURCE, asset.key, matches_source(outcome))
        else:
            by_database.setdefault(asset.key, {})[asset.table] = outcome
    for key, outcomes in by_database.items():
        yield build_check_result(MATCHES_SOURCE, key, matches_source_of_database(outcomes))
