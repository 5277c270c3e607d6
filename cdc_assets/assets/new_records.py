"""The sensor that starts the pipeline of each feed that has something to do: one for all feeds, and without a JVM."""

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dagster import (
    DagsterRunStatus,
    DefaultSensorStatus,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)

from cdc_assets.assets.feed_definitions import AssetJob
from cdc_assets.config import Feed
from cdc_assets.history.progress import read_progress
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.sources.offsets import DataLossError
from cdc_assets.spark.session import spark_session
from cdc_assets.stages import INGEST, STAGES
from cdc_assets.stores.storage import Store

_UNDER_WAY = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
# A broker that does not answer keeps the others waiting no longer than it is waited for.
_AT_ONCE = 16


@dataclass(frozen=True)
class _Asked:
    """What one feed has to do; `state` is the same as long as no run changes anything, nor its source."""

    reason: str
    state: str


def build(
    feeds: Mapping[str, Feed],
    jobs: Mapping[str, AssetJob],
    of_all: str,
    root: str,
    store: Store,
    named: str = "new_records",
    status: DefaultSensorStatus = DefaultSensorStatus.STOPPED,
) -> SensorDefinition:
    """The sensor.

    Args:
        feeds: by name.
        jobs: the job of each feed.
        of_all: the name of the job of all feeds: while a run of it is under way, no feed's is started.
        root: of the lakehouse.
        store: how it is reached.
        named: the sensor's name.
        status: whether the sensor runs until somebody starts or stops it.
    """

    @sensor(
        name=named,
        jobs=list(jobs.values()),
        minimum_interval_seconds=60,
        default_status=status,
        description="Asks brokers and folders of all feeds for new records, and starts the pipeline of each feed that has "
        "something to do; the run's tag cdc/reason says what.",
    )
    def new_records(context: SensorEvaluationContext) -> SensorResult | SkipReason:
        under_way = {run.job_name for run in context.instance.get_runs(RunsFilter(statuses=_UNDER_WAY))}
        if of_all in under_way:
            return SkipReason(f"A run of {of_all} is under way.")
        idle = [name for name in feeds if jobs[name].name not in under_way]

        def ask(name: str) -> _Asked | Exception | None:
            try:
                return _ask(Lakehouse(spark_session, root, name, store), feeds[name])
            except Exception as error:  # noqa: BLE001 -- what is wrong with one feed is not the others'
                return error

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = dict(zip(idle, pool.map(ask, idle), strict=True))
        wrong = {name: answer for name, answer in answers.items() if isinstance(answer, Exception)}
        for name, error in wrong.items():
            context.log.error(f"{name}: {error}")
        requests = [
            RunRequest(
                # One run for one state: a run that fails is not started again and again.
                run_key=f"{name}-{hashlib.sha256(asked.state.encode()).hexdigest()[:16]}",
                job_name=jobs[name].name,
                tags={"cdc/reason": asked.reason},
            )
            for name, asked in answers.items()
            if isinstance(asked, _Asked)
        ]
        if requests:
            return SensorResult(run_requests=requests)
        if wrong:
            return SkipReason("; ".join(f"{name}: {error}" for name, error in wrong.items()))
        return SkipReason("No feed has anything to do that no run is about.")

    return new_records


def _ask(lake: Lakehouse, feed: Feed) -> _Asked | None:
    """What a feed has to do, told by the first stage that has."""
    cursors, progress = [table.cursor() for table in lake.stage_tables], read_progress(lake)
    # A table that could not be written changes no cursor, and is tried again.
    tried = [(each.name, each.tried_at, each.version) for each in progress.failed] if progress else []
    stands = str([*(cursor.sequence if cursor else 0 for cursor in cursors), *tried])
    try:
        new_input = INGEST.find_new_input(lake, feed)
    except DataLossError as error:
        # What it means is for the run to tell.
        return _Asked(str(error), f"{stands}{error}")
    if new_input is not None:
        return _Asked(new_input.description, stands + new_input.state)
    due = next((stage.name for stage in STAGES if stage is not INGEST and stage.due(lake, feed)), None)
    return _Asked(f"{due} has something to do that no run has done", stands + due) if due else None
