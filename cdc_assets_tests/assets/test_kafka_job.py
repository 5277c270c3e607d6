"""Run the job as a user does, on a broker with a password: nothing that it leaves anywhere shows the password."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets_tests.broker import Client, TestBroker
from cdc_assets_tests.support import Rows, Stream, no_java, tso, users_environment

pytestmark = pytest.mark.extended

PROJECT = Path(__file__).parents[2]
JOB = [sys.executable, "-m", "dagster", "job", "execute", "-m", "cdc_assets.definitions", "-j", "cdc_pipeline"]
PASSWORD, WRONG = "pw-7Hq2vXw9zK", "pw-4mT8sBn3cL"
FEEDS = """
feeds:
  shop:
    protocol: canal-json
    tidb_extension: true
    source:
      kafka:
        bootstrap_servers: {servers}
        topics: [shop]
        options:
          kafka.security.protocol: SASL_PLAINTEXT
          kafka.sasl.mechanism: PLAIN
          kafka.sasl.jaas.config: >-
            org.apache.kafka.common.security.plain.PlainLoginModule required
            username="reader" password="${{KAFKA_PASSWORD}}";
spark:
  spark.eventLog.enabled: true
  spark.eventLog.compress: false  # the test looks for the password's bytes
  spark.sql.parquet.compression.codec: uncompressed
  spark.eventLog.dir: {events}
  spark.sql.maxMetadataStringLength: 100000
"""


@pytest.fixture(scope="module")
def secured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """A broker that accepts only the user `reader`, with a topic of two changes and a watermark."""
    running = TestBroker(tmp_path_factory.mktemp("secured") / "broker", ("reader", PASSWORD))
    client = Client(spark, running)
    client.create("shop", 2)
    stream, rows = Stream(2), Rows()
    stream.send(rows.insert(tso(1), 1, "a"))
    stream.send(rows.insert(tso(2), 2, "b"), 1)
    stream.watermark(tso(5))
    client.send(stream.records, topic="shop")
    yield running
    client.close()
    running.kill()


def execute(home: Path, password: str, **more: str) -> "subprocess.CompletedProcess[str]":
    env = users_environment(home, KAFKA_PASSWORD=password, **more)
    return subprocess.run(JOB, env=env, cwd=home, capture_output=True, text=True, timeout=400, check=False)


def test_no_secret_is_left_anywhere(secured: TestBroker, spark: SparkSession, tmp_path: Path) -> None:
    """No log, event log, metadata, Delta table or error message has the password."""
    (tmp_path / "dagster.yaml").write_text((PROJECT / "dagster.yaml").read_text())
    (tmp_path / "events").mkdir()
    (tmp_path / "feeds.yaml").write_text(FEEDS.format(servers=secured.servers, events=tmp_path / "events"))
    refused = execute(tmp_path, WRONG)
    assert refused.returncode != 0
    assert "SASL authentication error: Authentication failed" in refused.stdout + refused.stderr
    done = execute(tmp_path, PASSWORD)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    history = Lakehouse(lambda: spark, str(tmp_path / "lake"), "shop").history("shop", "orders").read(spark)
    assert sorted((r["id"], r["v"]) for r in history.collect()) == [(1, "a"), (2, "b")]
    idle = execute(tmp_path, PASSWORD, **no_java(tmp_path))  # a run without new records needs no JVM
    assert idle.returncode == 0, (idle.stdout + idle.stderr)[-3000:]
    assert any((tmp_path / "events").iterdir())
    written = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert {p.relative_to(tmp_path).parts[0] for p in written} >= {"lake", "events", ".dagster"}
    places = {str(p): p.read_bytes() for p in written} | {
        "refused": (refused.stdout + refused.stderr).encode(),
        "done": (done.stdout + done.stderr).encode(),
        "idle": (idle.stdout + idle.stderr).encode(),
    }
    for secret in (PASSWORD, WRONG):
        assert [name for name, content in places.items() if secret.encode() in content] == []
