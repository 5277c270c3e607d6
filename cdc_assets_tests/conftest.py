"""Share between all tests one Spark session, feeds with a lakehouse each, and the recorded scenarios, run once."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page
from pyspark.sql import SparkSession
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from cdc_assets.assets.resources import SparkResource
from cdc_assets.spark.session import spark_session
from cdc_assets.stores.storage import Store
from cdc_assets_tests.azure import AzureServer
from cdc_assets_tests.broker import Client, TestBroker
from cdc_assets_tests.chromium import opened
from cdc_assets_tests.gcs import GcsServer
from cdc_assets_tests.hdfs import Hdfs
from cdc_assets_tests.jobs import FEEDS, Job
from cdc_assets_tests.mariadb import MariaDB
from cdc_assets_tests.s3 import S3Server, shorten_timeouts
from cdc_assets_tests.store_server import StoreServer
from cdc_assets_tests.support import RECORDED, SHORT_LIVED_OPTIONS, Chain, read_lines
from cdc_assets_tests.tiers import is_extended, is_fast, is_soak

# Files whose tests share no slow fixture; those with the longest tests first.
SPREAD = [
    "test_hostile.py",
    "test_evolution_recorded.py",
    "test_complete_transactions.py",
    "test_key_changes_across_partitions.py",
    "test_as_of.py",
]
# Files whose tests share the run of one recorded configuration, with which their ids begin.
BY_CONFIGURATION = {"test_dialects.py", "test_debezium_sets.py"}
# Files whose tests wait for processes that they start.
OF_PROCESSES = {
    "test_as_a_user.py",
    "test_class_archive.py",
    "test_cluster.py",
    "test_definitions.py",
    "test_kafka_job.py",
    "test_playground.py",
    "test_table_assets.py",
}
# xdist's name of the worker that runs these.
THIRD = "gw2"
CONFIGURATIONS = sorted((path.name for path in RECORDED.glob("*/*") if path.is_dir()), key=len, reverse=True)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker one file at once, so that slow fixtures are made once; the largest files first.

    Tests that share nothing come last, one by one, to any idle worker. The third of three workers runs only tests
    that wait for processes: warming up a third Spark session takes longer than it would save.
    """

    def _split_scope(self, nodeid: str) -> str:
        path, _, test = nodeid.partition("::")
        name = Path(path).name
        if name in SPREAD:
            return nodeid
        given = test.partition("[")[2]
        if name in BY_CONFIGURATION and given:
            return name + next((c for c in CONFIGURATIONS if given.startswith((f"{c}-", f"{c}]"))), "")
        return name

    def _next_for(self, node: WorkerController) -> str | None:
        """Return the next scope of a worker; the others get those of the third when nothing else is left."""
        third = node.gateway.id == THIRD
        its_own = [scope for scope in self.workqueue if scope in OF_PROCESSES or not third]
        return min(its_own, key=_lateness, default=None)

    def _assign_work_unit(self, node: WorkerController) -> None:
        scope = self._next_for(node)
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self._next_for(node) is not None:
            super()._reschedule(node)
        elif not node.shutting_down:
            node.shutdown()


def _lateness(scope: str) -> int:
    """Return how late a scope runs, whatever its number of tests."""
    if scope in OF_PROCESSES:
        return len(SPREAD)
    name = Path(scope.partition("::")[0]).name
    return SPREAD.index(name) if name in SPREAD else -1


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Give tests to workers by `Scheduling` (`-n`)."""
    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark tests for `make test-fast`, `make test-all` and `make soak` by their parameters."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        parameters = callspec.params if callspec else {}
        if is_fast(parameters):
            item.add_marker(pytest.mark.fast)
        if is_extended(tuple(item.fixturenames), parameters):
            item.add_marker(pytest.mark.extended)
        if is_soak(parameters):
            item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """A page of a real browser."""
    with opened() as opened_page:
        yield opened_page


@pytest.fixture(scope="session")
def stores() -> dict[str, StoreServer]:
    """The object stores that the session knows, whether or not they answer."""
    return {"s3": S3Server(), "gcs": GcsServer(), "azure": AzureServer()}


@pytest.fixture(scope="session")
def started(stores: dict[str, StoreServer]) -> Iterator[Callable[[str], StoreServer]]:
    """Have one of the object stores answer, from the first time that it is asked for."""
    running: dict[str, StoreServer] = {}

    def start(name: str) -> StoreServer:
        if name not in running:
            stores[name].start()
            running[name] = stores[name]
        return running[name]

    yield start
    for each in running.values():
        each.stop()


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """An HDFS."""
    server = Hdfs(tmp_path_factory.mktemp("hdfs"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """A MariaDB server."""
    made = MariaDB(tmp_path_factory.mktemp("mariadb"))
    yield made
    made.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, stores: dict[str, StoreServer]) -> Iterator[SparkSession]:
    """The one session of the test process, small and with the pipeline's own settings, those of stores among them."""
    reached = [Store(server.settings, (server.root,)) for server in stores.values()]
    # The session of the third worker runs only a small number of tests.
    for_short_sessions = SHORT_LIVED_OPTIONS if os.environ.get("PYTEST_XDIST_WORKER") == THIRD else []
    session = spark_session(
        {
            "spark.master": "local[2]",
            "spark.driver.memory": "4g",
            # Delta keeps the state of ten thousand tables for an hour: more than the heap, after hundreds of tests.
            # A plan's garbage is collected at once if the young generation is large enough to keep none of it. Objects
            # that stay are copied twice, not fifteen times, before they move to the old generation.
            # The code caches hold the code of hundreds of kinds of plans, so that it is not compiled again.
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Xms2g -Xmn1200m -XX:MaxTenuringThreshold=2 "
            f"-XX:MetaspaceSize=512m -XX:ReservedCodeCacheSize=512m -Ddelta.log.cacheSize=20 {' '.join(for_short_sessions)}",
            # The tests themselves read small tables, so compiling their plans would cost more than it saves.
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            # How long a writer waits before it asks HDFS again whether its last block is reported.
            "spark.hadoop.dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            **{key: value for store in reached for key, value in store.spark_settings().items()},
        },
        Store(locations=tuple(server.root for server in stores.values())),
    )
    shorten_timeouts(session)
    yield session
    session.stop()


@pytest.fixture
def chain(spark: SparkSession, tmp_path: Path) -> Callable[..., Chain]:
    """Make feeds, each with an empty snapshot folder and an empty lakehouse; the arguments are the feed's settings."""
    numbers = itertools.count()
    return lambda **settings: Chain(spark, tmp_path / f"chain{next(numbers)}", **settings)


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """The definitions over the feeds shop and crm, which have no records yet."""
    (tmp_path / "feeds.yaml").write_text(FEEDS)
    monkeypatch.setenv("CDC_FEEDS", str(tmp_path / "feeds.yaml"))
    monkeypatch.setenv("CDC_LAKEHOUSE", str(tmp_path / "lake"))
    monkeypatch.setattr(SparkResource, "spark_session", spark)
    return Job(tmp_path, spark)


@pytest.fixture(scope="session")
def recorded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Chain]:
    """A recorded scenario of canal-json_ext, run once; tests do not change it."""
    done: dict[str, Chain] = {}

    def run(scenario: str) -> Chain:
        if scenario not in done:
            settings: dict[str, Any] = {"time_zone": "Asia/Tokyo"} if scenario == "tz" else {}
            made = Chain(spark, tmp_path_factory.mktemp(scenario), **settings)
            made.add(read_lines(RECORDED / "ticdc/canal-json_ext" / scenario))
            assert made.run().types.wrong == []
            done[scenario] = made
        return done[scenario]

    return run


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """A real broker."""
    running = TestBroker(tmp_path_factory.mktemp("kafka") / "broker")
    yield running
    running.kill()


@pytest.fixture(scope="session")
def client(spark: SparkSession, broker: TestBroker) -> Iterator[Client]:
    """Kafka's own client, with which tests change the broker."""
    made = Client(spark, broker)
    yield made
    made.close()


_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test has."""
    return f"topic{next(_numbers)}"


@pytest.fixture
def feeding(spark: SparkSession, broker: TestBroker, tmp_path: Path) -> Callable[..., Chain]:
    """Make feeds of the broker, each with an empty lakehouse; the arguments are the settings of source.kafka."""

    def make(*topics: str, settings: dict[str, Any] | None = None, **kafka: Any) -> Chain:
        source = {"bootstrap_servers": broker.servers} | ({"topics": list(topics)} if topics else {}) | kafka
        return Chain(spark, tmp_path / f"feed{next(_numbers)}", source={"kafka": source}, **(settings or {}))

    return make
