"""Check the types of Simple: the recorded encoder's messages pass, and each rule is broken by one case alone."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.lakehouse.change_events import CHANGE_EVENTS
from cdc_assets.lakehouse.raw_records import RAW_RECORDS
from cdc_assets.lakehouse.table_schemas import TABLE_SCHEMAS
from cdc_assets.mysql_types.types import parse_type
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.simple.type_rules import limits_in
from cdc_assets.stages import DECODE, INGEST, SCHEMAS
from cdc_assets.type_checks.rules import NO_SUCH_TYPE
from cdc_assets_tests.protocols.simple_encoder import Table, column
from cdc_assets_tests.support import RECORDED, Chain, bytes_of, frame_of_rows, make_feed, read_lines, record
from cdc_assets_tests.type_checks.judging import Verdicts, check_types

TABLE = Table(
    columns=(
        column("id", "int", nullable=False),
        column("v", "varchar", length=3),
        column("b", "varbinary", length=4),
        column("n", "tinyint", unsigned=True),
        column("m", "mediumint"),
        column("e", "enum", elements=["x", "y"]),
        column("s", "set", elements=["x", "y"]),
        column("ts", "timestamp"),
        column("odd", "vector"),
    )
)
FINE = {
    "id": "1",
    "v": "日本語",
    "b": "AAECAw==",
    "n": "255",
    "m": "-1",
    "e": "2",
    "s": "3",
    "ts": "2024-01-02 03:04:05",
    "odd": None,
}
# column and value -> what is wrong with them
BROKEN: dict[str, tuple[str, Any, str]] = {
    "NULL in a key": ("id", None, "NULL in a NOT NULL column"),
    "a text too long": ("v", "four", "too long for the type"),
    "too many bytes": ("b", "AAECAwQ=", "too long for the type"),
    "no bytes": ("b", "?", "no value of the type"),
    "below zero": ("n", "-1", "outside the range of the type"),
    "no number": ("m", "1.5", "outside the range of the type"),
    "no such label": ("e", "3", "outside the range of the type"),
    "no such labels": ("s", "4", "outside the range of the type"),
    "no instant": ("ts", "2024-01-02", "no value of the type"),
    "a number of JSON": ("n", 7, "not the JSON type or Avro branch of the type"),
    "an object": ("v", {}, "not the JSON type or Avro branch of the type"),
}


def checked(chain: Callable[..., Chain], values: list[bytes], **settings: Any) -> Verdicts:
    """Return the verdicts over these messages, with the schemas that they carry."""
    made = chain(protocol="simple", **settings)
    made.add(record(value, offset=offset, topic="t") for offset, value in enumerate(values))
    for stage in (INGEST, DECODE, SCHEMAS):
        stage.run(made.lake, made.feed)
    return check_types(made.lake.change_events.read(made.lake.spark), made.feed, made.lake.schema_rows())


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_the_recorded_encoder_keeps_the_rules(encoding: str, chain: Callable[..., Chain]) -> None:
    streams = [read_lines(RECORDED / f"ticdc/simple-{encoding}" / scenario) for scenario in ("types", "tz", "nopk")]
    report = checked(chain, [bytes_of(line) for stream in streams for line in stream], encoding=encoding)
    assert report.mysql_types.passed, report.mysql_types.violations
    assert report.codes.passed, report.codes.violations
    seen = {o["column"] for o in report.codes.metadata["observations"]}
    # `types` has every type that there is.
    assert {c["name"] for c in read_lines(RECORDED / "ticdc/truth/types.tables")[0]["columns"]} <= seen
    classes = {o["value_class"] for o in report.codes.metadata["observations"] if o["column"] == "c_bigint_u"}
    assert classes == {"0..18446744073709551615"}


def test_each_rule_is_broken_alone(chain: Callable[..., Chain]) -> None:
    rows = [FINE, *[FINE | {name: value} for name, value, _ in BROKEN.values()]]
    values = [TABLE.bootstrap(), *[TABLE.row("INSERT", n + 1, data=row) for n, row in enumerate(rows)]]
    lacking = {name: value for name, value in FINE.items() if name != "m"}
    values += [
        TABLE.row("INSERT", 90, data=FINE | {"w": "7"}),
        TABLE.row("INSERT", 91, data=lacking),
        TABLE.row("DELETE", 92, old={"id": "1"}),  # the key alone
    ]
    # A row whose schema has not come is not checked: it waits.
    values.append(TABLE.under(9).row("INSERT", 99, data={"what": 1}))
    report = checked(chain, [bytes_of(record(v)) for v in values])
    assert not report.codes.passed
    verdicts = {(v["column"], v["offset"]): v["verdict"] for v in report.codes.violations}
    # The bootstrap has offset 0, the right row offset 1.
    expected = {(name, n + 2): verdict for n, (name, _, verdict) in enumerate(BROKEN.values())}
    nothing = {("odd", 1): NO_SUCH_TYPE, ("w", len(BROKEN) + 2): NO_SUCH_TYPE}
    assert verdicts == expected | nothing | {
        ("m", len(BROKEN) + 3): "not in the row, though other rows of the table have it, from commit_ts 91 on"
    }
    types = {(v["column"], v["offset"]): v["verdict"] for v in report.mysql_types.violations}
    untyped = "in the row, and not among the columns that have a type"
    assert types == {("odd", 1): "not a MySQL type", ("w", len(BROKEN) + 2): untyped}


def test_a_row_that_its_checksum_calls_corrupted(chain: Callable[..., Chain]) -> None:
    """FINDINGS-ticdc.md, "Simple": `"checksum":{"version":2,"corrupted":false,"current":..,"previous":..}`."""
    values: list[Any] = [TABLE.bootstrap()]
    for n, corrupted in enumerate((False, True)):
        checksum = {"version": 2, "corrupted": corrupted, "current": 2188591092, "previous": 0}
        values.append(TABLE.row("INSERT", n + 1, data=FINE) | {"checksum": checksum})
    report = checked(chain, [bytes_of(record(v)) for v in values])
    (row,) = [v for v in report.codes.violations if v["column"] != "odd"]
    assert {v["column"] for v in report.mysql_types.violations} == {"odd"}
    assert (row["offset"], row["column"], row["events"]) == (2, "*", 1)
    assert row["verdict"] == "corrupted, as TiCDC's checksum of the row says"


# The Avro branch of a value -> whether the document's table, or the recorded encoder, has it for the type.
BRANCHES: list[tuple[str, str, str, bool]] = [
    ("m", "long", "-1", True),
    ("m", "string", "-1", False),
    ("m", "UnsignedBigint", "1", False),
    ("v", "bytes", "YQ==", False),
    ("b", "bytes", "AAECAw==", True),
    ("b", "string", "AAECAw==", False),
    ("ts", "string", "2024-01-02 03:04:05", True),
    ("ts", "Timestamp", '{"location":"UTC","value":"2024-01-02 03:04:05"}', True),
    # [0, 9223372036854775807] long, [9223372036854775808, 18446744073709551615] string
    ("u", "long", "9223372036854775807", True),
    ("u", "string", "9223372036854775807", False),
    ("u", "string", "9223372036854775808", True),
    ("u", "UnsignedBigint", "18446744073709551615", True),
    ("u", "long", "-1", False),
    ("f", "float", "1.5", True),
    ("f", "double", "1.5", False),
    ("s64", "long", "-1", True),  # two's complement
    ("s64", "string", "18446744073709551615", True),
    ("s64", "string", "18446744073709551616", False),
    ("year", "long", "2156", False),
]
AVRO_TYPES = {
    "m": "mediumint", "v": "varchar(3)", "b": "varbinary(4)", "ts": "timestamp", "u": "bigint unsigned", "f": "float",
    "s64": "bit(64)", "year": "year",
}  # fmt: skip


def test_branches_of_avro(spark: SparkSession) -> None:
    feed = make_feed(RECORDED, protocol="simple", encoding="avro")
    empty, rows = dict.fromkeys(CHANGE_EVENTS.columns.names), []
    for n, (name, branch, value, _) in enumerate(BRANCHES):
        place = {"topic": "t", "partition": 0, "offset": n, "commit_ts": n, "batch": 1, "kind": "row", "op": "insert"}
        named = {"database": "d", "table": "t", "schema_version": 1, "table_id": 1}
        images = {"after": json.dumps({name: value}), "wire_types": json.dumps({name: branch})}
        rows.append(tuple((empty | place | named | {"table": name} | images).values()))
    columns = {n: [{"name": n, "type": t, "nullable": True}] for n, t in AVRO_TYPES.items()}
    schemas = [
        dict.fromkeys(TABLE_SCHEMAS.columns.names)
        | {"database": "d", "table": n, "table_id": 1, "schema_version": 1, "columns": c}
        for n, c in columns.items()
    ]
    report = check_types(frame_of_rows(spark, rows, CHANGE_EVENTS.columns), feed, schemas)
    wrong = {v["offset"] for v in report.codes.violations}
    assert [n not in wrong for n in range(len(BRANCHES))] == [fine for *_, fine in BRANCHES]


def test_a_decimal_whose_schema_has_no_scale_says_what_to_do(chain: Callable[..., Chain]) -> None:
    """TiCDC leaves `decimal` out where the scale is 0: a value with digits after the point contradicts the schema."""
    table = Table(columns=(column("id", "int", nullable=False), column("amount", "decimal", length=65)))
    values = [
        table.bootstrap(),
        *[table.row("INSERT", n, data={"id": "1", "amount": v}) for n, v in enumerate(["7", "1.5"])],
    ]
    (row,) = checked(chain, [bytes_of(record(v)) for v in values]).codes.violations
    assert (row["offset"], row["mysql_type"]) == (2, "decimal(65,0)")
    assert "outside the range of the type" in row["verdict"]
    assert "leaves `decimal` out of its dataType where the scale is 0" in row["verdict"]
    given = checked(chain, [bytes_of(record(v)) for v in values], columns={"simple.user.amount": "decimal(65,30)"})
    assert given.codes.passed, given.codes.violations


def test_an_unknown_type_breaks_both_checks(chain: Callable[..., Chain]) -> None:
    values = [TABLE.bootstrap(), TABLE.row("INSERT", 1, data=FINE | {"odd": "[1,2]"})]
    report = checked(chain, [bytes_of(record(v)) for v in values])
    for verdict in (report.mysql_types, report.codes):
        assert [(v["column"], v["mysql_type"]) for v in verdict.violations] == [("odd", "vector")]


def test_schemas_learnt_before_count(spark: SparkSession) -> None:
    """An earlier batch brought the row's schema, so table_schemas has it."""
    feed = make_feed(RECORDED, protocol="simple")
    row = bytes_of(record(TABLE.row("INSERT", 1, data=FINE | {"w": "7"})))
    raw = frame_of_rows(spark, [("t", 0, 0, None, 1, b"", row, [], None)], RAW_RECORDS.columns)
    events = protocol_of(feed).decode(raw, feed)
    assert check_types(events, feed).observations == 0
    columns = [{"name": n, "type": "text", "nullable": True, "default": None, "generated": None} for n in FINE]
    learnt = {
        "database": "simple",
        "table": "user",
        "table_id": 148,
        "schema_version": TABLE.version,
        "columns": columns,
    }
    schemas = [dict.fromkeys(TABLE_SCHEMAS.columns.names) | learnt]
    report = check_types(events, feed, schemas)
    assert [v["column"] for v in report.mysql_types.violations] == ["w"]


@pytest.mark.parametrize(
    ("mysql_type", "encoding", "ranges", "length"),
    [
        ("bigint unsigned", "json", (0, 2**64 - 1), None),
        ("mediumint(9)", "json", (-(2**23), 2**23 - 1), None),
        ("bit(10)", "json", (0, 1023), None),
        ("bit(64)", "json", (0, 2**64 - 1), None),
        ("bit(64)", "avro", (-(2**63), 2**64 - 1), None),  # two's complement
        ("enum('a','b')", "json", (0, 2), None),  # 0: MySQL's empty error value
        ("char(3)", "json", None, 3),
        ("tinytext", "json", None, 255),
        ("binary(3)", "json", None, 3),
        ("mediumblob", "json", None, 2**24 - 1),
        ("date", "json", None, None),
    ],
)
def test_limits(mysql_type: str, encoding: str, ranges: tuple[int, int] | None, length: int | None) -> None:
    limits = limits_in(parse_type(mysql_type), encoding)
    assert (limits.ranges and limits.ranges[:2], limits.length) == (ranges, length)
