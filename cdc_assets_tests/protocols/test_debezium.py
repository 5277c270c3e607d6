"""Debezium's decoder: the document's examples, the kinds of records, and bad records."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.lakehouse.change_events import SOURCE_DETAILS
from cdc_assets.lakehouse.raw_records import RAW_RECORDS
from cdc_assets.protocols.debezium import Debezium
from cdc_assets_tests.protocols.debezium_encoder import (
    FIELDS,
    MS,
    envelope,
    key_with_schema,
    read_source,
    source,
    text,
    with_schema,
)
from cdc_assets_tests.support import frame_of_rows, make_feed

Headers = list[tuple[str, bytes]]
KEY = text({"id": 1004})
ROW = {"id": 1004, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}


def decoded(
    spark: SparkSession, folder: Path, *records: tuple[bytes | None, bytes | None, Headers]
) -> list[dict[str, Any]]:
    """Return the events of records, which have the offsets 0, 1, ... of one partition."""
    rows = [("t", 0, n, None, 1, key, value, headers, None) for n, (key, value, headers) in enumerate(records)]
    raw = frame_of_rows(spark, rows, RAW_RECORDS.columns)
    events = Debezium().decode(raw, make_feed(folder, protocol="debezium"))
    return sorted((r.asDict(recursive=True) for r in events.collect()), key=lambda e: e["offset"])


# The document's examples of an update and of a delete, with the numbers of its notes taken out.
_UPDATE = """{ "schema": { ... }, "payload": { "before": { 1 "id": 1004, "first_name": "Anne", "last_name": "Kretchmar",
"email": "annek@noanswer.org" }, "after": { 2 "id": 1004, "first_name": "Anne Marie", "last_name": "Kretchmar", "email":
"annek@noanswer.org" }, "source": { 3 "version": "1.9.5.Final", "name": "mysql-server-1", "connector": "mysql", "name":
"mysql-server-1", "ts_ms": 1465581029100, "snapshot": false, "db": "inventory", "table": "customers", "server_id": 223344,
"gtid": null, "file": "mysql-bin.000003", "pos": 484, "row": 0, "thread": 7, "query": "UPDATE customers SET first_name='Anne
Marie' WHERE id=1004" }, "op": "u", 4 "ts_ms": 1465581029523 5 } }"""
_DELETE = """{ "schema": { ... }, "payload": { "before": { 1 "id": 1004, "first_name": "Anne Marie", "last_name":
"Kretchmar", "email": "annek@noanswer.org" }, "after": null, 2 "source": { 3 "version": "1.9.5.Final", "connector": "mysql",
"name": "mysql-server-1", "ts_ms": 1465581902300, "snapshot": false, "db": "inventory", "table": "customers", "server_id":
223344, "gtid": null, "file": "mysql-bin.000003", "pos": 805, "row": 0, "thread": 7, "query": "DELETE FROM customers WHERE
id=1004" }, "op": "d", 4 "ts_ms": 1465581902461 5 } }"""
_CREATE = {
    "before": None,
    "after": ROW,
    "source": {
        "version": "1.9.5.Final", "connector": "mysql", "name": "mysql-server-1", "ts_ms": 0, "snapshot": False,
        "db": "inventory", "table": "customers", "server_id": 0, "gtid": None, "file": "mysql-bin.000003", "pos": 154,
        "row": 0, "thread": 7, "query": "INSERT INTO customers (first_name, last_name, email) VALUES ('Anne', 'Kretchmar', "
        "'annek@noanswer.org')",
    },
    "op": "c",
    "ts_ms": 1465491411815,
}  # fmt: skip


def _example(document: str) -> bytes:
    plain = re.sub(r'(?<=[{,]) \d (?=")|(?<=[0-9]) \d (?=})', " ", " ".join(document.split()))
    fields = [{"type": "int32", "optional": False, "field": "id"}]
    fields += [{"type": "string", "optional": False, "field": f} for f in list(ROW)[1:]]
    return text(with_schema(json.loads(plain.replace("{ ... }", "null"))["payload"], fields))


def test_the_documents_examples_are_decoded(spark: SparkSession, tmp_path: Path) -> None:
    key = text(key_with_schema({"id": 1004}))
    created, updated, deleted = decoded(
        spark, tmp_path, (key, text(_CREATE), []), (key, _example(_UPDATE), []), (key, _example(_DELETE), [])
    )
    assert [e["op"] for e in (created, updated, deleted)] == ["insert", "update", "delete"]
    for event in (created, updated, deleted):
        assert (event["kind"], event["database"], event["table"]) == ("row", "inventory", "customers")
        assert event["key_columns"] == ["id"]
    # The document's source.ts_ms is 0, so the envelope's ts_ms counts.
    assert [e["source_ms"] for e in (created, updated, deleted)] == [1465491411815, 1465581029100, 1465581902300]
    assert [e["commit_ts"] for e in (created, updated)] == [1465491411815 << 18, 1465581029100 << 18]
    assert (created["before"], json.loads(created["after"])) == (None, ROW)
    assert json.loads(updated["before"]) == ROW
    assert json.loads(updated["after"]) == ROW | {"first_name": "Anne Marie"}
    assert (json.loads(deleted["before"]), deleted["after"]) == (ROW | {"first_name": "Anne Marie"}, None)
    assert updated["source"] == {
        "server_id": 223344, "file": "mysql-bin.000003", "position": 484, "row": 0, "gtid": None,
    }  # fmt: skip
    assert updated["sent_ms"] == 1465581029523
    assert updated["source_details"] == {
        "message_id": None, "source_version": "1.9.5.Final", "source_name": "mysql-server-1",
        "thread": 7, "query": "UPDATE customers SET first_name='Anne Marie' WHERE id=1004",
    }  # fmt: skip
    assert [e["source_details"]["query"][:6] for e in (created, deleted)] == ["INSERT", "DELETE"]
    assert [f["field"] for f in json.loads(updated["layout"])] == list(ROW)
    assert json.loads(created["layout"]) == list(ROW)


def _row(op: str = "c", **more: Any) -> dict[str, Any]:
    image = {"id": 1004, "v": "a"}
    before, after = (image if op in "ud" else None), (image if op != "d" else None)
    return envelope(op, before, after, source(), **more)


_CHANGE = {"type": "ALTER", "id": '"inventory"."customers"', "table": {"columns": []}}
_SCHEMA_CHANGE = {
    "source": source(), "databaseName": "inventory", "schemaName": None, "ddl": "ALTER TABLE customers ADD COLUMN w INT",
    "tableChanges": [_CHANGE],
}  # fmt: skip
_COLUMN = {
    "name": "w", "jdbcType": 4, "nativeType": None, "typeName": "INT", "typeExpression": "INT", "charsetName": None,
    "length": None, "scale": None, "position": 1, "optional": True, "autoIncremented": False, "generated": False,
    "comment": None, "enumValues": [],
}  # fmt: skip


def _of_columns(*columns: dict[str, Any]) -> dict[str, Any]:
    return _SCHEMA_CHANGE | {"tableChanges": [_CHANGE | {"table": {"columns": columns}}]}


_TICDC: dict[str, Any] = {"connector": "TiCDC", "commit_ts": 470590884281843729, "file": "", "pos": 0, "server_id": 0}

# key, value, the kind of event or the reason
KINDS: list[tuple[bytes | None, bytes | None, str]] = [
    (KEY, text(_row()), "row"),
    (KEY, text(with_schema(_row())), "row"),
    (KEY, text({"payload": _row()}), "row"),
    (KEY, text(_row("r") | {"source": read_source()}), "row"),
    (None, text(_row()), "row"),
    (KEY, None, "tombstone"),
    (None, None, "tombstone"),
    (None, text(envelope("t", None, None, source())), "ddl"),
    (None, text(_row("m")), "message"),
    (None, text(envelope("m", None, None, source(**_TICDC, db="", table=""))), "watermark"),
    (text({"databaseName": "inventory"}), text(_SCHEMA_CHANGE), "ddl"),
    (None, text({"schema": None, "payload": _SCHEMA_CHANGE}), "ddl"),
    (None, text(_SCHEMA_CHANGE | {"source": read_source(), "tableChanges": []}), "statement"),
    (
        None,
        text(_SCHEMA_CHANGE | {"tableChanges": [_CHANGE | {"id": '"shop"."old","shop"."new"'}]}),
        "ddl",
    ),  # of a RENAME
    (None, text(_SCHEMA_CHANGE | {"source": read_source()}), "ddl"),
    (None, text({"status": "BEGIN", "id": "file=mysql-bin.000007,pos=1712", "event_count": None}), "transaction"),
    (None, text({"status": "END", "id": "0-1-2", "event_count": 1, "data_collections": [], "ts_ms": 1}), "transaction"),
    (text({"serverName": "s"}), text({"ts_ms": 1795218503431}), "heartbeat"),
    (
        None,
        text({"id": "1", "aggregate_type": "a", "type": "t", "additional_data": {}, "timestamp": 1}),
        "notification",
    ),
    # rows without their envelope, whose columns have the names of fields
    (KEY, text({"id": 1004, "status": "paid", "v": "a"}), "unknown_type"),
    (KEY, text({"id": 1004, "status": "paid", "source": None}), "unknown_type"),
    (KEY, text({"schema": {"fields": []}, "payload": {"id": 1004, "status": "paid", "v": "a"}}), "unknown_type"),
    (KEY, text({"id": 1004, "v": "a", "ts_ms": 1795218503431}), "unknown_type"),
    (KEY, text({"id": 1004, "aggregate_type": "order", "type": "created", "v": "a"}), "unknown_type"),
    # the topic of the schema history
    (None, text(_SCHEMA_CHANGE | {"source": {"server": "s"}, "position": {"file": "b.1", "pos": 4}}), "statement"),
    # unknown fields, snapshot markers
    (
        KEY,
        text(_row(ts_us=1, unknown={"a": 1}) | {"source": source(snapshot="last_in_data_collection", new=[])}),
        "row",
    ),
    # a character in two escapes (surrogates), and a text that only looks like one of them
    (KEY, text(_row()).replace(b'"a"', rb'"\ud83d\uDE00 \\ud83d"'), "row"),
    # bad input
    (KEY, b"", "empty_value"),
    (KEY, b"\xff\xfe", "invalid_utf8"),
    (KEY, b"{", "malformed_json"),
    (KEY, text(_row())[:-1], "malformed_json"),
    (KEY, text(_row()).replace(b'"a"', rb'"\ud83d"'), "malformed_json"),
    (KEY, text(_row()).replace(b'"a"', rb'"\ud83d\uDE00\uDE00"'), "malformed_json"),
    (KEY, text(_row()) + b"{}", "malformed_json"),
    (KEY, text(_row(ts_ms="yesterday")), "wrong_type"),
    (KEY, text([_row()]), "wrong_type"),
    (KEY, text({"id": 1}), "unknown_type"),
    (KEY, text(_row() | {"op": "x"}), "unknown_type"),
    (KEY, text(envelope("c", None, None, source())), "missing_field"),
    (KEY, text(envelope("d", None, None, source())), "missing_field"),
    (KEY, text(envelope("c", {"id": 1}, {"id": 1}, source())), "images_disagree"),
    (KEY, text(envelope("d", {"id": 1}, {"id": 1}, source())), "images_disagree"),
    (KEY, text(_row() | {"source": source(db=None)}), "missing_field"),
    (KEY, text(_row() | {"source": source(table="")}), "missing_field"),
    (KEY, text(_row() | {"source": source(file=None)}), "missing_field"),
    (KEY, text(_row(ts_ms=None) | {"source": source(ts_ms=None)}), "missing_field"),
    (KEY, text(_row() | {"source": source(ts_ms=-1)}), "wrong_type"),
    (KEY, text(_row() | {"source": source(table="t" * 65)}), "wrong_type"),
    (KEY, text(_row() | {"after": '{"id": 1'}), "wrong_type"),
    (KEY, text(_row() | {"source": source(db=7)}), "wrong_type"),
    (KEY, text(_row() | {"source": source(table={"a": 1})}), "wrong_type"),
    (KEY, text(_SCHEMA_CHANGE | {"ddl": ["x"]}), "wrong_type"),
    (KEY, text(_SCHEMA_CHANGE | {"tableChanges": '[{"id'}), "wrong_type"),
    (KEY, text(_SCHEMA_CHANGE | {"tableChanges": _CHANGE}), "wrong_type"),
    (KEY, text({"schema": None, "payload": _SCHEMA_CHANGE | {"tableChanges": 5}}), "wrong_type"),
    (KEY, text(_SCHEMA_CHANGE | {"tableChanges": [_CHANGE, 5]}), "wrong_type"),
    (KEY, text(_SCHEMA_CHANGE | {"tableChanges": [None]}), "missing_field"),
    (KEY, text(_SCHEMA_CHANGE | {"tableChanges": [_CHANGE | {"id": "customers"}]}), "missing_field"),
    (KEY, text(_SCHEMA_CHANGE | {"tableChanges": [_CHANGE, {"type": "ALTER"}]}), "missing_field"),
    (KEY, text(_SCHEMA_CHANGE | {"tableChanges": [_CHANGE | {"table": {}}]}), "missing_field"),
    (KEY, text(_SCHEMA_CHANGE | {"tableChanges": [_CHANGE | {"table": None}]}), "ddl"),
    (KEY, text(_SCHEMA_CHANGE | {"tableChanges": [_CHANGE | {"table": []}]}), "wrong_type"),
    (KEY, text(_of_columns(_COLUMN, _COLUMN)), "ddl"),
    (KEY, text(_of_columns(_COLUMN, {})), "missing_field"),
    (KEY, text(_of_columns(_COLUMN, _COLUMN | {"typeName": 7})), "wrong_type"),
    (KEY, text(_of_columns(_COLUMN, _COLUMN | {"length": "10"})), "wrong_type"),
    (KEY, text(_of_columns(_COLUMN, _COLUMN | {"enumValues": "x"})), "wrong_type"),
    (KEY, text(_of_columns(_COLUMN, _COLUMN | {"optional": 1})), "wrong_type"),
    (KEY, text(_row() | {"after": [1]}), "wrong_type"),
    (KEY, text(_row("u") | {"before": 5}), "wrong_type"),
    (None, text({"status": "END", "id": "0-1-2", "event_count": 1, "data_collections": {}}), "wrong_type"),
    (KEY, text({"schema": {"fields": [{"field": "after", "fields": '[{"field'}]}, "payload": _row()}), "wrong_type"),
    (KEY, text({"schema": {"fields": [{"field": "after", "fields": {}}]}, "payload": _row()}), "wrong_type"),
    (text({"payload": '{"id'}), text(_row()), "bad_key"),
    (b"Struct{id=1}", text(_row()), "bad_key"),
    (b"1004", text(_row()), "bad_key"),
]


def test_each_record_has_its_kind_or_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    events = decoded(spark, tmp_path, *[(key, value, []) for key, value, _ in KINDS])
    outcomes = [e["reason"] or e["kind"] for e in events]
    assert list(zip(KINDS, outcomes, strict=True)) == [(case, case[2]) for case in KINDS]
    assert {e["kind"] for e in events if e["reason"]} == {"undecodable"}


def test_the_fields_of_events_are_filled(spark: SparkSession, tmp_path: Path) -> None:
    new, old = text(key_with_schema({"id": 7})), text({"id": 5})
    moved, entered, keyless, composite, called_payload, truncate, ticdc, mark = decoded(
        spark,
        tmp_path,
        (KEY, text(_row("d")), [("__debezium.newkey", new), ("__debezium.context.taskId", b"0")]),
        (KEY, text(with_schema(_row())), [("__debezium.oldkey", old)]),
        (None, text(_row()), []),
        (text({"z": 1, "a": "x"}), text(_row()), []),
        (text({"payload": 5}), text(_row()), []),
        (None, text(envelope("t", None, None, source(907, table="a`b"))), []),
        (text({"payload": {}}), text({"payload": _row() | {"source": source(**_TICDC)}}), []),
        (None, text(envelope("m", None, None, source(**_TICDC, db="", table=""))), []),
    )
    assert (moved["key_changed_to"], moved["key_changed_from"]) == ('{"id":7}', None)
    assert (entered["key_changed_to"], entered["key_changed_from"]) == (None, '{"id":5}')
    assert json.loads(entered["layout"]) == FIELDS
    assert keyless["key_columns"] == []
    assert composite["key_columns"] == ["z", "a"]
    assert called_payload["key_columns"] == ["payload"]
    emptied = "TRUNCATE TABLE `inventory`.`a``b` /* mysql-bin.000003:907 */"
    assert (truncate["ddl_type"], truncate["ddl_statement"]) == ("TRUNCATE", emptied)
    assert (ticdc["commit_ts"], ticdc["source"], ticdc["key_columns"]) == (470590884281843729, None, [])
    assert (mark["commit_ts"], mark["database"]) == (470590884281843729, None)
    assert moved["commit_ts"] == MS << 18


def test_source_details_of_another_type_are_null(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing depends on the source's details."""
    odd = source(version=1.9, name=["s"], thread="seven", query={"a": 1})
    names = {"version", "name", "thread", "query"}
    without = {name: value for name, value in source().items() if name not in names}
    none = without | dict.fromkeys(names)
    first, second, third = decoded(
        spark,
        tmp_path,
        *[(KEY, text(_row(ts_ms=ms) | {"source": s}), []) for ms, s in ((5, odd), (None, none), (5, without))],
    )
    assert [e["kind"] for e in (first, second, third)] == ["row"] * 3
    nothing = dict.fromkeys(SOURCE_DETAILS.names)
    assert first["source_details"] == nothing | {
        "source_version": "1.9", "source_name": '["s"]', "query": '{"a":1}'
    }  # fmt: skip
    assert (second["source_details"], third["source_details"]) == (None, None)
    assert [e["sent_ms"] for e in (first, second, third)] == [5, None, 5]


@pytest.mark.parametrize("seed", range(3))
def test_damaged_records_neither_fail_the_run_nor_get_lost(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(seed)
    sound = [value for _, value, _ in KINDS if value]
    damaged: list[tuple[bytes | None, bytes, list[Any]]] = []
    for value in sound * 3:
        data = bytearray(value)
        for _ in range(chance.randint(1, 3)):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        damaged.append((KEY, bytes(data[: chance.randint(0, len(data))] if chance.random() < 0.3 else data), []))
    events = decoded(spark, tmp_path, *damaged)
    assert [e["offset"] for e in events] == list(range(len(damaged)))
