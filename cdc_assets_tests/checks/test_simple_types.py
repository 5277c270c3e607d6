"""The type checks of Simple: what the recorded encoder sends passes, and each rule is broken by what breaks it alone."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.checks.simple_types import limits_of
from cdc_assets.protocols import protocol_of
from cdc_assets.stages import DECODE, INGEST, SCHEMAS
from cdc_assets.tables.raw_records import RAW_RECORDS
from cdc_assets.tables.table_schemas import TABLE_SCHEMAS
from cdc_assets_tests.checks.judging import Verdicts, check_types
from cdc_assets_tests.protocols.simple_encoder import Table, column
from cdc_assets_tests.support import RECORDED, Chain, bytes_of, make_feed, read_lines, record

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
}
# column and value -> what is wrong with them
BROKEN: dict[str, tuple[str, Any, str]] = {
    "a column of another version": ("w", "7", "not a column of its schema version"),
    "NULL in a key": ("id", None, "NULL in a NOT NULL column"),
    "a text too long": ("v", "four", "outside the range, or the length, of the type"),
    "too many bytes": ("b", "AAECAwQ=", "outside the range, or the length, of the type"),
    "below zero": ("n", "-1", "outside the range, or the length, of the type"),
    "no number": ("m", "1.5", "outside the range, or the length, of the type"),
    "no such label": ("e", "3", "outside the range, or the length, of the type"),
    "no such labels": ("s", "4", "outside the range, or the length, of the type"),
    "a number of JSON": ("n", 7, "not the JSON type or Avro branch of the type"),
    "an object": ("v", {}, "not the JSON type or Avro branch of the type"),
}


def checked(chain: Callable[..., Chain], values: list[bytes], **settings: str) -> Verdicts:
    """The verdicts over these messages, with the schemas that they carry."""
    made = chain(protocol="simple", **settings)
    made.add(record(value, offset=offset, topic="t") for offset, value in enumerate(values))
    for stage in (INGEST, DECODE, SCHEMAS):
        stage.run(made.lake, made.feed)
    return check_types(made.lake.change_events.read(made.lake.spark), made.feed, made.lake.schema_rows())


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_the_recorded_encoder_keeps_the_rules(encoding: str, chain: Callable[..., Chain]) -> None:
    streams = [read_lines(RECORDED / f"ticdc/simple-{encoding}" / scenario) for scenario in ("types", "tz", "nopk")]
    found = checked(chain, [bytes_of(line) for stream in streams for line in stream], encoding=encoding)
    assert found.mysql_types.passed, found.mysql_types.violations
    assert found.codes.passed, found.codes.violations
    seen = {o["column"] for o in found.codes.metadata["observations"]}
    # `types` has every type that there is.
    assert {c["name"] for c in read_lines(RECORDED / "ticdc/truth/types.tables")[0]["columns"]} <= seen
    classes = {o["value_class"] for o in found.codes.metadata["observations"] if o["column"] == "c_bigint_u"}
    assert classes == {"null", "0..18446744073709551615"}


def test_each_rule_is_broken_alone(chain: Callable[..., Chain]) -> None:
    rows = [FINE, *[FINE | {name: value} for name, value, _ in BROKEN.values()]]
    values = [TABLE.bootstrap(), *[TABLE.row("INSERT", n + 1, data=row) for n, row in enumerate(rows)]]
    # A row whose schema nobody has brought is not judged: it waits.
    values.append(TABLE.under(9).row("INSERT", 99, data={"what": 1}))
    found = checked(chain, [bytes_of(record(v)) for v in values])
    assert not found.codes.passed
    told = {(v["column"], v["offset"]): v["verdict"] for v in found.codes.violations}
    # The bootstrap has offset 0, the row that is fine 1.
    assert told == {(name, n + 2): verdict for n, (name, _, verdict) in enumerate(BROKEN.values())}
    assert found.mysql_types.passed, "nobody has used the column of an unknown type"


def test_an_unknown_type_is_the_other_checks(chain: Callable[..., Chain]) -> None:
    values = [TABLE.bootstrap(), TABLE.row("INSERT", 1, data=FINE | {"odd": "[1,2]"})]
    found = checked(chain, [bytes_of(record(v)) for v in values])
    assert found.codes.passed
    assert [(v["column"], v["mysql_type"]) for v in found.mysql_types.violations] == [("odd", "vector")]


def test_schemas_learnt_before_count(spark: SparkSession) -> None:
    """A row's schema may have come with an earlier batch: then table_schemas has it."""
    feed = make_feed(RECORDED, protocol="simple")
    row = bytes_of(record(TABLE.row("INSERT", 1, data=FINE | {"w": "7"})))
    raw = spark.createDataFrame([("t", 0, 0, None, 1, b"", row, [], None)], RAW_RECORDS.columns)
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
    known = [dict.fromkeys(TABLE_SCHEMAS.columns.names) | learnt]
    found = check_types(events, feed, known)
    assert [v["column"] for v in found.codes.violations] == ["w"]


@pytest.mark.parametrize(
    ("mysql_type", "limits"),
    [
        ("bigint unsigned", ("0", str(2**64 - 1), None, None)),
        ("mediumint(9)", (str(-(2**23)), str(2**23 - 1), None, None)),
        ("bit(10)", ("0", "1023", None, None)),
        ("bit(64)", (str(-(2**63)), str(2**64 - 1), None, None)),  # two's complement in Avro
        ("enum('a','b')", ("0", "2", None, None)),  # 0: MySQL's empty error value
        ("year", ("0", "2155", None, None)),
        ("char(3)", (None, None, 3, None)),
        ("tinytext", (None, None, 255, None)),
        ("binary(3)", (None, None, None, 3)),
        ("mediumblob", (None, None, None, 2**24 - 1)),
        ("date", (None, None, None, None)),
    ],
)
def test_limits(mysql_type: str, limits: tuple[Any, ...]) -> None:
    found = limits_of({"name": "c", "type": mysql_type, "nullable": True})
    assert (found.low, found.high, found.characters, found.bytes) == limits
