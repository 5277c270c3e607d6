"""Write history tables over several runs: merging, new columns, wider types, several tables."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from cdc_assets.history import table_plan
from cdc_assets.stages import HISTORY
from cdc_assets.stages.history.verify import verify_written_versions
from cdc_assets_tests.laws.conservation import conserved
from cdc_assets_tests.support import Chain, Message, Rows, Stream, ddl, dml, tso


def feed_runs(it: Chain, *runs: list[Message]) -> list[Any]:
    """Run once for each list of messages, all of which the run's watermark releases; return the reports."""
    stream = Stream()
    reports = []
    for messages in runs:
        start = len(stream.records)
        for message in messages:
            stream.send(message)
        stream.watermark(max(m["_tidb"]["commitTs"] for m in messages) + 1)
        it.add(stream.records[start:])
        reports.append(it.run())
    return reports


def intervals(it: Chain) -> list[tuple[Any, ...]]:
    return [
        (v["id"], v["v"], v["_cdc_from_ts"], v["_cdc_to_ts"], v["_cdc_op"], v["_cdc_closed_by"], v["_cdc_is_current"])
        for v in it.versions()
    ]


def test_a_life_over_several_runs(chain: Callable[..., Chain]) -> None:
    it, rows = chain(), Rows()
    reports = feed_runs(
        it,
        [rows.insert(tso(1), 1, "a"), rows.insert(tso(1), 2, "x"), rows.insert(tso(1), 3, "y")],
        [rows.update(tso(2), 1, "b", "a"), rows.update(tso(2), 2, "x", "x"), rows.delete(tso(2), 9, "never there")],
        [rows.delete(tso(3), 1, "b"), rows.update(tso(4), 4, "new", "not there"), rows.delete(tso(5), 2, "x")],
        [rows.insert(tso(6), 1, "c"), rows.insert(tso(6), 5, "z"), rows.delete(tso(7), 5, "z")],
    )
    assert intervals(it) == [
        (1, "a", tso(1), tso(2), "insert", "update", False),
        (2, "x", tso(1), tso(5), "insert", "delete", False),
        (3, "y", tso(1), None, "insert", None, True),
        (1, "b", tso(2), tso(3), "update", "delete", False),
        (4, "new", tso(4), None, "update", None, True),
        (1, "c", tso(6), None, "insert", None, True),
        (5, "z", tso(6), tso(7), "insert", "delete", False),
    ]
    tables = [report.history[0] for report in reports]
    assert [t.created for t in tables] == [True, False, False, False]
    assert [t.opened for t in tables] == [3, 1, 1, 2]
    assert [t.closed for t in tables] == [0, 1, 2, 0]
    assert [t.versions for t in tables] == [3, 4, 5, 7]
    assert [t.current for t in tables] == [3, 3, 2, 3]
    assert not HISTORY.due(it.lake, it.feed)
    conserved(it.lake, it.feed)


def test_rows_that_arrive_by_a_rename(chain: Callable[..., Chain]) -> None:
    it, rows, stream = chain(), Rows(), Stream()
    for n in range(1, 5):
        stream.send(rows.insert(tso(n), n, "v"))
    stream.watermark(tso(5))
    it.add(stream.records)
    it.run()
    first = len(stream.records)
    stream.send(ddl("RENAME TABLE `shop`.`orders` TO `shop`.`other`", tso(6)))
    stream.watermark(tso(7))
    it.add(stream.records[first:])
    it.run()
    assert [(v["id"], v["_cdc_from_ts"], v["_cdc_op"]) for v in it.versions("other")] == [
        (n, tso(6), "ddl") for n in range(1, 5)
    ]
    assert [v["_cdc_closed_by"] for v in it.versions()] == ["rename"] * 4


def test_columns_that_appear_and_types_that_widen(chain: Callable[..., Chain]) -> None:
    """Without DDL in the feed, the history follows the events; a column never becomes narrower."""
    it = chain()

    def row(at: int, op: str, types: dict[str, str], **values: str | None) -> Message:
        return dml(op, tso(at), values, types, old=values if op == "UPDATE" else None)

    narrow = {"id": "int", "n": "tinyint", "f": "float", "a": "decimal(5,2)"}
    wide = {"id": "bigint", "n": "smallint unsigned", "f": "double", "a": "decimal(12,4)", "new": "varchar(9)"}
    feed_runs(
        it,
        [
            row(1, "INSERT", narrow, id="1", n="-128", f="0.5", a="999.99"),
            row(1, "INSERT", narrow, id="2", n="1", f="2", a="1.10"),
        ],
        [row(2, "INSERT", wide, id="3000000000", n="65535", f="0.1", a="12345678.1234", new="there")],
        [
            row(3, "UPDATE", narrow, id="1", n="127", f="0.25", a="-1.50"),
            row(3, "DELETE", wide, id="2", n="1", f="2", a="1.1", new=None),
        ],
    )
    schema = it.lake.history("shop", "orders").read(it.lake.spark).schema
    types = {f.name: f.dataType.simpleString() for f in schema if not f.name.startswith("_cdc_")}
    assert types == {"id": "bigint", "n": "int", "f": "double", "a": "decimal(12,4)", "new": "string"}
    assert [(v["id"], v["n"], v["f"], v["a"], v["new"], v["_cdc_to_ts"]) for v in it.versions()] == [
        (1, -128, 0.5, Decimal("999.99"), None, tso(3)),
        (2, 1, 2.0, Decimal("1.1"), None, tso(3)),
        (3000000000, 65535, 0.1, Decimal("12345678.1234"), "there", None),
        (1, 127, 0.25, Decimal("-1.50"), None, None),
    ]
    assert it.quarantine() == []


def test_tables_are_kept_apart(chain: Callable[..., Chain]) -> None:
    it = chain()
    orders, others = Rows(), Rows(table="others", types={"id": "bigint", "v": "varchar"})
    elsewhere = Rows(database="shop2")
    first, second = feed_runs(
        it,
        [orders.insert(tso(1), 1, "a"), others.insert(tso(1), 1, "b"), elsewhere.insert(tso(1), 1, "c")],
        [others.update(tso(2), 1, "d", "b")],
    )
    assert [(r.database, r.table) for r in first.history] == [
        ("shop", "orders"),
        ("shop", "others"),
        ("shop2", "orders"),
    ]
    assert [(r.database, r.table) for r in second.history] == [("shop", "others")], (
        "only tables with changes are touched"
    )
    assert [v["v"] for v in it.versions()] == ["a"]
    assert [v["v"] for v in it.versions("others")] == ["b", "d"]
    assert [v["v"] for v in it.versions("orders", "shop2")] == ["c"]


def test_a_run_that_changes_nothing_in_a_table(chain: Callable[..., Chain]) -> None:
    """No version is opened or closed, but the table's cursor advances."""
    it, rows = chain(), Rows()
    _, nothing, after = feed_runs(
        it,
        [rows.insert(tso(1), 1, "a")],
        [rows.update(tso(2), 1, "a", "a"), rows.delete(tso(3), 9, "never there")],
        [rows.update(tso(4), 1, "b", "a")],
    )
    (report,) = nothing.history
    assert (report.opened, report.closed, report.versions, report.current) == (0, 0, 1, 1)
    assert (after.history[0].opened, after.history[0].closed) == (1, 1)
    assert [(v["v"], v["_cdc_from_ts"], v["_cdc_to_ts"]) for v in it.versions()] == [
        ("a", tso(1), tso(4)),
        ("b", tso(4), None),
    ]


def test_a_run_that_changes_nothing_in_a_table_without_a_key(chain: Callable[..., Chain]) -> None:
    it = chain()
    types = {"id": "bigint", "v": "varchar"}

    def keyless(op: str, at: int, key: str) -> Message:
        return dml(op, tso(at), {"id": key, "v": "x"}, types, key=())

    _, nothing, _ = feed_runs(it, [keyless("INSERT", 1, "1")], [keyless("DELETE", 2, "9")], [keyless("DELETE", 3, "1")])
    (report,) = nothing.history
    assert (report.opened, report.closed, report.versions, report.current) == (0, 0, 1, 1)
    assert [(v["id"], v["_cdc_from_ts"], v["_cdc_to_ts"], v["_cdc_closed_by"]) for v in it.versions()] == [
        (1, tso(1), tso(3), "delete")
    ]


@pytest.mark.extended
def test_equal_rows_of_a_large_table_close_one_by_one(
    chain: Callable[..., Chain], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest copy of equal rows without a key closes first."""
    for limit in ("REWRITTEN", "REWRITTEN_A_CHANGE"):
        monkeypatch.setattr(table_plan, limit, -1)  # any table is large
    it = chain()
    types = {"id": "bigint", "v": "varchar"}

    def keyless(op: str, at: int, key: str) -> Message:
        return dml(op, tso(at), {"id": key, "v": "x"}, types, key=())

    _, second, third = feed_runs(
        it,
        [keyless("INSERT", 1, "1"), keyless("INSERT", 2, "1"), keyless("INSERT", 3, "2")],
        [keyless("DELETE", 4, "1")],
        [keyless("DELETE", 5, "1"), keyless("INSERT", 6, "1")],
    )
    copies = [(v["id"], v["_cdc_copy"], v["_cdc_from_ts"], v["_cdc_to_ts"]) for v in it.versions()]
    assert copies == [(1, 1, tso(1), tso(5)), (1, 2, tso(2), tso(4)), (2, 1, tso(3), None), (1, 1, tso(6), None)]
    assert [(r.history[0].opened, r.history[0].closed) for r in (second, third)] == [(0, 1), (1, 1)]
    assert any("deletion vectors" in line for line in second.history[0].log_lines)
    assert third.history[0].log_lines == []
    conserved(it.lake, it.feed)


def row(op: str, at: int, types: dict[str, str], **values: str | None) -> Message:
    """Return an event of a row whose columns may have any name."""
    named = dict(zip(types, values.values(), strict=True))
    return dml(op, tso(at), named, types, old=named if op == "UPDATE" else None)


# DATETIME needs a Delta feature.
ODD = {"id": "bigint", "a b,c": "varchar", "at": "datetime"}
NOON = "2020-01-02 12:00:00"


@pytest.mark.parametrize("first", [{"id": "bigint"}, ODD], ids=["later", "at once"])
def test_a_column_that_delta_takes_only_when_mapped(chain: Callable[..., Chain], first: dict[str, str]) -> None:
    """If a version were written without Delta's own writer, readers would see NULL."""
    it = chain()
    only_id = len(first) == 1
    reports = feed_runs(
        it,
        [row("INSERT", 1, first, id="1") if only_id else row("INSERT", 1, first, id="1", v=None, t=None)],
        [row("UPDATE", 2, ODD, id="1", v="x", t=NOON), row("INSERT", 3, ODD, id="2", v="y", t=NOON)],
        [row("INSERT", 4, ODD, id="3", v="z", t=NOON)],
        [row("DELETE", 5, ODD, id="2", v="y", t=NOON)],
    )
    assert {str(v["at"]) for v in it.versions() if v["a b,c"]} == {NOON}
    assert [(v["id"], v["a b,c"], v["_cdc_from_ts"], v["_cdc_to_ts"]) for v in it.versions()] == [
        (1, None, tso(1), tso(2)),
        (1, "x", tso(2), None),
        (2, "y", tso(3), tso(5)),
        (3, "z", tso(4), None),
    ]
    assert [(t.opened, t.closed) for r in reports for t in r.history] == [(1, 0), (2, 1), (1, 0), (0, 1)]
    for report in reports:
        assert verify_written_versions(it.lake, report.history[0]) == []


def test_a_datetime_column_that_comes_later(chain: Callable[..., Chain]) -> None:
    """TIMESTAMP_NTZ is a Delta feature, which a table has only after it is enabled."""
    it, types = chain(), {"id": "bigint", "at": "datetime"}
    feed_runs(
        it,
        [row("INSERT", 1, {"id": "bigint"}, id="1")],
        [row("UPDATE", 2, types, id="1", v="2020-01-02 03:04:05")],
        [row("INSERT", 3, types, id="2", v="1000-01-01 00:00:00")],
    )
    assert [(v["id"], str(v["at"]), v["_cdc_to_ts"]) for v in it.versions()] == [
        (1, "None", tso(2)),
        (1, "2020-01-02 03:04:05", None),
        (2, "1000-01-01 00:00:00", None),
    ]


def test_columns_that_differ_in_case_only_are_one(chain: Callable[..., Chain]) -> None:
    """MySQL keeps the case of a column's name, and compares names without it."""
    it, lower, upper = chain(), {"id": "bigint", "k1": "varchar"}, {"ID": "bigint", "K1": "varchar"}
    changed = dml("UPDATE", tso(3), {"ID": "1", "K1": "c"}, upper, old={"ID": "1", "K1": "a"}, key=("ID",))
    feed_runs(
        it,
        [row("INSERT", 1, lower, id="1", v="a"), row("INSERT", 2, {"id": "bigint", "K1": "varchar"}, id="2", v="b")],
        [changed],
        [row("INSERT", 4, lower, id="3", v="d")],
    )
    assert [
        ({name.lower(): value for name, value in v.items() if not name.startswith("_cdc_")}, v["_cdc_to_ts"])
        for v in it.versions()
    ] == [
        ({"id": 1, "k1": "a"}, tso(3)),
        ({"id": 2, "k1": "b"}, None),
        ({"id": 1, "k1": "c"}, None),
        ({"id": 3, "k1": "d"}, None),
    ]
    assert it.quarantine() == []
