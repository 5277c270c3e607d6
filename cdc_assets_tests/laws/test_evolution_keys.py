"""Let a table lose its key and get another: every row from before can be updated and deleted afterwards."""

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from cdc_assets_tests.support import Chain, Message, Stream, ddl, dml, tso

TYPES = {"id": "bigint", "v": "varchar", "n": "decimal", "b": "varbinary", "at": "datetime", "d": "int"}
CREATE = (
    "CREATE TABLE `orders` (`id` bigint NOT NULL, `v` varchar(20) NOT NULL, `n` decimal(8,2), `b` varbinary(8), "
    "`at` datetime(3), PRIMARY KEY (`id`))"
)
LOSE = "ALTER TABLE `orders` DROP PRIMARY KEY, DROP COLUMN `id`, ADD COLUMN `d` int DEFAULT 5"
GAIN = "ALTER TABLE `orders` ADD PRIMARY KEY (`v`)"

Wire = dict[str, Any]


def wire(v: str, **more: Any) -> Wire:
    """Return a row as messages have it: bytes as Latin-1."""
    return {"v": v, "n": "1.50", "b": "\xff\x00", "at": "2024-02-29 12:00:00.120"} | more


def held(row: Wire) -> tuple[Any, ...]:
    """Return a row as the history has it, without `id`."""
    at = None if row["at"] is None else datetime.fromisoformat(row["at"])
    n = None if row["n"] is None else Decimal(row["n"])
    b = None if row["b"] is None else bytearray(row["b"].encode("latin-1"))
    return row["v"], n, None if b is None else bytes(b), at, None if row.get("d") is None else int(row["d"])


class Source:
    """What happens to the table, and the rows that it has after each commit."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.rows: list[Wire] = []
        self.states: list[tuple[int, list[Wire]]] = []
        self.key: tuple[str, ...] = ("id",)

    def insert(self, row: Wire) -> None:
        self.rows.append(row)
        self._dml("INSERT", row)

    def delete(self, row: Wire) -> None:
        self.rows.remove(row)
        self._dml("DELETE", row)

    def update(self, row: Wire, **values: Any) -> None:
        after = row | values
        self.rows[self.rows.index(row)] = after
        self._dml("UPDATE", after, old=row)

    def alter(self, sql: str, key: tuple[str, ...], rows: list[Wire]) -> None:
        self.key, self.rows = key, rows
        self._commit(lambda ts: ddl(sql, ts, ddl_type="ALTER"))

    def _dml(self, op: str, row: Wire, old: Wire | None = None) -> None:
        self._commit(lambda ts: dml(op, ts, row, {c: TYPES[c] for c in row}, old=old, key=self.key))

    def _commit(self, message: Callable[[int], Message]) -> None:
        ts = tso(1000 * (1 + len(self.messages)))
        self.messages.append(message(ts))
        self.states.append((ts, list(self.rows)))


def life() -> tuple[Source, list[int]]:
    """Draw a table's life, and the numbers of messages after which a run ends."""
    source, cuts = Source(), []
    source.alter(CREATE, ("id",), [])
    first = [
        {"id": "1"} | wire("same"),
        {"id": "2"} | wire("same"),
        {"id": "3"} | wire("null", n=None, b=None, at=None),
        {"id": "4"} | wire("changes"),
        {"id": "5"} | wire("stays", n="99999.99"),
    ]
    for row in first:
        source.insert(row)
    cuts.append(len(source.messages))
    source.alter(LOSE, (), [{c: v for c, v in row.items() if c != "id"} | {"d": "5"} for row in first])
    cuts.append(len(source.messages))
    source.delete(wire("same", d="5"))
    source.insert(wire("same", d="5"))
    source.delete(wire("same", d="5"))
    cuts.append(len(source.messages))
    source.delete(wire("null", n=None, b=None, at=None, d="5"))
    source.update(wire("changes", d="5"), n="2.50")
    source.insert(wire("new", d=None))
    cuts.append(len(source.messages))
    source.alter(GAIN, ("v",), list(source.rows))
    source.update(wire("new", d=None), d="7")
    source.update(wire("stays", n="99999.99", d="5"), n="0.00")
    source.delete(wire("same", d="5"))
    source.update(wire("changes", n="2.50", d="5"), v="moved")
    return source, cuts


def as_of(history: Sequence[dict[str, Any]], ts: int) -> list[tuple[Any, ...]]:
    return sorted(
        (
            (r["v"], r["n"], r["b"] if r["b"] is None else bytes(r["b"]), r["at"], r["d"])
            for r in history
            if r["_cdc_from_ts"] <= ts and (r["_cdc_to_ts"] is None or ts < r["_cdc_to_ts"])
        ),
        key=str,
    )


@pytest.mark.parametrize("chopped", [False, True], ids=["at once", "chopped"])
def test_the_table_is_the_source_at_every_commit(chain: Callable[..., Chain], chopped: bool) -> None:
    source, cuts = life()
    made = chain()
    ends = [*(cuts if chopped else []), len(source.messages)]
    stream = Stream()
    for start, end in pairwise([0, *ends]):
        for message in source.messages[start:end]:
            stream.send(message)
        stream.watermark(source.states[end - 1][0] + 1)
        made.add(stream.records)
        stream.records.clear()
        made.run()
    assert made.quarantine() == []
    history = made.history()
    for ts, rows in source.states:
        assert as_of(history, ts) == sorted(map(held, rows), key=str), ts
