"""The two ways of reading a dump's lines, held against each other: what is read quickly is what the pattern reads."""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_assets.initial_load.dumps import DumpFile
from cdc_assets.initial_load.rows import read_plain_rows, read_rows
from cdc_assets.mysql_types.types import parse_type
from cdc_assets.stores.storage import LOCAL

TYPES = {"id": "int", "v": "varchar(40)", "b": "varbinary(40)", "w": "text"}
# What may mislead a parser, and what stands for an escaped backslash or quote that is put aside.
PIECES = [
    "\\\\", "\\n", "\\0", "\\N", "\\x", "\\", '"', "'", '\\"', "\\'", ",", "(", ")", "a", "é", " ", "1", "NULL", "x'0a'",
    '"a"', "'a'", ',_binary "', "_binary ", '_binary "a"', '"x,_binary "', "0x4a", "\ue000", "\ue001", '""', "''", "#",
    'CONVERT("{}" USING UTF8MB4)', ");", "),", "\t",
]  # fmt: skip
WITHIN = [p for p in PIECES if p != "\\" and (('"' not in p and "'" not in p) or p in {'\\"', "\\'"})]
# Of each form: the head of a file, what stands around a row, and texts and bytes as they may be written.
FORMS = {
    "dumpling-csv": ('"id","v","b","w"\n', "{}", ['"{}"', "{}", r"\N"], ['"{}"']),
    "dumpling-sql": ("INSERT INTO `t` (`id`,`v`,`b`,`w`) VALUES\n", "({}),", ["'{}'", "NULL"], ["x'0A5c'", "x'0'z'", "x'"]),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_what_is_read_quickly_is_what_the_pattern_reads(form: str, spark: SparkSession, tmp_path: Path) -> None:
    head, around, texts, data = FORMS[form]
    chance = random.Random(form)

    def text(shapes: list[str], pieces: list[str]) -> str:
        return chance.choice(shapes).format("".join(chance.choices(pieces, k=chance.randrange(5))))

    lines = [f"1,{text(texts, PIECES)},{text(data, PIECES)},{text(texts, PIECES)}" for _ in range(2_000)]
    lines += [f"1,{text(texts, WITHIN)},{text(data, WITHIN)},{text(texts, WITHIN)}" for _ in range(2_000)]
    lines += [text(["{}"], PIECES) for _ in range(500)]
    path = tmp_path / ("t.csv" if "csv" in form else "t.sql")
    path.write_text(head + "".join(f"{around.format(line)}\n" for line in lines), encoding="utf-8", newline="")
    files, columns = [DumpFile(str(path), path.stat().st_size)], [(c, parse_type(t)) for c, t in TYPES.items()]
    quick = read_plain_rows(spark, LOCAL, form, files, columns, "UTC")
    assert quick is not None
    found, exact = quick.collect(), read_rows(spark, LOCAL, form, files, columns, "UTC").collect()
    assert len(found) == len(exact)
    plain = [(f["values"], e) for f, e in zip(found, exact, strict=True) if f["plain"]]
    assert len(plain) > 300
    assert [(values, e) for values, e in plain if (values, None) != (e["values"], e["bad"])] == []
    others = read_rows(spark, LOCAL, form, files, columns, "UTC", without_plain=True)
    assert others.count() == len(exact) - len(plain)
