"""The specs of the assets and checks of history tables."""

from collections.abc import Mapping, Sequence

import dagster as dg

from cdc_assets.assets import history
from cdc_assets.assets.check_steps import CheckSpec
from cdc_assets.assets.common import add_feed_attributes
from cdc_assets.assets.table_assets import TableAsset, build_table_assets, define_partitions
from cdc_assets.config import Feed
from cdc_assets.protocols import protocol_of

CHECKS = {
    history.CONSERVATION: (
        "After its last released change a key has one open version, or none if that change was a delete. If not, run "
        "the job audit, and rebuild the feed. If the table could not be written, mend the cause that the check names, "
        "and run `cdc-assets retry`."
    ),
    history.INTERVALS: (
        "Versions of a key do not overlap, leave no gap that no delete explains, and at most one is open. If not, the "
        "table was written by hand, or the pipeline has a bug: run the job audit, and rebuild the feed."
    ),
    history.DDL_APPLIED: (
        "What the source's DDL did to columns and open rows, the pipeline did, too. If not, decide about the "
        "statement (`cdc-assets acknowledge`). An open row that is not right yet is right from its next change on."
    ),
    history.RELOAD: (
        "No statement moved rows without row events, as TRUNCATE PARTITION does. If one did, load the table again, "
        "from a dump."
    ),
    history.COMPLETE: (
        "From some position on the history has every row, because a load, a CREATE TABLE or a TRUNCATE was seen. If "
        "not, rows from before the feed are missing: supply a dump (initial_load: in the feeds file)."
    ),
    history.TYPE_MAPPING: (
        "The table is not blocked at an event whose types break the protocol's type mapping. If it is, give the "
        "column's type under columns: in the feeds file, or set type_mapping: warn for the table."
    ),
    history.CONTINUE: (
        "Each UPDATE and DELETE found the row that the history has, as far as its message contains the row before. If "
        "not, an earlier change was lost: the row is right again, but its earlier versions may be wrong."
    ),
    history.PARENTS: (
        "No open row has lost its parent by a foreign key with CASCADE, SET NULL or SET DEFAULT: MySQL before 9.6 and "
        "MariaDB send no row events of what these do. If one has, load the table again, from a dump. Evaluated for "
        "tables with such a foreign key whose parent is in the feed, too."
    ),
    history.COLUMNS: (
        "The columns are those of the last run. If not, adapt the table's readers: the check shows what changed, and "
        "ddl_applied shows the statement. The check passes again with the table's next change."
    ),
}
_EACH_TABLE = "Checks each table of the database; the violations name the tables that fail: "


def build_table_specs(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> list[dg.AssetSpec]:
    """Return the specs of history tables, (database, table) pairs, and of the source tables that they are histories of."""
    sources, histories = {}, {}
    for asset in build_table_assets(name, feed, tables):
        is_one = asset.partition is None
        subject = (
            f"table `{asset.database}`.`{asset.table}`" if is_one else f"tables of the database `{asset.database}`"
        )
        sources[asset.source] = dg.AssetSpec(
            asset.source,
            kinds={protocol_of(feed).source_kind(feed)},
            description=f"The source's {subject}, outside of this lakehouse.",
            group_name=name,
        )
        title = "The history of the" if is_one else "The histories, a partition each, of the"
        spec = dg.AssetSpec(
            asset.key,
            deps=[history.ASSET.build_key(name), asset.source],
            partitions_def=None if is_one else define_partitions(asset.key),
            kinds={"deltalake"},
            description=f"{title} {subject}: one row a version, SCD type 2. The step of `{name}/history` writes it.",
        )
        histories[asset.key] = add_feed_attributes(spec, name, feed)
    return [*sources.values(), *histories.values()]


def build_table_checks(assets: Sequence[TableAsset], descriptions: Mapping[str, str]) -> list[CheckSpec]:
    """Return the specs of checks of history tables.

    Args:
        assets: of the tables; those of one database may be one asset.
        descriptions: of the checks, by name. Of a database's asset the description says, too, that it checks each table.
    """
    return [
        CheckSpec(check, asset=key, description=description if asset.partition is None else _EACH_TABLE + description)
        for key, asset in {asset.key: asset for asset in assets}.items()
        for check, description in descriptions.items()
    ]
