"""Wiring only: the feeds file -> assets, checks, jobs, schedule and resources."""

import sys

from dagster import AssetSelection, Definitions, ScheduleDefinition, define_asset_job, in_process_executor

from cdc_assets.assets import audit, feed_assets, new_records, operations
from cdc_assets.feeds import FeedsError, FeedsFile, load_feeds
from cdc_assets.resources import build_resources
from cdc_assets.tables.lakehouse import history_tables, lakehouse_root

_PIPELINE = "cdc_pipeline"


def build_definitions(feeds_file: FeedsFile) -> Definitions:
    """Everything that Dagster shows and runs, for the feeds of one file."""
    assets, audits, sensors = [], [], []
    for name, feed in feeds_file.feeds.items():
        tables = history_tables(lakehouse_root(), name)
        chain = feed_assets(name, feed, tables)
        assets += chain
        if feed.source.kafka is not None:
            keys = [key for each in chain for key in each.keys]
            sensors.append(new_records.build(name, feed.source.kafka, _PIPELINE, keys))
        audits.append(audit.build(name, feed, tables))
    audited = AssetSelection.checks(*audits)
    pipeline = define_asset_job(
        _PIPELINE,
        selection=AssetSelection.all() - audited,
        description="Everything once, in order: take in what is new, decode it, release what is complete, write history.",
    )
    audit_job = define_asset_job(
        "audit", selection=audited, description="Check every promise over everything that the tables hold."
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
        jobs=[pipeline, audit_job, *operations.build(feeds_file.feeds)],
        schedules=[hourly],
        sensors=sensors,
        resources=build_resources(feeds_file.spark),
        # One process, and so one Spark session, a run.
        executor=in_process_executor,
    )


def _load() -> Definitions:
    try:
        return build_definitions(load_feeds())
    except FeedsError as error:
        # The message says it all; a traceback below it would only hide it.
        sys.tracebacklimit = 0
        raise FeedsError(str(error)) from None


defs = _load()
