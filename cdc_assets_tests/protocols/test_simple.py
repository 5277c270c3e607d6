"""The Simple Protocol's decoder: the document's examples, both encodings, and bad records."""

import json
import random
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.config import Feed
from cdc_assets.lakehouse.quarantine import MESSAGES, Reason
from cdc_assets.lakehouse.raw_records import RAW_RECORDS
from cdc_assets.protocols.payload import may_be_compressed
from cdc_assets.protocols.simple import Simple
from cdc_assets_tests.laws.conservation import conserved
from cdc_assets_tests.protocols.avro_encoder import message_bytes, read_message
from cdc_assets_tests.protocols.simple_encoder import Table, column, watermark
from cdc_assets_tests.support import RECORDED, Chain, bytes_of, frame_of_rows, make_feed, read_lines, record

TICDC = RECORDED / "ticdc"
USER = Table()


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return make_feed(tmp_path, protocol="simple")


@pytest.fixture
def avro_feed(tmp_path: Path) -> Feed:
    return make_feed(tmp_path, protocol="simple", encoding="avro")


def decoded(spark: SparkSession, feed: Feed, values: Iterable[bytes | None]) -> list[dict[str, Any]]:
    """Return the events of records, which have the offsets 0, 1, ... of one partition."""
    rows: list[tuple[Any, ...]] = [
        ("t", 0, offset, None, 1, b"", value, [], None) for offset, value in enumerate(values)
    ]
    events = Simple().decode(frame_of_rows(spark, rows, RAW_RECORDS.columns).coalesce(1), feed)
    return sorted((r.asDict() for r in events.collect()), key=lambda e: e["offset"])


def text(message: object) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode()


# --- the document's examples

JOHN = {"age": "25", "id": "1", "name": "John Doe", "score": "90.5"}
BETTER = JOHN | {"score": "95"}
_COLUMNS = (
    column("id", "int", nullable=False),
    column("name", "varchar", charset="utf8mb4", collate="utf8mb4_bin", length=255),
    column("age", "int"),
    column("score", "float", length=12),
)
DOCUMENT = Table(columns=_COLUMNS)
AFTER_ALTER = DOCUMENT.under(447987408682614791, None, column("createTime", "timestamp", length=19))
ALTER = "ALTER TABLE `user` ADD COLUMN `createTime` TIMESTAMP"
EXAMPLES = [
    AFTER_ALTER.ddl("ALTER", ALTER, 447987408682614795, before=DOCUMENT),
    DOCUMENT.row("INSERT", 447984084414103554, data=JOHN),
    DOCUMENT.row("UPDATE", 447984099186180098, data=BETTER, old=JOHN),
    DOCUMENT.row("DELETE", 447984114259722243, old=BETTER),
    watermark(447984124732375041),
    Table("new_user", columns=_COLUMNS).bootstrap(),
]


def test_the_documents_examples_are_decoded(spark: SparkSession, feed: Feed) -> None:
    events = decoded(spark, feed, map(text, EXAMPLES))
    assert [(e["kind"], e["op"], e["database"], e["table"], e["commit_ts"]) for e in events] == [
        ("ddl", None, "simple", "user", 447987408682614795),
        ("row", "insert", "simple", "user", 447984084414103554),
        ("row", "update", "simple", "user", 447984099186180098),
        ("row", "delete", "simple", "user", 447984114259722243),
        ("watermark", None, None, None, 447984124732375041),
        # commitTs 0 is meaningless: a bootstrap has no place among the events
        ("bootstrap", None, "simple", "new_user", None),
    ]
    assert [(e["schema_version"], e["table_id"]) for e in events] == [
        (447987408682614791, 148),
        *[(447984074911121426, 148)] * 3,
        (None, None),
        (447984074911121426, 148),
    ]
    images = [tuple(image and json.loads(image) for image in (e["before"], e["after"])) for e in events]
    assert images == [(None, None), (None, JOHN), (JOHN, BETTER), (BETTER, None), (None, None), (None, None)]
    assert (events[0]["ddl_type"], events[0]["ddl_statement"]) == ("ALTER", ALTER)
    schemas = [[(s["version"], [c["name"] for c in s["columns"]]) for s in json.loads(e["table_schemas"] or "[]")]
               for e in events]  # fmt: skip
    before = (447984074911121426, ["id", "name", "age", "score"])
    after = (447987408682614791, ["id", "name", "age", "score", "createTime"])
    assert schemas == [[after, before], [], [], [], [], [before]]
    assert events[1]["source_ms"] == 447984084414103554 >> 18
    assert [e["sent_ms"] for e in events] == [1, 1, 1, 1, 447984124732375041 >> 18, 1]
    assert {e["layout"] for e in events} == {None}, "a row has no types of its own"


def test_rows_with_only_their_key_have_the_same_reason_in_both_encodings(
    spark: SparkSession, feed: Feed, avro_feed: Feed
) -> None:
    for config, reason in (("handle-key-only", "handle_key_only"), ("claim-check", "claim_check")):
        lines = {e: read_lines(TICDC / f"simple-{e}_{config}/large") for e in ("json", "avro")}
        marked = {n for n, line in enumerate(lines["json"]) if b"handleKeyOnly" in bytes_of(line)}
        # A DELETE needs no more than its key.
        complete = {n for n in marked if b'"type":"DELETE"' in bytes_of(lines["json"][n])}
        marked -= complete if config == "handle-key-only" else set()
        assert marked
        assert complete
        for encoding, each in (("json", feed), ("avro", avro_feed)):
            events = decoded(spark, each, [bytes_of(line) for line in lines[encoding]])
            assert {n: e["reason"] for n, e in enumerate(events) if e["reason"]} == dict.fromkeys(marked, reason)


def test_hidden_columns_of_indexes_on_expressions_are_left_out() -> None:
    """TiDB's virtual column of such an index is in the schema of a message, and in no statement and no row."""
    schema = USER.under(7, None, column("_V$_i_0", "varchar")).schema
    schema["indexes"] += [{"name": "i", "unique": True, "primary": False, "nullable": False, "columns": ["_V$_i_0"]}]
    ((_, version, read),) = Simple().numbered_schemas(json.dumps([schema]))
    assert (version, [c.name for c in read.columns], read.key_columns) == (7, ["id", "v"], ("id",))
    sent = {"table_schemas": json.dumps([schema]), "ddl_type": "CINDEX"}
    assert Simple().schemas_after(sent, {}) == {("simple", "user"): read}


def test_null_and_absent_are_different(spark: SparkSession, feed: Feed) -> None:
    rows = [USER.row("INSERT", 5, data={"id": "1", "v": None}), USER.row("INSERT", 5, data={"id": "1"})]
    events = decoded(spark, feed, map(text, rows))
    assert [json.loads(e["after"]) for e in events] == [{"id": "1", "v": None}, {"id": "1"}]


def test_both_encodings_give_the_same_events(spark: SparkSession, feed: Feed, avro_feed: Feed) -> None:
    """Everything that does not depend on the encoding is equal, also the text of the images."""
    as_json, as_avro = (
        decoded(spark, each, [bytes_of(line) for line in read_lines(TICDC / config / "types")])
        for each, config in ((feed, "simple-json"), (avro_feed, "simple-avro"))
    )
    same = ["kind", "op", "database", "table", "commit_ts", "schema_version", "table_id", "ddl_type", "ddl_statement"]
    # Each was sent at a time of its own.
    assert all(e["sent_ms"] > 1_700_000_000_000 for e in [*as_json, *as_avro])
    assert [[e[c] for c in same] for e in as_avro] == [[e[c] for c in same] for e in as_json]
    assert "undecodable" not in {e["kind"] for e in as_json}
    floats = {"c_float", "c_float_u", "c_double", "c_double2"}
    wrapped = {"c_bit64", "c_set64"}  # In Avro these are two's complement until they are cast by their type.
    compared = 0
    for one, other in zip(as_json, as_avro, strict=True):
        for image in ("before", "after"):
            want, got = (json.loads(e[image] or "{}") for e in (one, other))
            assert want.keys() == got.keys()
            for name, value in want.items():
                compared += 1
                if value is None or got[name] is None:
                    assert value is got[name], name
                elif isinstance(value, dict):
                    assert json.loads(got[name]) == value
                elif name in floats:
                    assert float(got[name]) == pytest.approx(float(value), rel=2e-7)
                elif name in wrapped:
                    assert int(got[name]) % 2**64 == int(value)
                else:
                    assert got[name] == value, name
    assert compared > 1000
    branches = json.loads(next(e for e in as_avro if e["kind"] == "row")["wire_types"])
    assert (branches["id"], branches["c_bigint_u"], branches["c_float"]) == ("long", "UnsignedBigint", "float")
    assert (branches["c_blob"], branches["c_timestamp0"], branches["c_date"]) == ("bytes", "Timestamp", "string")


# --- bad records

INSERT = USER.insert(5, 1, "one")
UPDATE = USER.update(5, 1, "one", "two")
BOOTSTRAP = USER.bootstrap()
MALFORMED, WRONG_TYPE, MISSING = Reason.MALFORMED_JSON, Reason.WRONG_TYPE, Reason.MISSING_FIELD


def without(message: dict[str, Any], *fields: str) -> bytes:
    return text({k: v for k, v in message.items() if k not in fields})


def with_schema(**fields: Any) -> bytes:
    return text(BOOTSTRAP | {"tableSchema": USER.schema | fields})


BAD: dict[str, tuple[bytes | None, Reason]] = {
    "null value": (None, Reason.NULL_VALUE),
    "empty value": (b"", Reason.EMPTY_VALUE),
    "lz4 frame, cut": (b"\x04\x22\x4d\x18\x64\x40\xa7\xff\x00\x00\x00cut", Reason.BAD_COMPRESSION),
    "invalid UTF-8": (text(INSERT).replace(b"one", b"\xc3\x28"), Reason.INVALID_UTF8),
    "cut": (text(INSERT)[:-3], MALFORMED),
    "something behind": (text(INSERT) + b"{}", MALFORMED),
    "Avro": (b"\x16\x00\x00\x02\x02\x02", MALFORMED),
    "an array": (b"[1]", WRONG_TYPE),
    "commitTs as text": (text(INSERT | {"commitTs": "soon"}), WRONG_TYPE),
    "commitTs below zero": (text(INSERT | {"commitTs": -1}), WRONG_TYPE),
    "a name of 65 characters": (text(INSERT | {"table": "t" * 65}), WRONG_TYPE),
    "columns that are no list": (with_schema(columns={}), WRONG_TYPE),
    "two columns of one name": (with_schema(columns=[column("a", "int"), column("A", "int")]), WRONG_TYPE),
    "a database that is a number": (text(INSERT | {"database": 7}), WRONG_TYPE),
    "a row that is a text": (text(INSERT | {"data": '{"id": "1'}), WRONG_TYPE),
    "a statement that is a list": (text(USER.ddl("ALTER", "x", 5) | {"sql": ["x"]}), WRONG_TYPE),
    "a column whose name is a number": (with_schema(columns=[column("a", "int"), column(7, "int")]), WRONG_TYPE),
    "a column whose type is a list": (with_schema(columns=[column("a", ["int"])]), WRONG_TYPE),
    "labels that are numbers": (with_schema(columns=[column("a", "enum", elements=["x", 1])]), WRONG_TYPE),
    "a key of numbers": (with_schema(indexes=[{"name": "i", "primary": True, "columns": [1]}]), WRONG_TYPE),
    "a schema's table that is true": (with_schema(table=True), WRONG_TYPE),
    "no type": (without(INSERT, "type"), MISSING),
    "no version": (without(INSERT, "version"), MISSING),
    "another version": (text(INSERT | {"version": 2}), Reason.UNKNOWN_TYPE),
    "another type": (text(INSERT | {"type": "UPSERT"}), Reason.UNKNOWN_TYPE),
    "a row without commitTs": (without(INSERT, "commitTs"), MISSING),
    "a row without schemaVersion": (without(INSERT, "schemaVersion"), MISSING),
    "a row without tableID": (without(INSERT, "tableID"), MISSING),
    "a row without its table": (text(INSERT | {"table": ""}), MISSING),
    "an insert without data": (without(INSERT, "data"), MISSING),
    "an insert of nothing": (text(INSERT | {"data": {}}), MISSING),
    "an insert of a text": (text(INSERT | {"data": "row"}), WRONG_TYPE),
    "an update without old": (without(UPDATE, "old"), MISSING),
    "an insert with old": (text(INSERT | {"old": INSERT["data"]}), Reason.IMAGES_DISAGREE),
    "an insert with an old of nothing": (text(INSERT | {"old": {}}), Reason.IMAGES_DISAGREE),
    "a delete with data": (text(UPDATE | {"type": "DELETE"}), Reason.IMAGES_DISAGREE),
    "a delete without old": (without(UPDATE | {"type": "DELETE"}, "old"), MISSING),
    "a watermark without commitTs": (without(watermark(5), "commitTs"), MISSING),
    "a bootstrap without its schema": (without(BOOTSTRAP, "tableSchema"), MISSING),
    "a schema without columns": (with_schema(columns=[]), MISSING),
    "a schema without version": (with_schema(version=None), MISSING),
    "a column without name": (with_schema(columns=[column("", "int")]), MISSING),
    "a column without type": (with_schema(columns=[{"name": "a"}]), MISSING),
    "an index without columns": (with_schema(indexes=[{"name": "i", "primary": True}]), MISSING),
    "a statement without text": (text(USER.ddl("ALTER", "", 5)), MISSING),
    "a key alone": (text(INSERT | {"handleKeyOnly": True}), Reason.HANDLE_KEY_ONLY),
    "an update of a key alone": (text(UPDATE | {"handleKeyOnly": True}), Reason.HANDLE_KEY_ONLY),
    "a row elsewhere": (text(INSERT | {"claimCheckLocation": "s3://b/c.json"}), Reason.CLAIM_CHECK),
}


def test_bad_json_is_quarantined_with_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    """A good row among the bad records arrives."""
    made = Chain(spark, tmp_path, protocol="simple")
    good = [text(m) for m in (BOOTSTRAP, USER.insert(6, 9, "good"), watermark(10))]
    values = [*[value for value, _ in BAD.values()], *good]
    made.add(record(value, offset=n) for n, value in enumerate(values))
    made.run()
    quarantined = {q["offset"]: q for q in made.quarantine()}
    reasons = {name: quarantined[n]["reason"] if n in quarantined else None for n, name in enumerate(BAD)}
    assert reasons == {name: str(reason) for name, (_, reason) in BAD.items()}
    assert all(q["message"].startswith(MESSAGES[Reason(q["reason"])]) for q in quarantined.values())
    assert [r["v"] for r in made.history("user", "simple")] == ["good"]
    assert conserved(made.lake, made.feed).undecodable == len(BAD)


def test_images_that_do_not_fit_the_operation_in_avro(spark: SparkSession, avro_feed: Feed) -> None:
    """As in JSON: a recorded row of each operation, then with both images where the operation has one."""
    insert, update, delete = range(3)
    rows = {}
    for value in map(bytes_of, read_lines(TICDC / "simple-avro/types")):
        message = read_message(value)
        _, payload = message["payload"]
        if "schemaVersion" in payload:
            rows[payload["type"]] = message
    both = rows[update]["payload"][1]
    sent = {
        "insert": (rows[insert], None),
        "update": (rows[update], None),
        "delete": (rows[delete], None),
        "an insert with old": (with_payload(rows[insert], old=both["old"]), Reason.IMAGES_DISAGREE),
        "a delete with data": (with_payload(rows[delete], data=both["data"]), Reason.IMAGES_DISAGREE),
    }
    events = decoded(spark, avro_feed, [message_bytes(message) for message, _ in sent.values()])
    assert [e["reason"] for e in events] == [reason and str(reason) for _, reason in sent.values()]


def test_a_default_of_bytes_in_avro(spark: SparkSession, avro_feed: Feed) -> None:
    """The default of a BINARY or BIT column is the text of its bytes, which need not be UTF-8."""
    message = read_message(next(v for v in map(bytes_of, read_lines(TICDC / "simple-avro/large")) if v[1] == 2))
    message["payload"][1]["tableSchema"]["columns"][1]["default"] = [1, "@@"]
    (event,) = decoded(spark, avro_feed, [message_bytes(message).replace(b"@@", b"\xff\x01")])
    assert (event["kind"], event["reason"]) == ("bootstrap", None)
    assert json.loads(event["table_schemas"])[0]["columns"][1].get("default") == "\ufffd\x01"


def test_values_at_their_limits_in_avro(spark: SparkSession, avro_feed: Feed) -> None:
    """Their texts are those of JSON messages: unsigned numbers, and base64 in one line."""
    recorded = (read_message(bytes_of(line)) for line in read_lines(TICDC / "simple-avro/types"))
    insert = next(message for message in recorded if message["payload"][1].get("data"))
    numbers = {"zero": 0, "below": 2**63 - 1, "half": 2**63, "most": 2**64 - 1}
    # UnsignedBigint holds the bits of an unsigned number as a signed one.
    image = {name: [7, {"value": (number + 2**63) % 2**64 - 2**63}] for name, number in numbers.items()}
    image |= {"bytes": [5, bytes(range(100))], "nothing": [0, None]}
    (event,) = decoded(spark, avro_feed, [message_bytes(with_payload(insert, data=[1, image]))])
    texts = {name: str(number) for name, number in numbers.items()}
    assert json.loads(event["after"]) == texts | {"bytes": b64encode(bytes(range(100))).decode(), "nothing": None}


def with_payload(message: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return an Avro message with other fields in its payload."""
    branch, payload = message["payload"]
    return message | {"payload": [branch, payload | fields]}


def avro_length(number: int) -> bytes:
    """Return a zigzag varint, as the Avro specification defines it ("Binary Encoding")."""
    rest, out = (number << 1) & (2**64 - 1) if number >= 0 else (-number << 1) - 1, b""
    while rest >= 128:
        out, rest = out + bytes([rest & 127 | 128]), rest >> 7
    return out + bytes([rest])


def test_bad_avro_is_quarantined_with_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    """The message is cut at every byte, gets extra bytes, changed bytes, and lengths beyond any memory."""
    values = [bytes_of(line) for line in read_lines(TICDC / "simple-avro/large")]
    kinds = {value[1]: value for value in values}
    mark, bootstrap, row = kinds[0], kinds[2], min((v for v in values if v[1] == 6), key=len)
    cut = [value[:n] for value in (mark, bootstrap, row) for n in range(1, len(value))]
    longer = [value + more for value in (mark, bootstrap, row) for more in (b"\0", value, b"\x16" * 30)]
    head = b"\x16\x02\x02" + avro_length(1) * 2 + b"\x02d\x02t" + avro_length(1) * 2  # up to the number of columns
    lengths = [avro_length(n) for n in (2**30, 2**31 - 9, 2**31, 2**62, -5, -(2**62))]
    huge = [*[head + n for n in lengths], *[b"\x16\x06\x06\x02" + n + b"shop" for n in lengths]]
    mixed = [b"\x16\x06" + mark[2:], b"\x14" + mark[1:], b"{}", b"\x16"]
    broken = [*cut, *longer, *huge, *mixed]
    in_schema = [(b"docs_c", b"do\xffs_c"), (b"title", b"ti\xffle"), (b"mediumtext", b"mediumt\xffxt")]
    named = [
        (mark[:3] + b"\x04" + mark[4:], Reason.UNKNOWN_TYPE),  # version 2
        (row.replace(b"after", b"af\xffer"), Reason.INVALID_UTF8),
        (row.replace(b"title", b"ti\xffle"), Reason.INVALID_UTF8),
        *[(bootstrap.replace(a, b), Reason.INVALID_UTF8) for a, b in in_schema],
        (b"", Reason.EMPTY_VALUE),
        (None, Reason.NULL_VALUE),
    ]
    assert b"after" in row
    assert all(part in bootstrap for part, _ in in_schema)
    rng = random.Random(6)
    originals = [mark, bootstrap, row] * 200
    flipped = []
    for value in originals:
        at = rng.randrange(3, len(value))
        flipped.append(value[:at] + bytes([value[at] ^ 1 << rng.randrange(8)]) + value[at + 1 :])
    made = Chain(spark, tmp_path, protocol="simple", encoding="avro")
    everything = [*broken, *[value for value, _ in named], *flipped]
    made.add(record(value, offset=n) for n, value in enumerate(everything))
    made.run()
    reasons = {q["offset"]: q["reason"] for q in made.quarantine() if q["stage"] == "decode"}
    assert [everything[n] for n in range(len(broken)) if reasons.get(n) != "malformed_avro"] == []
    assert [reasons.get(len(broken) + n) for n in range(len(named))] == [str(reason) for _, reason in named]
    # Some changed bytes make another good message (one letter for another), but each record is accounted for.
    counts = conserved(made.lake, made.feed)
    assert counts.records == len(everything)
    assert counts.undecodable > len(broken) + len(named) + 100


def test_may_be_compressed_recognises_each_encoding(spark: SparkSession, feed: Feed, avro_feed: Feed) -> None:
    """No recorded message looks compressed, and no message of the other encoding looks valid."""
    wires = {"simple-json": Simple().envelope(feed), "simple-avro": Simple().envelope(avro_feed)}
    for config, other in (("simple-json", "simple-avro"), ("simple-avro", "simple-json")):
        frame = frame_of_rows(
            spark, [(bytes_of(line),) for line in read_lines(TICDC / config / "nopk")], "value BINARY"
        )
        results = (
            frame.select(
                may_be_compressed(frame["value"], wires[config]), may_be_compressed(frame["value"], wires[other])
            )
            .distinct()
            .collect()
        )
        assert [tuple(r) for r in results] == [(False, True)]
