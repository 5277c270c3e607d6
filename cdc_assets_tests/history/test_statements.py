"""Report the DDL that a run applied, and what it could not apply."""

from collections.abc import Callable, Iterable
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from cdc_assets.assets.checks.history import ddl_applied, reload_required
from cdc_assets.history.table_report import TableReport
from cdc_assets.stages import HISTORY
from cdc_assets_tests.support import Chain, Message, Stream, ddl, delta_versions, dml, tso

TYPES = {"id": "bigint", "v": "varchar", "n": "int"}


def create(table: str = "orders") -> Message:
    return statement(1, f"CREATE TABLE `shop`.`{table}` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(20), `n` INT)", table)


def alter(at: int, table: str, how: str) -> Message:
    return statement(at, f"ALTER TABLE `shop`.`{table}` {how}", table)


def insert(at: int, key: int, table: str = "orders", values: dict[str, Any] | None = None, /, **types: str) -> Message:
    row = {"id": str(key), "v": f"v{key}", "n": "1"} | (values or {})
    return dml("INSERT", tso(at), row, TYPES | types, table=table)


def statement(at: int, sql: str, table: str = "orders") -> Message:
    return ddl(sql, tso(at), table=table, ddl_type="ALTER")


def run(it: Chain, stream: Stream, *messages: Message, upto: int) -> dict[str, TableReport]:
    """Run over these messages, which the run's watermark releases; return the reports by table."""
    start = len(stream.records)
    for message in messages:
        stream.send(message)
    stream.watermark(tso(upto))
    it.add(stream.records[start:])
    return {report.table: report for report in it.run().history}


def begun(it: Chain, stream: Stream, tables: Iterable[str]) -> None:
    """Run once over the CREATE TABLE and one row of each table."""
    run(it, stream, *(create(table) for table in tables), *(insert(2, 1, table) for table in tables), upto=3)


def lives(it: Chain, table: str = "orders") -> list[tuple[Any, ...]]:
    columns = ("id", "_cdc_from_ts", "_cdc_to_ts", "_cdc_op", "_cdc_closed_by")
    return [tuple(v[c] for c in columns) for v in it.versions(table)]


# Each case has a table of its own: many tables in one run cost less than many runs.

# table -> its statement, the column, why its value is unknown
UNKNOWN = {
    "now": ("ADD COLUMN `c` DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP", "c", "only the source knows their values"),
    "uuid": ("ADD COLUMN `c` VARCHAR(36) DEFAULT (UUID())", "c", "only the source knows their values"),
    "stored": ("ADD COLUMN `c` INT GENERATED ALWAYS AS (`n` + 1) STORED", "c", "only the source knows their values"),
    "shape": (
        "MODIFY `n` JSON, MODIFY `v` GEOMETRY",
        "v",
        "it is not known how MySQL converts varchar(20) to geometry",
    ),
    # Strict mode refuses the statement; the rules of other modes for such texts are not all known.
    "value": ("MODIFY `v` INT", "v", "v is NULL in 1 rows from before the statement: it is not known how MySQL"),
}

# table -> the types and values of its next row that differ. TiDB has no GEOMETRY, so `shape` gets no row.
NEXT: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "now": ({"c": "datetime"}, {"c": "2026-11-01 10:20:30"}),
    "uuid": ({"c": "varchar"}, {"c": "6ccd780c-baba-1026-9564-5b8c656024db"}),
    "stored": ({"c": "int"}, {"c": "2"}),
    "value": ({"v": "int"}, {"v": None}),
}


def test_a_value_that_only_the_source_has_is_null_and_reported(chain: Callable[..., Chain]) -> None:
    it, stream = chain(), Stream()
    begun(it, stream, UNKNOWN)
    reports = run(it, stream, *(alter(4, table, sql) for table, (sql, *_) in UNKNOWN.items()), upto=5)
    for table, (_, column, why) in UNKNOWN.items():
        verdict = ddl_applied(reports[table])
        assert not verdict.passed, table
        assert [(t["commit_ts"], t["reload"]) for t in verdict.violations] == [(tso(4), False)], table
        assert why in verdict.violations[0]["why"]
        (row,) = it.versions(table)
        assert (row["id"], row[column], row["_cdc_to_ts"]) == (1, None, None), table
    # After the next change, no open row lacks a value.
    rows = (insert(6, 2, table, values, **types) for table, (types, values) in NEXT.items())
    later = run(it, stream, *rows, upto=7)
    assert {table: ddl_applied(report).passed for table, report in later.items()} == dict.fromkeys(NEXT, True)


def test_columns_of_one_name_that_one_second_removes_stay_apart(chain: Callable[..., Chain]) -> None:
    """The statements of a script have the same commit_ts if the source's clock has seconds."""
    it, stream = chain(tidb_extension=False), Stream()
    begun(it, stream, ["orders"])
    script = ("DROP COLUMN `v`", "ADD COLUMN `v` INT DEFAULT 7", "DROP `v`", "ADD COLUMN `v` DATE")
    run(it, stream, *(alter(4, "orders", sql) for sql in script), upto=5)
    run(it, stream, insert(6, 2, "orders", {"v": "2026-11-01"}, v="date"), upto=7)
    first, second = sorted(it.versions("orders"), key=lambda version: version["id"])
    text, number = f"v__until_{tso(4)}", f"v__until_{tso(4)}_2"
    assert (first["id"], first[text], first[number], first["v"]) == (1, "v1", 7, None)
    assert (second["id"], second[text], second[number], second["v"]) == (2, None, None, date(2026, 11, 1))


# table -> its keys, the statement, and the column that identifies its rows from then on
KEYS = {
    "next": ("UNIQUE KEY `one` (`id`), UNIQUE KEY `two` (`n`)", "DROP INDEX `one`", "n"),
    "primary": ("UNIQUE KEY `one` (`id`)", "ADD PRIMARY KEY (`n`)", "n"),
    "more": ("PRIMARY KEY (`id`)", "ADD UNIQUE KEY `two` (`n`)", "id"),
    "fewer": ("PRIMARY KEY (`id`), UNIQUE KEY `two` (`n`)", "DROP INDEX `two`", "id"),
}


def test_a_unique_key_that_serves_as_key(chain: Callable[..., Chain]) -> None:
    """If the statement changes which key serves, rows go on under the other key."""
    it, stream = chain(), Stream()
    of = "CREATE TABLE `shop`.`{}` (`id` BIGINT NOT NULL, `v` VARCHAR(20), `n` INT NOT NULL, {})"
    created = [statement(1, of.format(table, keys), table) for table, (keys, *_) in KEYS.items()]
    run(it, stream, *created, *(insert(2, 1, table) for table in KEYS), upto=3)
    # With the next change the other column has another value.
    rows = {table: {"id": "1", "n": "1"} | {("n" if key == "id" else "id"): "7"} for table, (*_, key) in KEYS.items()}
    changes = [
        dml(
            "UPDATE",
            tso(6),
            rows[table] | {"v": "v1"},
            TYPES,
            old={"id": "1", "v": "v1", "n": "1"},
            key=[key],
            table=table,
        )
        for table, (*_, key) in KEYS.items()
    ]
    run(it, stream, *(alter(4, table, how) for table, (_, how, _) in KEYS.items()), *changes, upto=7)
    for table, (*_, key) in KEYS.items():
        rekeyed = [(1, tso(2), tso(4), "insert", "ddl"), (1, tso(4), tso(6), "ddl", "update")]
        before = [(1, tso(2), tso(6), "insert", "update")] if key == "id" else rekeyed
        assert lives(it, table) == [*before, (int(rows[table]["id"]), tso(6), None, "update", None)], table


# Tables whose CREATE came before the feed began -> the statement, and whether the new key can be read from rows.
UNSEEN = {
    "other": ("DROP PRIMARY KEY, ADD PRIMARY KEY (`n`)", True),
    "several": ("DROP PRIMARY KEY, ADD PRIMARY KEY (`n`, `id`)", False),
    "none": ("DROP PRIMARY KEY", False),
    "kept": ("ADD UNIQUE KEY `two` (`n`)", None),
}


def test_a_key_that_changes_in_a_table_whose_create_was_not_seen(chain: Callable[..., Chain]) -> None:
    """Rows go on under a new key of one column; otherwise `reload_required` fails."""
    it, stream = chain(), Stream()
    run(it, stream, *(insert(2, 1, table) for table in UNSEEN), upto=3)
    reports = run(it, stream, *(alter(4, table, how) for table, (how, _) in UNSEEN.items()), upto=5)
    old_row = {"id": "1", "v": "v1", "n": "1"}
    moved = dml("UPDATE", tso(6), old_row | {"v": "v2"}, TYPES, old=old_row, key=["n"], table="other")
    run(it, stream, moved, upto=7)
    began, ended = (1, tso(2), None, "insert", None), (1, tso(2), tso(4), "insert", "ddl")
    rekeyed = [ended, (1, tso(4), tso(6), "ddl", "update"), (1, tso(6), None, "update", None)]
    for table, (_, has_readable_key) in UNSEEN.items():
        asks = table in reports and not reload_required(reports[table]).passed
        assert asks is (has_readable_key is False), table
        assert lives(it, table) == (rekeyed if has_readable_key else [began]), table


def test_a_key_that_changes_in_a_table_without_rows(chain: Callable[..., Chain]) -> None:
    """The history has the old table's column `id`, of another type, but not yet the new one's."""
    it, stream = chain(), Stream()
    begun(it, stream, ["orders"])
    again = "CREATE TABLE `shop`.`orders` (`id` VARCHAR(9) NOT NULL, `n` INT NOT NULL, PRIMARY KEY (`id`))"
    added = dml("INSERT", tso(8), {"id": "a", "n": "2"}, {"id": "varchar", "n": "int"}, key=["id", "n"])
    rekey = alter(7, "orders", "DROP PRIMARY KEY, ADD PRIMARY KEY (`id`, `n`)")
    run(it, stream, statement(5, "DROP TABLE `shop`.`orders`"), statement(6, again), rekey, upto=8)
    run(it, stream, added, upto=9)
    assert lives(it) == [(None, tso(2), tso(5), "insert", "drop"), ("a", tso(8), None, "insert", None)]


MOVED = {
    "truncated": "TRUNCATE PARTITION p0",
    "dropped": "DROP PARTITION p0",
    "exchanged": "EXCHANGE PARTITION p0 WITH TABLE other",
    "numbered": "DROP PRIMARY KEY, ADD COLUMN `no` bigint NOT NULL AUTO_INCREMENT PRIMARY KEY",
}


def test_changes_without_row_events_ask_for_a_reload_from_then_on(chain: Callable[..., Chain]) -> None:
    it, stream = chain(), Stream()
    begun(it, stream, MOVED)
    reports = run(it, stream, *(alter(4, table, how) for table, how in MOVED.items()), upto=5)
    later = run(it, stream, *(insert(6, 2, table) for table in MOVED), upto=7)
    for table, how in MOVED.items():
        verdict = reload_required(reports[table])
        assert not verdict.passed, table
        statements = [(t["commit_ts"], t["statement"]) for t in verdict.violations]
        assert statements == [(tso(4), f"ALTER TABLE `shop`.`{table}` {how}")]
        assert reload_required(later[table]).violations == verdict.violations
        assert lives(it, table) == [(1, tso(2), None, "insert", None), (2, tso(6), None, "insert", None)]


def test_a_required_reload_moves_with_the_rows_and_ends_with_them(chain: Callable[..., Chain]) -> None:
    it, stream = chain(), Stream()
    begun(it, stream, ["moved", "emptied", "gone"])
    unseen = [alter(4, table, "TRUNCATE PARTITION p0") for table in ("moved", "emptied", "gone")]
    rename = statement(5, "RENAME TABLE `shop`.`moved` TO `shop`.`named`", "named")
    emptied = statement(6, "TRUNCATE TABLE `shop`.`emptied`", "emptied")
    asked = {t: not reload_required(r).passed for t, r in run(it, stream, *unseen, rename, emptied, upto=7).items()}
    # Rows were wrong between the two statements of one run, so the check fails once.
    assert [asked[table] for table in ("named", "emptied", "gone")] == [True, True, True]
    dropped = [statement(8, "DROP TABLE `shop`.`gone`", "gone"), statement(9, create("gone")["sql"], "gone")]
    asked = {
        t: not reload_required(r).passed
        for t, r in run(
            it, stream, *dropped, *(insert(10, 2, t) for t in ("named", "emptied", "gone")), upto=11
        ).items()
    }
    assert asked == {"named": True, "emptied": False, "gone": False}


# table -> its statement, the row before it, and what the check says about open rows; None: it passes.
EXCLUDED: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "null": ("MODIFY `n` INT NOT NULL", {"n": None}, "have NULL in n"),
    "renamed": ("CHANGE `n` `m` BIGINT NOT NULL", {"n": None}, "have NULL in m"),
    "retyped": ("MODIFY `n` VARCHAR(9) NOT NULL", {"n": None}, f"have NULL in n__until_{tso(4)}"),
    "shorter": ("MODIFY `v` VARCHAR(2)", {"v": "abc"}, "have a value that varchar(2) does not hold in v"),
    "both": ("MODIFY `v` CHAR(1) NOT NULL", {"v": None}, "have NULL or a value that char(1) does not hold in v"),
    "blanks": ("MODIFY `v` CHAR(9)", {"v": "ab "}, "have a value that char(9) does not hold in v"),
    "unsigned": ("MODIFY `n` INT UNSIGNED", {"n": "-1"}, "have a value that int unsigned does not hold in n"),
    "bits": ("MODIFY `n` BIT(2)", {"n": "4"}, "have a value that bit(2) does not hold in n"),
    "right": ("MODIFY `n` INT NOT NULL, MODIFY `v` VARCHAR(2) NOT NULL", {"n": "2"}, None),
    "within": ("MODIFY `n` INT UNSIGNED, MODIFY `v` CHAR(2)", {"n": "0", "v": "ab"}, None),
    "nullable": ("MODIFY `n` BIGINT NULL, MODIFY `v` VARCHAR(30)", {"n": None, "v": None}, None),
}


@pytest.mark.parametrize("is_large", [False, True])
def test_a_value_that_a_statement_excludes_asks_for_a_reload(
    is_large: bool, chain: Callable[..., Chain], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without strict mode the source changes such values, and sends no row event."""
    if is_large:  # so that a run does not write all open versions again
        monkeypatch.setattr("cdc_assets.history.table_plan.REWRITTEN", 0)
        monkeypatch.setattr("cdc_assets.history.table_plan.REWRITTEN_A_CHANGE", 0)
    it, stream = chain(), Stream()
    rows = [insert(2, 1, table, values) for table, (_, values, _) in EXCLUDED.items()]
    # Row 2 gets a value that fits before the statement; row 3 has one from the beginning.
    rows += [insert(2, 2, table, values) for table, (_, values, _) in EXCLUDED.items()]
    rows += [insert(2, 3, table) for table in EXCLUDED]
    run(it, stream, *map(create, EXCLUDED), *rows, upto=3)
    changes = [
        update(2, table, {"id": "2", "v": "v2", "n": "1"} | values) for table, (_, values, _) in EXCLUDED.items()
    ]
    statements = [alter(4, table, how) for table, (how, *_) in EXCLUDED.items()]
    reports = run(it, stream, *changes, *statements, upto=5)
    reasons = {table: [each["why"] for each in reload_required(report).violations] for table, report in reports.items()}
    for table, (_, _, expected) in EXCLUDED.items():
        assert len(reasons[table]) == (expected is not None), table
        assert all(f"open rows from before the statement {expected}, which" in why for why in reasons[table])


def update(key: int, table: str, old: dict[str, Any]) -> Message:
    """Return a row's change to the values of `insert`, right before the statements at 4."""
    return dml("UPDATE", tso(4) - 1, {"id": str(key), "v": f"v{key}", "n": "1"}, TYPES, old=old, table=table)


def test_excluded_values_that_row_events_have_changed_ask_for_no_reload(chain: Callable[..., Chain]) -> None:
    it, stream = chain(), Stream()
    run(it, stream, create(), insert(2, 1, "orders", {"n": None}), insert(2, 2, "orders", {"n": None}), upto=3)
    mended = [
        update(1, "orders", {"id": "1", "v": "v1", "n": None}),
        dml("DELETE", tso(4) - 1, {"id": "2", "v": "v2", "n": None}, TYPES),
    ]
    reports = run(it, stream, *mended, alter(4, "orders", "MODIFY `n` INT NOT NULL"), upto=5)
    assert reload_required(reports["orders"]).passed
    assert [v["n"] for v in it.versions("orders") if v["_cdc_to_ts"] is None] == [1]


def test_two_renames_of_one_name_to_one_other_with_one_commit_ts_ask_for_a_reload(chain: Callable[..., Chain]) -> None:
    """No clock shows to which of the two tables a row belongs."""
    it, stream = chain(tidb_extension=False), Stream()
    run(it, stream, create(), insert(2, 1), upto=3)
    rename = statement(4, "RENAME TABLE `shop`.`orders` TO `shop`.`old`", "old")
    drop = statement(4, "DROP TABLE `shop`.`old`", "old")
    again = statement(4, "CREATE TABLE `shop`.`orders` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(20), `n` INT)")
    once = run(it, stream, rename, drop, again, insert(4, 2), upto=5)
    assert reload_required(once["old"]).passed
    twice = run(it, stream, rename | {"sql": rename["sql"].replace("TABLE", "TABLES")}, upto=7)
    (reload,) = reload_required(twice["old"]).violations
    assert "two RENAMEs of shop.orders to this name have one commit_ts" in reload["why"]


HARMLESS = {
    "partitions": "REORGANIZE PARTITION p0 INTO (PARTITION p1 VALUES LESS THAN (9))",
    "index": "ADD INDEX i (`v`)",
    "comment": "COMMENT = 'c'",
}


def test_statements_that_move_no_row_and_change_no_column_do_nothing(chain: Callable[..., Chain]) -> None:
    it, stream = chain(), Stream()
    begun(it, stream, HARMLESS)
    before = delta_versions(it.lake)
    assert run(it, stream, *(alter(4, table, how) for table, how in HARMLESS.items()), upto=5) == {}
    after = delta_versions(it.lake)
    tables = [f"history/f/shop/{table}" for table in HARMLESS]
    assert {t: after[t] for t in tables} == {t: before[t] for t in tables}
    assert not HISTORY.due(it.lake, it.feed)


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_a_dropped_table_that_is_recovered_has_its_rows_again(runs: int, chain: Callable[..., Chain]) -> None:
    it, stream = chain(), Stream()
    messages = [
        create(),
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


# table -> its statement, and what the run's log says about the Delta features that it needs
PLAIN = {
    "added": ("ADD COLUMN `c` INT DEFAULT 5", None),
    "dropped": ("DROP COLUMN `n`", None),
    "text": ("MODIFY `v` TEXT", None),
    "renamed": ("RENAME COLUMN `v` TO `w`", "Delta's column mapping is on from now on"),
    "retyped": ("MODIFY `n` VARCHAR(9)", "Delta's column mapping is on from now on"),
    "widened": ("MODIFY `n` BIGINT", "Delta's type widening is on from now on"),
}


def test_histories_stay_plain_as_long_as_they_can(chain: Callable[..., Chain]) -> None:
    """Other readers see the same rows, unless the run's log says why they cannot."""
    it, stream = chain(), Stream()
    begun(it, stream, PLAIN)
    types = {"widened": {"n": "bigint"}}
    rows = [insert(5, 3, table, **types.get(table, {})) for table in PLAIN]
    reports = run(it, stream, *(alter(4, table, sql) for table, (sql, _) in PLAIN.items()), *rows, upto=6)
    for table, (_, log_line) in PLAIN.items():
        assert [line.startswith(log_line) for line in reports[table].log_lines if log_line] == [True] * bool(
            log_line
        ), table
        log = it.lake.history("shop", table).log()
        assert log is not None
        assert log.has_plain_files == (log_line is None), table
        if log_line is None:
            query = QueryBuilder().register("t", DeltaTable(it.lake.history("shop", table).path))
            read = pa.table(query.execute("SELECT id, _cdc_is_current FROM t ORDER BY id").read_all()).to_pylist()
            assert [(r["id"], r["_cdc_is_current"]) for r in read] == _current(it.versions(table)), table


def _current(versions: Iterable[dict[str, Any]]) -> list[tuple[Any, Any]]:
    return sorted((v["id"], v["_cdc_is_current"]) for v in versions)
