"""Run the core on a cluster with executors that have only Spark, and are killed: the tables are those of a local run."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc_assets.spark.session import spark_settings
from cdc_assets.stores.storage import Store
from cdc_assets_tests.cluster import CHECKPOINT, Cluster, OneWorker
from cdc_assets_tests.kubernetes import Kubernetes
from cdc_assets_tests.laws.conservation import conserved
from cdc_assets_tests.laws.streams import PARTITIONS, short_stream
from cdc_assets_tests.support import Chain, Record, Rows, bytes_of, histories, record, tso
from cdc_assets_tests.yarn import Yarn

pytestmark = pytest.mark.extended

# The stages in which executors are killed: on one cluster all that have tasks; the others start new executors slower.
MOMENTS = {
    OneWorker: [CHECKPOINT, "change_events", "history", "raw_records", "released_changes", "type_observations"],
    Yarn: [CHECKPOINT],
    Kubernetes: [CHECKPOINT],
}


@pytest.fixture(params=MOMENTS)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster."""
    running: Cluster = request.param(tmp_path / "cluster")
    yield running
    running.stop()


def _packed(line: Record) -> Record:
    if line["value"] is None:
        return line
    value = pa.compress(bytes_of(line), codec="snappy", asbytes=True)
    return line | {"value": base64.b64encode(value).decode()}


def _chain(spark: SparkSession, folder: Path) -> Chain:
    """Write the short stream, and a record that cannot be decoded.

    Half of the stream is compressed, and one row is in a claim-check file.
    """
    claims = folder / "claims"
    claims.mkdir(parents=True)
    complete_row = Rows(table="large").insert(tso(3), 1, "kept elsewhere")
    value = base64.b64encode(json.dumps(complete_row).encode()).decode()
    (claims / "one.json").write_text(json.dumps({"key": None, "value": value}))
    pointing = complete_row | {
        "data": [{"id": "1"}],
        "_tidb": complete_row["_tidb"] | {"claimCheckLocation": "s3://bucket/one.json"},
    }
    made = Chain(spark, folder, **_settings(folder))
    first, second = short_stream()
    made.add([record(pointing, 0, 2001), *first])
    made.add([*map(_packed, second), record(b"{", 0, 2002)])
    return made


def _settings(folder: Path) -> dict[str, Any]:
    return {"partitions": PARTITIONS, "claim_check": str(folder / "claims")}


@pytest.fixture(scope="module")
def local(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The histories that a run without a cluster makes."""
    made = _chain(spark, tmp_path_factory.mktemp("local"))
    made.run()
    return histories(made.lake)


def test_executors_need_nothing_but_spark_and_may_be_lost(
    cluster: Cluster, spark: SparkSession, tmp_path: Path, local: dict[str, list[dict[str, Any]]]
) -> None:
    on_cluster = _chain(spark, tmp_path / "there")
    moments = MOMENTS[type(cluster)]
    killed, *refusals = cluster.run(on_cluster.folder, _settings(on_cluster.folder), *moments).splitlines()
    assert histories(on_cluster.lake) == local
    assert {name.rpartition("/")[2] for name in histories(on_cluster.lake)} == {"orders", "customers", "large"}
    (large,) = on_cluster.history("large")
    assert large["v"] == "kept elsewhere"
    counts = conserved(on_cluster.lake, on_cluster.feed)
    assert (counts.records, counts.undecodable) == (1 + sum(map(len, short_stream())) + 1, 1)
    # The driver has deleted its checkpoints.
    assert list((on_cluster.folder / "lake/_checkpoints").iterdir()) == []
    assert killed.split()[2:] == sorted(moments)
    (refused,) = refusals
    master = cluster.spark["spark.master"]
    assert (
        f"source.recorded is a local folder of the driver's machine, which not every executor of {master} can read"
        in refused
    )


def test_only_a_local_master_gets_local_settings(tmp_path: Path) -> None:
    local, cluster = (
        spark_settings({"spark.master": master}, Store(locations=("s3a://bucket/lake",)))
        for master in ("local[2]", "spark://host:7077")
    )
    loopback = {"spark.driver.host", "spark.driver.bindAddress"}
    assert [local.get(each) for each in sorted(loopback)] == ["127.0.0.1", "127.0.0.1"]
    assert not loopback & cluster.keys()
    assert cluster["spark.checkpoint.dir"] == "s3a://bucket/lake/_checkpoints"
    shipped = {Path(jar).name.rpartition("-")[0] for jar in cluster["spark.jars"].split(",")}
    assert {"delta-spark_4.1_2.13", "cdc-assets-core", "hadoop-aws"} <= shipped
    assert "spark.jars" not in local
