"""Block tables at a statement or at a broken type mapping: all others go on, and no event is lost."""

from collections.abc import Callable
from typing import Any

import pytest

from cdc_assets.assets.checks.audit import all_events_placed
from cdc_assets.errors import OperationError
from cdc_assets.lakehouse.decisions import Decision, DecisionVerdict
from cdc_assets.lakehouse.released_changes import HoldReason
from cdc_assets.operations.acknowledge import list_held_statements, record_decision
from cdc_assets.operations.rebuild import rebuild_feed
from cdc_assets.stages import RELEASE
from cdc_assets.stages.release.report import ReleaseReport
from cdc_assets_tests.laws.binlog_encoders import BINLOG
from cdc_assets_tests.laws.conservation import balanced, conserved
from cdc_assets_tests.laws.encoders import TICDC
from cdc_assets_tests.laws.evolution import names_of, problems, released_below
from cdc_assets_tests.laws.mysql_model import (
    ID,
    INT,
    Add,
    Column,
    Model,
    not_null,
    varchar,
)
from cdc_assets_tests.support import Chain, Message, Rows, Stream, ddl, histories, tso

ENCODERS = TICDC | BINLOG
APPLY, IGNORE = Decision(DecisionVerdict.APPLY), Decision(DecisionVerdict.IGNORE)
V = Column("v", varchar(20))


def life() -> Model:
    """Return two tables, of which one is altered and renamed, with rows between the statements."""
    m = Model()
    m.create("t", [ID, V, Column("a", INT)])
    m.create("quiet", [ID, V])
    m.insert("t", id=1, v="one", a=1)
    m.insert("quiet", id=1, v="one")
    m.watermark()
    m.alter("t", Add(not_null("b", INT, "5")))
    m.insert("t", id=2, v="two", a=2)
    m.insert("quiet", id=2, v="two")
    m.rename(("t", "u"))
    m.insert("u", id=3, v="three")
    m.delete("u", 2)
    m.update("quiet", 1, v="one, changed")
    m.watermark()
    return m


def decide_all(chain: Chain, decision: Decision = APPLY) -> int:
    """Decide about each waiting statement and run, until none waits; return the number of statements."""
    count = 0
    while waiting := list_held_statements(chain.lake):
        for statement in waiting:
            record_decision(chain.lake, statement.id, decision)
            count += 1
        chain.run()
    return count


@pytest.mark.parametrize(
    "protocol", ["canal-json", "debezium", *(pytest.param(p, marks=pytest.mark.soak) for p in ("simple", "canal"))]
)
def test_stopped_and_applied_is_as_evolved(protocol: str, chain: Callable[..., Chain]) -> None:
    model, encoder = life(), ENCODERS[protocol]()
    records = encoder.encode(model.log)
    evolved, stopped = chain(**encoder.settings), chain(**encoder.settings, schema_changes="stop")
    evolved.add(records)
    evolved.run()
    stopped.add(records[: len(records) // 2])
    stopped.run()
    stopped.add(records[len(records) // 2 :])
    stopped.run()
    assert {h.table for h in stopped.lake.released_changes.cursor().holds} <= {"t", "u"}
    below = released_below(model, gated=encoder.gated)
    quiet = [name for name in names_of(model) if name[1] == "quiet"]
    assert quiet
    assert problems(model, stopped, quiet, below) == [], "the table next to it went on"
    assert decide_all(stopped) >= 2
    assert problems(model, stopped, names_of(model), below) == []
    if encoder.gated:
        assert histories(stopped.lake) == histories(evolved.lake)


def waiting_stream() -> Stream:
    """Return a stream of two tables; a word that no manual has adds a column to the first."""
    stream, orders, others = Stream(), Rows(), Rows(table="others")
    stream.send(orders.insert(tso(1), 1, "one"))
    stream.send(others.insert(tso(1), 1, "one"))
    stream.send(ddl("ALTER TABLE `orders` ADD COLUMN `w` INT FANCY", tso(2), ddl_type="ALTER"))
    stream.send(orders.update(tso(3), 1, "two", "one"))
    stream.send(others.update(tso(3), 1, "two", "one"))
    stream.watermark(tso(4))
    return stream


def values(chain: Chain, table: str) -> list[tuple[object, ...]]:
    return [(r["id"], r["v"], r["_cdc_from_ts"], r["_cdc_to_ts"]) for r in chain.versions(table)]


def test_a_statement_that_is_not_understood_blocks_only_its_table(chain: Callable[..., Chain]) -> None:
    it, stream = chain(), waiting_stream()
    it.add(stream.records)
    report = it.run().release
    balanced(report)
    conserved(it.lake, it.feed)
    (hold,) = report.holds
    assert (hold.table, hold.since, hold.reason, hold.events) == ("orders", tso(2), HoldReason.DDL, 1)
    assert (report.released, report.pending) == (3, 1)
    assert values(it, "orders") == [(1, "one", tso(1), None)]
    assert values(it, "others") == [(1, "one", tso(1), tso(3)), (1, "two", tso(3), None)]
    assert not RELEASE.due(it.lake, it.feed), "what waits costs nothing"

    (statement,) = list_held_statements(it.lake)
    assert statement.tables == [("shop", "orders")]
    with pytest.raises(OperationError, match=r"cannot be read: .*\. Ignore it, or give one"):
        record_decision(it.lake, statement.id, APPLY)
    with pytest.raises(OperationError, match=rf"No statement 0 waits in feed f\. These wait: {statement.id}\."):
        record_decision(it.lake, "0", IGNORE)
    record_decision(it.lake, statement.id, IGNORE)
    with pytest.raises(OperationError, match="was decided before"):
        record_decision(it.lake, statement.id, IGNORE)
    report = it.run().release
    conserved(it.lake, it.feed)
    assert (report.holds, report.released, report.pending) == ([], 1, 0)
    assert values(it, "orders") == [(1, "one", tso(1), tso(3)), (1, "two", tso(3), None)]

    made = histories(it.lake)
    list(rebuild_feed(it.lake, it.feed))
    assert histories(it.lake) == made, "decisions are kept"


def test_read_as_another_statement(chain: Callable[..., Chain]) -> None:
    it, stream = chain(), waiting_stream()
    it.add(stream.records)
    it.run()
    (statement,) = list_held_statements(it.lake)
    record_decision(it.lake, statement.id, Decision(DecisionVerdict.AS, "TRUNCATE TABLE `orders`"))
    it.run()
    rows = it.versions()
    assert [(r["_cdc_from_ts"], r["_cdc_to_ts"], r["_cdc_closed_by"]) for r in rows] == [
        (tso(1), tso(2), "truncate"),
        (tso(3), None, None),
    ]


def test_other_settings_let_a_table_go_on(chain: Callable[..., Chain]) -> None:
    """An index and a new table block nothing."""
    it, stream, orders = chain(schema_changes={"shop.orders": "stop"}), Stream(), Rows()
    stream.send(ddl("CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(20))", tso(1)))
    stream.send(orders.insert(tso(2), 1, "one"))
    stream.send(ddl("CREATE INDEX `i` ON `orders` (`v`)", tso(3), ddl_type="CINDEX"))
    stream.send(ddl("ALTER TABLE `others` ADD COLUMN `w` INT", tso(3), table="others", ddl_type="ALTER"))
    stream.send(orders.update(tso(4), 1, "two", "one"))
    stream.send(ddl("TRUNCATE TABLE `orders`", tso(5), ddl_type="TRUNCATE"))
    stream.watermark(tso(6))
    it.add(stream.records)
    assert [(h.table, h.since) for h in it.run().release.holds] == [("orders", tso(5))]
    assert values(it, "orders") == [(1, "one", tso(2), tso(4)), (1, "two", tso(4), None)]

    evolving = Chain(it.lake.spark, it.folder, schema_changes="evolve")
    assert evolving.run().release.holds == []
    assert values(it, "orders") == [(1, "one", tso(2), tso(4)), (1, "two", tso(4), tso(5))]


def test_a_held_rename_holds_the_table_that_it_leads_to(chain: Callable[..., Chain]) -> None:
    it, stream, orders, archive = chain(), Stream(), Rows(), Rows(table="archive")
    stream.send(orders.insert(tso(1), 1, "one"))
    stream.send(ddl("ALTER TABLE `orders` ADD COLUMN `w` INT FANCY", tso(2), ddl_type="ALTER"))
    stream.send(ddl("RENAME TABLE `orders` TO `archive`", tso(3), ddl_type="RENAME"))
    stream.send(archive.update(tso(4), 1, "two", "one"))
    stream.watermark(tso(5))
    it.add(stream.records)
    holds = {h.table: (h.since, h.reason, h.events, h.first["why"].partition(":")[0]) for h in it.run().release.holds}
    assert holds == {
        "orders": (tso(2), HoldReason.DDL, 0, "the statement could not be read, and may change the table"),
        "archive": (tso(3), HoldReason.LINKED, 1, "the statement also names the blocked table shop.orders"),
    }
    (statement,) = list_held_statements(it.lake)
    record_decision(it.lake, statement.id, IGNORE)
    assert it.run().release.holds == []
    assert values(it, "orders") == [(1, "one", tso(1), tso(3))]
    assert values(it, "archive") == [(1, "one", tso(3), tso(4)), (1, "two", tso(4), None)]


def test_a_rename_in_the_batch_of_a_held_statement_waits_with_both_tables(chain: Callable[..., Chain]) -> None:
    """Without watermarks a hold begins with its batch, so also with the statements before it in this batch."""
    it, stream, orders, archive = chain(tidb_extension=False), Stream(), Rows(), Rows(table="archive")
    stream.send(orders.insert(tso(1), 1, "one"))
    it.add(stream.records)
    it.run()
    stream.send(ddl("RENAME TABLE `orders` TO `archive`", tso(2), ddl_type="RENAME"))
    stream.send(ddl("CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(20))", tso(3), ddl_type="CREATE"))
    stream.send(archive.update(tso(4), 1, "two", "one"))
    stream.send(ddl("ALTER TABLE `orders` ADD COLUMN `w` INT FANCY", tso(5), ddl_type="ALTER"))
    it.add(stream.records[1:])
    holds = {h.table: (h.reason, h.events, h.first["why"].partition(":")[0]) for h in it.run().release.holds}
    assert holds == {
        "orders": (HoldReason.DDL, 0, "the statement could not be read, and may change the table"),
        "archive": (HoldReason.LINKED, 1, "the statement also names the blocked table shop.orders"),
    }
    (statement,) = list_held_statements(it.lake)
    record_decision(it.lake, statement.id, IGNORE)
    assert it.run().release.holds == []
    assert values(it, "orders") == [(1, "one", tso(1), tso(2))]
    assert values(it, "archive") == [(1, "one", tso(2), tso(4)), (1, "two", tso(4), None)]


CURES = [{"columns": {"shop.orders.v": "varchar(20)"}}, {"type_mapping": {"shop.o*": "warn"}}]


@pytest.mark.parametrize(("gated", "cure"), [(True, CURES[0]), (False, CURES[1])], ids=["watermarks", "none"])
def test_a_broken_type_mapping_blocks_only_its_table(
    gated: bool, cure: dict[str, Any], chain: Callable[..., Chain]
) -> None:
    it, stream, orders, others = chain(tidb_extension=gated), Stream(), Rows(), Rows(table="others")

    def run(*messages: Message, mark: int) -> ReleaseReport:
        sent = len(stream.records)
        for message in messages:
            stream.send(message)
        if gated:
            stream.watermark(tso(mark))
        it.add(stream.records[sent:])
        report = it.run().release
        balanced(report)
        return report

    run(orders.insert(tso(1), 1, "one"), others.insert(tso(1), 1, "one"), mark=5)
    # No document has this code for VARCHAR.
    wrong = orders.update(tso(6), 1, "two", "one") | {"sqlType": {"id": -5, "v": 3}}
    report = run(wrong, orders.update(tso(7), 1, "three", "two"), others.update(tso(7), 1, "two", "one"), mark=10)
    assert [(h.table, h.reason, h.events, h.first["column"]) for h in report.holds] == [
        ("orders", HoldReason.TYPE, 2, "v")
    ]
    assert (report.released, report.pending) == (1, 2)
    assert values(it, "orders") == [(1, "one", tso(1), None)]
    assert values(it, "others") == [(1, "one", tso(1), tso(7)), (1, "two", tso(7), None)]
    assert not RELEASE.due(it.lake, it.feed), "what waits costs nothing"
    report = run(orders.update(tso(11), 1, "four", "three"), mark=15)
    assert ([h.events for h in report.holds], report.released, report.pending) == ([3], 0, 3)

    if gated:
        list(rebuild_feed(it.lake, it.feed))
        assert it.run().release.holds == report.holds, "a rebuild stops at the same place"

    cured = Chain(it.lake.spark, it.folder, tidb_extension=gated, **cure)
    report = cured.run().release
    assert (report.holds, report.released, report.pending) == ([], 3, 0)
    assert values(it, "orders") == [
        (1, "one", tso(1), tso(6)),
        (1, "two", tso(6), tso(7)),
        (1, "three", tso(7), tso(11)),
        (1, "four", tso(11), None),
    ]
    assert all_events_placed(it.lake, it.feed).passed
