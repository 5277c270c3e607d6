"""Check the rules of a history: which versions of a key may exist together, and that each key's last change shows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc_assets.history.table_report import TableReport
from cdc_assets.history.version_rules import Violation, find_violations
from cdc_assets.lakehouse.history import COPY, HistoryCursor
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.stages.history.verify import verify_written_versions
from cdc_assets_tests.support import Chain, Rows, Stream, change, dml, double, remove, tso

SCHEMA = pa.schema(
    {
        "_cdc_key": pa.string(),
        "_cdc_from_ts": pa.int64(),
        "_cdc_to_ts": pa.int64(),
        "_cdc_is_current": pa.bool_(),
        "_cdc_closed_by": pa.string(),
        "_cdc_topic": pa.string(),
        "_cdc_partition": pa.int32(),
        "_cdc_offset": pa.int64(),
        COPY.name: pa.int32(),
    }
)
Version = tuple[int, int | None, str | None]  # from, to, closed by

GOOD: dict[str, list[Version]] = {
    "one open": [(10, None, None)],
    "a chain": [(10, 20, "update"), (20, 30, "update"), (30, None, None)],
    "deleted": [(10, 20, "update"), (20, 30, "delete")],
    "deleted and inserted again later": [(10, 20, "delete"), (25, None, None)],
    "deleted and inserted again at once": [(10, 20, "delete"), (20, None, None)],
    "truncated": [(10, 20, "truncate"), (40, None, None)],
    "dropped": [(10, 20, "drop"), (40, 50, "drop")],
    "renamed away": [(10, 20, "rename")],
    "superseded within one commit_ts": [(10, 10, "update"), (10, None, None)],
    "superseded twice within one commit_ts": [(10, 10, "update"), (10, 10, "update"), (10, 20, "delete")],
    "deleted within one commit_ts": [(10, 10, "delete"), (10, 10, "update")],
    "deleted and inserted within one commit_ts": [(10, 10, "delete"), (10, 10, "update"), (10, None, None)],
    "closed by a change of the table": [(10, 20, "ddl"), (20, None, None)],
    "gone to another key with a statement, and come back": [(10, 20, "ddl"), (25, None, None)],
}
# The rule that is broken, and the `from` of the versions that the violations name.
BAD: dict[str, tuple[list[Version], str, list[int]]] = {
    "overlap": ([(10, 30, "update"), (20, None, None)], "overlaps the next", [10]),
    "overlap after a delete": ([(10, 30, "delete"), (20, None, None)], "overlaps the next", [10]),
    "one inside another": ([(10, 40, "delete"), (20, 30, "delete")], "overlaps the next", [10]),
    "the same version twice": ([(10, 20, "update"), (10, 20, "update"), (20, None, None)], "overlaps the next", [10]),
    "gap after an update": ([(10, 20, "update"), (25, None, None)], "a gap that no delete explains", [10]),
    "gap after nobody knows what": ([(10, 20, None), (25, None, None)], "a gap that no delete explains", [10]),
    "two open": ([(10, None, None), (20, None, None)], "more than one open version", [10, 20]),
    "open, not the last": ([(10, None, None), (20, 30, "delete")], "open, but not the last", [10]),
    "backwards": ([(30, 20, "delete")], "ends before it begins", [30]),
    "no successor": ([(10, 20, "update")], "closed by an update, but no version follows", [10]),
}


def table(cases: dict[str, list[Version]], *, current: bool | None = None, copy: int = 0) -> pa.Table:
    rows = [
        (key, start, end, end is None if current is None else current, by, "topic", 1, start, copy)
        for key, versions in cases.items()
        for start, end, by in versions
    ]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


@pytest.mark.fast
def test_versions_that_may_exist_together() -> None:
    assert find_violations(table(GOOD)) == []
    assert find_violations(table({})) == []


@pytest.fixture(scope="module")
def violations() -> list[Violation]:
    return find_violations(table(GOOD | {name: versions for name, (versions, _, _) in BAD.items()}))


@pytest.mark.fast
@pytest.mark.parametrize("case", BAD)
def test_versions_that_may_not_exist_together(violations: list[Violation], case: str) -> None:
    _, rule, starts = BAD[case]
    mine = sorted((r for r in violations if r["_cdc_key"] == case), key=lambda r: r["_cdc_from_ts"])
    assert [(r["_cdc_from_ts"], r["rule"]) for r in mine] == [(start, rule) for start in starts]
    assert [(r["_cdc_topic"], r["_cdc_partition"], r["_cdc_offset"]) for r in mine] == [
        ("topic", 1, start) for start in starts
    ]


@pytest.mark.fast
def test_a_violation_of_one_key_is_none_of_another(violations: list[Violation]) -> None:
    assert {r["_cdc_key"] for r in violations} == set(BAD)


@pytest.mark.fast
def test_equal_rows_of_a_table_without_a_key_are_open_side_by_side() -> None:
    one: dict[str, list[Version]] = {"k": [(10, None, None)]}
    assert find_violations(pa.concat_tables([table(one, copy=1), table(one, copy=2)])) == []
    twice = find_violations(pa.concat_tables([table(one, copy=1), table(one, copy=1)]))
    assert [r["rule"] for r in twice] == ["more than one open version"] * 2


@pytest.mark.fast
def test_a_flag_that_disagrees_with_the_end() -> None:
    closed = find_violations(table({"k": [(10, 20, "delete")]}, current=True))
    opened = find_violations(table({"k": [(10, None, None)]}, current=False))
    assert [r["rule"] for r in closed + opened] == ["_cdc_is_current disagrees with _cdc_to_ts"] * 2


# --- after a run

ORDERS = Rows()
NO_KEY = {"id": "bigint", "v": "varchar"}


def keyless(op: str, at: int, v: str) -> dict[str, Any]:
    return dml(op, tso(at), {"id": "1", "v": v}, NO_KEY, key=(), table="keyless")


@pytest.fixture(scope="module")
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Chain, dict[str, TableReport]]:
    """Run three keys, an update and a delete; in another table three equal rows, and then two."""
    chain = Chain(spark, tmp_path_factory.mktemp("verified"))
    stream = Stream()
    stream.send(ORDERS.insert(tso(10), 1, "a"))
    stream.send(ORDERS.insert(tso(20), 2, "b"))
    stream.send(ORDERS.insert(tso(25), 3, "c"))
    stream.send(ORDERS.update(tso(30), 1, "d", old="a"))
    stream.send(ORDERS.delete(tso(40), 2, "b"))
    for op, at in (("INSERT", 10), ("INSERT", 11), ("INSERT", 12), ("DELETE", 13)):
        stream.send(keyless(op, at, "x"))
    stream.watermark(tso(100))
    chain.add(stream.records)
    return chain, {report.table: report for report in chain.run().history}


@pytest.fixture
def copied(run: tuple[Chain, dict[str, TableReport]], tmp_path: Path) -> tuple[Chain, dict[str, TableReport]]:
    """A copy of the run's tables, for a test that changes them."""
    return run[0].copy(tmp_path / "copied"), run[1]


def orders(chain: Chain) -> LakeTable[HistoryCursor]:
    return chain.lake.history("shop", "orders")


def broken(chain: Chain, report: TableReport) -> list[Violation]:
    """Return the violations of the table's files as they are now, as if the run had written them."""
    return verify_written_versions(chain.lake, replace(report, files=chain.lake.history("shop", report.table).files()))


@pytest.mark.parametrize("name", ["orders", "keyless"])
def test_what_a_run_wrote_breaks_nothing(run: tuple[Chain, dict[str, TableReport]], name: str) -> None:
    chain, reports = run
    assert reports[name].files
    assert verify_written_versions(chain.lake, reports[name]) == []
    assert broken(chain, reports[name]) == []


def test_a_key_without_its_open_version_is_shown_with_its_last_record(
    copied: tuple[Chain, dict[str, TableReport]],
) -> None:
    chain, reports = copied
    remove(orders(chain), "id = 1 AND _cdc_is_current")
    ended, unreflected = broken(chain, reports["orders"])
    assert (ended["rule"], ended["_cdc_from_ts"]) == ("closed by an update, but no version follows", tso(10))
    assert unreflected["rule"] == "the last change of the key does not show"
    assert [unreflected[c] for c in ("_cdc_topic", "_cdc_partition", "_cdc_offset")] == ["shop_changes", 0, 3]
    assert (unreflected["op"], unreflected["expected_open"], unreflected["counted_open"]) == ("update", 1, 0)


def test_a_key_still_open_after_its_delete_is_shown(copied: tuple[Chain, dict[str, TableReport]]) -> None:
    chain, reports = copied
    change(orders(chain), "id = 2", _cdc_to_ts="null", _cdc_is_current="true", _cdc_closed_by="null")
    (shown,) = broken(chain, reports["orders"])
    assert (shown["op"], shown["expected_open"], shown["counted_open"]) == ("delete", 0, 1)


@pytest.mark.parametrize("row", ["id = 1 AND _cdc_is_current", "id = 1 AND NOT _cdc_is_current"])
def test_a_version_doubled_by_hand(copied: tuple[Chain, dict[str, TableReport]], row: str) -> None:
    chain, reports = copied
    double(orders(chain), row)
    assert broken(chain, reports["orders"])


def test_a_gap(copied: tuple[Chain, dict[str, TableReport]]) -> None:
    chain, reports = copied
    change(orders(chain), "id = 1 AND NOT _cdc_is_current", _cdc_to_ts=f"{tso(29)}")
    (shown,) = broken(chain, reports["orders"])
    assert (shown["rule"], shown["_cdc_from_ts"]) == ("a gap that no delete explains", tso(10))


def test_checking_in_parts_gives_the_same_violations(
    copied: tuple[Chain, dict[str, TableReport]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large tables are checked in parts of their keys."""
    chain, reports = copied
    monkeypatch.setattr("cdc_assets.stages.history.verify._AT_ONCE", 1)
    assert verify_written_versions(chain.lake, reports["orders"]) == []
    remove(orders(chain), "id = 1 AND _cdc_is_current")
    assert [r["rule"] for r in broken(chain, reports["orders"])] == [
        "closed by an update, but no version follows",
        "the last change of the key does not show",
    ]
