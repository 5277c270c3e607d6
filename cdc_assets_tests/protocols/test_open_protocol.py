"""The Open Protocol's decoder: the document's examples, framing, and bad records."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cdc_assets.config import Feed
from cdc_assets.lakehouse.raw_records import RAW_RECORDS
from cdc_assets.protocols.base import WireColumn
from cdc_assets.protocols.open_protocol import OpenProtocol
from cdc_assets.protocols.open_protocol.codes import DDL_TYPES, ColumnFlag, flags_text
from cdc_assets.protocols.payload import decompress, may_be_compressed
from cdc_assets_tests.protocols.open_encoder import (
    BINARY,
    HANDLE_KEY,
    NULLABLE,
    PRIMARY_KEY,
    UNIQUE_KEY,
    Event,
    column,
    ddl,
    frame,
    json_bytes,
    key_column,
    message,
    resolved,
    row_key,
)
from cdc_assets_tests.support import Chain, frame_of_rows, make_feed, record

Raw = tuple[bytes | None, bytes | None]
PROTOCOL = OpenProtocol()
INSERT = {"u": {"id": key_column(1), "val": column(15, "aa")}}


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return make_feed(tmp_path, protocol="open-protocol")


def decoded(spark: SparkSession, feed: Feed, *records: Raw) -> list[dict[str, Any]]:
    """Return the events of records, which have the offsets 0, 1, ... of one partition."""
    rows: list[tuple[Any, ...]] = [
        ("t", 0, offset, None, 1, key, value, [], None) for offset, (key, value) in enumerate(records)
    ]
    events = PROTOCOL.decode(frame_of_rows(spark, rows, RAW_RECORDS.columns), feed)
    return sorted((r.asDict() for r in events.collect()), key=lambda e: (e["offset"], e["index"]))


def types_of(layout: str) -> dict[str, Any]:
    return {c.name: c.wire_type for c in PROTOCOL.columns(layout)}


# --- the document's own log: (partition, key, value) of its 14 lines

_CREATE = "CREATE TABLE test.t1(id int primary key, val varchar(16))"
_DDL = ('{"ts":415508856908021766,"scm":"test","tbl":"t1","t":2}', f'{{"q":"{_CREATE}","t":3}}')
_TS = '{"ts":415508878783938562,"scm":"test","tbl":"t1","t":1}'
_LATER = '{"ts":415508881418485761,"scm":"test","tbl":"t1","t":1}'
LOG = [
    (0, *_DDL),
    (0, '{"ts":415508856908021766,"t":3}', ""),
    (1, *_DDL),
    (1, '{"ts":415508856908021766,"t":3}', ""),
    (0, _TS, '{"u":{"id":{"t":3,"h":true,"v":1},"val":{"t":15,"v":"aa"}}}'),
    (1, _TS, '{"u":{"id":{"t":3,"h":true,"v":2},"val":{"t":15,"v":"bb"}}}'),
    (0, _TS, '{"u":{"id":{"t":3,"h":true,"v":3},"val":{"t":15,"v":"cc"}}}'),
    (0, _TS, '{"u":{"id":{"t":3,"h":true,"v":3},"val":{"t":15,"v":"cc"}}}'),
    (0, _LATER, '{"d":{"id":{"t":3,"h":true,"v":1}}}'),
    (1, _LATER, '{"d":{"id":{"t":3,"h":true,"v":2}}}'),
    (0, _LATER, '{"u":{"id":{"t":3,"h":true,"v":3},"val":{"t":15,"v":"ZGQ="}}}'),
    (0, _LATER, '{"u":{"id":{"t":3,"h":true,"v":4},"val":{"t":15,"v":"ZWU="}}}'),
    (0, '{"ts":415508881038376963,"t":3}', ""),
    (1, '{"ts":415508881038376963,"t":3}', ""),
]


def test_the_documents_log_is_decoded(spark: SparkSession, feed: Feed) -> None:
    events = decoded(spark, feed, *[message((k.encode(), v.encode())) for _, k, v in LOG])
    assert [e["kind"] for e in events] == ["ddl", "watermark"] * 2 + ["row"] * 8 + ["watermark"] * 2
    assert [(e["commit_ts"], e["ddl_type"], e["ddl_statement"]) for e in events if e["kind"] == "ddl"] == [
        (415508856908021766, "create table", _CREATE)
    ] * 2
    assert [e["commit_ts"] for e in events if e["kind"] == "watermark"] == [415508856908021766] * 2 + [
        415508881038376963
    ] * 2
    rows = [e for e in events if e["kind"] == "row"]
    assert [(e["op"], e["before"], e["after"]) for e in rows] == [
        ("insert", None, '{"id":1,"val":"aa"}'),
        ("insert", None, '{"id":2,"val":"bb"}'),
        ("insert", None, '{"id":3,"val":"cc"}'),
        ("insert", None, '{"id":3,"val":"cc"}'),
        ("delete", '{"id":1}', None),
        ("delete", '{"id":2}', None),
        ("insert", None, '{"id":3,"val":"ZGQ="}'),
        ("insert", None, '{"id":4,"val":"ZWU="}'),
    ]
    assert {(e["database"], e["table"], tuple(e["key_columns"])) for e in rows} == {("test", "t1", ("id",))}
    (types,) = {e["layout"] for e in rows if e["op"] == "insert"}
    assert types_of(types) == {"id": "int", "val": "varchar"}
    assert {e["source_ms"] for e in rows} == {415508878783938562 >> 18, 415508881418485761 >> 18}


def test_the_documents_log_becomes_a_history(spark: SparkSession, tmp_path: Path) -> None:
    """The last transaction is above the last watermark, so it is pending."""
    chain = Chain(spark, tmp_path, protocol="open-protocol", partitions=2)
    lines = [(p, *message((k.encode(), v.encode()))) for p, k, v in LOG]
    final = [(p, *message(resolved(415508881418485762))) for p in (0, 1)]
    chain.add(record(value, p, n, key=key) for n, (p, key, value) in enumerate(lines))
    first = chain.run()
    assert (first.release.released, first.release.duplicate, first.release.pending) == (3, 1, 4)
    assert [(v["id"], v["val"], v["_cdc_is_current"]) for v in chain.versions("t1", "test")] == [
        (1, "aa", True),
        (2, "bb", True),
        (3, "cc", True),
    ]
    chain.add(record(value, p, 100 + n, key=key) for n, (p, key, value) in enumerate(final))
    chain.run()
    ts, later = 415508878783938562, 415508881418485761
    assert [
        (v["id"], v["val"], v["_cdc_from_ts"], v["_cdc_to_ts"], v["_cdc_op"], v["_cdc_closed_by"])
        for v in chain.versions("t1", "test")
    ] == [
        (1, "aa", ts, later, "insert", "delete"),
        (2, "bb", ts, later, "insert", "delete"),
        (3, "cc", ts, later, "insert", "update"),
        (3, "ZGQ=", later, None, "update", None),
        (4, "ZWU=", later, None, "insert", None),
    ]


def test_flags_have_the_documents_names() -> None:
    assert ColumnFlag(85) == ColumnFlag.NULLABLE | ColumnFlag.UNIQUE_KEY | ColumnFlag.GENERATED | ColumnFlag.BINARY
    assert (
        ColumnFlag(46)
        == ColumnFlag.MULTIPLE_KEY | ColumnFlag.PRIMARY_KEY | ColumnFlag.GENERATED | ColumnFlag.HANDLE_KEY
    )
    assert flags_text(85) == "binary, generated, unique key, nullable"
    assert flags_text(46) == "handle key, generated, primary key, multiple key"
    assert flags_text(0) == ""


def test_ddl_types_are_those_of_the_document(spark: SparkSession, feed: Feed) -> None:
    assert sorted(DDL_TYPES) == list(range(1, 37))
    numbered = {1: "create schema", 3: "create table", 11: "truncate table", 14: "rename table", 36: "drop sequence"}
    events = decoded(spark, feed, message(*[ddl(5, "x", code) for code in [*numbered, 61]]))
    assert [e["ddl_type"] for e in events] == [*numbered.values(), "61"]
    (quoted,) = decoded(spark, feed, message(({"ts": 1, "scm": "s", "t": 2}, {"q": "CREATE DATABASE s", "t": "1"})))
    assert (quoted["ddl_type"], quoted["database"], quoted["table"]) == ("create schema", "s", None)


# --- rows


def test_an_update_has_both_complete_images(spark: SparkSession, feed: Feed) -> None:
    new = {"id": key_column(1), "a": column(15, "new"), "b": column(8, 2**64 - 1, 128)}
    complete = {"u": new, "p": {"id": key_column(1), "a": column(15, "old"), "b": column(8, None, 128)}}
    changed = {"u": new, "p": {"a": column(15, None)}}
    events = decoded(spark, feed, message((row_key(1), complete), (row_key(1), changed)))
    assert [(e["op"], json.loads(e["before"]), json.loads(e["after"])) for e in events] == [
        ("update", {"id": 1, "a": "old", "b": None}, {"id": 1, "a": "new", "b": 2**64 - 1}),
        ("update", {"id": 1, "a": None, "b": 2**64 - 1}, {"id": 1, "a": "new", "b": 2**64 - 1}),
    ]


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({"b": column(3, 1, HANDLE_KEY | UNIQUE_KEY), "a": column(3, 1, PRIMARY_KEY)}, ["b"]),
        ({"b": column(3, 1, HANDLE_KEY), "a": column(3, 1, HANDLE_KEY)}, ["a", "b"]),
        ({"b": column(3, 1), "a": column(3, 1, PRIMARY_KEY, handle=True)}, ["a"]),
        ({"b": column(3, 1, UNIQUE_KEY), "a": column(3, 1, handle=True)}, ["b"]),
        ({"b": column(3, None, UNIQUE_KEY | NULLABLE), "a": column(3, 1, handle=True)}, ["a"]),
        ({"b": column(3, None, UNIQUE_KEY | NULLABLE), "a": column(3, 1)}, []),
        ({"a": {"t": 3, "v": 1}}, []),
    ],
)
def test_key_columns(columns: dict[str, Any], key: list[str], spark: SparkSession, feed: Feed) -> None:
    (event,) = decoded(spark, feed, message((row_key(1), {"u": columns})))
    assert event["key_columns"] == key


def test_types_by_code_and_flags(spark: SparkSession, feed: Feed) -> None:
    """The document's table; unsigned and binary by flag, where they mean something."""
    plain = {
        1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 6: None, 7: "timestamp", 8: "bigint",
        9: "mediumint", 10: "date", 11: "time", 12: "datetime", 13: "year", 14: "date", 15: "varchar", 16: "bit",
        245: "json", 246: "decimal", 247: "enum", 248: "set", 249: "tinytext", 250: "mediumtext", 251: "longtext",
        252: "text", 253: "varchar", 254: "char", 200: "code 200", 300: "code 300",
    }  # fmt: skip
    binary = plain | {
        15: "varbinary", 249: "tinyblob", 250: "mediumblob", 251: "longblob", 252: "blob", 253: "varbinary", 254: "binary",
    }  # fmt: skip
    signless = {1, 2, 3, 4, 5, 8, 9, 246}
    unsigned = {code: f"{text} unsigned" if code in signless else text for code, text in plain.items()}
    for flags, types in ((0, plain), (BINARY, binary), (128, unsigned)):
        columns = {f"c{code}": column(code, None, flags) for code in plain}
        (event,) = decoded(spark, feed, message((row_key(1), {"u": columns})))
        assert json.loads(event["layout"]) == {f"c{code}": {"t": code, "f": flags} for code in plain}
        texts = {f"c{code}": text for code, text in types.items() if text is not None}
        assert types_of(event["layout"]) == texts


# --- framing

_KEY, _VALUE = message((row_key(1), INSERT), resolved(2))
PAST = "byte {} of the key: a length that reaches past the key's end"
_FIRST_KEY, _FIRST_VALUE = len(json_bytes(row_key(1))), len(json_bytes(INSERT))


@pytest.mark.parametrize(
    ("key", "value", "detail"),
    [
        (None, _VALUE, "the record has no key"),
        (b"", _VALUE, "byte 0 of the key: version none, expected 1"),
        (_KEY[:7], _VALUE, "byte 0 of the key: version none, expected 1"),
        (b"\0" * 7 + b"\2" + _KEY[8:], _VALUE, "byte 0 of the key: version 2, expected 1"),
        (b"\xff" * 8 + _KEY[8:], _VALUE, "byte 0 of the key: version none, expected 1"),
        (_KEY[:8], b"", "no event in the key"),
        (_KEY[:12], _VALUE, PAST.format(8)),
        (_KEY[:-1], _VALUE, PAST.format(16 + _FIRST_KEY)),
        (_KEY[:8] + b"\xff" * 8 + _KEY[16:], _VALUE, PAST.format(8)),
        (_KEY[:8] + b"\x7f" + b"\xff" * 7 + _KEY[16:], _VALUE, PAST.format(8)),
        (_KEY, _VALUE[:-1], f"byte {8 + _FIRST_VALUE} of the value: a length that reaches past the value's end"),
        (_KEY, _VALUE[:-8], f"byte {8 + _FIRST_VALUE} of the value: a length that reaches past the value's end"),
        (_KEY, b"", "byte 0 of the value: a length that reaches past the value's end"),
        (_KEY, _VALUE + b"x", f"byte {16 + _FIRST_VALUE} of the value: data after the last event"),
        (_KEY, _VALUE + frame(b"{}"), f"byte {16 + _FIRST_VALUE} of the value: data after the last event"),
        (_KEY + b"x", _VALUE, PAST.format(len(_KEY))),
    ],
)  # fmt: skip
def test_bad_framing_makes_the_complete_record_undecodable(
    key: bytes | None, value: bytes, detail: str, spark: SparkSession, feed: Feed
) -> None:
    (event,) = decoded(spark, feed, (key, value))
    assert (event["kind"], event["reason"], event["detail"], event["index"]) == (
        "undecodable",
        "bad_framing",
        detail,
        0,
    )


def test_bad_framing_in_quarantine_names_the_byte(spark: SparkSession, tmp_path: Path) -> None:
    chain = Chain(spark, tmp_path, protocol="open-protocol")
    chain.add([record(_VALUE, 0, 0, key=_KEY), record(_VALUE[:-1], 0, 1, key=_KEY)])
    chain.run()
    (held,) = chain.quarantine()
    assert (held["reason"], held["offset"], held["key"], held["value"]) == ("bad_framing", 1, _KEY, _VALUE[:-1])
    assert held["message"].endswith(
        f"(byte {8 + _FIRST_VALUE} of the value: a length that reaches past the value's end)"
    )


def test_a_resolved_event_may_have_a_null_value(spark: SparkSession, feed: Feed) -> None:
    key, value = message(resolved(7))
    assert value == b"\0" * 8
    events = decoded(spark, feed, (key, value), (key, None))
    assert [(e["kind"], e["commit_ts"]) for e in events] == [("watermark", 7)] * 2


GOOD = (row_key(1), INSERT)
BAD: dict[str, tuple[Event, str]] = {
    "value cut": ((row_key(1), json_bytes(INSERT)[:-1]), "malformed_json"),
    "value with more": ((row_key(1), json_bytes(INSERT) + b"}"), "malformed_json"),
    "no value": ((row_key(1), b""), "empty_value"),
    "value not UTF-8": ((row_key(1), json_bytes(INSERT).replace(b"aa", b"\xff\xfe")), "invalid_utf8"),
    "key not JSON": ((b"{", INSERT), "malformed_json"),
    "key empty": ((b"", INSERT), "malformed_json"),
    "key not UTF-8": ((b'{"ts":1,"scm":"\xff","tbl":"t","t":1}', INSERT), "invalid_utf8"),
    "key a number": ((b"7", INSERT), "wrong_type"),
    "ts a string": ((row_key(1) | {"ts": "x"}, INSERT), "wrong_type"),
    "ts negative": ((row_key(-1), INSERT), "wrong_type"),
    "ts above 2^63": ((row_key(2**63), INSERT), "wrong_type"),
    "no ts": (({"scm": "s", "tbl": "t", "t": 1}, INSERT), "missing_field"),
    "no t": (({"ts": 1, "scm": "s", "tbl": "t"}, INSERT), "missing_field"),
    "t 4": ((row_key(1) | {"t": 4}, INSERT), "unknown_type"),
    "no table": (({"ts": 1, "scm": "s", "t": 1}, INSERT), "missing_field"),
    "no schema": (({"ts": 1, "tbl": "s", "t": 1}, INSERT), "missing_field"),
    "name too long": ((row_key(1, "t" * 65), INSERT), "wrong_type"),
    "schema a number": ((row_key(1) | {"scm": 7}, INSERT), "wrong_type"),
    "table a list": ((row_key(1) | {"tbl": ["t"]}, INSERT), "wrong_type"),
    "DDL whose q is an object": ((row_key(1) | {"t": 2}, {"t": 3, "q": {"a": 1}}), "wrong_type"),
    "flags a text": ((row_key(1), {"u": {"id": {"t": 3, "f": "x", "v": 1}}}), "wrong_type"),
    "type code a list": ((row_key(1), {"u": {"id": {"t": [3], "v": 1}}}), "wrong_type"),
    "neither u nor d": ((row_key(1), {"p": INSERT["u"]}), "missing_field"),
    "both u and d": ((row_key(1), {"u": INSERT["u"], "d": INSERT["u"]}), "wrong_type"),
    "no columns": ((row_key(1), {"u": {}}), "missing_field"),
    "column null": ((row_key(1), {"u": {"id": None}}), "missing_field"),
    "column without t": ((row_key(1), {"u": {"id": {"v": 1}}}), "missing_field"),
    "column without v": ((row_key(1), {"u": {"id": {"t": 3}}}), "missing_field"),
    "old column without v": ((row_key(1), INSERT | {"p": {"id": {"t": 3}}}), "missing_field"),
    "column a number": ((row_key(1), {"u": {"id": 1}}), "wrong_type"),
    "geometry": ((row_key(1), {"u": {"id": key_column(1), "g": column(255, "x")}}), "unsupported_type"),
    "DDL without q": ((row_key(1) | {"t": 2}, {"t": 3}), "missing_field"),
    "resolved with a value": (({"ts": 1, "t": 3}, INSERT), "wrong_type"),
    "handle key only": ((row_key(1, ohk=True), INSERT), "handle_key_only"),
    "claim check": ((row_key(1, ccl="file:///x/y.json"), INSERT), "claim_check"),
    "LZ4 cut": ((row_key(1), b"\x04\x22\x4d\x18rest"), "bad_compression"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("wire", "override", "resolved"),
    [
        ("code 225", "text", "varchar"),  # a VECTOR, which comes as it is
        ("varchar", "mediumtext", "varchar"),
        ("text", "varchar(20)", "longtext"),
        ("blob", "varbinary(20)", "longblob"),
        ("varbinary", "blob", "varbinary"),
        ("text", "mediumtext", "mediumtext"),
        ("varchar", "varchar(20)", "varchar(20)"),
        ("int", "bigint", "bigint"),
        ("varchar", None, "varchar"),
    ],
)
def test_the_code_says_whether_values_are_base64(wire: str, override: str | None, resolved: str) -> None:
    assert str(OpenProtocol().resolve(WireColumn("c", wire), None, override)) == resolved


def test_a_bad_event_does_not_affect_the_other_events_of_its_record(spark: SparkSession, feed: Feed) -> None:
    records = [message(GOOD, bad, GOOD) for bad, _ in BAD.values()]
    events = decoded(spark, feed, *records)
    assert len(events) == 3 * len(BAD)
    for n, (name, (_, reason)) in enumerate(BAD.items()):
        first, second, third = events[3 * n : 3 * n + 3]
        assert (second["kind"], second["reason"], second["index"]) == ("undecodable", reason, 1), name
        assert [(e["kind"], e["index"], e["after"]) for e in (first, third)] == [
            ("row", 0, '{"id":1,"val":"aa"}'),
            ("row", 2, '{"id":1,"val":"aa"}'),
        ], name


def test_a_bad_event_in_quarantine_has_its_index(spark: SparkSession, tmp_path: Path) -> None:
    chain = Chain(spark, tmp_path, protocol="open-protocol")
    key, value = message(GOOD, BAD["value cut"][0], BAD["t 4"][0])
    chain.add([record(value, 0, 5, key=key)])
    chain.run()
    assert [(q["offset"], q["index"], q["reason"], q["value"]) for q in chain.quarantine()] == [
        (5, 1, "malformed_json", value),
        (5, 2, "unknown_type", value),
    ]


# --- any batches, any bytes

_NAME = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=10)
_NUMBER = st.integers(-(2**63), 2**64 - 1)
_COLUMN = st.one_of(
    st.builds(column, st.sampled_from([1, 3, 8, 16, 247]), st.none() | _NUMBER, st.integers(0, 255)),
    st.builds(column, st.sampled_from([15, 245, 246, 252, 254]), st.none() | st.text(max_size=20), st.integers(0, 255)),
)
_IMAGE = st.dictionaries(_NAME, _COLUMN, min_size=1, max_size=4)
_COMMIT_TS = st.integers(0, 2**63 - 1)
_ROW = st.tuples(
    st.builds(row_key, _COMMIT_TS, _NAME, _NAME),
    st.one_of(
        st.fixed_dictionaries({"u": _IMAGE}),
        st.fixed_dictionaries({"d": _IMAGE}),
        _IMAGE.map(lambda image: {"u": image, "p": image}),
    ),
)
_EVENT = st.one_of(
    _ROW, st.builds(resolved, _COMMIT_TS), st.builds(ddl, _COMMIT_TS, _NAME, st.integers(1, 61), _NAME, _NAME)
)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(_EVENT, min_size=1, max_size=20), min_size=1, max_size=30))
def test_events_decode_in_the_same_way_in_any_batches(
    spark: SparkSession, feed: Feed, batches: list[list[Event]]
) -> None:
    events = decoded(spark, feed, *[message(*batch) for batch in batches])
    sent = [(offset, index, event) for offset, batch in enumerate(batches) for index, event in enumerate(batch)]
    assert [(e["offset"], e["index"]) for e in events] == [(offset, index) for offset, index, _ in sent]
    for got, (_, _, (key, value)) in zip(events, sent, strict=True):
        assert got["reason"] is None
        assert got["commit_ts"] == key["ts"]
        assert got["kind"] == {1: "row", 2: "ddl", 3: "watermark"}[key["t"]]
        assert (got["database"], got["table"]) == (key.get("scm"), key.get("tbl"))
        if got["kind"] == "row":
            after, before = value.get("u"), value.get("p", value.get("d"))
            for image, text in ((after, got["after"]), (before, got["before"])):
                assert (text and json.loads(text)) == (image and {c: d["v"] for c, d in image.items()})
        if got["kind"] == "ddl":
            assert got["ddl_statement"] == value["q"]


def test_any_bytes_become_an_event_or_a_reason(spark: SparkSession, feed: Feed) -> None:
    """Random bytes, flipped bits, cut and doubled bytes: every record gives at least one event, in one place each."""
    rng = random.Random(20261121)
    update = {"u": INSERT["u"] | {"n": column(8, 2**64 - 1, 129), "b": column(252, "YQ==")}, "p": INSERT["u"]}
    record = message(
        GOOD, (row_key(3), update), ddl(4, "DROP TABLE t", 4), (row_key(5), {"d": INSERT["u"]}), resolved(6)
    )
    records: list[Raw] = [(rng.randbytes(rng.randrange(64)), rng.randbytes(rng.randrange(64))) for _ in range(100)]
    for _ in range(900):
        key, value = (bytearray(part) for part in record)
        part = rng.choice((key, value))
        at = rng.randrange(len(part))
        match rng.randrange(4):
            case 0:
                part[at] ^= 1 << rng.randrange(8)
            case 1:
                del part[at : at + rng.randrange(1, 9)]
            case 2:
                part[at:at] = part[at : at + rng.randrange(1, 9)]
            case 3:
                part[at] = rng.randrange(256)
        records.append((bytes(key), bytes(value)))
    events = decoded(spark, feed, *records)
    firsts = [e["offset"] for e in events if e["index"] == 0]
    assert firsts == list(range(len(records)))
    assert len({(e["offset"], e["index"]) for e in events}) == len(events)
    framed = {e["offset"] for e in events if e["reason"] == "bad_framing"}
    assert all(sum(e["offset"] == o for e in events) == 1 for o in framed)
    assert all((e["kind"] == "undecodable") == (e["reason"] is not None) for e in events)
    assert 0 < len(framed) < len(records)


# --- compressed values: each event's value is compressed by itself


def _snappy(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="snappy", asbytes=True))


def _lz4(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.output_stream(out, compression="lz4") as stream:
        stream.write(data)
    return bytes(out.getvalue())


@pytest.mark.parametrize("compress", [_snappy, _lz4])
def test_compressed_values(compress: Any, spark: SparkSession, tmp_path: Path) -> None:
    """Also with 123 bytes, where a Snappy block begins with { like a JSON object."""
    texts = ["aa", "b" * (123 - len(json_bytes({"u": {"id": key_column(1), "val": column(15, "")}}))), "c" * 5000]
    events = [(row_key(1), {"u": {"id": key_column(n), "val": column(15, t)}}) for n, t in enumerate(texts)]
    assert len(json_bytes(events[1][1])) == 123
    batches = [[(k, compress(json_bytes(v))) for k, v in events], [(events[1][0], compress(json_bytes(events[1][1])))]]
    chain = Chain(spark, tmp_path, protocol="open-protocol")
    records = [message(*batch, resolved(2)) for batch in batches]
    chain.add(record(value, 0, n, key=key) for n, (key, value) in enumerate(records))
    chain.run()
    assert chain.quarantine() == []
    assert [(v["id"], v["val"]) for v in chain.versions("t1", "test")] == list(enumerate(texts))


def test_an_uncompressed_value_stays_unchanged(spark: SparkSession, feed: Feed) -> None:
    envelope = PROTOCOL.envelope(feed)
    plain = [message(GOOD)[1], message(resolved(1))[1], b"", None, b"\0" * 9, frame(b"{")]
    frame_ = frame_of_rows(spark, [(v,) for v in plain], "value BINARY")
    assert [r[0] for r in frame_.select(may_be_compressed(frame_["value"], envelope)).collect()] == [
        False, False, False, False, True, False,
    ]  # fmt: skip
    assert sorted(bytes(r[0]) for r in decompress(frame_.dropna(), envelope).collect()) == sorted(
        p for p in plain if p is not None
    )
