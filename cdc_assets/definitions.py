"""Wiring only: the feeds file -> assets, checks, jobs, schedules, sensors and resources."""

import sys

from dagster import (
    AssetCheckKey,
    AssetsDefinition,
    AssetSelection,
    AssetSpec,
    Definitions,
    JobDefinition,
    ScheduleDefinition,
    define_asset_job,
    in_process_executor,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from cdc_assets.assets import alerts, audit, history, new_records, operations
from cdc_assets.assets import feed as feed_assets
from cdc_assets.assets.known_tables import known_tables
from cdc_assets.feeds import FeedsError, FeedsFile, load_feeds
from cdc_assets.places import PlaceError
from cdc_assets.resources import build_resources
from cdc_assets.storage import Store
from cdc_assets.tables.lakehouse import lakehouse_root

_PIPELINE = "cdc_pipeline"


def build_definitions(feeds_file: FeedsFile) -> Definitions:
    """Everything that Dagster shows and runs, for the feeds of one file."""
    feeds, root = feeds_file.feeds, lakehouse_root()
    assets: list[AssetsDefinition | AssetSpec] = []
    audits, audited, jobs = [], [], {}
    for name, feed in feeds.items():
        tables = known_tables(root, name)
        chain = feed_assets.build(name, feed)
        assets += [chain, *history.table_specs(name, feed, tables)]
        if tables:
            audits.append(audit.tables_audit(name, feed, tables))
        audited += audit.audited(name, feed, tables)
        jobs[name] = define_asset_job(
            f"{_PIPELINE}_{name}",
            selection=AssetSelection.assets(*chain.keys).without_checks(),
            description=f"The pipeline of the feed {name} alone.",
        )
    pipeline = define_asset_job(
        _PIPELINE,
        selection=AssetSelection.all().without_checks(),
        description="Everything once, in order: take in what is new, decode it, release what is complete, write history.",
    )
    sensors = alerts.build(str(feeds_file.alerts.webhook)) if feeds_file.alerts else []
    sensors.append(new_records.build(feeds, jobs, _PIPELINE, root, Store.of(feeds_file, root)))
    of_people = {job.name: job for job in operations.build(feeds)}
    audit_job = _audit_job(audited)
    return Definitions(
        assets=assets,
        asset_checks=audits,
        jobs=[pipeline, *jobs.values(), audit_job, *of_people.values()],
        schedules=_schedules(pipeline, of_people["maintenance"], audit_job),
        sensors=sensors,
        resources=build_resources(feeds_file),
        # One process, and so one Spark session, a run.
        executor=in_process_executor,
    )


def _audit_job(audited: list[AssetCheckKey]) -> UnresolvedAssetJobDefinition:
    return define_asset_job(
        "audit",
        selection=AssetSelection.checks(*audited),
        description="Check every promise over everything that the tables hold.",
    )


def _schedules(
    pipeline: UnresolvedAssetJobDefinition, maintenance: JobDefinition, audit_job: UnresolvedAssetJobDefinition
) -> list[ScheduleDefinition]:
    """When each of these runs; stopped until somebody starts it."""
    return [
        ScheduleDefinition(name=name, job=job, cron_schedule=cron, description=f"{told} Stopped until you start it.")
        for name, job, cron, told in (
            ("cdc_pipeline_hourly", pipeline, "0 * * * *", "The pipeline, every hour."),
            (
                "maintenance_nightly",
                maintenance,
                "30 2 * * *",
                "Small files put together, old ones removed, every night.",
            ),
            ("audit_weekly", audit_job, "30 4 * * 0", "Every promise over everything, on Sundays."),
        )
    ]


def _load() -> Definitions:
    try:
        return build_definitions(load_feeds())
    except (FeedsError, PlaceError) as error:
        # The message says it all; a traceback below it would only hide it.
        sys.tracebacklimit = 0
        raise type(error)(str(error)) from None


defs = _load()
