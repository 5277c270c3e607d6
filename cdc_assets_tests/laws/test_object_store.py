"""Check the laws with the lakehouse in object stores and HDFS: two drivers may commit at once, and requests may fail.

The tables must equal those that the same records give in a local folder, which other tests compare with the source.
"""

import base64
import itertools
import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import SensorResult, build_sensor_context
from pyarrow.fs import FileSelector, FileType
from pyspark.sql import SparkSession

from cdc_assets import cli
from cdc_assets.assets.resources import SparkResource
from cdc_assets.config import Storage
from cdc_assets.config.locations import LocationError
from cdc_assets.lakehouse.log import Logs
from cdc_assets.lakehouse.schema import frame_of
from cdc_assets.lakehouse.table import ConcurrentRunError, LakeTable
from cdc_assets.operations.maintenance.files import compact_tables
from cdc_assets.operations.rebuild import rebuild_feed
from cdc_assets.sources.recorded import snapshot_files
from cdc_assets.spark.exclusive_writes import check_exclusive_writes
from cdc_assets.stores.storage import Store, make_folder
from cdc_assets_tests.jobs import Job, evaluated
from cdc_assets_tests.lakehouse.numbers import NUMBERS, NumbersCursor
from cdc_assets_tests.laws.conservation import conserved
from cdc_assets_tests.laws.crashing_run import begin, run_and_stop, start
from cdc_assets_tests.laws.streams import PARTITIONS, short_stream
from cdc_assets_tests.store_server import BUCKET, HANGING, WAYS, StoreServer
from cdc_assets_tests.support import Chain, Record, Rows, Stream, ddl, histories, record, rows_in, tso

# A name that needs encoding, so that each of the readers has to find its folder.
ODD = Rows(table="注文 a.b%")
# A table that only Spark writes to, as soon as its columns are mapped.
RENAMED = Rows(table="renamed")
RENAME = "ALTER TABLE `shop`.`renamed` RENAME COLUMN `v` TO `w`"


def records() -> tuple[list[Record], list[Record]]:
    """Return the first and the second records: orders, customers, the two tables, and a record that cannot be decoded."""
    first, second = short_stream()
    early, late = ODD.insert(tso(3), 1, "one"), ODD.update(tso(14), 1, "two", "one")
    row, rename = RENAMED.insert(tso(3), 1, "one"), ddl(RENAME, tso(13), table="renamed", ddl_type="ALTER")
    first += [record(early, 0, 2001), record(row, 0, 2002)]
    return first, [record(late, 0, 2003), record(rename, 0, 2004), *second, record(b"{", 0, 2005)]


@pytest.fixture(scope="module")
def local(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The histories that one run makes in a local folder."""
    made = Chain(spark, tmp_path_factory.mktemp("local"), partitions=PARTITIONS)
    made.add([*records()[0], *records()[1]])
    made.run()
    tables = histories(made.lake)
    assert len(tables) == 4
    return tables


@dataclass
class Place:
    """A root in a store, with its server if the server records requests."""

    root: str
    storage: dict[str, Any]
    server: StoreServer | None


# Each client meets each kind of failure once: pyarrow waits up to two seconds before a retry. Only Hadoop can be set
# to a shorter wait for an answer.
FAILING = {"Hadoop": [HANGING, *WAYS], "deltalake": [*WAYS], "pyarrow": [*WAYS]}
# One of this many requests fails, so that some fail late in a run: Hadoop makes a dozen, the others 250 and more.
EVERY = {"Hadoop": 2, "deltalake": 40, "pyarrow": 40}
OBJECT_STORES = ["s3", "gcs", "azure"]


@pytest.fixture(scope="module", params=[*OBJECT_STORES, "hdfs"])
def place(request: pytest.FixtureRequest, started: Callable[[str], StoreServer]) -> Place:
    """A root in each kind of store."""
    if request.param == "hdfs":
        return Place(f"{request.getfixturevalue('hdfs').root}/lakes/chopped", {}, None)
    server = started(request.param)
    return Place(f"{server.root}/chopped", server.store_settings, server)


@pytest.fixture(scope="module", params=OBJECT_STORES)
def server(request: pytest.FixtureRequest, started: Callable[[str], StoreServer]) -> StoreServer:
    """An object store."""
    return started(request.param)


@pytest.fixture(scope="module")
def remote(place: Place, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """Return the chain of the same records after disturbed runs.

    During the first run requests fail and listings are slow, if the store can be set to do so. The second run is
    killed while a commit is on its way and arrives, or else in the middle of a commit before it is sent. The
    process of the third run is stopped in the middle of a commit, and continues when the fourth run has ended.
    """
    store = Store(Storage.model_validate(place.storage), (place.root,))
    made = Chain(spark, tmp_path_factory.mktemp("there"), root=place.root, store=store, partitions=PARTITIONS)
    first, second = records()
    settings = {"partitions": PARTITIONS, "root": place.root, "storage": place.storage}
    # The processes start up during the first run.
    moments = "never" if place.server else "looked released_changes/f", "looked history/f/shop/customers"
    killed, stopped = (start(made.folder, moment, spark, settings) for moment in moments)
    made.add(first)
    if place.server:
        run_to_the_end(made, place.server)
    else:
        made.run()
    made.add(second)
    if place.server:
        be_killed_in_a_commit(made, place.server, killed)
    else:
        assert run_and_stop(killed)(signal.SIGKILL).returncode == -signal.SIGKILL
    end = run_and_stop(stopped)
    made.run()
    third = end(signal.SIGCONT)
    assert third.returncode == 1
    assert "history/f/shop/customers: another run has already committed step" in third.stderr
    return made


def run_to_the_end(chain: Chain, server: StoreServer) -> None:
    """Run, and repeat the run after faults, until it succeeds."""
    server.faults(fail=FAILING, every=EVERY, slow=0.02)
    for _ in range(5):
        try:
            chain.run()
        except Exception as error:  # noqa: BLE001 -- whatever a client makes of it
            print(f"run again after {error}")
        else:
            break
    else:
        raise AssertionError("five runs have failed")
    assert server.left("fail") == {client: [] for client in FAILING}
    server.faults()


def be_killed_in_a_commit(chain: Chain, server: StoreServer, running: "subprocess.Popen[str]") -> None:
    """Run a process that is killed (SIGKILL) after it has sent a commit, and before the store accepts it."""
    before = version_of(chain.lake.change_events)
    done = when_it_commits(server, before + 1, running.kill, "change_events/f")
    begin(running)
    output = running.communicate(timeout=300)
    assert running.returncode == -signal.SIGKILL, output
    done()
    assert version_of(chain.lake.change_events) == before + 1
    server.faults()


def version_of(table: LakeTable[Any]) -> int:
    log = table.log()
    assert log
    return log.version


def test_the_histories_are_those_of_a_local_folder(remote: Chain, local: dict[str, list[dict[str, Any]]]) -> None:
    assert histories(remote.lake) == local
    counts = conserved(remote.lake, remote.feed)
    assert (counts.records, counts.undecodable) == (sum(map(len, records())), 1)
    assert len(remote.history(ODD.table)) == 2
    # Spark and deltalake read the same folder.
    assert remote.lake.history("shop", ODD.table).read(remote.lake.spark).count() == 2


@pytest.mark.parametrize("place", OBJECT_STORES, indirect=True)
def test_every_commit_was_written_only_if_absent(remote: Chain, place: Place) -> None:
    """deltalake's commits, and Spark's of the table with the renamed column."""
    assert place.server
    commits = [r for r in place.server.requests if r.commits]
    assert {r.condition for r in commits} == {place.server.absent}
    assert {r.client for r in commits} == {"Hadoop", "deltalake"}


def test_maintenance_and_rebuild(remote: Chain, local: dict[str, list[dict[str, Any]]]) -> None:
    replaced = {each.table for each in rebuild_feed(remote.lake, remote.feed)}
    assert replaced >= local.keys()
    assert histories(remote.lake) == local
    files, path = remote.lake.store.files(remote.lake.place("rebuilding", "f"))
    left = files.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    assert [each.path for each in left if each.is_file] == []
    small = remote.lake.raw_records
    assert len(small.files()) > 1
    (done,) = (each for each in compact_tables(remote.lake) if each.table == small.name)
    assert (done.added, len(small.files())) == (1, 1)
    assert histories(remote.lake) == local


@pytest.mark.parametrize("place", ["s3"], indirect=True)
@pytest.mark.extended
def test_dagster_and_the_commands(
    remote: Chain,
    place: Place,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The sensor, a run, the audit and the commands get the store's settings from the feeds file."""
    source = {"recorded": str(remote.snapshots), "partitions": PARTITIONS}
    feed = {"protocol": "canal-json", "tidb_extension": True, "source": source}
    (tmp_path / "feeds.yaml").write_text(yaml.safe_dump({"storage": place.storage, "feeds": {"f": feed}}))
    for name, value in {"FEEDS": tmp_path / "feeds.yaml", "LAKEHOUSE": place.root, "STATE": tmp_path / "state"}.items():
        monkeypatch.setenv(f"CDC_{name}", str(value))
    monkeypatch.setattr(SparkResource, "spark_session", spark)
    job = Job(tmp_path, spark)
    new_records = job.loaded().resolve_sensor_def("new_records")

    def asked() -> dict[str | None, str]:
        answer = new_records(build_sensor_context(instance=job.instance))
        requests = answer.run_requests if isinstance(answer, SensorResult) else None
        return {r.job_name: r.tags["cdc/reason"] for r in requests or []}

    remote.add(records()[0], "0000.jsonl")  # sent once more, so the tables that other tests read stay the same
    assert asked() == {"cdc_pipeline_f": "1 files are new or have changed"}
    assert job.run("cdc_pipeline_f").success
    assert asked() == {}
    done = job.run("audit")
    assert done.success
    assert {each.check_name for each in evaluated(done) if not each.passed} == set()
    assert ("f", "history", "shop", "orders", "history_intervals") in job.verdicts()
    capsys.readouterr()
    assert cli.main(["why", "f", "shop.orders", "4", "--records"]) == 0
    assert "wide" in capsys.readouterr().out
    assert cli.main(["diff", "f", "shop.orders", str(tso(9)), "final", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


# --- two drivers


_numbers = itertools.count()


@pytest.fixture
def table(server: StoreServer, spark: SparkSession) -> Iterator[LakeTable[NumbersCursor]]:
    """A table of the numbers 1 and 2; the server has no faults before and after."""
    server.faults()
    path = f"{server.root}/numbers{next(_numbers)}"
    made = LakeTable(path, "numbers", NUMBERS, Logs(Store(server.settings, (path,))))
    made.commit(made.stage(frame_of(spark, [{"n": 1}, {"n": 2}], NUMBERS.columns)), NumbersCursor(sequence=1))
    yield made
    server.faults()


def when_it_commits(
    server: StoreServer, version: int, act: Callable[[], object], table: str = ""
) -> Callable[[], None]:
    """Act when the request for a commit of this version is on its way: its driver has read the log and sent it."""
    return server.when_asked(f"{table}/_delta_log/{version:020}.json", act)


def numbers(table: LakeTable[NumbersCursor], spark: SparkSession) -> list[int]:
    assert [r["n"] for r in rows_in(table, spark)] == sorted(r["n"] for r in table.read(spark).collect())
    return [r["n"] for r in rows_in(table, spark)]


def add(table: LakeTable[NumbersCursor], n: int, sequence: int) -> None:
    table.commit(table.stage_rows([{"n": n}]), NumbersCursor(sequence=sequence))


def double(table: LakeTable[NumbersCursor], spark: SparkSession, sequence: int) -> None:
    cursor = NumbersCursor(sequence=sequence)
    table.transact(spark.newSession(), cursor, lambda it: it.update("n = 2", {"n": "20"}))


def test_of_two_runs_at_the_same_step_the_later_writes_nothing(
    server: StoreServer, spark: SparkSession, table: LakeTable[NumbersCursor]
) -> None:
    """Another driver commits the step first, with deltalake or with Spark."""
    done = when_it_commits(server, 2, lambda: add(table, 3, 2))
    with pytest.raises(ConcurrentRunError, match="already committed step 2"):
        add(table, 4, 2)
    done()
    assert numbers(table, spark) == [1, 2, 3]
    done = when_it_commits(server, 3, lambda: add(table, 5, 3))
    with pytest.raises(ConcurrentRunError, match="already committed step 3"):
        double(table, spark, 3)
    done()
    assert numbers(table, spark) == [1, 2, 3, 5]


def test_what_another_driver_commits_beside_a_step_stays(
    server: StoreServer, spark: SparkSession, table: LakeTable[NumbersCursor]
) -> None:
    """Maintenance commits first: the step takes the next version, and both commits stay."""

    def set_property(n: int) -> None:
        log = table.log()
        assert log
        log.table.alter.set_table_properties({f"test.{n}": "x"}, raise_if_not_exists=False)

    done = when_it_commits(server, 2, lambda: set_property(1))
    add(table, 3, 2)
    done()
    log = table.log()
    assert log
    assert (log.version, log.properties["test.1"]) == (3, "x")
    assert numbers(table, spark) == [1, 2, 3]


@pytest.mark.parametrize(
    "writer",
    [lambda table, spark: add(table, 20, 2), lambda t, s: double(t, s, 2)],
    ids=["add", "double"],
)
def test_a_commit_whose_answer_is_lost_exists_once(
    server: StoreServer, spark: SparkSession, table: LakeTable[NumbersCursor], writer: Callable[..., None]
) -> None:
    """The client repeats the request and is refused; deltalake and Spark recognise the commit as the run's own."""
    server.faults(lose=1)
    writer(table, spark)
    assert server.left("lose") == 0
    assert table.cursor() == NumbersCursor(sequence=2)
    assert sorted(numbers(table, spark)).count(20) == 1
    add(table, 30, 3)
    assert 30 in numbers(table, spark)


# --- other files


def test_folders_and_files_are_listed_however_they_were_made(server: StoreServer, spark: SparkSession) -> None:
    """Hadoop makes an object for a folder in some stores, pyarrow makes none."""
    root = f"{server.root}/found"
    store = Store(server.settings, (root,))
    files, path = store.files(root)
    spark.range(1).write.csv(f"{root}/dumps/by_hadoop")
    for name in ("a.jsonl", "b.jsonl.gz", "other.txt", "by_pyarrow/c.jsonl"):
        with files.open_output_stream(f"{path}/dumps/{name}") as file:
            file.write(b"{}")
    assert list(snapshot_files(f"{root}/dumps", store)) == ["a.jsonl", "b.jsonl.gz"]
    listed = {i.base_name: i.type for i in files.get_file_info(FileSelector(f"{path}/dumps"))}
    folders = {name for name, kind in listed.items() if kind == FileType.Directory}
    assert (folders, len(listed)) == ({"by_hadoop", "by_pyarrow"}, 5)
    for name in folders:
        assert files.get_file_info(f"{path}/dumps/{name}").type == FileType.Directory
    assert files.get_file_info(f"{path}/dumps/none").type == FileType.NotFound
    with pytest.raises(FileNotFoundError, match="no such folder of recorded snapshots"):
        snapshot_files(f"{root}/none", store)


def test_what_pyarrow_writes_while_requests_fail_is_complete(server: StoreServer) -> None:
    """Google's client asks for the state of an upload after a request with content failed."""
    root = f"{server.root}/whole"
    files, path = Store(server.settings, (root,)).files(root)
    server.faults(fail={"pyarrow": list(WAYS)}, every={"pyarrow": 4})
    written = {f"{path}/{n}": f"{n} ".encode() * 1000 for n in range(6)}
    for name, content in written.items():
        with files.open_output_stream(name) as file:
            file.write(content)
    assert server.left("fail") == {"pyarrow": []}
    server.faults()
    for name, content in written.items():
        with files.open_input_stream(name) as file:
            assert file.read() == content


P = tso(1_000)  # the position of the dump
SOURCES = {
    "dump/metadata": f"SHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: {P}\n\tGTID:\n",
    "dump/shop.orders-schema.sql": "CREATE TABLE `orders` (`id` bigint NOT NULL, `v` varchar(20), PRIMARY KEY (`id`));\n",
    "dump/shop.orders.000000000.csv": '"id","v"\n1,"one"\n2,"two"\n',
}


def test_snapshots_claims_and_dumps_are_read_from_the_store(place: Place, spark: SparkSession, tmp_path: Path) -> None:
    """The lakehouse is in a local folder, so that only the sources are in the store."""
    base = f"{place.root.rpartition('/')[0]}/sources"
    store = Store(Storage.model_validate(place.storage), (str(tmp_path / "lake"), base))
    stream, claimed = Stream(), Rows().insert(P + 2, 3, "kept elsewhere")
    location = {"claimCheckLocation": "s3://bucket/one.json"}
    stream.send(claimed | {"data": [{"id": "3"}], "_tidb": claimed["_tidb"] | location})
    stream.send(Rows().update(P + 1, 2, "two again", "two"))
    stream.watermark(P + 3)
    value = base64.b64encode(json.dumps(claimed).encode()).decode()
    lines = "".join(json.dumps(line) + "\n" for line in stream.records)
    files, path = store.files(base)
    for name, text in {
        **SOURCES,
        "snapshots/0.jsonl": lines,
        "claims/one.json": json.dumps({"key": None, "value": value}),
    }.items():
        make_folder(files, f"{path}/{name.partition('/')[0]}")
        with files.open_output_stream(f"{path}/{name}") as file:
            file.write(text.encode())
    chain = Chain(
        spark,
        tmp_path,
        store=store,
        source={"recorded": f"{base}/snapshots"},
        claim_check=f"{base}/claims",
        initial_load={"path": f"{base}/dump", "format": "dumpling-csv"},
    )
    chain.run()
    rows = [(r["id"], r["v"], r["_cdc_from_ts"] - P, r["_cdc_op"]) for r in chain.history()]
    assert sorted(rows) == [
        (1, "one", 0, "snapshot"),
        (2, "two", 0, "snapshot"),
        (2, "two again", 1, "update"),
        (3, "kept elsewhere", 2, "insert"),
    ]


# --- stores without conditional writes


def test_a_store_that_replaces_existing_files_is_refused(
    server: StoreServer, spark: SparkSession, tmp_path: Path, table: LakeTable[NumbersCursor]
) -> None:
    server.faults(unconditional=True)
    root = f"{server.root}/unsafe"
    chain = Chain(spark, tmp_path, root=root, store=Store(server.settings, (root,)))
    chain.add(records()[0])
    with pytest.raises(
        LocationError,
        match=r"this store replaces an existing file.* Two runs at the same time would overwrite each other",
    ):
        chain.run()
    assert not chain.lake.raw_records.exists()


def test_a_missing_bucket_is_reported(server: StoreServer, spark: SparkSession) -> None:
    root = f"{server.root.replace(BUCKET, 'nowhere')}/lake"
    with pytest.raises(LocationError, match=rf"^{re.escape(root)}: is not writable, .*{server.no_bucket}"):
        check_exclusive_writes(spark, root)
