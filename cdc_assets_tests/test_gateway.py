"""The way to the JVM in fewer calls: what arrives is the same, and what is forgotten is gone there, too."""

import gc
import time
from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands of this process to the JVM, but those by which objects are forgotten."""
    sent: list[str] = []
    send = ClientServerConnection.send_command

    def noting(connection: ClientServerConnection, command: str) -> Any:
        if "\nforget\n" not in command:
            sent.append(command)
        return send(connection, command)

    monkeypatch.setattr(ClientServerConnection, "send_command", noting)
    return sent


@pytest.mark.parametrize("texts", [["a"], ["", "b", ""], ["ü😀", "two\nlines", "'\\"], ("a", "b"), ["with \0", "b"]])
def test_texts_arrive_as_they_are(spark: SparkSession, texts: list[str]) -> None:
    kept = spark._jvm.java.util.ArrayList(texts)
    assert [kept.get(n) for n in range(kept.size())] == list(texts)


def test_a_list_takes_one_call_however_long_it_is(spark: SparkSession, calls: list[str]) -> None:
    """Of texts, and of objects."""
    frame, columns = spark.range(1), [F.lit(n).alias(f"c{n}") for n in range(100)]
    several = {}
    for count in (2, 2, 100):  # the first time methods are looked up
        calls.clear()
        assert frame.selectExpr(*[f"{n} AS c{n}" for n in range(count)]).columns == [f"c{n}" for n in range(count)]
        texts = len(calls)
        calls.clear()
        assert [tuple(r) for r in frame.select(*columns[:count]).collect()] == [tuple(range(count))]
        several[count] = texts, len(calls)
    # How a row is fetched takes a call more or less.
    assert several[100][0] == several[2][0]
    assert abs(several[100][1] - several[2][1]) < 5


def test_lists_of_other_things_arrive_as_before(spark: SparkSession) -> None:
    kept = spark._jvm.java.util.ArrayList([1, "a", None, ["b"]])
    assert [kept.get(0), kept.get(1), kept.get(2), kept.get(3).get(0)] == [1, "a", None, "b"]
    assert spark._jvm.java.util.ArrayList([]).size() == 0
    assert spark._jvm.java.util.HashMap({"k": ["v"]}).get("k").get(0) == "v"


def test_what_is_forgotten_is_gone(spark: SparkSession) -> None:
    kept = spark._jvm.java.util.ArrayList(["a"])
    gateway: Any = spark.sparkContext._gateway
    known, name = gateway.java_gateway_server.getGateway(), kept._target_id
    assert known.getObject(name).size() == 1
    del kept
    gc.collect()
    until = time.monotonic() + 20
    while known.getObject(name) is not None and time.monotonic() < until:
        gc.collect()
        time.sleep(0.1)
    assert known.getObject(name) is None


def test_an_error_of_the_jvm_comes_as_before(spark: SparkSession) -> None:
    with pytest.raises(Py4JError):
        spark._jvm.java.util.ArrayList(["a"]).get(5)
