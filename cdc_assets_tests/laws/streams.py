"""A short stream, in two partitions and about thirty records, with everything that makes the laws hard to keep.

Watermarks arrive before and after the rows; keys move, swap and come back; a column is added half way; there are zero
dates and two tables.
"""

from typing import Any

from cdc_assets_tests.support import Message, Record, Stream, ddl, dml, tso

TYPES = {"id": "bigint", "v": "varchar", "d": "date", "w": "int"}
PARTITIONS = 2
GAP = 10  # the step between offsets, so that a duplicate can get an offset after its original

_CREATE = "CREATE TABLE `shop`.`{}` (`id` BIGINT PRIMARY KEY,`v` VARCHAR(20),`d` DATE)"
_ALTER = "ALTER TABLE `shop`.`orders` ADD COLUMN `w` INT NULL DEFAULT NULL"


def _row(key: int, v: str | None, *more: Any) -> dict[str, Any]:
    return dict(zip(TYPES, (str(key), v, *more), strict=False))


def _insert(at: int, key: int, v: str | None, *more: Any, table: str = "orders") -> Message:
    return dml("INSERT", tso(at), _row(key, v, *more), TYPES, table=table)


def _update(at: int, key: int, v: str | None, old: str | None, *more: Any, table: str = "orders") -> Message:
    return dml("UPDATE", tso(at), _row(key, v, *more), TYPES, old=_row(key, old, *more), table=table)


def _delete(at: int, key: int, v: str | None, *more: Any, table: str = "orders") -> Message:
    return dml("DELETE", tso(at), _row(key, v, *more), TYPES, table=table)


def short_stream() -> tuple[list[Record], list[Record]]:
    """Return the records in produced order: up to the watermark 10, and after it."""
    day, other, zero = "2024-02-29", "1999-12-31", "0000-00-00"
    it = Stream(PARTITIONS)
    it.send(ddl(_CREATE.format("orders"), tso(1)))
    it.send(_insert(2, 1, "one", day))
    it.send(_insert(3, 2, "two", zero), 1)
    it.watermark(tso(4))
    it.send(_update(4, 2, "two again", "two", zero), 1)
    # key 1 becomes 3, in another partition, and 2 and 4 change places, in one transaction each
    it.send(_delete(5, 1, "one", day))
    it.send(_insert(5, 3, "one", day), 1)
    it.send(_insert(6, 4, None, other))
    it.send(_insert(8, 2, None, other), 1)
    it.send(_delete(8, 2, "two again", zero), 1)
    it.send(_delete(8, 4, None, other))
    it.send(_insert(8, 4, "two again", zero))
    it.send(_update(9, 4, "two again", "two again", zero))
    it.watermark(tso(10))
    later = {p: GAP * sum(r["partition"] == p for r in it.records) for p in range(PARTITIONS)}
    it.send(ddl(_CREATE.format("customers"), tso(11), table="customers"))
    it.send(_insert(11, 1, "somebody", other, table="customers"), 1)
    it.send(_delete(11, 2, None, other), 1)
    it.send(_insert(12, 2, "back", day), 1)
    it.send(ddl(_ALTER, tso(13), ddl_type="ALTER"))
    it.send(_update(14, 4, "wide", "two again", zero, "7"))
    it.send(_update(14, 1, "somebody else", "somebody", zero, table="customers"), 1)
    it.send(_delete(14, 3, "one", day, None), 1)
    it.watermark(tso(15))
    it.send(_update(15, 2, "pending", "back", day, None), 1)
    it.send(_insert(16, 5, "pending", day, None))
    records = [r | {"offset": r["offset"] * GAP} for r in it.records]
    first = [r for r in records if r["offset"] < later[r["partition"]]]
    return first, [r for r in records if r not in first]
