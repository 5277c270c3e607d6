"""Generate rows of every type, encode them as the Canal-JSON document prescribes, and compare the history with them.

The encoder is written from the document (sections "MySQL Type", "SQL Type", "integer types", "Binary and Blob") and
shares no code with the decoder.
"""

import datetime as dt
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cdc_assets.stages import TYPES
from cdc_assets_tests.support import Chain, Stream, ddl, tso, watermark

pytestmark = pytest.mark.soak

LABELS = ("red", "it's", "日本,x", "")
FLAGS = ("a", "b", "c d")


@dataclass(frozen=True)
class Generated:
    """One column: its declaration, its mysqlType, its values, and their text in messages and in the history."""

    declared: str
    wire: str
    values: st.SearchStrategy[Any]
    text: Callable[[Any], str] = str
    code: Callable[[Any], int] = lambda _: 0
    held: Callable[[Any], Any] = lambda v: v


def integer(declared: str, low: int, high: int, code: int, above: tuple[int, int] | None = None) -> Generated:
    """Return an integer column. `above`: value -> the code from this value on. NULL has the code of small values."""

    def code_of(value: int | None) -> int:
        return above[1] if above and value is not None and value >= above[0] else code

    edges = [low, high] + ([above[0] - 1, above[0]] if above else [])
    return Generated(declared, declared, st.integers(low, high) | st.sampled_from(edges), str, code_of)


def fixed(code: int) -> Callable[[Any], int]:
    return lambda _: code


def plain(value: float) -> str:
    return format(Decimal(repr(value)), "f")


def time_text(microseconds: int) -> str:
    rest, micro = divmod(abs(microseconds), 1_000_000)
    return f"{'-' if microseconds < 0 else ''}{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}.{micro:06}"


def single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


TIME_LIMIT = (838 * 3600 + 59 * 60 + 59) * 1_000_000
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
datetimes = st.datetimes(dt.datetime(1000, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59))  # noqa: DTZ001
instants = st.datetimes(dt.datetime(1970, 1, 1, 0, 0, 1), dt.datetime(2038, 1, 19))  # noqa: DTZ001

COLUMNS = {
    "t": integer("tinyint", -(2**7), 2**7 - 1, -6),
    "tu": integer("tinyint unsigned", 0, 2**8 - 1, -6, (2**7, 5)),
    "s": integer("smallint", -(2**15), 2**15 - 1, 5),
    "su": integer("smallint unsigned", 0, 2**16 - 1, 5, (2**15, 4)),
    "m": integer("mediumint", -(2**23), 2**23 - 1, 4),
    "mu": integer("mediumint unsigned", 0, 2**24 - 1, 4),
    "i": integer("int", -(2**31), 2**31 - 1, 4),
    "iu": integer("int unsigned", 0, 2**32 - 1, 4, (2**31, -5)),
    "b": integer("bigint", -(2**63), 2**63 - 1, -5),
    "bu": integer("bigint unsigned", 0, 2**64 - 1, -5, (2**63, 3)),
    "bits": Generated("bit(64)", "bit", st.integers(0, 2**64 - 1), str, fixed(-7)),
    "few": Generated("bit(5)", "bit", st.integers(0, 31), str, fixed(-7)),
    "d": Generated(
        "decimal(20,6)",
        "decimal",
        st.decimals(-(10**13), 10**13, allow_nan=False, places=6),
        lambda v: f"{v:.6f}",
        fixed(3),
    ),
    "wide": Generated(
        "decimal(65,30)",
        "decimal",
        st.decimals(-(10**30), 10**30, allow_nan=False, places=30),
        lambda v: f"{v:.30f}",
        fixed(3),
        lambda v: f"{v:.30f}",
    ),
    "f": Generated(
        "float", "float", st.floats(width=32, allow_nan=False, allow_infinity=False), plain, fixed(7), single
    ),
    "x": Generated("double", "double", st.floats(allow_nan=False, allow_infinity=False), plain, fixed(8)),
    "v": Generated("varchar(255)", "varchar", texts, str, fixed(12)),
    "txt": Generated("text", "text", texts, str, fixed(2005)),
    "bin": Generated("varbinary(64)", "varbinary", st.binary(max_size=64), lambda v: v.decode("latin-1"), fixed(2004)),
    "blb": Generated("blob", "blob", st.binary(max_size=300), lambda v: v.decode("latin-1"), fixed(2004)),
    "day": Generated("date", "date", st.dates(dt.date(1000, 1, 1)), str, fixed(91)),
    "dt": Generated("datetime(6)", "datetime", datetimes, lambda v: f"{v:%Y-%m-%d %H:%M:%S.%f}".zfill(26), fixed(93)),
    "ts": Generated(
        "timestamp(6)",
        "timestamp",
        instants,
        lambda v: f"{v:%Y-%m-%d %H:%M:%S.%f}",
        fixed(93),
        lambda v: f"{v:%Y-%m-%d %H:%M:%S.%f}",
    ),
    "tm": Generated("time(6)", "time", st.integers(-TIME_LIMIT, TIME_LIMIT), time_text, fixed(92), time_text),
    "y": Generated("year", "year", st.integers(1901, 2155), str, fixed(12)),
    "e": Generated(
        "enum('red','it''s','日本,x','')", "enum", st.sampled_from(LABELS), lambda v: str(LABELS.index(v) + 1), fixed(4)
    ),
    "st": Generated(
        "set('a','b','c d')",
        "set",
        st.integers(0, 7),
        str,
        fixed(-7),
        lambda v: ",".join(flag for n, flag in enumerate(FLAGS) if v >> n & 1),
    ),
    "j": Generated(
        "json", "json", st.dictionaries(texts, st.integers() | texts, max_size=3).map(json.dumps), str, fixed(12)
    ),
}

rows = st.fixed_dictionaries({name: st.none() | column.values for name, column in COLUMNS.items()})


def encoded(message: dict[str, Any]) -> bytes:
    """Return the message as the document has it: only `<`, `>` and `&` are escaped."""
    text = json.dumps(message, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode()


def insert(key: int, row: dict[str, Any]) -> dict[str, Any]:
    texts = {name: None if value is None else COLUMNS[name].text(value) for name, value in row.items()}
    return {
        "id": 0,
        "database": "gen",
        "table": "every",
        "pkNames": ["id"],
        "isDdl": False,
        "type": "INSERT",
        "es": tso(key + 10) >> 18,
        "ts": tso(key + 11) >> 18,
        "sql": "",
        "sqlType": {"id": 4} | {name: COLUMNS[name].code(value) for name, value in row.items()},
        "mysqlType": {"id": "int"} | {name: COLUMNS[name].wire for name in row},
        "old": None,
        "data": [{"id": str(key)} | texts],
        "_tidb": {"commitTs": tso(key + 10)},
    }


def rows_of_every_kind(count: int) -> list[dict[str, Any]]:
    """Draw the given number of rows.

    They are drawn one by one, because Hypothesis drops an example that takes more choices than it allows.
    """
    drawn = []

    @settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),  # drawing is slow on a busy machine
    )
    @given(row=rows)
    def draw(row: dict[str, Any]) -> None:
        drawn.append(row)

    draw()
    return drawn


def test_what_comes_out_is_what_went_in(spark: SparkSession, tmp_path: Path) -> None:
    generated = rows_of_every_kind(180)
    assert len(generated) == 180
    for name in COLUMNS:
        assert any(row[name] is None for row in generated)
        assert len({str(row[name]) for row in generated}) > 1
    columns = ",".join(f"`{name}` {column.declared}" for name, column in COLUMNS.items())
    stream = Stream()
    records = [
        stream.send(
            ddl(f"CREATE TABLE `every` (`id` INT PRIMARY KEY,{columns})", tso(0), database="gen", table="every")
        )
    ]
    records += [stream.send(encoded(insert(key, row))) for key, row in enumerate(generated)]
    records.append(stream.send(watermark(tso(len(generated) + 100))))
    made = Chain(spark, tmp_path, tidb_extension=True)
    made.add(records)
    made.run()
    assert made.quarantine() == []
    held = {row["id"]: row for row in made.history("every", "gen")}
    assert len(held) == len(generated)
    for key, row in enumerate(generated):
        for name, value in row.items():
            want = None if value is None else COLUMNS[name].held(value)
            got = held[key][name]
            assert (json.loads(got) == json.loads(want)) if name == "j" and want else got == want, (name, want, got)
    report = TYPES.run(made.lake, made.feed)
    assert {o["column"] for o in report.observations} == {"id", *COLUMNS}
    assert report.wrong == []
