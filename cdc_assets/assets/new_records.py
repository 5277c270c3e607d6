"""The sensor that starts the pipeline of each feed that has something to do: one sensor for all feeds, without a JVM."""

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import dagster as dg

from cdc_assets.assets.feed_definitions import PIPELINE, AssetJob
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.sources.offsets import DataLossError
from cdc_assets.spark.session import spark_session
from cdc_assets.stages import INGEST, STAGES
from cdc_assets.stages.history.progress_file import read_progress
from cdc_assets.stores.storage import Store

_UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
# Ask feeds in parallel, so that a broker that does not answer does not delay the other feeds.
_PARALLEL_FEEDS = 16


@dataclass(frozen=True)
class _Work:
    """Something that a feed has to do.

    Attributes:
        reason: for people.
        state: identifies the work: it changes when a run changes a table, or when the source changes.
    """

    reason: str
    state: str


def build(
    feeds: Mapping[str, Feed],
    jobs: Mapping[str, AssetJob],
    root: str,
    store: Store,
    sensor_name: str = "new_records",
    status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Return the sensor.

    Args:
        feeds: the feeds by name.
        jobs: the job of each feed. While a run of the job of all feeds is under way, none of them is started.
        root: the root of the lakehouse.
        store: the store that has the root.
        sensor_name: the name of the sensor.
        status: whether the sensor runs until a person starts or stops it.
    """

    @dg.sensor(
        name=sensor_name,
        jobs=list(jobs.values()),
        minimum_interval_seconds=60,
        default_status=status,
        description="Asks the brokers and folders of all feeds for new records, and starts the pipeline of each "
        "feed that has something to do. The run's tag cdc/reason names the reason.",
    )
    def new_records(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        under_way = {run.job_name for run in context.instance.get_runs(dg.RunsFilter(statuses=_UNDER_WAY))}
        if PIPELINE in under_way:
            return dg.SkipReason(f"A run of {PIPELINE} is under way.")
        idle = {name: feed for name, feed in feeds.items() if jobs[name].name not in under_way}
        answers = _find_work_of_feeds(idle, root, store)
        errors = {name: answer for name, answer in answers.items() if isinstance(answer, Exception)}
        for name, error in errors.items():
            context.log.error(f"{name}: {error}")
        requests = [
            _build_request(name, jobs[name], answer) for name, answer in answers.items() if isinstance(answer, _Work)
        ]
        if requests:
            return dg.SensorResult(run_requests=requests)
        if errors:
            return dg.SkipReason("; ".join(f"{name}: {error}" for name, error in errors.items()))
        return dg.SkipReason("No feed has anything to do that no run has been started for.")

    return new_records


def _build_request(name: str, job: AssetJob, work: _Work) -> dg.RunRequest:
    """Return the request for a run of a feed. Its key is unique for the work, so that a failing run is not started again."""
    key = f"{name}-{hashlib.sha256(work.state.encode()).hexdigest()[:16]}"
    return dg.RunRequest(run_key=key, job_name=job.name, tags={"cdc/reason": work.reason})


def _find_work_of_feeds(feeds: Mapping[str, Feed], root: str, store: Store) -> dict[str, _Work | Exception | None]:
    """Return what each feed has to do, None for nothing, or the error that a feed raised."""

    def find(name: str) -> _Work | Exception | None:
        try:
            return _find_work(Lakehouse(spark_session, root, name, store), feeds[name])
        except Exception as error:  # noqa: BLE001 -- an error of one feed must not stop the other feeds
            return error

    with ThreadPoolExecutor(_PARALLEL_FEEDS) as pool:
        return dict(zip(feeds, pool.map(find, feeds), strict=True))


def _find_work(lake: Lakehouse, feed: Feed) -> _Work | None:
    """Return what the first stage of a feed that is due has to do; None if no stage is due."""
    cursors, progress = [table.cursor() for table in lake.stage_tables], read_progress(lake)
    # A table that could not be written changes no cursor, so its last try is part of the state, too.
    tries = [(each.name, each.tried_at, each.version) for each in progress.failed] if progress else []
    state = str([*(cursor.sequence if cursor else 0 for cursor in cursors), *tries])
    try:
        new_input = INGEST.find_new_input(lake, feed)
    except DataLossError as error:
        # Start a run, which fails or skips the loss as the feed's settings say.
        return _Work(str(error), f"{state}{error}")
    if new_input is not None:
        return _Work(new_input.description, state + new_input.state)
    due = next((stage.name for stage in STAGES if stage is not INGEST and stage.due(lake, feed)), None)
    return _Work(f"{due} has something to do that no run has done", state + due) if due else None
