"""The check parents_exist: no row of a history lacks the parent row that its foreign key names."""

from collections.abc import Callable, Sequence

import dagster as dg

from cdc_assets.assets.checks.history import parents_exist
from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.assets.verdicts import find_last_evaluation
from cdc_assets.config import Feed
from cdc_assets.history.progress import Name
from cdc_assets.history.table_report import TableReport
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages.missing_parents import find_missing_parents


def check_parents(
    instance: dg.DagsterInstance,
    lake: Lakehouse,
    feed: Feed,
    reports: Sequence[TableReport],
    check_of: Callable[[Name], dg.AssetCheckKey],
) -> dict[Name, Verdict]:
    """Return the verdict on each table whose rows a foreign key may have changed in a run.

    Args:
        instance: has the last verdicts.
        lake: the feed's tables.
        feed: the feed.
        reports: what the run did to the tables that it wrote.
        check_of: returns the key of the check of a table.
    """

    def had_missing(table: Name) -> bool:
        last = find_last_evaluation(instance, check_of(table))
        return last is not None and not last.passed

    examined = find_missing_parents(lake, feed, reports, had_missing)
    return {table: parents_exist(".".join(table), missing) for table, missing in sorted(examined.items())}
