"""Values of the Open Protocol: Go's quoted bytes, base64 for TEXT and BLOB, numbers, and texts that are not values."""

import random
import unicodedata
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_assets.mysql_types.casting import decode, problem, spark_type
from cdc_assets.mysql_types.types import parse_type
from cdc_assets_tests.protocols.open_encoder import base64_text, go_quote
from cdc_assets_tests.support import frame_of_rows


def typed(spark: SparkSession, mysql_type: str, values: Sequence[str | None]) -> list[object]:
    """The Spark values of texts on the wire, in order."""
    kind = parse_type(mysql_type)
    frame = frame_of_rows(spark, [(n, v) for n, v in enumerate(values)], "n INT, value STRING")
    column = decode(F.col("value"), kind, "open-protocol", "UTC", spark_type(kind))
    rows = frame.select("n", column.alias("typed"), problem(F.col("value"), column, kind).alias("why")).collect()
    out = [
        (bytes(r["typed"]) if isinstance(r["typed"], bytearray) else r["typed"])
        for r in sorted(rows, key=lambda r: r["n"])
    ]
    for r in rows:
        assert (r["why"] is not None) == (r["typed"] is None and values[r["n"]] is not None)
    return out


def test_recorded_values_of_the_encoder(spark: SparkSession) -> None:
    """Characters are UTF-8 and only \\xNN are bytes: the recorded findings' two examples, and the document's."""
    wire = [r"\xe2(\xa1\xc3(é\x85\xa0\xad", r"\xdeћ", r"\x89PNG\r\n\x1a\n"]
    assert typed(spark, "varbinary(20)", [*wire]) == [
        bytes.fromhex("e228a1c328c3a985a0ad"),
        bytes.fromhex("ded19b"),
        b"\x89PNG\r\n\x1a\n",
    ]


def test_every_byte(spark: SparkSession) -> None:
    expected = [bytes([n]) for n in range(256)] + [bytes(range(256)), bytes(range(255, -1, -1)), b"", b"\\", b'"', b"'"]
    for mysql_type in ("binary", "varbinary(300)"):
        assert typed(spark, mysql_type, [go_quote(b) for b in expected]) == expected
    assert typed(spark, "blob", [base64_text(b) for b in expected]) == expected


def test_every_plane_and_kind_of_character(spark: SparkSession) -> None:
    """Printable ones as they are, others as \\u and \\U: one of each category in each plane, and the corners."""
    seen: dict[tuple[str, int], str] = {}
    for code in (*range(0x20000), *range(0x20000, 0x110000, 97), 0x10FFFF):
        if not 0xD800 <= code < 0xE000:
            seen.setdefault((unicodedata.category(chr(code)), code >> 16), chr(code))
    texts = [*seen.values(), "\ufffd", "\ufeff", "\u2028", "\U0010ffff", "\u200b", "\x7f\x80\x9f\xa0\xad"]
    quoted = [go_quote(t.encode()) for t in texts]
    assert any(q.startswith("\\u") for q in quoted)
    assert any(q.startswith("\\U") for q in quoted)
    assert typed(spark, "varbinary(20)", quoted) == [t.encode() for t in texts]
    assert typed(spark, "varchar(20)", texts) == texts
    assert typed(spark, "longtext", [base64_text(t.encode()) for t in texts]) == texts


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of(st.binary(max_size=40), st.text(max_size=20).map(str.encode)), min_size=1, max_size=100))
def test_any_bytes(spark: SparkSession, values: list[bytes]) -> None:
    assert typed(spark, "varbinary(40)", [go_quote(b) for b in values]) == values


def test_long_values(spark: SparkSession) -> None:
    """As long as VARBINARY can be: nothing but escapes, nothing but characters."""
    rng = random.Random(1)
    expected = [rng.randbytes(65535), b"\0" * 65535, b"a" * 65535, b"\\" * 65535]
    assert typed(spark, "varbinary(65535)", [go_quote(b) for b in expected]) == expected


def test_binary_n_is_padded(spark: SparkSession) -> None:
    assert typed(spark, "binary(4)", ["", r"\x01", "ab", None]) == [b"\0" * 4, b"\1\0\0\0", b"ab\0\0", None]


@pytest.mark.parametrize(
    ("mysql_type", "bad"),
    [
        ("varbinary(9)", ["\\", "a\\", r"\q", r"\x", r"\x1", r"\xg0"]),
        ("varbinary(10)", [r"\u12", r"\ud800", r"\udfff", r"\U00110000", r"\Uffffffff"]),
        ("blob", ["=", "a", "****", "YQ=a"]),
        ("text", ["=", "/w==", "7aCA"]),
        ("bigint unsigned", ["-1", "18446744073709551616", "1.0", "x"]),
        ("bit(3)", ["8", "-1"]),
        ("year", ["1900", "2156", "x"]),
        ("geometry", ["AAAA"]),
    ],
)  # fmt: skip
def test_texts_that_are_not_values_are_bad_values(mysql_type: str, bad: list[str | None], spark: SparkSession) -> None:
    assert typed(spark, mysql_type, bad) == [None] * len(bad)


def test_numbers_labels_and_times(spark: SparkSession) -> None:
    assert typed(spark, "bigint unsigned", ["0", "18446744073709551615", None]) == [0, 2**64 - 1, None]
    assert typed(spark, "bit(64)", ["18446744073709551615"]) == [2**64 - 1]
    assert typed(spark, "enum('a','b')", ["1", "2", "0", "3"]) == ["a", "b", "", None]
    assert typed(spark, "set('a','b','c')", ["5", "0"]) == ["a,c", ""]
    assert typed(spark, "year", ["1970", "0"]) == [1970, 0]
    assert typed(spark, "double", ["1.0E-7", "-1.7976931348623157E308", "153.123"]) == [
        1e-7,
        -1.7976931348623157e308,
        153.123,
    ]
    assert typed(spark, "time", ["-838:59:59", "23:59:59.5"]) == ["-838:59:59", "23:59:59.5"]
