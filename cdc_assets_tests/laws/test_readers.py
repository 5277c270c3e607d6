"""Read history tables with Polars and deltalake after each kind of DDL: they give the rows that Spark gives.

If a statement turns on a feature that one of them cannot read, exactly this feature is on, and no other.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from cdc_assets.history import table_plan
from cdc_assets.history.table_report import TableReport
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets_tests.laws.encoders import TICDC
from cdc_assets_tests.laws.mysql_model import (
    BIGINT,
    DATE,
    DATETIME,
    ID,
    INT,
    Add,
    Change,
    Column,
    Default,
    Drop,
    Model,
    Modify,
    Rekey,
    Rename,
    Verbatim,
    decimal,
    enum,
    not_null,
    varchar,
)
from cdc_assets_tests.support import Chain, comparable, rows_of

PLAIN, MAPPED, WIDENED = "plain", "mapped", "widened"  # the terms of docs/schema-evolution.md
V, A, W = Column("v", varchar(80)), Column("a", INT), Column("w", varchar(10), default="it's new")


@dataclass(frozen=True)
class Kind:
    """A kind of statement, and how the table can be read after it."""

    name: str
    readers: str
    run: Callable[[Model, str], object]

    def __str__(self) -> str:
        return self.name


def dropped_and_added(m: Model, t: str) -> None:
    m.alter(t, Drop("a"))
    m.alter(t, Add(A))


def dropped_and_created(m: Model, t: str) -> None:
    m.drop(t)
    m.create(t, [ID, V, Column("a", BIGINT)])


def moved_away_and_back(m: Model, t: str) -> None:
    m.rename((t, f"{t}_old"))
    m.rename((f"{t}_old", t))


KINDS = [
    Kind("add_column", PLAIN, lambda m, t: m.alter(t, Add(Column("b", INT)))),
    Kind("add_with_default", PLAIN, lambda m, t: m.alter(t, Add(not_null("b", decimal(10, 2), "9.99")), Add(W))),
    Kind("add_the_first_datetime", PLAIN, lambda m, t: m.alter(t, Add(Column("b", DATETIME, default="2024-02-29")))),
    Kind("drop_column", PLAIN, lambda m, t: m.alter(t, Drop("a"))),
    Kind("drop_and_add", MAPPED, dropped_and_added),
    Kind("rename_column", MAPPED, lambda m, t: m.alter(t, Rename("a", "b"))),
    Kind("change_name_and_type", f"{MAPPED}, {WIDENED}", lambda m, t: m.alter(t, Change("a", Column("b", BIGINT)))),
    Kind("letter_case", PLAIN, lambda m, t: m.alter(t, Rename("a", "A"))),
    Kind("wider", WIDENED, lambda m, t: m.alter(t, Modify(Column("a", BIGINT)))),
    Kind("longer_text", PLAIN, lambda m, t: m.alter(t, Modify(Column("v", varchar(200))))),
    Kind("more_labels", PLAIN, lambda m, t: m.alter(t, Modify(Column("e", enum("y", "x", "z"))))),
    Kind("other_type", MAPPED, lambda m, t: m.alter(t, Modify(Column("a", varchar(20))))),
    Kind("date_to_datetime", MAPPED, lambda m, t: m.alter(t, Modify(Column("d", DATETIME)))),
    Kind("alter_default", PLAIN, lambda m, t: m.alter(t, Default("a", "7"))),
    Kind("options", PLAIN, lambda m, t: m.alter(t, Verbatim("COMMENT = 'x'"))),
    Kind("other_key", PLAIN, lambda m, t: m.alter(t, Rekey(("a",)))),
    Kind("rename_table", PLAIN, moved_away_and_back),
    Kind("truncate", PLAIN, lambda m, t: m.truncate(t)),
    Kind("drop_table", PLAIN, lambda m, t: m.drop(t)),
    Kind("drop_and_create", WIDENED, dropped_and_created),
    Kind("drop_partition", PLAIN, lambda m, t: m.alter(t, Verbatim("DROP PARTITION p0"))),
]


@pytest.fixture(scope="module")
def lived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lakehouse, list[TableReport]]:
    """The lakehouse after two runs: a table for each kind with rows, then the statement and a row after it."""
    model, encoder = Model(), TICDC["canal-json"]()
    for kind in KINDS:
        model.create(kind.name, [ID, V, not_null("a", INT), Column("d", DATE), Column("e", enum("x", "y"))])
        model.insert(kind.name, id=1, v="one", a=1, d="2024-02-29", e="x")
        model.insert(kind.name, id=2, v="two", a=2)
        model.update(kind.name, 1, v="one, changed")
    model.watermark()
    before = len(model.log)
    for kind in KINDS:
        kind.run(model, kind.name)
        name = model.name(kind.name)
        if name in model.tables:
            columns = model.tables[name].shape(name).columns
            given = {c.name: 3 for c in columns if c.name.lower() == "a" or not (c.nullable or c.name == "id")}
            model.insert(kind.name, id=3, v="three", **given)
    model.watermark()
    chain = Chain(spark, tmp_path_factory.mktemp("readers"), **encoder.settings)
    records = encoder.encode(model.log)
    split = len(encoder.__class__().encode(model.log[:before]))
    chain.add(records[:split])
    chain.run()
    chain.add(records[split:])
    return chain.lake, chain.run().history


@pytest.fixture
def lake(lived: tuple[Lakehouse, list[TableReport]]) -> Lakehouse:
    return lived[0]


def features(lake: Lakehouse, table: str) -> str:
    log = lake.history("shop", table).log()
    assert log is not None
    mapped = log.properties.get("delta.columnMapping.mode", "none") != "none"
    widened = log.properties.get("delta.enableTypeWidening", "false") == "true"
    return ", ".join([MAPPED] * mapped + [WIDENED] * widened) or PLAIN


def by_deltalake(path: str) -> list[dict[str, Any]]:
    """Return the rows that deltalake's SQL reads, which supports deletion vectors."""
    table_rows = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t")
    return comparable(pa.table(table_rows.read_all()).to_pylist())


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.soak
def test_read_after_a_statement(kind: Kind, lake: Lakehouse) -> None:
    assert features(lake, kind.name) == kind.readers
    table = lake.history("shop", kind.name)
    rows = rows_of(table.read(lake.spark))
    assert rows
    if kind.readers == PLAIN:
        assert comparable(pl.read_delta(table.path).to_dicts()) == rows
    else:
        with pytest.raises((DeltaError, pl.exceptions.PolarsError, OSError, NotImplementedError, ValueError)):
            pl.read_delta(table.path)
    if WIDENED not in kind.readers:
        assert by_deltalake(table.path) == rows
    else:
        with pytest.raises(DeltaError, match=re.compile("typeWidening|type widening|unsupported", re.IGNORECASE)):
            by_deltalake(table.path)


def test_read_after_a_merge(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a large table, rows are marked as deleted in its files."""
    for limit in ("REWRITTEN", "REWRITTEN_A_CHANGE"):
        monkeypatch.setattr(table_plan, limit, -1)  # any table is large
    model, encoder = Model(), TICDC["canal-json"]()
    model.create("t", [ID, V])
    for key in (1, 2, 3):
        model.insert("t", id=key, v=str(key))
    model.watermark()
    split = len(TICDC["canal-json"]().encode(model.log))
    model.update("t", 1, v="one, changed")
    model.delete("t", 2)
    model.insert("t", id=4, v="4")
    model.watermark()
    chain = Chain(spark, tmp_path, **encoder.settings)
    records = encoder.encode(model.log)
    for part in (records[:split], records[split:]):
        chain.add(part)
        (report,) = chain.run().history
    assert (report.opened, report.closed) == (2, 2)
    table = chain.lake.history("shop", "t")
    rows, log = rows_of(table.read(spark)), table.log()
    assert log is not None
    assert (log.may_have_deletion_vectors, log.has_plain_files, len(rows)) == (True, False, 5)
    assert by_deltalake(table.path) == rows
    assert comparable(pl.read_delta(table.path).to_dicts()) == rows


# Each table has two open rows when the statement comes.
STATEMENT_RESULTS = {
    "add_column": ("no row is touched", 0),
    "add_with_default": ("b: 9.99 in open rows; w: it's new in open rows", 2),
    "drop_column": ("a: NULL from then on", 0),
    "rename_column": ("no row is touched", 0),
    "other_type": ("a: in open rows what MySQL makes of a__until_N; a__until_N: NULL from then on", 2),
    "other_key": ("all rows end (ddl); rows go on under the key a", 4),
    "truncate": ("all rows end (truncate)", 2),
    "drop_table": ("all rows end (drop)", 2),
    "drop_partition": ("DROP PARTITION: it adds or removes rows, and no row event says so", 0),
}


def test_the_report_says_what_each_statement_did(lived: tuple[Lakehouse, list[TableReport]]) -> None:
    results = {r.table: [(re.sub(r"_\d+", "_N", s["done"]), s["versions"]) for s in r.statements] for r in lived[1]}
    assert {name: results[name] for name in STATEMENT_RESULTS} == {
        name: [result] for name, result in STATEMENT_RESULTS.items()
    }
