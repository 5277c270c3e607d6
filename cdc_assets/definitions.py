"""Wiring only: the feeds file -> assets, checks, jobs, schedules, sensors and resources."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dagster import (
    AnchorBasedFilePathMapping,
    AssetCheckKey,
    AssetsDefinition,
    AssetSelection,
    AssetSpec,
    DefaultScheduleStatus,
    DefaultSensorStatus,
    Definitions,
    JobDefinition,
    ScheduleDefinition,
    define_asset_job,
    definitions,
    in_process_executor,
    link_code_references_to_git,
    with_source_code_references,
)

from cdc_assets.assets import alerts, feed_definitions, new_records, old_runs, operations
from cdc_assets.assets.feed_definitions import PIPELINE, AssetJob
from cdc_assets.assets.known_tables import known_tables
from cdc_assets.assets.resources import build_resources
from cdc_assets.config import FeedsError, FeedsFile, load_feeds
from cdc_assets.config.locations import LocationError
from cdc_assets.lakehouse.lakehouse import lakehouse_root
from cdc_assets.stores.storage import Store


def build_definitions(feeds_file: FeedsFile) -> Definitions:
    """Everything that Dagster shows and runs, for the feeds of one file."""
    feeds, root = feeds_file.feeds, lakehouse_root()
    built = {name: feed_definitions.build(name, feed, known_tables(root, name)) for name, feed in feeds.items()}
    jobs = {name: each.job for name, each in built.items()}
    planned = [check for each in built.values() for check in each.planned]
    pipeline = define_asset_job(
        PIPELINE,
        selection=AssetSelection.all().without_checks() | AssetSelection.checks(*planned),
        description="Everything once, in order: take in what is new, decode it, release what is complete, write history.",
    )
    sensors = alerts.build(str(feeds_file.alerts.webhook)) if feeds_file.alerts else []
    status = DefaultSensorStatus[feeds_file.automation.upper()]
    sensors.append(new_records.build(feeds, jobs, PIPELINE, root, Store.of(feeds_file, root), status=status))
    of_people = {job.name: job for job in (*operations.build(feeds), old_runs.build())}
    audit_job = _audit_job([check for each in built.values() for check in each.audited])
    return Definitions(
        assets=_with_code_references(feeds_file, [asset for each in built.values() for asset in each.assets]),
        asset_checks=[check for each in built.values() for check in each.checks],
        jobs=[pipeline, *jobs.values(), audit_job, *of_people.values()],
        schedules=_schedules(feeds_file, pipeline, audit_job, of_people),
        sensors=sensors,
        resources=build_resources(feeds_file),
        # One process, and so one Spark session, a run.
        executor=in_process_executor,
    )


def _with_code_references(
    file: FeedsFile, assets: list[AssetsDefinition | AssetSpec]
) -> Sequence[AssetsDefinition | AssetSpec]:
    """Return the assets with links to their source code, if the feeds file says where that is."""
    if (place := file.code_references) is None:
        return assets
    linked = link_code_references_to_git(
        with_source_code_references(assets),
        git_url=str(place.git_url).rstrip("/"),
        git_branch=place.git_branch,
        platform=place.platform,
        file_path_mapping=AnchorBasedFilePathMapping(Path(__file__), "cdc_assets/definitions.py"),
    )
    return [asset for asset in linked if isinstance(asset, AssetsDefinition | AssetSpec)]


def _audit_job(audited: list[AssetCheckKey]) -> AssetJob:
    return define_asset_job(
        "audit",
        selection=AssetSelection.checks(*audited),
        description="Check every promise over everything that the tables hold.",
    )


def _schedules(
    file: FeedsFile, pipeline: AssetJob, audit_job: AssetJob, of_people: Mapping[str, JobDefinition]
) -> list[ScheduleDefinition]:
    """Return the schedules; `automation` of the feeds file says whether they run until somebody starts or stops them."""
    status = DefaultScheduleStatus[file.automation.upper()]
    maintenance, old = of_people["maintenance"], of_people["delete_old_runs"]
    return [
        ScheduleDefinition(name=name, job=job, cron_schedule=cron, description=told, default_status=status)
        for name, job, cron, told in (
            ("cdc_pipeline_hourly", pipeline, "0 * * * *", "The pipeline, every hour."),
            ("maintenance_nightly", maintenance, "30 2 * * *", "Compact small files and remove old ones, every night."),
            ("delete_old_runs_nightly", old, "45 3 * * *", "Delete old runs of Dagster, every night."),
            ("audit_weekly", audit_job, "30 4 * * 0", "Every promise over everything, on Sundays."),
        )
    ]


@definitions
def defs() -> Definitions:
    """Return everything that Dagster shows and runs, for the feeds of the feeds file."""
    try:
        return build_definitions(load_feeds())
    except (FeedsError, LocationError) as error:
        # The message says it all; a traceback below it would only hide it.
        sys.tracebacklimit = 0
        raise type(error)(str(error)) from None
