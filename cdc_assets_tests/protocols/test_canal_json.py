"""Good messages: the specification's examples, and messages as TiCDC's encoder writes them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from cdc_assets.lakehouse.change_events import SOURCE_DETAILS
from cdc_assets.lakehouse.raw_records import RAW_RECORDS
from cdc_assets.protocols.canal_json import CanalJson
from cdc_assets_tests.support import Chain, Stream, dml, frame_of_rows, make_feed, rows_of, tso

# From the specification "TiCDC Canal-JSON Protocol".
SPEC_DDL = """{ "id": 0, "database": "test", "table": "", "pkNames": null, "isDdl": true, "type": "QUERY",
  "es": 1639633094670, "ts": 1639633095489, "sql": "drop database if exists test", "sqlType": null, "mysqlType": null,
  "data": null, "old": null, "_tidb": { "commitTs": 429918007904436226 } }"""
SPEC_TYPES = """"sqlType": { "c_bigint": -5, "c_int": 4, "c_mediumint": 4, "c_smallint": 5, "c_tinyint": -6, "id": 4 },
  "mysqlType": { "c_bigint": "bigint", "c_int": "int", "c_mediumint": "mediumint", "c_smallint": "smallint",
  "c_tinyint": "tinyint", "id": "int" }"""
SPEC_ROW = """{ "c_bigint": "9223372036854775807", "c_int": "2147483647", "c_mediumint": "8388607", "c_smallint": "32767",
  "c_tinyint": "127", "id": "2" }"""
SPEC_NEW_ROW = """{ "c_bigint": "9223372036854775807", "c_int": "0", "c_mediumint": "8388607", "c_smallint": "32767",
  "c_tinyint": "0", "id": "2" }"""
SPEC_CHANGED = '{ "c_int": "2147483647", "c_tinyint": "127" }'
SPEC_WATERMARK = """{ "id": 0, "database": "", "table": "", "pkNames": null, "isDdl": false, "type": "TIDB_WATERMARK",
  "es": 1640007049196, "ts": 1640007050284, "sql": "", "sqlType": null, "mysqlType": null, "data": null, "old": null,
  "_tidb": { "watermarkTs": 429918007904436226 } }"""


def spec_dml(op: str, data: str, old: str) -> str:
    return (
        f'{{ "id": 0, "database": "test", "table": "tp_int", "pkNames": [ "id" ], "isDdl": false, "type": "{op}", '
        f'"es": 1639633141221, "ts": 1639633142960, "sql": "", {SPEC_TYPES}, "data": [ {data} ], "old": {old}, '
        '"_tidb": { "commitTs": 429918007904436226 } }'
    )


def details(message_id: str = "0") -> dict[str, Any]:
    """Return the `source_details` of a message with this `id`."""
    return dict.fromkeys(SOURCE_DETAILS.names) | {"message_id": message_id}


NOTHING: dict[str, Any] = {
    "index": 0,
    "op": None,
    "database": None,
    "table": None,
    "key_columns": None,
    "key": None,
    "key_before": None,
    "before": None,
    "after": None,
    "layout": None,
    "wire_types": None,
    "table_schemas": None,
    "transaction": None,
    "key_changed_to": None,
    "key_changed_from": None,
    "jdbc_types": None,
    "ddl_type": None,
    "ddl_statement": None,
    "schema_version": None,
    "table_id": None,
    "source": None,
    "sent_ms": 1640007050284,
    "source_details": details(),  # of the watermark
    "detail": None,
    "reason": None,
    "commit_ts": 429918007904436226,
}
SPEC_EVENT = NOTHING | {
    "kind": "row",
    "database": "test",
    "table": "tp_int",
    "key_columns": ["id"],
    "key": '["2"]',
    "source_ms": 1639633141221,
    "sent_ms": 1639633142960,
    "source_details": details(),
    "jdbc_types": json.loads("{" + SPEC_TYPES + "}")["sqlType"],
    "layout": {"key": ["id"], "types": json.loads("{" + SPEC_TYPES + "}")["mysqlType"]},
}
ROW, NEW_ROW = json.loads(SPEC_ROW), json.loads(SPEC_NEW_ROW)

# name -> (message, its event)
SPEC: dict[str, tuple[str, dict[str, Any]]] = {
    "DDL": (
        SPEC_DDL,
        NOTHING
        | {
            "kind": "ddl",
            "database": "test",
            "source_ms": 1639633094670,
            "sent_ms": 1639633095489,
            "source_details": details(),
            "ddl_type": "QUERY",
            "ddl_statement": "drop database if exists test",
        },
    ),
    "INSERT": (spec_dml("INSERT", SPEC_ROW, "null"), SPEC_EVENT | {"op": "insert", "after": ROW}),
    "UPDATE, old has all columns": (
        spec_dml("UPDATE", SPEC_NEW_ROW, f"[ {SPEC_ROW} ]"),
        SPEC_EVENT | {"op": "update", "before": ROW, "after": NEW_ROW},
    ),
    "UPDATE, old has the changed columns": (
        spec_dml("UPDATE", SPEC_NEW_ROW, f"[ {SPEC_CHANGED} ]"),
        SPEC_EVENT | {"op": "update", "before": ROW, "after": NEW_ROW},
    ),
    "UPDATE, old has none": (
        spec_dml("UPDATE", SPEC_NEW_ROW, "[ {} ]"),
        SPEC_EVENT | {"op": "update", "before": NEW_ROW, "after": NEW_ROW},
    ),
    "UPDATE from NULL and to NULL": (
        spec_dml("UPDATE", SPEC_ROW.replace('"127"', "null"), '[ { "c_int": null, "c_tinyint": "1" } ]'),
        SPEC_EVENT
        | {"op": "update", "before": ROW | {"c_int": None, "c_tinyint": "1"}, "after": ROW | {"c_tinyint": None}},
    ),
    "DELETE, old null (v5.4.0 and later)": (
        spec_dml("DELETE", SPEC_NEW_ROW, "null"),
        SPEC_EVENT | {"op": "delete", "before": NEW_ROW},
    ),
    "DELETE, old as data (before v5.4.0)": (
        spec_dml("DELETE", SPEC_NEW_ROW, f"[ {SPEC_NEW_ROW} ]"),
        SPEC_EVENT | {"op": "delete", "before": NEW_ROW},
    ),
    "WATERMARK": (SPEC_WATERMARK, NOTHING | {"kind": "watermark", "source_ms": 1640007049196}),
    "blanks around it": (f"\n {SPEC_WATERMARK}\t\n ", NOTHING | {"kind": "watermark", "source_ms": 1640007049196}),
    "unknown fields": (
        SPEC_WATERMARK.replace('"id": 0', '"id": 0, "new": {"a": [1, {"b": null}]}'),
        NOTHING | {"kind": "watermark", "source_ms": 1640007049196},
    ),
}


def decoded(
    spark: SparkSession, folder: Path, values: list[bytes], *, tidb_extension: bool = True
) -> list[list[dict[str, Any]]]:
    """Return the events of each value; row images and types as objects."""
    rows = [("t", 3, n, None, 7, None, bytearray(v), None, None) for n, v in enumerate(values)]
    raw = frame_of_rows(spark, rows, StructType([StructField(f.name, f.dataType) for f in RAW_RECORDS.columns]))
    feed = make_feed(folder, tidb_extension=tidb_extension)
    events: list[list[dict[str, Any]]] = [[] for _ in values]
    for event in sorted(rows_of(CanalJson().decode(raw, feed)), key=lambda e: (e["offset"], e["index"])):
        for column in ("before", "after", "layout", "jdbc_types"):
            event[column] = event[column] and json.loads(event[column])
        events[event["offset"]].append(event)
    return events


def test_the_specifications_examples_are_decoded(spark: SparkSession, tmp_path: Path) -> None:
    results = decoded(spark, tmp_path, [message.encode() for message, _ in SPEC.values()])
    numbers: dict[str, set[int | None]] = {}
    for n, (name, (message, expected)) in enumerate(SPEC.items()):
        place = {"topic": "t", "partition": 3, "offset": n, "batch": 7, "record_timestamp": None}
        numbers.setdefault(expected["kind"], set()).add(results[n][0].pop("layout_id"))
        assert results[n] == [expected | place | {"record_bytes": len(message.encode())}], name
    assert {kind: len(ids) for kind, ids in numbers.items()} == {"ddl": 1, "row": 1, "watermark": 1}
    assert numbers["ddl"] == numbers["watermark"] == {None} != numbers["row"]


def test_a_message_of_several_rows_becomes_several_events(spark: SparkSession, tmp_path: Path) -> None:
    """TiCDC sends one row a message, Canal may send many: each is an event with its index."""
    message = spec_dml("UPDATE", f"{SPEC_NEW_ROW}, {SPEC_ROW}", f'[ {SPEC_CHANGED}, {{"c_int": "5"}} ]')
    (events,) = decoded(spark, tmp_path, [message.encode()])
    assert [(e["index"], e["before"], e["after"]) for e in events] == [
        (0, ROW, NEW_ROW),
        (1, ROW | {"c_int": "5"}, ROW),
    ]


def test_source_details_are_read_and_bad_ones_are_null(spark: SparkSession, tmp_path: Path) -> None:
    """An `id` or `ts` of a wrong type is no error, as nothing depends on it."""
    sent = dml("INSERT", tso(1), {"id": "1"}, {"id": "bigint"})
    row = {name: value for name, value in sent.items() if name not in {"id", "ts"}}
    cases: list[tuple[dict[str, Any], int | None, dict[str, Any] | None]] = [
        ({"id": 17, "ts": 1750000003120}, 1750000003120, details("17")),
        ({"id": "17"}, None, details("17")),
        ({"ts": "1750000003120"}, 1750000003120, None),
        ({"id": 1.5, "ts": 1.5}, None, details("1.5")),
        ({"id": [17, {"a": None}], "ts": {"a": 1}}, None, details('[17,{"a":null}]')),
        ({"id": True, "ts": 10**30}, None, details("true")),
        ({"id": None, "ts": None}, None, None),
        ({}, None, None),
    ]
    results = decoded(spark, tmp_path, [json.dumps(row | fields).encode() for fields, *_ in cases])
    assert [[(e["kind"], e["sent_ms"], e["source_details"]) for e in events] for events in results] == [
        [("row", *expected)] for _, *expected in cases
    ]


def canal_control(kind: str, sql: str) -> bytes:
    """Return a message of Canal without a table and a row."""
    nothing = {"data": None, "mysqlType": None, "old": None, "pkNames": None, "sqlType": None}
    named = {"database": "", "table": "", "gtid": "", "id": 3, "isDdl": False, "type": kind, "sql": sql}
    return json.dumps(nothing | named | {"es": 1750000003000, "ts": 1750000003120}).encode()


CONTROLS = {
    "XACOMMIT": "XA COMMIT X'6162',X'',1",
    "XAROLLBACK": "XA ROLLBACK X'6163',X'',1",
    "GTID": "",
    "MHEARTBEAT": "",
}


def test_canals_messages_without_rows_are_no_row_events(spark: SparkSession, tmp_path: Path) -> None:
    """Canal sends the ends of XA transactions, and other events about its source."""
    values = [canal_control(kind, sql) for kind, sql in CONTROLS.items()]
    results = decoded(spark, tmp_path, values, tidb_extension=False)
    assert [[(e["kind"], e["ddl_statement"], e["source_ms"], e["reason"]) for e in events] for events in results] == [
        [("control", sql, 1750000003000, None)] for sql in CONTROLS.values()
    ]
    assert all((e["database"], e["table"], e["op"], e["ddl_type"]) == (None,) * 4 for (e,) in results)
    # TiCDC has no such messages.
    assert [[e["reason"] for e in events] for events in decoded(spark, tmp_path, values)] == [["unknown_type"]] * 4


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("ALTER TABLE shop.orders ADD qty INT", "ddl"),
        ("drop database shop", "ddl"),
        (" /* x */ -- y\n# z\n/*!40000 ALTER TABLE t ADD c INT */", "ddl"),
        ("SET STATEMENT max_statement_time=0 FOR\nTRUNCATE t", "ddl"),
        ("INSERT INTO t VALUES ('CREATE')", "statement"),
        ("/* DROP TABLE t */ DELETE FROM t", "statement"),
        ("SET STATEMENT max_statement_time=0 FOR UPDATE t SET a = 'DROP'", "statement"),
        ("", "statement"),
        ("create table rep select * from s", "statement"),
        ("/* x */ CREATE OR REPLACE TABLE rep (id INT)\nAS (SELECT id FROM s)", "statement"),
        ("CREATE TABLE rep (id INT)", "ddl"),
    ],
)
def test_canals_query_messages_without_is_ddl(sql: str, kind: str, spark: SparkSession, tmp_path: Path) -> None:
    """Canal before 1.1.5 sends a DDL statement that its parser cannot read as it sends the text of a DML statement."""
    ((event,),) = decoded(spark, tmp_path, [canal_control("QUERY", sql)], tidb_extension=False)
    assert (event["kind"], event["ddl_statement"], event["reason"]) == (kind, sql, None)


@pytest.mark.parametrize(
    ("old", "before"),
    [
        ([{"v": "b"}, {"v": "c"}], ["a", "b", "c"]),
        ([{"v": "c"}], ["a", "x", "c"]),
        ([], ["a", "x", "y"]),
        (None, ["a", "x", "y"]),
    ],
)
def test_canal_leaves_out_rows_before_the_first_change(
    old: list[dict[str, str]] | None, before: list[str], spark: SparkSession, tmp_path: Path
) -> None:
    """Canal before 1.1.7, if no column changed that it sends; `old` has the changed columns of all rows before, too."""
    message = dml("UPDATE", tso(1), {"id": "1", "v": "a"}, {"id": "bigint", "v": "varchar"}, old={"v": "?"})
    message |= {"data": [{"id": str(n), "v": v} for n, v in enumerate("axy")], "old": old, "_tidb": None}
    (events,) = decoded(spark, tmp_path, [json.dumps(message).encode()], tidb_extension=False)
    assert [(e["reason"], e["op"], e["before"]["v"], e["after"]["v"]) for e in events] == [
        (None, "update", v, after) for v, after in zip(before, "axy", strict=True)
    ]


def test_canals_messages_without_rows_are_counted(chain: Callable[..., Chain]) -> None:
    it = chain(tidb_extension=False)
    stream = Stream()
    for kind, sql in CONTROLS.items():
        stream.send(canal_control(kind, sql))
    stream.send(dml("INSERT", tso(1), {"id": "1"}, {"id": "bigint"}) | {"_tidb": None})
    it.add(stream.records)
    done = it.run()
    assert done.decode.events == {"control": 4, "row": 1}
    assert (it.quarantine(), [v["id"] for v in it.versions()]) == ([], [1])


def test_texts_are_read_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    """TiCDC escapes some characters; a complete `before` is built from a partial `old`, too."""
    texts = {
        "a": '<&>"\\/\u2028',
        "b": "\x00\x1f\x7f\x85",
        "c": "日本 🚀 é",
        "d": "",
        "e": None,
        "f": " null ",
        "g.h": "1e400",
    }
    types = dict.fromkeys(["id", *texts], "varchar")
    insert = dml("INSERT", tso(1), {"id": "1"} | texts, types)
    update = dml("UPDATE", tso(1), {"id": "1"} | texts, types, old={"c": "\x00<ü", "e": "was set"})
    escaped = json.dumps(insert).replace("<", "\\u003c").replace("&", "\\u0026").replace(">", "\\u003E").encode()
    values = [json.dumps(insert, ensure_ascii=False).encode(), escaped, json.dumps(update).encode()]
    (plain,), (as_ticdc,), (changed,) = decoded(spark, tmp_path, values)
    assert plain["after"] == as_ticdc["after"] == changed["after"] == {"id": "1"} | texts
    assert changed["before"] == {"id": "1"} | texts | {"c": "\x00<ü", "e": "was set"}


def test_numbers_keep_their_digits(spark: SparkSession, tmp_path: Path) -> None:
    """commitTs is above 2^53; values are texts in messages, and stay texts."""
    tricky = {"u": "18446744073709551615", "d": "1.10", "f": "5e-324", "z": "007", "n": "-0"}
    message = dml("INSERT", 2**63 - 1, {"id": "1"} | tricky, dict.fromkeys(["id", *tricky], "varchar"))
    ((event,),) = decoded(spark, tmp_path, [json.dumps(message).encode()])
    assert event["commit_ts"] == 2**63 - 1
    assert event["after"] == {"id": "1"} | tricky


@pytest.mark.fast
def test_every_byte_of_a_binary_reaches_the_history(chain: Callable[..., Chain]) -> None:
    """The specification's example, and every byte, as ISO-8859-1 characters with TiCDC's escapes."""
    it = chain(type_mapping="warn")  # one value is not of its type
    example = bytes([5, 7, 10, 15, 36, 50, 43, 99, 120, 60, 38, 255, 254, 45, 55, 70])
    escaped = r"\u0005\u0007\n\u000f$2+cx\u003c\u0026ÿþ-7F"
    every = bytes(range(256))
    types = {"id": "int", "c_varbinary": "varbinary", "c_blob": "blob"}
    stream = Stream()
    message = dml("INSERT", tso(1), {"id": "1", "c_varbinary": "EXAMPLE", "c_blob": every.decode("latin-1")}, types)
    stream.send(json.dumps(message, ensure_ascii=False).replace("EXAMPLE", escaped).encode())
    stream.send(dml("INSERT", tso(1), {"id": "2", "c_varbinary": "", "c_blob": None}, types))
    stream.send(dml("INSERT", tso(1), {"id": "3", "c_varbinary": "€", "c_blob": "ok"}, types))
    stream.watermark(tso(2))
    it.add(stream.records)
    it.run()
    shown = {v["id"]: (v["c_varbinary"], v["c_blob"]) for v in it.versions()}
    assert shown == {1: (example, every), 2: (b"", None), 3: (None, b"ok")}
    assert [(q["reason"], q["column"], q["value"]) for q in it.quarantine()] == [
        ("bad_value", "c_varbinary", "€".encode())
    ], "a character above U+00FF is no byte"
