"""Wiring only: the feeds file -> assets, checks, jobs, schedule and resources."""

import sys

from dagster import (
    AssetsDefinition,
    AssetSelection,
    AssetSpec,
    Definitions,
    ScheduleDefinition,
    define_asset_job,
    in_process_executor,
)

from cdc_assets.assets import alerts, audit, history, new_records, operations
from cdc_assets.assets import feed as feed_assets
from cdc_assets.feeds import FeedsError, FeedsFile, load_feeds
from cdc_assets.places import PlaceError
from cdc_assets.resources import build_resources
from cdc_assets.storage import Store
from cdc_assets.tables.lakehouse import history_tables, lakehouse_root

_PIPELINE = "cdc_pipeline"


def build_definitions(feeds_file: FeedsFile) -> Definitions:
    """Everything that Dagster shows and runs, for the feeds of one file."""
    assets: list[AssetsDefinition | AssetSpec] = []
    sensors = alerts.build(str(feeds_file.alerts.webhook)) if feeds_file.alerts else []
    audits, jobs, audited = [], [], []
    root = lakehouse_root()
    store = Store.of(feeds_file, root)
    for name, feed in feeds_file.feeds.items():
        tables = history_tables(root, name, store)
        chain = feed_assets.build(name, feed)
        assets += [chain, *history.table_specs(name, feed, tables)]
        if feed.source.kafka is not None:
            sensors.append(new_records.build(name, feed.source.kafka, f"{_PIPELINE}_{name}", _PIPELINE, store))
        if tables:
            audits.append(audit.tables_audit(name, feed, tables))
        jobs.append(
            define_asset_job(
                f"{_PIPELINE}_{name}",
                selection=AssetSelection.assets(*chain.keys).without_checks(),
                description=f"The pipeline of the feed {name} alone.",
            )
        )
        audited += audit.audited(name, tables)
    pipeline = define_asset_job(
        _PIPELINE,
        selection=AssetSelection.all().without_checks(),
        description="Everything once, in order: take in what is new, decode it, release what is complete, write history.",
    )
    audit_job = define_asset_job(
        "audit",
        selection=AssetSelection.checks(*audited),
        description="Check every promise over everything that the tables hold.",
    )
    hourly = ScheduleDefinition(
        name="cdc_pipeline_hourly",
        job=pipeline,
        cron_schedule="0 * * * *",
        description="The pipeline, every hour. Stopped until you start it.",
    )
    return Definitions(
        assets=assets,
        asset_checks=audits,
        jobs=[pipeline, *jobs, audit_job, *operations.build(feeds_file.feeds)],
        schedules=[hourly],
        sensors=sensors,
        resources=build_resources(feeds_file),
        # One process, and so one Spark session, a run.
        executor=in_process_executor,
    )


def _load() -> Definitions:
    try:
        return build_definitions(load_feeds())
    except (FeedsError, PlaceError) as error:
        # The message says it all; a traceback below it would only hide it.
        sys.tracebacklimit = 0
        raise type(error)(str(error)) from None


defs = _load()
