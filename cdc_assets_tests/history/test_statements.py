"""What a run tells of DDL that it applied, and of what it could not apply."""

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from cdc_assets.checks.history import ddl_applied, reload_required
from cdc_assets.history.writer import TableReport
from cdc_assets.stages import HISTORY
from cdc_assets_tests.support import Chain, Message, Stream, ddl, dml, tso

TYPES = {"id": "bigint", "v": "varchar", "n": "int"}
CREATE = "CREATE TABLE `shop`.`orders` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(20), `n` INT)"


def insert(at: int, key: int, table: str = "orders", **types: str) -> Message:
    return dml("INSERT", tso(at), {"id": str(key), "v": f"v{key}", "n": "1"}, TYPES | types, table=table)


def statement(at: int, sql: str, table: str = "orders") -> Message:
    return ddl(sql, tso(at), table=table, ddl_type="ALTER")


def run(it: Chain, stream: Stream, *messages: Message, upto: int) -> dict[str, TableReport]:
    """A run over these messages, which its watermark releases; the reports by table."""
    start = len(stream.records)
    for message in messages:
        stream.send(message)
    stream.watermark(tso(upto))
    it.add(stream.records[start:])
    return {report.table: report for report in it.run().history}


def lives(it: Chain, table: str = "orders") -> list[tuple[Any, ...]]:
    columns = ("id", "_cdc_from_ts", "_cdc_to_ts", "_cdc_op", "_cdc_closed_by")
    return [tuple(v[c] for c in columns) for v in it.versions(table)]


@pytest.mark.parametrize(
    ("sql", "column", "why"),
    [
        ("ADD COLUMN `c` DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP", "c", "only the source knows the default"),
        ("ADD COLUMN `c` VARCHAR(36) DEFAULT (UUID())", "c", "only the source knows the default"),
        ("MODIFY `n` JSON, MODIFY `v` GEOMETRY", "v", "what varchar(20) becomes as geometry is not known"),
    ],
)
def test_a_value_that_only_the_source_knows_is_null_and_told(
    sql: str, column: str, why: str, chain: Callable[..., Chain]
) -> None:
    it, stream = chain(), Stream()
    run(it, stream, statement(1, CREATE), insert(2, 1), upto=3)
    report = run(it, stream, statement(4, f"ALTER TABLE `shop`.`orders` {sql}"), upto=5)["orders"]
    verdict = ddl_applied(report)
    assert not verdict.passed
    assert [(t["commit_ts"], t["reload"]) for t in verdict.violations] == [(tso(4), False)]
    assert why in verdict.violations[0]["why"]
    (row,) = it.versions("orders")
    assert (row["id"], row[column], row["_cdc_to_ts"]) == (1, None, None)
    # With its next change nothing is open any more.
    assert ddl_applied(run(it, stream, insert(6, 2), upto=7)["orders"]).passed


@pytest.mark.parametrize(
    "how", ["TRUNCATE PARTITION p0", "DROP PARTITION p0", "EXCHANGE PARTITION p0 WITH TABLE other"]
)
def test_rows_that_come_and_go_unseen_ask_for_a_reload_from_then_on(how: str, chain: Callable[..., Chain]) -> None:
    it, stream = chain(), Stream()
    run(it, stream, statement(1, CREATE), insert(2, 1), upto=3)
    moved = f"ALTER TABLE `shop`.`orders` {how}"
    verdict = reload_required(run(it, stream, statement(4, moved), upto=5)["orders"])
    assert not verdict.passed
    assert [(t["commit_ts"], t["statement"]) for t in verdict.violations] == [(tso(4), moved)]
    later = reload_required(run(it, stream, insert(6, 2), upto=7)["orders"])
    assert later.violations == verdict.violations
    assert lives(it) == [(1, tso(2), None, "insert", None), (2, tso(6), None, "insert", None)]


@pytest.mark.parametrize(
    "sql", ["ALTER TABLE `shop`.`orders` REORGANIZE PARTITION p0 INTO (PARTITION p1 VALUES LESS THAN (9))",
            "ALTER TABLE `shop`.`orders` ADD INDEX i (`v`)", "ALTER TABLE `shop`.`orders` COMMENT = 'c'"],
)  # fmt: skip
def test_statements_that_move_no_row_and_change_no_column_do_nothing(sql: str, chain: Callable[..., Chain]) -> None:
    it, stream = chain(), Stream()
    run(it, stream, statement(1, CREATE), insert(2, 1), upto=3)
    before = it.lake.history("shop", "orders").log()
    assert run(it, stream, statement(4, sql), upto=5) == {}
    after = it.lake.history("shop", "orders").log()
    assert before is not None
    assert after is not None
    assert before.version == after.version
    assert not HISTORY.due(it.lake, it.feed)


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_a_dropped_table_that_is_recovered_has_its_rows_again(runs: int, chain: Callable[..., Chain]) -> None:
    it, stream = chain(), Stream()
    messages = [
        statement(1, CREATE),
        insert(2, 1),
        insert(2, 2),
        dml("DELETE", tso(3), {"id": "2", "v": "v2", "n": "1"}, TYPES),
        statement(4, "DROP TABLE `shop`.`orders`"),
        statement(6, "RECOVER TABLE `shop`.`orders`"),
        dml("UPDATE", tso(8), {"id": "1", "v": "new", "n": "1"}, TYPES, old={"id": "1", "v": "v1", "n": "1"}),
    ]
    start = 0
    for end, upto in {1: [(7, 9)], 2: [(5, 5), (7, 9)], 3: [(5, 5), (6, 7), (7, 9)]}[runs]:
        run(it, stream, *messages[start:end], upto=upto)
        start = end
    assert lives(it) == [
        (1, tso(2), tso(4), "insert", "drop"),
        (2, tso(2), tso(3), "insert", "delete"),
        (1, tso(6), tso(8), "ddl", "update"),
        (1, tso(8), None, "update", None),
    ]


# statement -> what deltalake still reads the table by, and what the log of the run says of it
PLAIN = {
    "ADD COLUMN `c` INT DEFAULT 5": None,
    "DROP COLUMN `n`": None,
    "MODIFY `v` TEXT": None,
    "RENAME COLUMN `v` TO `w`": "columns are mapped",
    "MODIFY `n` VARCHAR(9)": "columns are mapped",
    "MODIFY `n` BIGINT": "types are widened",
}


@pytest.mark.parametrize("sql", PLAIN)
def test_histories_stay_plain_as_long_as_they_can(sql: str, chain: Callable[..., Chain]) -> None:
    """What other readers see: the same rows, unless the run has said why they cannot."""
    it, stream = chain(), Stream()
    run(it, stream, statement(1, CREATE), insert(2, 1), insert(2, 2), upto=3)
    types = {"n": "bigint"} if "BIGINT" in sql else {}
    after = insert(5, 3, **types)
    report = run(it, stream, statement(4, f"ALTER TABLE `shop`.`orders` {sql}"), after, upto=6)["orders"]
    said = PLAIN[sql]
    assert [line.startswith(said) for line in report.told if said] == [True] * bool(said)
    log = it.lake.history("shop", "orders").log()
    assert log is not None
    assert log.open == (said is None)
    if said is None:
        found = QueryBuilder().register("t", DeltaTable(it.lake.history("shop", "orders").path))
        rows = pa.table(found.execute("SELECT id, _cdc_is_current FROM t ORDER BY id").read_all()).to_pylist()
        assert [(r["id"], r["_cdc_is_current"]) for r in rows] == _current(it.versions("orders"))


def _current(versions: Iterable[dict[str, Any]]) -> list[tuple[Any, Any]]:
    return sorted((v["id"], v["_cdc_is_current"]) for v in versions)
