"""Run databases and tables whose names are too long for a folder: 64 characters of three bytes."""

from collections.abc import Callable
from typing import Any

import pytest

from cdc_assets import read
from cdc_assets.lakehouse.history import DATABASE, TABLE
from cdc_assets.lakehouse.lakehouse import path_segment
from cdc_assets.operations.rebuild import rebuild_feed
from cdc_assets_tests.support import Chain, Rows, Stream, ddl, dml, tso

LONG_DATABASE, LONG_TABLE = "庫" * 64, "表" * 64
# Their folder names differ only in the hash.
OTHER_TABLE = "表" * 63 + "面"


def values(chain: Chain, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return the versions of a table in the long database: begin, end, and these columns."""
    rows = chain.versions(table, LONG_DATABASE)
    return [(r["_cdc_from_ts"], r["_cdc_to_ts"], *(r[c] for c in columns)) for r in rows]


def stated(chain: Chain, table: str) -> dict[str, str]:
    """Return the source's database and table that a history table states."""
    log = chain.lake.history(LONG_DATABASE, table).log()
    assert log
    return {key: value for key, value in log.properties.items() if not key.startswith("delta.")}


def test_two_runs_over_names_that_are_cut_in_the_path(chain: Callable[..., Chain]) -> None:
    it, stream = chain(), Stream()
    long, other = Rows(LONG_DATABASE, LONG_TABLE), Rows(LONG_DATABASE, OTHER_TABLE)
    for table in (LONG_TABLE, OTHER_TABLE):
        create = f"CREATE TABLE `{table}` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(20))"
        stream.send(ddl(create, tso(1), database=LONG_DATABASE, table=table))
    stream.send(long.insert(tso(2), 1, "a"))
    stream.send(long.insert(tso(2), 2, "b"))
    stream.send(other.insert(tso(3), 1, "c"))
    stream.watermark(tso(4))
    it.add(stream.records)
    it.run()
    names = [(LONG_DATABASE, LONG_TABLE), (LONG_DATABASE, OTHER_TABLE)]
    assert it.lake.histories() == sorted(names)
    assert values(it, LONG_TABLE, "id", "v") == [(tso(2), None, 1, "a"), (tso(2), None, 2, "b")]

    seen = len(stream.records)
    stream.send(long.update(tso(10), 1, "d", "a"))
    stream.send(long.delete(tso(11), 2, "b"))
    alter = f"ALTER TABLE `{OTHER_TABLE}` ADD COLUMN `n` BIGINT"
    stream.send(ddl(alter, tso(12), database=LONG_DATABASE, table=OTHER_TABLE, ddl_type="ALTER"))
    types = other.types | {"n": "bigint"}
    row = {"id": "2", "v": "e", "n": "5"}
    stream.send(dml("INSERT", tso(13), row, types, database=LONG_DATABASE, table=OTHER_TABLE))
    stream.watermark(tso(20))
    it.add(stream.records[seen:])
    it.run()
    assert it.lake.histories() == sorted(names)
    assert values(it, LONG_TABLE, "id", "v") == [
        (tso(2), tso(10), 1, "a"),
        (tso(2), tso(11), 2, "b"),
        (tso(10), None, 1, "d"),
    ]
    assert values(it, OTHER_TABLE, "id", "v", "n") == [(tso(3), None, 1, "c", None), (tso(13), None, 2, "e", 5)]
    assert it.quarantine() == []
    for database, table in names:
        assert stated(it, table) == {DATABASE: database, TABLE: table}
        history = read.table("f", f"{database}.{table}", root=it.lake.root)
        assert history.current(["id"]).num_rows == len([r for r in it.history(table, database) if r["_cdc_is_current"]])


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(LONG_TABLE, id="long"),
        pytest.param("`it's` ${spark.app.name} \\ b", id="odd", marks=pytest.mark.soak),
    ],
)
def test_a_history_states_its_source_whatever_is_done_to_it(chain: Callable[..., Chain], table: str) -> None:
    it, stream = chain(), Stream()
    types = {"id": "int", "a b": "varchar"}  # Spark creates the history, as a column's name has a space

    def run(sql: str | None, at: int, row: dict[str, str | None], old: dict[str, str | None] | None = None) -> None:
        if sql:
            stream.send(ddl(sql, tso(at), database=LONG_DATABASE, table=table, ddl_type="ALTER"))
        op = "UPDATE" if old else "INSERT"
        stream.send(dml(op, tso(at + 1), row, types, old=old, database=LONG_DATABASE, table=table))
        stream.watermark(tso(at + 2))
        it.add(stream.records[-3 if sql else -2 :])
        it.run()
        assert it.lake.histories() == [(LONG_DATABASE, table)]
        assert stated(it, table) == {DATABASE: LONG_DATABASE, TABLE: table}

    quoted = table.replace("`", "``")
    run(f"CREATE TABLE `{quoted}` (`id` INT PRIMARY KEY, `a b` VARCHAR(20))", 1, {"id": "1", "a b": "x"})
    run(None, 10, {"id": "1", "a b": "y"}, {"id": "1", "a b": "x"})
    types = {"id": "bigint", "a b": "varchar", "n": "bigint"}
    run(f"ALTER TABLE `{quoted}` MODIFY `id` BIGINT, ADD `n` BIGINT", 20, {"id": "2", "a b": "z", "n": "1"})
    before = it.versions(table, LONG_DATABASE)
    list(rebuild_feed(it.lake, it.feed))
    assert it.lake.histories() == [(LONG_DATABASE, table)]
    assert stated(it, table) == {DATABASE: LONG_DATABASE, TABLE: table}
    assert it.versions(table, LONG_DATABASE) == before


def test_a_history_that_does_not_state_its_source_yet_does_after_the_next_run(chain: Callable[..., Chain]) -> None:
    it, stream, rows = chain(), Stream(), Rows(LONG_DATABASE, LONG_TABLE)
    stream.send(rows.insert(tso(2), 1, "a"))
    stream.watermark(tso(3))
    it.add(stream.records)
    it.run()
    path = it.lake.history(LONG_DATABASE, LONG_TABLE).path
    assert path.split("/")[-2:] == [path_segment(LONG_DATABASE), path_segment(LONG_TABLE)]
    it.lake.spark.sql(f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES ('{DATABASE}', '{TABLE}')")
    assert it.lake.histories() == []
    stream.send(rows.update(tso(10), 1, "b", "a"))
    stream.watermark(tso(11))
    it.add(stream.records[-2:])
    it.run()
    assert it.lake.histories() == [(LONG_DATABASE, LONG_TABLE)]
    assert values(it, LONG_TABLE, "v") == [(tso(2), tso(10), "a"), (tso(10), None, "b")]
