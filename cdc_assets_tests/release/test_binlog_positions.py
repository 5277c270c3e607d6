"""Deduplication by binlog position: each key of the stream is a scenario of its own."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets_tests.protocols.debezium_encoder import FIELDS, change, envelope, read_source, source, text, with_schema
from cdc_assets_tests.support import Chain, Record, histories, record

A, B = "00000000-aaaa", "00000000-bbbb"
Row = tuple[int, int, int] | None


def stream() -> list[Record]:
    """Return the records of all scenarios, in Kafka's order."""
    old, new = "mysql-bin.000009", "mysql-bin.000010"
    sent = [
        # 1: the log rotates: 9 and 10 are compared as numbers
        change("c", 1, None, "a", source(900, file=old)),
        change("u", 1, "a", "b", source(4, file=new)),
        # 2: 999999 and 1000000, too
        change("c", 2, None, "a", source(5, file="mysql-bin.999999")),
        change("u", 2, "a", "b", source(4, file="mysql-bin.1000000")),
        # 3: several rows of one event, then a position with more digits
        change("c", 3, None, "a", source(99, row=2)),
        change("u", 3, "a", "b", source(99, row=10)),
        change("u", 3, "b", "c", source(100)),
        # 4: the connector starts again, and sends earlier changes again
        change("c", 4, None, "a", source(10)),
        change("u", 4, "a", "b", source(20)),
        change("d", 4, "b", None, source(30)),
        change("c", 4, None, "a", source(10)),
        change("u", 4, "a", "b", source(20)),
        change("d", 4, "b", None, source(30)),
        change("c", 4, None, "again", source(40)),
        # 5: the row comes and goes between the same values within a second
        change("c", 5, None, "a", source(11)),
        change("u", 5, "a", "b", source(21)),
        change("u", 5, "b", "a", source(31)),
        change("u", 5, "a", "b", source(41)),
        # 6: a read at a later millisecond than the second of the change after it
        change("r", 6, None, "a", read_source(50, milliseconds=700)),
        change("u", 6, "a", "b", source(60, seconds=0)),
        # 7: the same read comes again, after the change that followed it
        change("r", 7, None, "a", read_source(50, milliseconds=100)),
        change("u", 7, "a", "b", source(61, seconds=1)),
        change("r", 7, None, "a", read_source(50, milliseconds=100)),
        # 8: a second snapshot reads the same row, and then another one
        change("r", 8, None, "a", read_source(50, milliseconds=100)),
        change("r", 8, None, "a", read_source(900, milliseconds=9000)),
        change("r", 8, None, "b", read_source(990, milliseconds=9900)),
        # 9: failover to a server whose log is younger: the clock decides
        change("c", 9, None, "a", source(500, seconds=5, file=new, server_id=1)),
        change("u", 9, "a", "b", source(4, seconds=6, file="mysql-bin.000001", server_id=2)),
        change("c", 9, None, "a", source(500, seconds=5, file=new, server_id=1)),
        # 10: failover with GTIDs: the transaction comes again from the other server's log
        change("c", 10, None, "a", source(500, seconds=5, file=new, gtid=f"{A}:7")),
        change("c", 10, None, "a", source(44, seconds=5, file="mysql-bin.000002", gtid=f"{A}:7")),
        change("u", 10, "a", "b", source(90, seconds=5, file="mysql-bin.000002", gtid=f"{A}:8")),
        change("u", 10, "b", "c", source(95, seconds=5, file="mysql-bin.000002", gtid=f"{B}:1")),
        # 11: MariaDB's GTID, by its last number
        change("c", 11, None, "a", source(500, file=new, gtid="0-1-9")),
        change("u", 11, "a", "b", source(44, file="mysql-bin.000002", server_id=2, gtid="0-2-10")),
        change("c", 11, None, "a", source(30, file="mysql-bin.000002", server_id=2, gtid="0-1-9")),
        # 12: a changed key ends one row and begins another at one position
        change("c", 12, None, "a", source(70)),
        change("d", 12, "a", None, source(80)),
        change("c", 13, None, "a", source(80)),
        # 14: MariaDB 11.4 states one position for all changes of a transaction
        change("c", 14, None, "a", source(600, gtid="0-1-20")),
        change("u", 14, "a", "b", source(600, gtid="0-1-20")),
        change("u", 14, "b", "a", source(600, row=1, gtid="0-1-20")),
        change("u", 14, "a", "b", source(600, gtid="0-1-20")),
        # 15: and the connector sends the transaction again
        change("c", 15, None, "a", source(610, gtid="0-1-21")),
        change("u", 15, "a", "b", source(610, gtid="0-1-21")),
        change("c", 15, None, "a", source(610, gtid="0-1-21")),
        change("u", 15, "a", "b", source(610, gtid="0-1-21")),
        change("u", 15, "b", "c", source(620, gtid="0-1-22")),
        # 16: a compressed transaction of MySQL has one position for all its changes, too, and comes again
        change("c", 16, None, "a", source(700, gtid=f"{A}:20")),
        change("u", 16, "a", "b", source(700, gtid=f"{A}:20")),
        change("u", 16, "b", "a", source(700, gtid=f"{A}:20")),
        change("c", 16, None, "a", source(700, gtid=f"{A}:20")),
        change("u", 16, "a", "b", source(700, gtid=f"{A}:20")),
        change("u", 16, "b", "a", source(700, gtid=f"{A}:20")),
        # 17: an upgraded connector writes the changes that it sends again in other texts
        change("c", 17, None, "a", source(710)),
        change("u", 17, "a", "b", source(720)),
        change("u", 17, "b", "a", source(730)),
        change("u", 17, "a ", "b ", source(720)),
        change("u", 17, "b ", "a ", source(730)),
        # 18: a GTID with a tag has numbers of its own
        change("c", 18, None, "a", source(740, gtid=f"{A}:30")),
        change("u", 18, "a", "b", source(750, gtid=f"{A}:31")),
        change("u", 18, "b", "a", source(760, gtid=f"{A}:32")),
        change("u", 18, "a", "b", source(4, file=new, gtid=f"{A}:batch:31")),
    ]
    return [r | {"offset": n} for n, r in enumerate(sent)]


EXPECTED = {
    1: ["a", "b"],
    2: ["a", "b"],
    3: ["a", "b", "c"],
    4: ["a", "b", None, "again"],
    5: ["a", "b", "a", "b"],
    6: ["a", "b"],
    7: ["a", "b"],
    8: ["a", "b"],
    9: ["a", "b"],
    10: ["a", "b", "c"],
    11: ["a", "b"],
    12: ["a", None],
    13: ["a"],
    14: ["a", "b", "a", "b"],
    15: ["a", "b", "c"],
    16: ["a", "b", "a"],
    17: ["a", "b", "a"],
    18: ["a", "b", "a", "b"],
}
REPEATS = 3 + 1 + 1 + 1 + 1 + 2 + 3 + 2


def run_in_parts(spark: SparkSession, folder: Path, cuts: int) -> tuple[Chain, int, int]:
    chain, records = Chain(spark, folder, protocol="debezium"), stream()
    repeated = unseen = 0
    for n in range(cuts):
        chain.add(records[len(records) * n // cuts : len(records) * (n + 1) // cuts])
        report = chain.run().release
        repeated += report.duplicate + report.late_repeated
        unseen += report.late_unseen
        assert report.window == report.released + report.duplicate
    return chain, repeated, unseen


@pytest.fixture(scope="module")
def one_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Chain, int, int]:
    return run_in_parts(spark, tmp_path_factory.mktemp("positions"), 1)


def test_each_key_goes_through_its_changes_once(one_run: tuple[Chain, int, int]) -> None:
    chain, repeated, unseen = one_run
    values: dict[int, list[str | None]] = defaultdict(list)
    versions = chain.history("customers", "inventory")
    for v in sorted(versions, key=lambda v: (v["_cdc_from_ts"], v["_cdc_to_ts"] is None, v["_cdc_offset"])):
        values[v["id"]].append(v["v"])
        if v["_cdc_closed_by"] == "delete":
            values[v["id"]].append(None)
    assert values == EXPECTED
    assert (repeated, unseen) == (REPEATS, 0)
    assert not chain.quarantine()


def test_versions_never_run_backwards(one_run: tuple[Chain, int, int]) -> None:
    by_key: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for v in one_run[0].history("customers", "inventory"):
        by_key[v["id"]].append(v)
    for versions in by_key.values():
        versions.sort(key=lambda v: v["_cdc_offset"])
        ends = [v["_cdc_to_ts"] for v in versions]
        assert all(v["_cdc_to_ts"] is None or v["_cdc_from_ts"] <= v["_cdc_to_ts"] for v in versions)
        assert all(end is not None and end <= v["_cdc_from_ts"] for end, v in zip(ends, versions[1:], strict=False))


def test_chop(one_run: tuple[Chain, int, int], spark: SparkSession, tmp_path: Path) -> None:
    chain, repeated, unseen = run_in_parts(spark, tmp_path, 5)
    assert histories(chain.lake) == histories(one_run[0].lake)
    assert (repeated, unseen) == (REPEATS, 0)


def test_a_clock_that_lags_in_a_run_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    """The two events of the key have different times, but must be compared."""
    chain = Chain(spark, tmp_path, protocol="debezium")
    read = change("r", 6, None, "a", read_source(50, milliseconds=700))
    chain.add([read, change("u", 6, "a", "b", source(60, seconds=0), offset=1)])
    chain.run()
    assert [(v["v"], v["_cdc_is_current"]) for v in chain.versions("customers", "inventory")][-1] == ("b", True)


def test_a_read_from_before_the_last_change_is_late(spark: SparkSession, tmp_path: Path) -> None:
    """A second connector took a snapshot, and its read arrives after a change that the snapshot did not see."""
    chain = Chain(spark, tmp_path, protocol="debezium")
    sent = [
        change("r", 1, None, "a", read_source(50)),
        change("u", 1, "a", "b", source(900, seconds=5)),
        change("r", 1, None, "a", read_source(800, milliseconds=4900)),
        # The log begins again: a lower position, and a later clock.
        change("c", 2, None, "a", source(900, seconds=5)),
        change("r", 2, None, "b", read_source(4, milliseconds=6000)),
    ]
    chain.add([r | {"offset": n} for n, r in enumerate(sent)])
    assert chain.run().release.late_unseen == 1
    open_rows = {v["id"]: v["v"] for v in chain.versions("customers", "inventory") if v["_cdc_is_current"]}
    assert open_rows == {1: "b", 2: "b"}


def test_one_instant_in_two_texts_is_one_key(spark: SparkSession, tmp_path: Path) -> None:
    """Debezium 3.5 pads the fraction of a TIMESTAMP(6) in events of the binlog, and not in a snapshot's reads."""
    fields = [
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "optional": False, "field": "at"},
        FIELDS[1],
    ]

    def sent(op: str, at: str, before: str | None, after: str | None, where: dict[str, Any]) -> Record:
        images = [{"at": at, "v": v} if v else None for v in (before, after)]
        value = with_schema(envelope(op, images[0], images[1], where), fields)
        return record(text(value), 0, 0, "s.inventory.customers", key=text({"at": at}))

    chain = Chain(spark, tmp_path, protocol="debezium")
    instants = [
        ("2024-01-02T03:04:05.12Z", "2024-01-02T03:04:05.120000Z"),
        ("2024-01-02T03:04:06Z", "2024-01-02T03:04:06.000000Z"),
        ("2024-01-02T03:04:10Z", "2024-01-02T03:04:10.000001Z"),
    ]
    reads = [sent("r", short, None, "a", read_source()) for short, _ in instants]
    changes = [sent("u", padded, "a", "b", source(10 + n)) for n, (_, padded) in enumerate(instants)]
    chain.add([r | {"offset": n} for n, r in enumerate(reads)])
    chain.run()
    chain.add([r | {"offset": 3 + n} for n, r in enumerate(changes)])
    chain.run()
    current = [v for v in chain.history("customers", "inventory") if v["_cdc_is_current"]]
    assert sorted((str(v["at"])[:26], v["v"]) for v in current) == [
        ("2024-01-02 03:04:05.120000", "b"),
        ("2024-01-02 03:04:06.000000", "b"),
        ("2024-01-02 03:04:10.000000", "a"),
        ("2024-01-02 03:04:10.000001", "b"),
    ]


def test_one_text_of_other_key_columns_is_another_row(spark: SparkSession, tmp_path: Path) -> None:
    """The primary key (id, k) became (k, id): `["9","12"]` is the key of a row with id 9, and later of one with id 12."""
    fields = [{"type": "int32", "optional": False, "field": name} for name in ("id", "k", "v")]

    def sent(op: str, key: list[str], before: Row, after: Row, where: dict[str, Any]) -> Record:
        names = ("id", "k", "v")
        images = [dict(zip(names, image, strict=True)) if image else None for image in (before, after)]
        row = images[1] or images[0] or {}
        value = with_schema(envelope(op, images[0], images[1], where), fields)
        return record(text(value), 0, 0, "s.inventory.customers", key=text({name: row[name] for name in key}))

    first = sent("c", ["id", "k"], None, (9, 12, 1), source(10, seconds=1))
    end = sent("d", ["id", "k"], (9, 12, 1), None, source(20, seconds=2)) | {"offset": 1}
    other = sent("u", ["k", "id"], (12, 9, 3), (12, 9, 4), source(90, seconds=9)) | {"partition": 1}
    chain = Chain(spark, tmp_path, protocol="debezium")
    chain.add([first, end, other])
    release = chain.run().release
    assert (release.released, release.duplicate, release.late_unseen) == (3, 0, 0)
    versions = [(v["id"], v["v"], v["_cdc_closed_by"]) for v in chain.versions("customers", "inventory")]
    assert sorted(versions) == [(9, 1, "delete"), (12, 4, None)]


def test_an_event_without_a_place_is_late_in_the_first_run_too(spark: SparkSession, tmp_path: Path) -> None:
    """A deleted row has no place before a later change in another partition, whose INSERT is lost."""
    chain = Chain(spark, tmp_path, protocol="debezium")
    came = [
        change("c", 1, None, "a", source(10, seconds=1)),
        change("d", 1, "a", None, source(20, seconds=2), offset=1),
    ]
    later = change("u", 1, "b", "c", source(90, seconds=9)) | {"partition": 1}
    chain.add([*came, later])
    release = chain.run().release
    assert (release.window, release.released, release.duplicate, release.late_unseen) == (1, 1, 0, 2)
    assert sorted(e["offset"] for e in release.late_sample) == [0, 1]
