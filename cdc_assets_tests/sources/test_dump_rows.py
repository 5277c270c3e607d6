"""The two ways of reading a dump's lines, compared: Spark's parser reads a plain line as the regular expression does."""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from cdc_assets.initial_load.dumps import DumpFile
from cdc_assets.initial_load.rows import read_plain_rows, read_rows
from cdc_assets.mysql_types.casting import decode, problem
from cdc_assets.mysql_types.types import parse_type
from cdc_assets.stores.storage import LOCAL

TYPES = {"id": "int", "v": "varchar(40)", "b": "varbinary(40)", "w": "text"}
# Pieces of text that may mislead a parser, and the marks for an escaped backslash and an escaped quote.
PIECES = [
    "\\\\", "\\n", "\\0", "\\N", "\\x", "\\", '"', "'", '\\"', "\\'", ",", "(", ")", "a", "é", " ", "1", "NULL", "x'0a'",
    '"a"', "'a'", ',_binary "', "_binary ", '_binary "a"', '"x,_binary "', "0x4a", "\ue000", "\ue001", '""', "''", "#",
    'CONVERT("{}" USING UTF8MB4)', ");", "),", "\t",
]  # fmt: skip
SAFE_PIECES = [p for p in PIECES if p != "\\" and (('"' not in p and "'" not in p) or p in {'\\"', "\\'"})]
# Format -> the head of a file, the brackets around a row, and the ways in which texts and bytes may be written.
FORMATS = {
    "dumpling-csv": ('"id","v","b","w"\n', "{}", ['"{}"', "{}", r"\N"], ['"{}"']),
    "dumpling-sql": ("INSERT INTO `t` (`id`,`v`,`b`,`w`) VALUES\n", "({}),", ["'{}'", "NULL"], ["x'0A5c'", "x'0'z'", "x'"]),
}  # fmt: skip


@pytest.mark.parametrize("dump_format", FORMATS)
def test_a_plain_line_has_the_values_that_the_regular_expression_reads(
    dump_format: str, spark: SparkSession, tmp_path: Path
) -> None:
    head, brackets, texts, data = FORMATS[dump_format]
    chance = random.Random(dump_format)

    def text(shapes: list[str], pieces: list[str]) -> str:
        return chance.choice(shapes).format("".join(chance.choices(pieces, k=chance.randrange(5))))

    lines = [f"1,{text(texts, PIECES)},{text(data, PIECES)},{text(texts, PIECES)}" for _ in range(2_000)]
    lines += [
        f"1,{text(texts, SAFE_PIECES)},{text(data, SAFE_PIECES)},{text(texts, SAFE_PIECES)}" for _ in range(2_000)
    ]
    lines += [text(["{}"], PIECES) for _ in range(500)]
    path = tmp_path / ("t.csv" if "csv" in dump_format else "t.sql")
    path.write_text(head + "".join(f"{brackets.format(line)}\n" for line in lines), encoding="utf-8", newline="")
    files, columns = [DumpFile(str(path), path.stat().st_size)], [(c, parse_type(t)) for c, t in TYPES.items()]
    plain_rows = read_plain_rows(spark, LOCAL, dump_format, files, columns, "UTC")
    assert plain_rows is not None
    parsed, exact = plain_rows.collect(), read_rows(spark, LOCAL, dump_format, files, columns, "UTC").collect()
    assert len(parsed) == len(exact)
    plain = [(f["values"], e) for f, e in zip(parsed, exact, strict=True) if f["plain"]]
    assert len(plain) > 300
    assert [(values, e) for values, e in plain if (values, None) != (e["values"], e["bad"])] == []
    others = read_rows(spark, LOCAL, dump_format, files, columns, "UTC", without_plain=True)
    assert others.count() == len(exact) - len(plain)


def test_a_local_time_that_occurs_twice_is_no_timestamp(spark: SparkSession, tmp_path: Path) -> None:
    """Clocks went back in Berlin on 2024-10-27, from 03:00 to 02:00."""
    path = tmp_path / "t.csv"
    path.write_text('"id","at"\n1,"2024-10-27 01:30:00"\n2,"2024-10-27 02:30:00"\n3,"0000-00-00 00:00:00"\n')
    columns = [("id", parse_type("int")), ("at", parse_type("timestamp"))]
    files = [DumpFile(str(path), path.stat().st_size)]
    rows = read_rows(spark, LOCAL, "dumpling-csv", files, columns, "Europe/Berlin")
    text, stamp = F.col("values.at"), parse_type("timestamp")
    typed = decode(text, stamp, "dump", "UTC", TimestampType())
    read = rows.select("values.id", typed.cast("string"), problem(text, typed, stamp)).collect()
    assert [tuple(row) for row in read] == [
        ("1", "2024-10-26 23:30:00", None),
        ("2", None, "unclear_time"),
        ("3", None, "zero_date"),
    ]
