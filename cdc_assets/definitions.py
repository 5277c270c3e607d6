"""The Dagster definitions of all feeds: assets, checks, jobs, schedules, sensors and resources; wiring only."""

import sys
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from cdc_assets.assets import alerts, audit, feed_definitions, new_records, old_runs, operations
from cdc_assets.assets.feed_definitions import PIPELINE
from cdc_assets.assets.resources import build_resources
from cdc_assets.assets.table_list import read_table_list
from cdc_assets.config import FeedsError, FeedsFile, load_feeds
from cdc_assets.config.locations import LocationError
from cdc_assets.lakehouse.lakehouse import lakehouse_root
from cdc_assets.stores.storage import Store

# The name of each schedule for all feeds, its job, cron text and description.
_SCHEDULES = (
    ("cdc_pipeline_hourly", PIPELINE, "0 * * * *", "Run the pipeline, every hour."),
    ("maintenance_nightly", "maintenance", "30 2 * * *", "Compact small files and delete old ones, every night."),
    ("delete_old_runs_nightly", "delete_old_runs", "45 3 * * *", "Delete old Dagster runs, every night."),
    ("audit_weekly", "audit", "30 4 * * 0", "Check complete tables, on Sundays."),
)


def build_definitions(feeds_file: FeedsFile) -> dg.Definitions:
    """Return the definitions for the feeds of one feeds file."""
    feeds, root = feeds_file.feeds, lakehouse_root()
    schedule_status = dg.DefaultScheduleStatus[feeds_file.automation.upper()]
    by_feed = {
        name: feed_definitions.build(name, feed, read_table_list(root, name), schedule_status)
        for name, feed in feeds.items()
    }
    jobs = {name: each.job for name, each in by_feed.items()}
    planned = [check for name in feeds for check in audit.list_stage_checks(name)]
    pipeline = dg.define_asset_job(
        PIPELINE,
        selection=dg.AssetSelection.all().without_checks() | dg.AssetSelection.checks(*planned),
        description="Run all feeds once: ingest new records, decode them, release complete changes, write the histories.",
    )
    audit_job = dg.define_asset_job(
        "audit",
        selection=dg.AssetSelection.checks(*(check for each in by_feed.values() for check in each.audited)),
        description="Check complete tables: conservation, type mappings, and the intervals of every history.",
    )
    sensors = alerts.build(str(feeds_file.alerts.webhook)) if feeds_file.alerts else []
    status = dg.DefaultSensorStatus[feeds_file.automation.upper()]
    sensors.append(new_records.build(feeds, jobs, root, Store.of(feeds_file, root), status=status))
    return dg.Definitions(
        assets=_with_code_references(feeds_file, [asset for each in by_feed.values() for asset in each.assets]),
        asset_checks=[check for each in by_feed.values() for check in each.checks],
        jobs=[pipeline, *jobs.values(), audit_job, *operations.build(feeds), old_runs.build()],
        schedules=[
            *(
                dg.ScheduleDefinition(
                    name=name, job_name=job, cron_schedule=cron, description=description, default_status=schedule_status
                )
                for name, job, cron, description in _SCHEDULES
            ),
            *(schedule for each in by_feed.values() for schedule in each.comparisons),
        ],
        sensors=sensors,
        resources=build_resources(feeds_file),
        # Run all steps in one process, so that a run starts one Spark session.
        executor=dg.in_process_executor,
    )


def _with_code_references(
    file: FeedsFile, assets: list[dg.AssetsDefinition | dg.AssetSpec]
) -> Sequence[dg.AssetsDefinition | dg.AssetSpec]:
    """Return the assets with links to their source code, if the feeds file has `code_references`."""
    if (repository := file.code_references) is None:
        return assets
    linked = dg.link_code_references_to_git(
        dg.with_source_code_references(assets),
        git_url=str(repository.git_url).rstrip("/"),
        git_branch=repository.git_branch,
        platform=repository.platform,
        file_path_mapping=dg.AnchorBasedFilePathMapping(Path(__file__), "cdc_assets/definitions.py"),
    )
    return [asset for asset in linked if isinstance(asset, dg.AssetsDefinition | dg.AssetSpec)]


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions for the feeds of the feeds file."""
    try:
        return build_definitions(load_feeds())
    except (FeedsError, LocationError) as error:
        # Show the message without a traceback: it says what is wrong in the feeds file, and where.
        sys.tracebacklimit = 0
        raise type(error)(str(error)) from None
