"""Run a feed in which everything happens once that a reader may ask about, in two runs; state what the source held.

The feed has duplicates, a late event, pending events, a blocked table, an excluded table, bad records and dates, a
changed key, DDL, and tables without a key, with a composite key of odd bytes, and with a widened column.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc_assets.lakehouse.cursor import record_run
from cdc_assets_tests.support import Chain, Record, Rows, Stream, ddl, dml, tso, watermark

TYPES = {"id": "bigint", "v": "varchar", "d": "date", "w": "int"}
# The columns have the names of columns of changes.
ODD = {"a": "varchar", "b": "varbinary", "n": "int", "key": "int", "commit_ts": "int", "op": "int"}
WIDE = {"id": "bigint", "n": "int"}
DAY, ZERO = "2024-02-29", "0000-00-00"
# Every byte of a binary key, as Canal-JSON has it: as Latin-1 characters.
BYTES = bytes(range(256)).decode("latin-1")
ODD_TEXT = 'é"\\\n\t\x01/€'
# The rows of shop.odd.keys in the end.
ODD_ROWS = [
    {"a": ODD_TEXT, "b": bytes(range(256)), "n": 1, "key": 9, "commit_ts": 9, "op": 9},
    {"a": "", "b": b"", "n": 2, "key": 8, "commit_ts": 8, "op": 8},
]
FEED, RUN = "shop", "the second run"
EXCLUDED = ["shop.secret*"]


def _row(key: int, v: str | None, *more: Any) -> dict[str, Any]:
    return dict(zip(TYPES, (str(key), v, *more), strict=False))


def order(op: str, at: int, row: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return an event of shop.orders."""
    return dml(op, tso(at), row, TYPES, old=old)


@dataclass(frozen=True)
class Lived:
    """The feed, and its records by name."""

    it: Chain
    records: dict[str, Record]


# The rows of shop.orders from each position on: id -> (v, d, w).
HELD: dict[int, dict[int, tuple[Any, ...]]] = {
    1: {},
    2: {1: ("one", DAY, None)},
    3: {1: ("one", DAY, None), 2: ("two", None, None)},
    5: {1: ("one", DAY, None), 2: ("two again", None, None)},
    6: {3: ("one", DAY, None), 2: ("two again", None, None)},
    8: {3: ("one", DAY, 7), 2: ("two again", None, None)},
    11: {3: ("one", DAY, 7)},
    12: {3: ("one", DAY, 7), 40: ("forty", DAY, 1)},
}
# All below it is final: the lower of the two partitions' watermarks.
RELEASED = 13


def _first(it: Stream, records: dict[str, Record]) -> None:
    it.send(ddl("CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(20), `d` DATE)", tso(1)))
    one = order("INSERT", 2, _row(1, "one", DAY))
    records["insert 1"] = it.send(one)
    records["repeat of insert 1"] = it.send(one)
    records["insert 2"] = it.send(order("INSERT", 3, _row(2, "two", ZERO)), 1)
    it.watermark(tso(4))
    records["update 2"] = it.send(order("UPDATE", 5, _row(2, "two again", ZERO), _row(2, "two", ZERO)), 1)
    # key 1 becomes 3, as TiCDC sends it
    records["delete 1"] = it.send(order("DELETE", 6, _row(1, "one", DAY)))
    records["insert 3"] = it.send(order("INSERT", 6, _row(3, "one", DAY)), 1)
    it.send(ddl("ALTER TABLE `orders` ADD COLUMN `w` INT", tso(7), ddl_type="ALTER"))
    records["update 3"] = it.send(order("UPDATE", 8, _row(3, "one", DAY, "7"), _row(3, "one", DAY, None)), 1)
    records["nothing"] = it.send(order("UPDATE", 9, _row(3, "one", DAY, "7"), _row(3, "one", DAY, "7")), 1)
    records["cut"] = it.send(b'{"database":"shop","table":"orders","data":[{"id":"3","v":"lo')
    logs = Rows(table="logs")
    for _ in range(2):
        it.send(_keyless(logs.insert(tso(3), 1, "twice")))
    it.send(_keyless(logs.delete(tso(8), 1, "twice")))
    for at, a, b, *more in ((3, ODD_TEXT, BYTES, "1", "9", "9", "9"), (4, "", "", "2", "8", "8", "8")):
        row = dict(zip(ODD, (a, b, *more), strict=True))
        it.send(dml("INSERT", tso(at), row, ODD, key=("a", "b"), table="odd.keys"))
    pairs, ended = Rows(table="pairs"), Rows(table="ended")
    it.send(pairs.insert(tso(2), 1, "a"))
    # as TiCDC splits an update of a unique column
    records["delete of a pair"] = it.send(pairs.delete(tso(5), 1, "a"))
    records["insert of a pair"] = it.send(pairs.insert(tso(5), 1, "b"), 1)
    it.send(ended.insert(tso(3), 1, "one"))
    it.send(ddl("TRUNCATE TABLE `ended`", tso(9), table="ended", ddl_type="TRUNCATE"))
    it.send(ddl("CREATE TABLE `wide` (`id` BIGINT PRIMARY KEY, `n` INT)", tso(2), table="wide"))
    it.send(dml("INSERT", tso(3), {"id": "1", "n": "1"}, WIDE, table="wide"))
    it.watermark(tso(10))


def _second(it: Stream, records: dict[str, Record]) -> None:
    records["late"] = it.send(order("INSERT", 5, _row(9, "late", DAY)), 1)
    records["late repeat"] = it.send(order("UPDATE", 5, _row(2, "two again", ZERO), _row(2, "two", ZERO)), 1)
    records["delete 2"] = it.send(order("DELETE", 11, _row(2, "two again", ZERO, None)), 1)
    it.send(ddl("ALTER TABLE `wide` MODIFY COLUMN `n` BIGINT", tso(11), table="wide", ddl_type="ALTER"))
    wide, after = WIDE | {"n": "bigint"}, {"id": "1", "n": "5000000000"}
    it.send(dml("UPDATE", tso(12), after, wide, old={"id": "1", "n": "1"}, table="wide"))
    ledger = Rows(table="ledger")
    it.send(ledger.insert(tso(11), 1, "one"))
    it.send(ddl("ALTER TABLE `ledger` ADD COLUMN `w` INT FANCY", tso(11, 1), table="ledger", ddl_type="ALTER"))
    records["held"] = it.send(ledger.update(tso(12), 1, "two", "one"))
    records["excluded"] = it.send(Rows(table="secrets").insert(tso(12), 1, "hidden"))
    records["insert 40"] = it.send(order("INSERT", 12, _row(40, "forty", DAY, "1")))
    it.watermark(tso(RELEASED))
    records["pending"] = it.send(order("UPDATE", 14, _row(40, "later", DAY, "1"), _row(40, "forty", DAY, "1")))
    records["pending 50"] = it.send(order("INSERT", 15, _row(50, "fifty", DAY, "1")))
    it.send(watermark(tso(20)))


def _keyless(message: dict[str, Any]) -> dict[str, Any]:
    return message | {"pkNames": None}


def live(spark: SparkSession, folder: Path) -> Lived:
    """Run the feed."""
    stream, records = Stream(2), dict[str, Record]()
    it = Chain(spark, folder, partitions=2, tables={"include": ["*.*"], "exclude": EXCLUDED})
    it.lake = replace(it.lake, feed=FEED)
    _first(stream, records)
    half = len(stream.records)
    it.add(stream.records[:half])
    it.run()
    _second(stream, records)
    it.add(stream.records[half:])
    with record_run(RUN):
        it.run()
    return Lived(it, records)
