"""Records that no encoder sends: each is quarantined with its coordinates and a reason, and affects nothing else."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.lakehouse.quarantine import MESSAGES, Reason
from cdc_assets_tests.laws.conservation import Counts, conserved
from cdc_assets_tests.support import Chain, Reports, Rows, Stream, bytes_of, dml, rows_in, tso, watermark

ROWS = Rows()
UPDATE = ROWS.update(tso(7), 7, "new", "old")
TEN_MB = 10 * 1024 * 1024


def text(message: object) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode()


def without(*fields: str, message: dict[str, Any] = UPDATE) -> bytes:
    return text({k: v for k, v in message.items() if k not in fields})


def changed(message: dict[str, Any] = UPDATE, **fields: Any) -> bytes:
    return text(message | fields)


def nested(opening: str, closing: str, depth: int = 2000) -> str:
    return opening * depth + "1" + closing * depth


DDL = {
    "isDdl": True,
    "type": "CREATE",
    "sql": "CREATE TABLE `shop`.`t` (`id` INT PRIMARY KEY)",
    "data": None,
    "old": None,
}
MALFORMED, WRONG_TYPE, MISSING = Reason.MALFORMED_JSON, Reason.WRONG_TYPE, Reason.MISSING_FIELD

# name -> (the record's value, why it is in quarantine)
BAD: dict[str, tuple[bytes | None, Reason]] = {
    "null value": (None, Reason.NULL_VALUE),
    "empty value": (b"", Reason.EMPTY_VALUE),
    "invalid UTF-8": (text(UPDATE).replace(b'"new"', b'"\xc3\x28"'), Reason.INVALID_UTF8),
    "lz4 frame of nothing": (b"\x04\x22\x4d\x18\x64\x40\xa7\x00\x00\x00\x00\x05\x5d\xcc\x02", Reason.EMPTY_VALUE),
    "lz4 frame, cut": (b"\x04\x22\x4d\x18\x64\x40\xa7\xff\x00\x00\x00cut", Reason.BAD_COMPRESSION),
    "truncated": (text(UPDATE)[:-20], MALFORMED),
    "cut after the first brace": (b"{", MALFORMED),
    "only blanks": (b"   ", MALFORMED),
    "no JSON": (b"hello", MALFORMED),
    "half a character in a value": (text(UPDATE).replace(b'"new"', rb'"\\\uDE00"'), MALFORMED),
    "half a character in a type": (text(UPDATE).replace(b'"varchar"', rb'"\ud800"'), MALFORMED),
    "single quotes": (text(UPDATE).replace(b'"', b"'"), MALFORMED),
    "something after the object": (text(UPDATE) + b" x", MALFORMED),
    "two objects with a comma": (text(UPDATE) + b"," + text(ROWS.insert(tso(8), 8, "second")), MALFORMED),
    "two objects": (text(UPDATE) + text(ROWS.insert(tso(8), 8, "second")), MALFORMED),
    "ten megabytes of garbage": (b"x" * TEN_MB, MALFORMED),
    "array": (b"[]", WRONG_TYPE),
    "array of a message": (text([UPDATE]), WRONG_TYPE),
    "number": (b"1", WRONG_TYPE),
    "string": (b'"x"', WRONG_TYPE),
    "null": (b"null", WRONG_TYPE),
    "no fields": (b"{}", Reason.UNKNOWN_TYPE),
    "type missing": (without("type"), Reason.UNKNOWN_TYPE),
    "type null": (changed(type=None), Reason.UNKNOWN_TYPE),
    "type unknown": (changed(type="UPSERT"), Reason.UNKNOWN_TYPE),
    "type in lower case": (changed(type="update"), Reason.UNKNOWN_TYPE),
    "type a number": (changed(type=5), Reason.UNKNOWN_TYPE),
    "type of a DDL, but isDdl false": (changed(type="CREATE"), Reason.UNKNOWN_TYPE),
    "type of a watermark, but isDdl true": (changed(watermark(tso(7)), isDdl=True), Reason.UNKNOWN_TYPE),
    "isDdl a string": (changed(isDdl="false"), WRONG_TYPE),
    "isDdl a number": (changed(isDdl=0), WRONG_TYPE),
    "es a string": (changed(es="1700000000000"), WRONG_TYPE),
    "es with a fraction": (changed(es=1.5), WRONG_TYPE),
    "pkNames a string": (changed(pkNames="id"), WRONG_TYPE),
    "pkNames an object": (changed(pkNames={"id": 1}), WRONG_TYPE),
    "pkNames of numbers": (changed(pkNames=["id", 7]), WRONG_TYPE),
    "pkNames with a null": (changed(pkNames=["id", None]), WRONG_TYPE),
    "database a number": (changed(database=-1), WRONG_TYPE),
    "database true": (changed(database=True), WRONG_TYPE),
    "table an object": (changed(table={"a": 1}), WRONG_TYPE),
    "table a list": (changed(table=["orders"]), WRONG_TYPE),
    "database missing": (without("database"), MISSING),
    "database null": (changed(database=None), MISSING),
    "database empty": (changed(database=""), MISSING),
    "database of 65 characters": (changed(database="x" * 65), WRONG_TYPE),
    "table of 65 characters": (changed(table="x" * 65), WRONG_TYPE),
    "table missing": (without("table"), MISSING),
    "table null": (changed(table=None), MISSING),
    "sqlType missing": (without("sqlType"), MISSING),
    "sqlType null": (changed(sqlType=None), MISSING),
    "sqlType an array": (changed(sqlType=[12, 12]), MISSING),
    "mysqlType missing": (without("mysqlType"), MISSING),
    "mysqlType null": (changed(mysqlType=None), MISSING),
    "mysqlType a string": (changed(mysqlType="bigint"), WRONG_TYPE),
    "mysqlType the text of an object": (changed(mysqlType='{"id": "bigint", "v": "varchar"}'), WRONG_TYPE),
    "mysqlType a text that begins as an object": (changed(mysqlType='{"id'), WRONG_TYPE),
    "mysqlType so, under a name with an escape": (
        changed(mysqlType='{"id').replace(b'"mysqlType"', rb'"mysqlT\u0079pe"'),
        WRONG_TYPE,
    ),
    "mysqlType empty": (changed(mysqlType={}), MISSING),
    "mysqlType of lists": (changed(mysqlType={"id": ["bigint"], "v": "varchar"}), WRONG_TYPE),
    "sqlType the text of an object": (changed(sqlType='{"id": -5, "v": 12}'), WRONG_TYPE),
    "sqlType of texts": (changed(sqlType={"id": "-5", "v": 12}), WRONG_TYPE),
    "sqlType empty": (changed(sqlType={}), MISSING),
    "data missing": (without("data"), MISSING),
    "data null": (changed(data=None), MISSING),
    "data empty": (changed(data=[]), MISSING),
    "data an object": (changed(data={"id": "7", "v": "new"}), WRONG_TYPE),
    "data a string": (changed(data="new"), WRONG_TYPE),
    "data of numbers": (changed(data=[7]), MISSING),
    "data of an empty row": (changed(data=[{}]), MISSING),
    "data of the text of a row": (changed(data=['{"id": "7", "v": "new"}']), WRONG_TYPE),
    "data with a row and the text of one": (
        changed(data=[UPDATE["data"][0], '{"id'], old=[*UPDATE["old"], *UPDATE["old"]]),
        WRONG_TYPE,
    ),
    "data with a null": (changed(data=[None]), MISSING),
    "data with a row and a null": (changed(data=[UPDATE["data"][0], None], old=[None, None]), MISSING),
    "old missing": (without("old"), MISSING),
    "old null": (changed(old=None), MISSING),
    "old empty": (changed(old=[]), MISSING),
    "old of another length": (changed(old=[*UPDATE["old"], *UPDATE["old"]]), MISSING),
    "old of a text": (changed(old=['{"v": "old"}']), WRONG_TYPE),
    "old a string": (changed(old="old"), WRONG_TYPE),
    "old with a null": (changed(old=[None]), MISSING),
    "old of numbers": (changed(old=[7]), MISSING),
    "_tidb missing": (without("_tidb"), Reason.MISSING_TIDB_EXTENSION),
    "_tidb null": (changed(_tidb=None), Reason.MISSING_TIDB_EXTENSION),
    "_tidb a string": (changed(_tidb="x"), WRONG_TYPE),
    "_tidb a number": (changed(_tidb=tso(7)), WRONG_TYPE),
    "_tidb empty": (changed(_tidb={}), MISSING),
    "commitTs null": (changed(_tidb={"commitTs": None}), MISSING),
    "commitTs a string": (changed(_tidb={"commitTs": str(tso(7))}), WRONG_TYPE),
    "commitTs with a fraction": (changed(_tidb={"commitTs": tso(7) + 0.5}), WRONG_TYPE),
    "commitTs negative": (changed(_tidb={"commitTs": -5}), WRONG_TYPE),
    "commitTs 2^63": (changed(_tidb={"commitTs": 2**63}), WRONG_TYPE),
    "commitTs 2^64 and more": (changed(_tidb={"commitTs": 2**64 + tso(7)}), WRONG_TYPE),
    "a watermark as commitTs": (changed(_tidb={"watermarkTs": tso(7)}), MISSING),
    "a watermark without watermarkTs": (changed(watermark(tso(9)), _tidb={"commitTs": tso(9)}), MISSING),
    "a watermark without _tidb": (without("_tidb", message=watermark(tso(9))), Reason.MISSING_TIDB_EXTENSION),
    "a negative watermark": (changed(watermark(tso(9)), _tidb={"watermarkTs": -1}), WRONG_TYPE),
    "a watermark of 2^63": (changed(watermark(tso(9)), _tidb={"watermarkTs": 2**63}), WRONG_TYPE),
    "a DDL without sql": (without("sql", message=UPDATE | DDL), MISSING),
    "a DDL with sql null": (changed(UPDATE | DDL, sql=None), MISSING),
    "a DDL with empty sql": (changed(UPDATE | DDL, sql=""), MISSING),
    "a DDL with sql an object": (changed(UPDATE | DDL, sql={"a": 1}), WRONG_TYPE),
    "a DDL without commitTs": (changed(UPDATE | DDL, _tidb={}), MISSING),
    "nesting without an end": (text(UPDATE)[:-1] + b', "x": ' + b"[" * 2000, MALFORMED),
}

# Nesting of 2000 levels: the record must become either an event or a row of quarantine.
DEEP: dict[str, bytes] = {
    "an unknown field of arrays": text(UPDATE)[:-1] + b', "x": ' + nested("[", "]").encode() + b"}",
    "an unknown field of objects": text(UPDATE)[:-1] + b', "x": ' + nested('{"a":', "}").encode() + b"}",
    "a value of arrays": text(UPDATE).replace(b'"new"', nested("[", "]").encode()),
    "data of arrays": text(UPDATE).replace(b'[{"id": "7", "v": "new"}]', nested("[", "]").encode()),
    "nothing but arrays": nested("[", "]").encode(),
}
LONG_TEXT = "ä" * (TEN_MB // 2)


class Bad:
    """One run over a stream in which every bad record stands between two good ones."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.chain = Chain(spark, folder, partitions=2)
        stream = Stream(2)
        self.places: dict[str, tuple[int, int]] = {}
        self.values: dict[str, bytes | None] = {}
        self.good: dict[int, str] = {}
        cases = [*((name, value) for name, (value, _) in BAD.items()), *DEEP.items()]
        for n, (name, value) in enumerate(cases):
            partition = n % 2
            stream.send(ROWS.insert(tso(100 + n), 100 + n, name), partition)
            self.good[100 + n] = name
            bad = stream.send(value, partition, key=b"the key")
            self.places[name], self.values[name] = (bad["partition"], bad["offset"]), value
        stream.send(ROWS.insert(tso(900), 900, LONG_TEXT))
        self.good[900] = LONG_TEXT
        stream.watermark(tso(1000))
        self.chain.add(stream.records)
        self.reports: Reports = self.chain.run()
        self.quarantined = {(q["partition"], q["offset"]): q for q in rows_in(self.chain.lake.quarantine, spark)}
        self.counts: Counts = conserved(self.chain.lake, self.chain.feed)


@pytest.fixture(scope="module")
def bad(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Bad:
    return Bad(spark, tmp_path_factory.mktemp("bad"))


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_is_quarantined(name: str, bad: Bad) -> None:
    value, reason = BAD[name]
    row = bad.quarantined[bad.places[name]]
    assert row["reason"] == reason
    assert row["message"] == MESSAGES[reason]
    assert (row["stage"], row["topic"], row["index"]) == ("decode", "shop_changes", 0)
    assert row["key"] == b"the key"
    assert row["value"] == value


@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting_is_decoded_or_quarantined(name: str, bad: Bad) -> None:
    place = bad.places[name]
    all_events = bad.chain.lake.change_events.read(bad.chain.lake.spark)
    events = all_events.where(f"partition = {place[0]} AND offset = {place[1]}").collect()
    assert [e["kind"] for e in events] == ["undecodable" if place in bad.quarantined else "row"]
    if place in bad.quarantined:
        assert bad.quarantined[place]["value"] == bad.values[name]


def test_the_records_beside_bad_ones_are_decoded(bad: Bad) -> None:
    """Every good row is in the history, also the one of ten megabytes."""
    expected = dict(bad.good)
    versions = {v["id"]: v for v in bad.chain.history()}
    assert {key: v["v"] for key, v in versions.items() if key in expected} == expected
    assert all(v["_cdc_is_current"] for v in versions.values())
    assert versions.keys() - expected.keys() <= {7}, "the deep ones, if they are events, are about row 7"


def test_every_record_is_accounted_for(bad: Bad) -> None:
    assert bad.counts.records == 2 * (len(BAD) + len(DEEP)) + 3
    assert bad.counts.undecodable == len(bad.quarantined) == bad.reports.decode.in_quarantine
    assert bad.counts.late == bad.counts.pending == bad.counts.excluded == 0
    assert bad.reports.decode.events == {
        "row": bad.counts.rows,
        "watermark": 2,
        "undecodable": bad.counts.undecodable,
    }


def test_every_reason_is_in_the_closed_list(bad: Bad) -> None:
    assert {q["reason"] for q in bad.quarantined.values()} <= set(Reason)
    assert set(MESSAGES) == set(Reason)


def test_a_second_run_quarantines_nothing_again(bad: Bad) -> None:
    before = Counter(q["reason"] for q in bad.chain.quarantine())
    bad.chain.run()
    assert Counter(q["reason"] for q in bad.chain.quarantine()) == before


# --- names

LONG_NAME = "長" * 64  # MySQL allows 64 characters
CLIMBING = "../../x"
COLUMNS = [
    "id", "_cdc_op", "_CDC_key", "a.b", "back`tick", "two words", " ", "größe", "列", 'quo"te', "it's", "100%", "%2F",
    "a,b;c(d)=e", "{}", "new\nline", "tab\there", "select", "back\\slash", "$.x", "[0]", "-1", "*", "__",
    "emoji 🚀", LONG_NAME,
]  # fmt: skip
TABLES = [(CLIMBING, ".."), ("a`b.c 'd' \"e\" %2F ü/..\\", ".")]
TYPES = {c: "bigint" if c == "id" else "varchar" for c in COLUMNS}


def own_name(column: str) -> str:
    """Return a column's name in the history: a name that begins with `_cdc_` gets the prefix `_source`."""
    return f"_source{column}" if column.lower().startswith("_cdc_") else column


def row(key: int, version: int) -> dict[str, Any]:
    return {c: str(key) if c == "id" else f"{version}: {c}" for c in COLUMNS}


def typed(key: int, version: int) -> dict[str, Any]:
    return {own_name(c): key if c == "id" else v for c, v in row(key, version).items()}


@pytest.mark.extended
def test_tables_and_columns_may_have_any_name(chain: Callable[..., Chain]) -> None:
    """Their histories stay inside the lakehouse, and can be merged into."""
    it = chain()
    stream = Stream()
    for table, database in TABLES:
        stream.send(dml("INSERT", tso(1), row(1, 1), TYPES, table=table, database=database))
        stream.send(dml("INSERT", tso(1), row(2, 1), TYPES, table=table, database=database))
    stream.watermark(tso(2))
    it.add(stream.records)
    before = {p for p in it.folder.parent.rglob("*") if it.folder not in p.parents}
    it.run()
    first = len(stream.records)
    for table, database in TABLES:
        stream.send(dml("UPDATE", tso(3), row(1, 2), TYPES, old=row(1, 1), table=table, database=database))
        stream.send(dml("DELETE", tso(4), row(2, 1), TYPES, table=table, database=database))
    stream.watermark(tso(5))
    it.add(stream.records[first:])
    it.run()

    assert {p for p in it.folder.parent.rglob("*") if it.folder not in p.parents} == before, "written outside"
    assert {p.name for p in it.folder.iterdir()} == {"lake", "snapshots"}
    stages = {"raw_records", "change_events", "table_schemas", "type_observations", "released_changes", "quarantine"}
    assert {p.name for p in Path(it.lake.root).iterdir()} == stages | {"history", "history_progress"}
    for table, database in TABLES:
        versions = it.versions(table, database)
        shown = [{own_name(c): v[own_name(c)] for c in COLUMNS} for v in versions]
        assert shown == [typed(1, 1), typed(2, 1), typed(1, 2)]
        assert [v["_cdc_op"] for v in versions] == ["insert", "insert", "update"]
        assert [v["_cdc_closed_by"] for v in versions] == ["update", "delete", None]
    assert it.quarantine() == []
    conserved(it.lake, it.feed)


def test_a_value_that_is_an_object_is_a_bad_value(chain: Callable[..., Chain]) -> None:
    """With type_mapping: warn its column is NULL, its text is quarantined, and the row's other columns have their values."""
    it = chain(type_mapping="warn")
    stream = Stream()
    types = {"id": "bigint", "n": "int", "v": "varchar"}
    stream.send(dml("INSERT", tso(1), {"id": "1", "n": {"deep": [1, 2]}, "v": "x"}, types))
    stream.send(dml("INSERT", tso(1), {"id": "2", "n": "2147483648", "v": "too large"}, types))
    stream.watermark(tso(2))
    it.add(stream.records)
    it.run()
    assert [(v["id"], v["n"], v["v"]) for v in it.versions()] == [(1, None, "x"), (2, None, "too large")]
    rows = sorted(it.quarantine(), key=lambda q: q["offset"])
    assert [(q["stage"], q["reason"], q["column"], q["offset"]) for q in rows] == [
        ("history", "bad_value", "n", 0),
        ("history", "bad_value", "n", 1),
    ]
    assert json.loads(rows[0]["value"]) == {"deep": [1, 2]}
    assert rows[1]["value"] == b"2147483648"
    assert bytes_of(stream.records[0]).startswith(b"{")
