"""The software-defined assets: one module a stage, each running one stage of the core and reporting what it did."""

from collections.abc import Sequence

from dagster import AssetsDefinition

from cdc_assets.assets import (
    change_events,
    history,
    quarantine,
    raw_records,
    released_changes,
    table_schemas,
    type_observations,
)
from cdc_assets.feeds import Feed


def feed_assets(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> list[AssetsDefinition]:
    """The chain of one feed. `tables` are the (database, table) pairs that have a history already."""
    return [
        raw_records.build(name, feed),
        change_events.build(name, feed),
        table_schemas.build(name, feed),
        type_observations.build(name, feed),
        released_changes.build(name, feed),
        history.build(name, feed, tables),
        quarantine.build(name, feed),
    ]
