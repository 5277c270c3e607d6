"""The asset of a history table: its own or, in a feed with very many tables, a partition of its database's asset.

A thousand tables with an asset each are two thousand nodes and eight thousand checks. Dagster loads all of them in every
process, and no person looks through them. So above the setting `max_table_assets` each source database is one asset.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import dagster as dg

from cdc_assets.config import Feed
from cdc_assets.stages import HISTORY

# Characters that Dagster forbids in partition keys, and % itself, which begins the escape of such a character.
_ESCAPED = re.compile(r"%|\.(?=\.)|[\x00-\x1f]")


@dataclass(frozen=True)
class TableAsset:
    """Where Dagster shows one history table.

    Attributes:
        database: the name of the source database.
        table: the name of the source table.
        key: the key of the history's asset.
        source: the key of the asset that stands for the source table, or for the source database.
        partition: the partition of both assets that the table is; None: the table is the complete asset.
    """

    database: str
    table: str
    key: dg.AssetKey
    source: dg.AssetKey
    partition: str | None = None

    def source_column(self, column: str) -> str:
        """Return the name of a source column in the asset `source`."""
        return column if self.partition is None else f"{self.table}.{column}"


def has_asset_per_table(feed: Feed, tables: Sequence[tuple[str, str]]) -> bool:
    """Return whether a feed has few enough tables that each is an asset of its own."""
    return len(tables) <= feed.max_table_assets


def build_table_asset(name: str, database: str, table: str, *, per_table: bool) -> TableAsset:
    """Return the asset of a table; `per_table` is the result of `has_asset_per_table` for the feed."""
    path = (database, table) if per_table else (database,)
    key, source = dg.AssetKey([name, HISTORY.name, *path]), dg.AssetKey([name, "source", *path])
    return TableAsset(database, table, key, source, None if per_table else format_partition(table))


def build_table_assets(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> list[TableAsset]:
    """Return the assets of a feed's tables, (database, table) pairs."""
    return [build_table_asset(name, *table, per_table=has_asset_per_table(feed, tables)) for table in tables]


def format_partition(table: str) -> str:
    """Return the partition key of a table: its name with forbidden characters escaped, so that no two tables share a key."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", table)


def define_partitions(key: dg.AssetKey) -> dg.DynamicPartitionsDefinition:
    """Return the definition of the partitions of a database's asset."""
    return dg.DynamicPartitionsDefinition(name=key.to_user_string())


def add_partitions(instance: dg.DagsterInstance, assets: Iterable[TableAsset]) -> None:
    """Add the partitions of these assets that are new to Dagster."""
    partitions: dict[dg.AssetKey, list[str]] = {}
    for asset in assets:
        if asset.partition is not None:
            partitions.setdefault(asset.key, []).append(asset.partition)
    for key, names in partitions.items():
        definition = str(define_partitions(key).name)
        existing = set(instance.get_dynamic_partitions(definition))
        if new := [name for name in names if name not in existing]:
            instance.add_dynamic_partitions(definition, new)
