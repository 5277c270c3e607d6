"""Which asset tells of a history table: one of its own; or, in a feed of very many tables, its database's, as a partition.

A thousand tables as assets of their own are two thousand nodes and seven thousand checks, which Dagster loads with every
process and no person looks through. Above `max_table_assets` of the feeds file there is one asset a source database.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dagster import AssetKey, DagsterInstance, DynamicPartitionsDefinition

from cdc_assets.assets.names import asset_key
from cdc_assets.config import Feed
from cdc_assets.stages import HISTORY

# What Dagster takes in no partition's key, and the % that stands for it.
_NO_PARTITION = re.compile(r"%|\.(?=\.)|[\x00-\x1f]")


@dataclass(frozen=True)
class TableAsset:
    """Where Dagster shows one history table.

    Attributes:
        database: of the source.
        table: of the source.
        key: the asset's.
        source: the key of what the source has.
        partition: of the asset; None: the whole of it.
    """

    database: str
    table: str
    key: AssetKey
    source: AssetKey
    partition: str | None = None

    def source_column(self, column: str) -> str:
        """A column's name in `source`."""
        return column if self.partition is None else f"{self.table}.{column}"


def each_alone(feed: Feed, tables: Sequence[tuple[str, str]]) -> bool:
    """Whether each of a feed's tables is an asset of its own."""
    return len(tables) <= feed.max_table_assets


def table_asset(name: str, database: str, table: str, *, alone: bool) -> TableAsset:
    """The asset of a table; `alone`: as `each_alone` says of the feed."""
    path = (database, table) if alone else (database,)
    key, source = asset_key(name, HISTORY.name, *path), asset_key(name, "source", *path)
    return TableAsset(database, table, key, source, None if alone else partition(table))


def table_assets(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> list[TableAsset]:
    """The assets of a feed's tables, (database, table) pairs."""
    return [table_asset(name, *table, alone=each_alone(feed, tables)) for table in tables]


def partition(table: str) -> str:
    """The partition of a table: its name, but for what Dagster does not take; no two tables have the same."""
    return _NO_PARTITION.sub(lambda found: f"%{ord(found[0]):02X}", table)


def partitions(key: AssetKey) -> DynamicPartitionsDefinition:
    """The partitions of a database's asset."""
    return DynamicPartitionsDefinition(name=key.to_user_string())


def add_partitions(instance: DagsterInstance, assets: Iterable[TableAsset]) -> None:
    """Have Dagster know the partitions that it does not know yet."""
    for key, wanted in _partitions_by_key(assets).items():
        of_database = str(partitions(key).name)
        known = set(instance.get_dynamic_partitions(of_database))
        if new := [each for each in wanted if each not in known]:
            instance.add_dynamic_partitions(of_database, new)


def _partitions_by_key(assets: Iterable[TableAsset]) -> Mapping[AssetKey, list[str]]:
    found: dict[AssetKey, list[str]] = {}
    for asset in assets:
        if asset.partition is not None:
            found.setdefault(asset.key, []).append(asset.partition)
    return found
