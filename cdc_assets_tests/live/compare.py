"""Compares every table of the server with its history, and looks for blocked tables and checks that fail."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dagster import AssetCheckEvaluation, TableMetadataValue

from cdc_assets.config.jdbc import ServerAddress
from cdc_assets.operations.holds import describe_hold
from cdc_assets.operations.verify.compare import verify_history
from cdc_assets.operations.verify.text import format_text
from cdc_assets.sources.mysql import SourceError, open_snapshot, qualified_name
from cdc_assets.stages.history.progress_file import list_holds
from cdc_assets_tests.live.catalog import Name
from cdc_assets_tests.live.pipeline import FEED, Pipeline, now_or_later

# Why verify does not compare a column, where that is no difference.
_INCOMPARABLE = ("each server", "servers give", "only the history has it", "is not a MySQL type")


@dataclass(frozen=True)
class Difference:
    """What is wrong with a table.

    Attributes:
        table: the table; None: the feed.
        kind: rows, hold, error, silent, or the check that fails.
        text: for people.
    """

    table: Name | None
    kind: str
    text: str


def compare_tables(
    pipeline: Pipeline, address: ServerAddress, databases: Iterable[str], tables: Iterable[Name], exempt: Iterable[Name]
) -> list[Difference]:
    """Return what differs between the server's tables and the histories.

    Args:
        pipeline: which has ingested everything.
        address: the server's.
        databases: the databases to compare.
        tables: all tables of these databases.
        exempt: tables that cannot be compared.
    """
    existing, not_compared = set(tables), set(exempt)
    histories = {name for name in pipeline.lake.histories() if name[0] in databases}
    row_differences = []
    for name in sorted((existing | histories) - not_compared):
        text = _differs(pipeline, address, name) if name in existing & histories else None
        if name in histories - existing and (count := _open_rows(pipeline, name)):
            text = f"the source has no such table, the history {count} open rows"
        if name in existing - histories and (count := _source_rows(address, name)):
            text = f"the source has {count} rows, and there is no history"
        if text:
            row_differences.append(Difference(name, "rows", text))
    holds = {(hold.database, hold.table): hold for hold in list_holds(pipeline.lake)}
    return row_differences + [
        Difference(name, "hold", describe_hold(hold, FEED))
        for name, hold in holds.items()
        if name[0] in databases and name not in not_compared
    ]


def _differs(pipeline: Pipeline, address: ServerAddress, name: Name) -> str | None:
    try:
        verification = verify_history(pipeline.lake, pipeline.feed, name, address, now_or_later())
    except SourceError as error:
        return str(error)
    missing = {
        c: why for c, why in verification.not_compared.items() if not any(reason in why for reason in _INCOMPARABLE)
    }
    # The history of a table that was created anew has its columns from the first row on.
    is_empty = not verification.rows and not verification.source_rows
    return None if verification.is_equal and (is_empty or not missing) else format_text(verification)


def _open_rows(pipeline: Pipeline, name: Name) -> int:
    return int(pipeline.lake.history(*name).read(pipeline.spark).where("_cdc_is_current").count())


def _source_rows(address: ServerAddress, name: Name) -> int:
    with open_snapshot(address, 0) as source:
        ((count,),) = source.rows(f"SELECT COUNT(*) FROM {qualified_name(*name)}")
    return int(count)


def table_of(check: AssetCheckEvaluation) -> Name | None:
    """Return the table of a check; None: it is a check of the feed."""
    path = check.asset_key.path
    return (path[2], path[3]) if path[1:2] == ["history"] and len(path) > 3 else None


def text_of(check: AssetCheckEvaluation) -> str:
    """Return what a failing check says."""
    violations = check.metadata.get("violations")
    shown = [r.data for r in violations.records[:5]] if isinstance(violations, TableMetadataValue) else ""
    return f"{check.check_name} of {'/'.join(check.asset_key.path)}: {check.description} {shown}"


def unexpected(checks: Iterable[AssetCheckEvaluation], allowed: Mapping[Name, set[str]]) -> list[Difference]:
    """Return the failing checks that nothing allows; a check of the feed may fail where it may for any table."""
    anywhere = set().union(*allowed.values())
    by_check = {}
    for check in checks:
        name = table_of(check)
        if check.check_name not in (allowed.get(name, set()) if name else anywhere):
            by_check[name, check.check_name] = Difference(name, check.check_name, text_of(check))
    return list(by_check.values())
