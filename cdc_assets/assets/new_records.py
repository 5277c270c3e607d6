"""A sensor for each feed of a broker: it starts the pipeline for the feed when there are records to read."""

import hashlib
import json

from dagster import (
    DagsterRunStatus,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)

from cdc_assets.feeds import Kafka
from cdc_assets.session import spark_session
from cdc_assets.sources.broker import broker_of
from cdc_assets.sources.offsets import Place
from cdc_assets.stages.ingest import following_offsets
from cdc_assets.storage import Store
from cdc_assets.tables.lakehouse import Lakehouse, lakehouse_root
from cdc_assets.tables.raw_records import RawCursor

_UNDER_WAY = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]


def build(name: str, kafka: Kafka, job: str, of_all: str, store: Store) -> SensorDefinition:
    """The sensor of one feed: it launches the feed's `job`, unless that or `of_all`, the job of all feeds, is under way.

    It asks the broker, and the table's log for what is held: no Spark.
    """

    @sensor(
        name=f"{name}_new_records",
        job_name=job,
        minimum_interval_seconds=60,
        description=f"Starts the pipeline for the feed {name} when its topics have new records. Stopped until you start it.",
    )
    def new_records(context: SensorEvaluationContext) -> RunRequest | SkipReason:
        under_way = context.instance.get_runs(RunsFilter(statuses=_UNDER_WAY))
        busy = [run.run_id for run in under_way if run.job_name in {job, of_all}]
        if busy:
            return SkipReason(f"A run of the feed is under way: {busy[0]}.")
        lake = Lakehouse(spark_session, lakehouse_root(), name, store)
        cursor = lake.raw_records.cursor() or RawCursor(sequence=0)
        with broker_of(kafka) as broker:
            there = broker.snapshot()
        bounds = {Place(t, n): b for t, topic in there.items() for n, b in topic.partitions.items()}
        following = following_offsets(cursor)
        waiting = {p: b.latest - following.get(p, b.earliest) for p, b in bounds.items()}
        # Fewer than are held, or a topic that is gone: what that means is for the run to tell.
        gone = {topic for topic, topic_id in (cursor.ids or {}).items() if topic_id} - there.keys()
        if not any(waiting.values()) and not gone and cursor.plan is None:
            return SkipReason("No new records.")
        ends = json.dumps([sorted(bounds.items()), cursor.sequence])
        # One run for one state of the topics and of what is held: a run that fails is not started again and again.
        return RunRequest(
            run_key=f"{name}-{hashlib.sha256(ends.encode()).hexdigest()[:16]}",
            tags={"cdc/reason": f"{sum(waiting.values())} offsets of {len(there)} topics are new"},
        )

    return new_records
