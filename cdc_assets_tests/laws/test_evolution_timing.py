"""Check when DDL takes effect: in any cut, sent twice, at the watermark itself, within one second of the source."""

import pytest
from pyspark.sql import SparkSession

from cdc_assets_tests.laws.binlog_encoders import BINLOG, SERVER
from cdc_assets_tests.laws.encoders import TICDC, Encoder
from cdc_assets_tests.laws.evolution import history_of, names_of, problems, released_below, wrong_seconds
from cdc_assets_tests.laws.mysql_model import (
    BIGINT,
    ID,
    INT,
    Add,
    Column,
    Drop,
    Model,
    Modify,
    Rename,
    Statement,
    not_null,
    varchar,
)
from cdc_assets_tests.support import Chain, delta_versions, histories

ENCODERS = TICDC | BINLOG
V = Column("v", varchar(20))


def short_life() -> Model:
    """Return a table with a few statements and rows between them, and the table that it becomes."""
    m = Model()
    m.create("t", [ID, V, Column("a", INT)])
    m.insert("t", id=1, v="one", a=1)
    m.insert("t", id=2, v="two", a=2)
    m.alter("t", Add(not_null("b", INT, "5")))
    m.update("t", 1, v="one, changed")
    m.watermark()
    m.alter("t", Modify(Column("a", varchar(9))))
    m.alter("t", Rename("a", "c"))
    m.update("t", 2, c="text")
    m.rename(("t", "u"))
    m.update("u", 1, v="one, again")
    m.watermark()
    m.truncate("u")
    m.insert("u", id=1, v="afresh", c="c")
    m.watermark()
    return m


def wrong(model: Model, chain: Chain, encoder: Encoder) -> list[str]:
    return problems(model, chain, names_of(model), released_below(model, gated=encoder.gated))


@pytest.mark.parametrize("protocol", [pytest.param("canal-json", marks=pytest.mark.soak), "canal"])
@pytest.mark.extended
def test_one_record_a_run(protocol: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every statement arrives in a run of its own, and one partition before the other."""
    model, encoder = short_life(), ENCODERS[protocol]()
    records = encoder.encode(model.log)
    undivided, single = (Chain(spark, tmp_path_factory.mktemp(n), **encoder.settings) for n in ("whole", "single"))
    undivided.add(records)
    undivided.run()
    assert wrong(model, undivided, encoder) == []
    for record in records:
        single.add([record])
        single.run()
    assert wrong(model, single, encoder) == []
    assert histories(single.lake) == histories(undivided.lake)


# Without watermarks a record that is sent again counts as the newer one.
@pytest.mark.parametrize("protocol", [name for name, encoder in ENCODERS.items() if encoder.gated])
def test_statements_that_are_sent_twice(
    protocol: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A changefeed starts again from the beginning; nothing changes."""
    model, encoder = short_life(), ENCODERS[protocol]()
    chain = Chain(spark, tmp_path_factory.mktemp(protocol), **encoder.settings)
    chain.add(encoder.encode(model.log))
    chain.run()
    before = delta_versions(chain.lake)
    assert wrong(model, chain, encoder) == []
    chain.add(encoder.encode(model.log))
    chain.run()
    assert wrong(model, chain, encoder) == []
    after = delta_versions(chain.lake)
    assert {n: v for n, v in after.items() if n.startswith("history/")} == {
        n: v for n, v in before.items() if n.startswith("history/")
    }


@pytest.mark.parametrize(
    "protocol", [pytest.param(p, marks=() if p == "canal-json" else pytest.mark.soak) for p in TICDC]
)
def test_a_statement_at_the_watermark_waits(
    protocol: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Only events strictly below a watermark are released: the statement and all later events wait."""
    model, encoder = Model(), ENCODERS[protocol]()
    chain = Chain(spark, tmp_path_factory.mktemp(protocol), **encoder.settings)
    for table in ("a", "b", "c"):
        model.create(table, [ID, V, Column("n", INT)])
        model.insert(table, id=1, v="one", n=1)
    with model.transaction() as at:
        model.insert("a", id=2, v="with the statement", n=2)
    model.watermark(at)
    chain.add(encoder.encode(model.log))
    chain.run()
    assert wrong(model, chain, encoder) == []
    for table, statement in (("a", Drop("n")), ("b", Add(not_null("d", INT, "7"))), ("c", Modify(Column("n", BIGINT)))):
        done = len(model.log)
        at = model.alter(table, statement)
        model.insert(table, id=3, v="after it")
        model.watermark(at)
        chain.add(encoder.encode(model.log[done:]))
        chain.run()
        assert wrong(model, chain, encoder) == []
    done = len(model.log)
    at = model.truncate("a")
    model.watermark(at)
    model.watermark(at + 1)
    chain.add(encoder.encode(model.log[done:-1]))
    chain.run()
    assert problems(model, chain, names_of(model), at) == []
    chain.add(encoder.encode(model.log[-1:]))
    chain.run()
    assert wrong(model, chain, encoder) == []


@pytest.mark.parametrize("protocol", BINLOG)
def test_rows_and_statements_of_one_second(
    protocol: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The clock does not order them; the binlog position does."""
    model, encoder = Model(tick=300), ENCODERS[protocol]()
    for table in ("a", "b"):
        model.create(table, [ID, V, Column("n", INT)])
        model.insert(table, id=1, v="one", n=1)
        model.insert(table, id=2, v="two", n=2)
        model.alter(table, Add(not_null("d", INT, "7")))
        model.update(table, 1, d=8)
        model.alter(table, Modify(Column("n", varchar(9))))
        model.update(table, 2, n="text")
        model.alter(table, Drop("d"))
        model.insert(table, id=3, v="three")
        model.alter(table, Add(Column("d", varchar(9), default="new")))
        model.delete(table, 2)
        model.truncate(table)
        model.insert(table, id=1, v="afresh")
        model.rename((table, f"{table}{table}"))
        model.update(f"{table}{table}", 1, v="there")
    assert any(isinstance(e, Statement) for e in model.log)
    chain = Chain(spark, tmp_path_factory.mktemp(protocol), **encoder.settings)
    chain.add(encoder.encode(model.log))
    chain.run()
    for name in sorted(names_of(model)):
        assert wrong_seconds(model, name, history_of(chain, name)) == []


def test_statements_that_come_after_later_rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Statements in a topic of their own may arrive late: they still take effect at their own position."""
    model, encoder = short_life(), ENCODERS["debezium"]()
    records = encoder.encode(model.log)
    chain = Chain(spark, tmp_path_factory.mktemp("late"), **encoder.settings)
    for late in (False, True):
        chain.add(r for r in records if (r["topic"] == SERVER) == late)
        chain.run()
    assert wrong(model, chain, encoder) == []


def test_rows_that_come_after_the_rename_of_their_table(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The old table's topic may arrive last: its rows still move to the new table."""
    model, encoder = Model(), ENCODERS["debezium"]()
    model.create("t", [ID, V])
    for key in (1, 2, 4):
        model.insert("t", id=key, v=f"row {key}")
    model.rename(("t", "u"))
    model.update("u", 1, v="changed")
    model.delete("u", 2)
    records = encoder.encode(model.log)
    chain = Chain(spark, tmp_path_factory.mktemp("late_rows"), **encoder.settings)
    for late in (False, True):
        chain.add(r for r in records if (r["topic"] == f"{SERVER}.shop.t") == late)
        chain.run()
    assert wrong(model, chain, encoder) == []
