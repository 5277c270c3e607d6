"""A table's log is read again when any writer has made a newer commit, and only then."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_assets.lakehouse import log as log_module
from cdc_assets.lakehouse.log import Logs, TableLog
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.stores.storage import LOCAL
from cdc_assets_tests.lakehouse.numbers import NUMBERS, NumbersCursor


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the tables whose logs were read, in order."""
    paths: list[str] = []
    read_log = TableLog.of

    def recording(uri: str, store: object) -> TableLog | None:
        paths.append(uri)
        return read_log(uri, LOCAL)

    monkeypatch.setattr(TableLog, "of", recording)
    return paths


def table_at(path: Path, logs: Logs | None = None) -> LakeTable[NumbersCursor]:
    return LakeTable(str(path), path.name, NUMBERS, logs or Logs())


def put(table: LakeTable[NumbersCursor], n: int, sequence: int) -> None:
    table.commit(table.stage_rows([{"n": n}]), NumbersCursor(sequence=sequence))


def numbers(table: LakeTable[NumbersCursor]) -> list[int]:
    return sorted(table.fetch(table.files(), "n")["n"].to_pylist())


def test_a_log_is_read_once_a_commit(tmp_path: Path, read: list[str]) -> None:
    mine, another = table_at(tmp_path / "t"), table_at(tmp_path / "t")
    assert (mine.log(), mine.cursor(), mine.files()) == (None, None, [])
    put(another, 1, 1)
    read.clear()
    assert (mine.cursor(), numbers(mine), mine.cursor()) == (NumbersCursor(sequence=1), [1], NumbersCursor(sequence=1))
    assert read == [mine.path]
    put(another, 2, 2)
    # A commit of another writer, which has no cursor, makes the log old too.
    DeltaTable(mine.path).alter.set_table_properties({"delta.appendOnly": "false"})
    read.clear()
    fixed = mine.at_current_version()
    assert (mine.cursor(), numbers(mine)) == (NumbersCursor(sequence=2), [1, 2])
    assert read == [mine.path]
    put(mine, 3, 3)
    assert (numbers(fixed), numbers(mine)) == ([1, 2], [1, 2, 3])


def test_the_newest_commit_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, limits, history = table_at(tmp_path / "t"), [], DeltaTable.history

    def recording(self: DeltaTable, limit: int | None = None) -> list[dict[str, Any]]:
        limits.append(limit)
        return history(self, limit)

    monkeypatch.setattr(DeltaTable, "history", recording)
    for n in (1, 2):
        put(table, n, n)
        limits.clear()
        assert [table.cursor() for _ in range(3)] == [NumbersCursor(sequence=n)] * 3
        assert limits == [1]
    assert [cursor.sequence for cursor in table.cursors()] == [2, 1]


def test_a_table_that_was_deleted_or_created_again_is_noticed(tmp_path: Path) -> None:
    mine, other = table_at(tmp_path / "t"), table_at(tmp_path / "other")
    put(mine, 1, 1)
    assert numbers(mine) == [1]
    shutil.rmtree(mine.path)
    assert mine.log() is None
    put(mine, 2, 1)
    assert numbers(mine) == [2]
    put(other, 3, 1)
    # The same number of commits and the same size of the commit's file: only the file's time differs.
    commit = Path(mine.path, "_delta_log", f"{1:020}.json")
    shutil.rmtree(mine.path)
    shutil.copytree(other.path, mine.path)
    os.utime(commit, ns=(0, commit.stat().st_mtime_ns + 1))
    assert numbers(mine) == [3]


def test_a_log_without_commit_files_is_read_from_its_checkpoint(tmp_path: Path, read: list[str]) -> None:
    mine = table_at(tmp_path / "t")
    put(mine, 1, 1)
    DeltaTable(mine.path).create_checkpoint()
    for commit in Path(mine.path, "_delta_log").glob("*.json"):
        commit.unlink()
    read.clear()
    assert (numbers(mine), numbers(mine)) == ([1], [1])
    assert len(read) == 2  # Without a commit file the cache cannot tell whether the log is still the newest.


def test_the_number_of_cached_logs_is_limited(tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "_CACHED_LOGS", 2)
    logs = Logs()
    tables = [table_at(tmp_path / str(n), logs) for n in range(3)]
    for table in tables:
        put(table, 1, 1)
        table.log()
    read.clear()
    for table in reversed(tables):
        table.log()
    assert read == [tables[0].path]
