"""Load dumps and check the histories that begin with them.

The dumps are written here as Dumpling writes them, by its sources and documentation; `test_real_dumps` has real
dumps.
"""

import datetime as dt
import gzip
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dagster import AssetCheckSeverity
from pyarrow import parquet
from pyspark.sql import SparkSession

from cdc_assets.assets.checks.audit import all_events_placed, all_intervals
from cdc_assets.assets.checks.conservation import events_placed
from cdc_assets.assets.checks.history import history_complete, history_complete_of_refused, reload_required
from cdc_assets.ddl.apply import apply_ddl
from cdc_assets.history.schema_evolution import evolve_tables
from cdc_assets.history.statements import read_statements
from cdc_assets.initial_load.dumps import DumpError, read_dump_position
from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.lakehouse.released_changes import HoldReason, Trimmed
from cdc_assets.lakehouse.table import LakeTable, Staged
from cdc_assets.operations.holds import describe_hold
from cdc_assets.operations.maintenance.files import remove_unnamed_loads, vacuum_tables
from cdc_assets.operations.maintenance.retention import trim_changes
from cdc_assets.operations.rebuild import rebuild_feed
from cdc_assets.operations.rebuild_table import compare_table_with_rebuild
from cdc_assets.operations.why.explain import explain_row
from cdc_assets.operations.why.life import Fate
from cdc_assets.protocols.canal_json import CanalJson
from cdc_assets.protocols.open_protocol import OpenProtocol
from cdc_assets.protocols.simple import Simple
from cdc_assets.stages import DECODE, HISTORY, INGEST, LOAD, STAGES
from cdc_assets.stages.history.verify import verify_written_tables
from cdc_assets.stages.load.release import check_key, check_position
from cdc_assets.stages.schemas import apply_statements
from cdc_assets.stores.storage import LOCAL
from cdc_assets.tso import time_of
from cdc_assets_tests.jobs import FEEDS, Job, evaluations
from cdc_assets_tests.support import (
    TOPIC,
    Chain,
    Message,
    Reports,
    Rows,
    Stream,
    ddl,
    dml,
    histories,
    record,
    tso,
    watermark,
)

P = tso(1_000, 7)  # the position of the dump
MS = 1 << 18  # a millisecond of commit_ts

METADATA = f"""Started dump at: 2023-11-14 22:13:21
SHOW MASTER STATUS:
\tLog: tidb-binlog
\tPos: {P}
\tGTID:

Finished dump at: 2023-11-14 22:13:22
"""
SETTINGS = "/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n"

# As TiDB's SHOW CREATE TABLE prints it.
GOODS = """CREATE TABLE `goods` (
  `id` bigint(20) unsigned NOT NULL,
  `flag` tinyint(1) DEFAULT NULL,
  `name` varchar(40) COLLATE utf8mb4_general_ci DEFAULT NULL,
  `price` decimal(12,2) DEFAULT NULL,
  `weight` double DEFAULT NULL,
  `size` enum('small','it''s, large') DEFAULT NULL,
  `tags` set('a','b','c') DEFAULT NULL,
  `bits` bit(10) DEFAULT NULL,
  `photo` blob DEFAULT NULL,
  `hash` binary(4) DEFAULT NULL,
  `made` datetime(3) DEFAULT NULL,
  `sold` timestamp NULL DEFAULT NULL,
  `day` date DEFAULT NULL,
  `lasts` time DEFAULT NULL,
  `vintage` year(4) DEFAULT NULL,
  `more` json DEFAULT NULL,
  `twice` bigint(20) GENERATED ALWAYS AS (`id` * 2) VIRTUAL,
  `note` text DEFAULT NULL,
  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
"""
NAMES = [
    "id", "flag", "name", "price", "weight", "size", "tags", "bits", "photo", "hash", "made", "sold", "day", "lasts",
    "vintage", "more", "note",
]  # fmt: skip
GOODS_HEADER = ",".join(f'"{name}"' for name in NAMES).encode()
# CSV has raw bytes, apart from the escaped ones. bits: 0x0241.
GOODS_CSV = [
    b",".join(
        [
            b'18446744073709551615,1,"\xc3\xa9t\xc3\xa9, \\"blue\\"",-1234567890.10,2.5,"it\'s, large","a,c","\x02A"',
            b'"\xff\\0\\n\\r\\\\n\\"","ab\xfe\\0","2023-11-14 22:13:20.123","2023-11-14 22:13:20","2023-11-14"',
            b'"-838:59:59","1999","{\\"k\\": [1, \\"\\\\\\\\\\"]}","\\\\N"',
        ]
    ),
    b"2,0," + b",".join([rb"\N"] * 15),
    b",".join(
        [
            b'3,\\N,"",0.00,1e+20,"small","","\\0\\0","","\\0\\0\\0\\0","2023-11-14 00:00:00.000"',
            b'"1970-01-01 00:00:01","0000-00-00","00:00:00","2155","null","first\\nsecond"',
        ]
    ),
]
INSERT = f"INSERT INTO `goods` ({','.join(f'`{name}`' for name in NAMES)}) VALUES\n"
GOODS_SQL = f"""{INSERT}\
(18446744073709551615,1,'été, \\"blue\\"',-1234567890.10,2.5,'it\\'s, large','a,c',x'0241',x'ff000a0d5c6e22',x'6162fe00',\
'2023-11-14 22:13:20.123','2023-11-14 22:13:20','2023-11-14','-838:59:59','1999',\
'{{\\"k\\": [1, \\"\\\\\\\\\\"]}}','\\\\N'),
(2,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
{INSERT}\
(3,NULL,'',0.00,1e+20,'small','',x'0000',x'',x'00000000','2023-11-14 00:00:00.000','1970-01-01 00:00:01','0000-00-00',\
'00:00:00','2155','null','first\\nsecond');
"""
# The values of these rows in a history, by the design's table of types.
GOODS_VALUES: list[dict[str, Any]] = [
    {
        "id": Decimal(18446744073709551615), "flag": 1, "name": 'été, "blue"', "price": Decimal("-1234567890.10"),
        "weight": 2.5, "size": "it's, large", "tags": "a,c", "bits": 0x241, "photo": b'\xff\0\n\r\\n"',
        "hash": b"ab\xfe\0", "made": dt.datetime.fromisoformat("2023-11-14T22:13:20.123"),
        "sold": "2023-11-14 22:13:20.000000",
        "day": dt.date(2023, 11, 14), "lasts": "-838:59:59", "vintage": 1999, "more": '{"k": [1, "\\\\"]}', "note": "\\N",
    },
    {"id": Decimal(2), "flag": 0} | dict.fromkeys(
        ["name", "price", "weight", "size", "tags", "bits", "photo", "hash", "made", "sold", "day", "lasts", "vintage",
         "more", "note"]
    ),
    {
        "id": Decimal(3), "flag": None, "name": "", "price": Decimal("0.00"), "weight": 1e20, "size": "small", "tags": "",
        "bits": 0, "photo": b"", "hash": b"\0\0\0\0", "made": dt.datetime.fromisoformat("2023-11-14"),
        "sold": "1970-01-01 00:00:01.000000", "day": None, "lasts": "00:00:00", "vintage": 2155,
        "more": "null", "note": "first\nsecond",
    },
]  # fmt: skip

ORDERS = """CREATE TABLE `orders` (
  `id` bigint(20) NOT NULL,
  `v` varchar(20) DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
"""
# No key and only text columns: the first row looks like the header.
NOTES = "CREATE TABLE `notes` (\n  `a` varchar(9),\n  `b` varchar(9)\n);\n"


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return folder


def dump(folder: Path) -> Path:
    """Write a dump of four tables, and of one more that the feed excludes."""
    return write(
        folder,
        {
            "metadata": METADATA,
            "shop-schema-create.sql": SETTINGS + "CREATE DATABASE `shop` /*!40100 DEFAULT CHARACTER SET utf8mb4 */;\n",
            "shop.goods-schema.sql": SETTINGS + GOODS,
            "shop.goods.0000000000000.csv": b"\r\n".join([GOODS_HEADER, *GOODS_CSV[:2], b""]),
            "shop.goods.0000000010000.csv.gz": gzip.compress(b"\n".join([GOODS_HEADER, GOODS_CSV[2], b""])),
            "shop.orders-schema.sql": SETTINGS + ORDERS,
            "shop.orders.000000000.csv": '"id","v"\n1,"one"\n2,"two"\n3,"three"\n4,\\N\n',
            "shop.notes-schema.sql": NOTES,
            "shop.notes.000000000.csv": '"a","b"\n"a","b"\n"x","y"\n"x","y"\n',
            "shop.all_orders-schema.sql": "CREATE TABLE `all_orders`(\n`id` int\n);\n",
            "shop.all_orders-schema-view.sql": "DROP TABLE IF EXISTS `all_orders`;\n",
            "shop.secret-schema.sql": ORDERS.replace("orders", "secret"),
            "shop.secret.000000000.csv": '"id","v"\n1,"one"\n',
        },
    )


def stream() -> Stream:
    """Return changes around the dump's position."""
    s, orders = Stream(partitions=2), Rows()
    s.watermark(tso(500))
    s.send(orders.insert(tso(600), 5, "gone"))
    s.send(orders.delete(tso(700), 5, "gone"), partition=1)
    s.send(orders.update(P, 2, "two", "TWO"))
    s.send(orders.update(P + 1, 2, "two again", "two"))
    s.send(orders.update(P + MS, 1, "one", "one"))  # no change of values
    s.send(orders.delete(P + MS, 3, "three"), partition=1)
    s.send(orders.insert(P + 2 * MS, 6, "six"))
    notes = {"a": "varchar", "b": "varchar"}
    s.send(dml("DELETE", P + MS, {"a": "x", "b": "y"}, notes, key=(), table="notes"))
    s.watermark(P + 3 * MS)
    return s


def versions(chain: Chain, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return these columns of each version, its from and to relative to the dump, and what opened and closed it."""
    time_columns = ["_cdc_from_ts", "_cdc_to_ts"]
    rows = sorted(chain.history(table), key=lambda r: (r["_cdc_key"], r["_cdc_from_ts"], r.get("_cdc_copy", 0)))
    ends = [[None if r[c] is None else r[c] - P for c in time_columns] for r in rows]
    return [
        (*[r[c] for c in columns], *times, r["_cdc_op"], r["_cdc_closed_by"])
        for r, times in zip(rows, ends, strict=True)
    ]


class Loaded:
    """A feed after a run with a damaged file, and another run after the file was mended."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        dump_folder = dump(folder / "dump")
        orders_csv = (dump_folder / "shop.orders.000000000.csv").read_bytes()
        settings: dict[str, Any] = {
            "initial_load": {"path": str(dump_folder), "format": "dumpling-csv"},
            "tables": {"include": ["shop.*"], "exclude": ["shop.secret"]},
        }
        self.folder = folder
        self.chain = Chain(spark, folder, **settings)
        self.chain.add(stream().records)
        write(dump_folder, {"shop.orders.000000000.csv": orders_csv.replace(b'"two"', b'"two')})
        self.damaged_run: Reports = self.chain.run()
        self.cursor_after_damage = self.chain.lake.released_changes.cursor()
        self.due = [stage.name for stage in STAGES if stage.due(self.chain.lake, self.chain.feed)]
        self.notes_after_damage = self.chain.history("notes")
        write(dump_folder, {"shop.orders.000000000.csv": orders_csv})
        self.reports: Reports = self.chain.run()
        shutil.rmtree(dump_folder)  # later runs must not need it


@pytest.fixture(scope="module")
def loaded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return Loaded(spark, tmp_path_factory.mktemp("loaded"))


def test_a_damaged_dump_blocks_its_table_alone_until_it_is_mended(loaded: Loaded) -> None:
    release, cursor = loaded.damaged_run.release, loaded.cursor_after_damage
    assert {(each.table, each.rows) for each in release.loaded} == {("goods", 3), ("notes", 3)}
    assert (release.rows, release.released, release.pending) == (8, 1, 7), "the DELETE from notes is released"
    assert sorted(str(r["_cdc_closed_by"]) for r in loaded.notes_after_damage) == ["None", "None", "delete"]
    assert cursor is not None
    (refused,) = cursor.refused
    assert refused.why.startswith(
        f"{loaded.folder}/dump/shop.orders.000000000.csv: line 3 is no row of shop.orders, in"
    )
    assert refused.why.endswith(': 2,"two: mend the line, or take the dump again.')
    (hold,) = cursor.holds
    assert (hold.table, hold.reason, hold.since, hold.events) == ("orders", HoldReason.LOAD, 0, 7)
    assert refused.why in describe_hold(hold, "f")
    verdict = history_complete_of_refused(refused)
    assert not verdict.passed
    assert refused.why in verdict.description
    assert loaded.due == [], "no run looks at the dump again before its files change"
    last = loaded.chain.lake.released_changes.cursor()
    assert last is not None
    assert (last.refused, last.holds) == ([], [])


def test_loaded_rows_are_versions_from_the_dump_on_and_later_changes_apply(loaded: Loaded) -> None:
    assert versions(loaded.chain, "orders", "id", "v") == [
        (1, "one", 0, None, "snapshot", None),
        (2, "two", 0, 1, "snapshot", "update"),
        (2, "two again", 1, None, "update", None),
        (3, "three", 0, MS, "snapshot", "delete"),
        (4, None, 0, None, "snapshot", None),
        (6, "six", 2 * MS, None, "insert", None),
    ]
    topics = {r["_cdc_op"]: r["_cdc_topic"] for r in loaded.chain.history("orders")}
    assert topics == {"snapshot": LOAD_TOPIC, "update": TOPIC, "insert": TOPIC}


def test_rows_without_a_key_are_loaded_with_their_copies(loaded: Loaded) -> None:
    assert versions(loaded.chain, "notes", "a", "b") == [
        ("a", "b", 0, None, "snapshot", None),
        ("x", "y", 0, None, "snapshot", None),
        ("x", "y", 0, MS, "snapshot", "delete"),
    ]


def test_values_have_the_types_of_the_schema_file(loaded: Loaded) -> None:
    rows = sorted(loaded.chain.history("goods"), key=lambda r: [18446744073709551615, 2, 3].index(int(r["id"])))
    assert [{c: v for c, v in r.items() if not c.startswith("_cdc_")} for r in rows] == GOODS_VALUES
    (lost,) = loaded.chain.quarantine()
    assert (lost["reason"], lost["table"], lost["column"], lost["value"]) == (
        "zero_date",
        "goods",
        "day",
        b"0000-00-00",
    )


def test_every_row_of_the_dump_and_every_event_is_counted(loaded: Loaded) -> None:
    release = loaded.reports.release
    assert {(each.table, each.rows) for each in release.loaded} == {("orders", 4)}, (
        "the other tables were loaded by the run before"
    )
    assert (release.pending_before, release.covered, release.released, release.pending) == (7, 3, 4, 0)
    assert release.late_unseen == 0
    assert events_placed(release).passed
    verdict = all_events_placed(loaded.chain.lake, loaded.chain.feed)
    assert verdict.passed, verdict
    assert verdict.metadata["loaded"] == 10
    assert not loaded.chain.lake.history("shop", "secret").exists()


def test_a_row_of_a_dump_can_be_asked_about(loaded: Loaded) -> None:
    life = explain_row(loaded.chain.lake, loaded.chain.feed, "shop.orders", ["2"])
    assert [(s.fate, s.op, s.commit_ts - P) for s in life.steps] == [
        (Fate.VERSION, "update", 1),
        (Fate.NO_EFFECT, "update", 0),
        (Fate.VERSION, "snapshot", 0),
    ]
    assert life.steps[2].types == {"id": "bigint(20)", "v": "varchar(20)"}
    assert "as of" in str(life.steps[1].reason)
    assert (life.complete.position, life.complete.met, life.first_seen_by) == (P, 0, None)


def test_the_histories_are_complete_from_the_dump_on(loaded: Loaded) -> None:
    (orders,) = [r for r in loaded.reports.history if r.table == "orders"]
    verdict = history_complete(orders)
    assert verdict.passed
    assert verdict.description == f"The history is complete from {P} (2023-11-14 22:13:21.000 UTC) on."


def test_no_stage_is_due_after_the_loads(loaded: Loaded) -> None:
    assert [stage.name for stage in STAGES if stage.due(loaded.chain.lake, loaded.chain.feed)] == []


def test_later_events_at_or_below_the_position_are_covered_and_later_statements_apply(
    loaded: Loaded, tmp_path: Path
) -> None:
    chain = loaded.chain.copy(tmp_path / "later")
    more, orders = Stream(topic="other"), Rows()
    more.send(ddl("ALTER TABLE orders ADD COLUMN w int NOT NULL DEFAULT 7", P + 4 * MS, ddl_type="ALTER"))
    more.send(orders.insert(P - MS, 1, "below the dump"))
    more.send(ddl("TRUNCATE TABLE orders", P - MS, ddl_type="TRUNCATE"))
    more.watermark(P + 5 * MS)
    chain.add(more.records)
    report = chain.run()
    assert (report.release.covered, report.release.late_unseen) == (1, 0)
    open_rows = [(r["id"], r["v"], r["w"]) for r in chain.versions() if r["_cdc_is_current"]]
    assert sorted(open_rows) == [(1, "one", 7), (2, "two again", 7), (4, None, 7), (6, "six", 7)]


def test_a_rebuild_keeps_the_loaded_rows(loaded: Loaded, tmp_path: Path) -> None:
    chain = loaded.chain.copy(tmp_path / "rebuilt")
    before = histories(chain.lake)
    again = [compare_table_with_rebuild(chain.lake, chain.feed, name) for name in chain.lake.histories()]
    assert [difference for difference in again if not difference.is_equal] == []
    assert list(rebuild_feed(chain.lake, chain.feed))
    assert histories(chain.lake) == before
    assert all_events_placed(chain.lake, chain.feed).passed
    assert [stage.name for stage in STAGES if stage.due(chain.lake, chain.feed)] == []


class KilledError(BaseException):
    """Stands for the kill of a run."""


@pytest.mark.parametrize("moment", ["initial_load/f", "released_changes/f", "history/f/shop/orders"])
def test_a_load_killed_before_a_commit_is_finished_by_the_next_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    folder = write(
        tmp_path / "dump",
        {"metadata": METADATA, "shop.orders-schema.sql": ORDERS, "shop.orders.0.csv": HEADER + '1,"one"\n2,"t\\nwo"\n'},
    )
    chain = Chain(spark, tmp_path / "feed", initial_load={"path": str(folder), "format": "dumpling-csv"})
    commit = LakeTable.commit

    def die(table: LakeTable[Any], staged: Staged, *args: Any, **more: Any) -> None:
        if table.name == moment:
            raise KilledError
        commit(table, staged, *args, **more)

    with monkeypatch.context() as dying:
        dying.setattr(LakeTable, "commit", die)
        with pytest.raises(KilledError):
            chain.run()
    if moment.startswith("history"):
        shutil.rmtree(folder)
    chain.run()
    assert versions(chain, "orders", "id", "v") == [
        (1, "one", 0, None, "snapshot", None),
        (2, "t\nwo", 0, None, "snapshot", None),
    ]
    assert all_events_placed(chain.lake, chain.feed).passed
    assert [stage.name for stage in STAGES if stage.due(chain.lake, chain.feed)] == []
    folders = Path(chain.lake.loaded_rows("shop", "orders").path)
    remove_unnamed_loads(chain.lake, 168)
    young = len(list(folders.iterdir()))
    for file in folders.rglob("*"):
        os.utime(file, (0, 0))
    (vacuum_tables if moment == "released_changes/f" else remove_unnamed_loads)(chain.lake, 168)
    assert (young, len(list(folders.iterdir()))) == (2 if moment == "released_changes/f" else 1, 1)
    assert all_events_placed(chain.lake, chain.feed).passed


# A row of goods without an escape.
PLAIN_GOODS = (
    '7,-3,"plain, text",-0.05,-1.5,"small","a,c","A","xyz","abcd","2023-11-14 22:13:20.123","2023-11-14 22:13:20",'
    '"2023-11-14","22:13:20","1999","[1, 2]","\u00e9"'
)


def test_both_ways_of_reading_a_line_and_of_beginning_a_history_give_the_same_versions(
    spark: SparkSession, tmp_path: Path
) -> None:
    plain = PLAIN_GOODS.encode()
    # Only the regular expression reads a number in quotes.
    rows = [plain, plain.replace(b"7,", b'"8",', 1).replace(b"plain, text", b'plain \\"text\\"')]
    files: dict[str, str | bytes] = {
        "shop.goods-schema.sql": GOODS,
        "shop.goods.0.csv": b"\n".join([GOODS_HEADER, *rows, b""]),
    }
    folder = write(tmp_path / "dump", files | {"metadata": METADATA})
    settings: dict[str, Any] = {"initial_load": {"path": str(folder), "format": "dumpling-csv"}}
    chain = Chain(spark, tmp_path / "feed", **settings)
    chain.add([record(watermark(P + MS), 0, 0)])
    for stage in STAGES[:-1]:
        stage.run(chain.lake, chain.feed)
    released = chain.lake.released_changes.cursor()
    assert released is not None
    assert [(each.rows, each.typed) for each in released.loads] == [(2, 2)]
    shutil.rmtree(folder)
    values = {
        "flag": -3, "price": Decimal("-0.05"), "weight": -1.5, "size": "small", "tags": "a,c", "bits": 0x41,
        "photo": b"xyz", "hash": b"abcd", "made": dt.datetime.fromisoformat("2023-11-14T22:13:20.123"),
        "sold": "2023-11-14 22:13:20.000000", "day": dt.date(2023, 11, 14), "lasts": "22:13:20", "vintage": 1999,
        "more": "[1, 2]", "note": "\u00e9",
    }  # fmt: skip

    def source_rows(chain: Chain) -> list[dict[str, Any]]:
        rows = sorted(chain.history("goods"), key=lambda r: int(r["id"]))
        return [{c: v for c, v in r.items() if not c.startswith("_cdc_")} for r in rows]

    both = [{"id": Decimal(7), "name": "plain, text"} | values, {"id": Decimal(8), "name": 'plain "text"'} | values]
    other = chain.copy(tmp_path / "other")
    assert HISTORY.run(chain.lake, chain.feed).failures == []
    assert [sorted(r.items()) for r in source_rows(chain)] == [sorted(r.items()) for r in both]
    # If a column's type has changed since, the typed rows are changes like any others.
    other = Chain(spark, other.folder, columns={"shop.goods.flag": "varchar(9)"}, **settings)
    assert HISTORY.run(other.lake, other.feed).failures == []
    assert [sorted(r.items()) for r in source_rows(other)] == [sorted((r | {"flag": "-3"}).items()) for r in both]
    columns = ("_cdc_key", "_cdc_offset", "_cdc_topic")
    assert versions(chain, "goods", *columns) == versions(other, "goods", *columns)
    # The same holds for the rebuild of a history that has begun with them.
    before = histories(other.lake)
    again = Chain(spark, chain.folder, columns={"shop.goods.flag": "varchar(9)"}, **settings)
    assert list(rebuild_feed(again.lake, again.feed))
    assert histories(again.lake) == before
    assert chain.quarantine() == other.quarantine() == []


def orders_at(folder: Path, position: int, rows: str, columns: str = '"id","v"') -> dict[str, Any]:
    """Write a dump of orders; return `initial_load` for it at a position. `rows`: the text of its file."""
    added = "" if columns == '"id","v"' else "  `w` int(11) DEFAULT NULL,\n"
    schema = ORDERS.replace("  PRIMARY", f"{added}  PRIMARY")
    write(folder, {"shop.orders-schema.sql": schema, "shop.orders.0.csv": f"{columns}\n{rows}"})
    table = {"path": str(folder), "position": position}
    return {"path": str(folder), "format": "dumpling-csv", "tables": {"shop.orders": table}}


def wide(commit_ts: int, key: int, v: str, w: int) -> Message:
    """Return an insert into orders after it got the column w."""
    row = {"id": str(key), "v": v, "w": str(w)}
    return dml("INSERT", commit_ts, row, {"id": "bigint", "v": "varchar", "w": "int"})


class ReloadedTable:
    """A running feed that loads a table again, at a position below its released watermark."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        before, s = Chain(spark, folder / "feed"), Stream()
        orders = Rows()
        s.watermark(tso(500))
        for number, v in enumerate(("one", "two", "three"), start=1):
            s.send(orders.insert(tso(600), number, v))
        s.send(orders.update(tso(650), 7, "seven now", "seven"))
        s.send(ddl("ALTER TABLE orders TRUNCATE PARTITION p0", tso(700), ddl_type="TRUNCATE TABLE PARTITION"))
        s.send(orders.insert(P - MS, 4, "four"))
        s.send(orders.update(P + MS, 2, "two later", "two"))
        s.send(orders.insert(P + MS, 9, "nine"))
        s.send(ddl("ALTER TABLE orders ADD COLUMN w INT DEFAULT 70", P + 2 * MS, ddl_type="ADD COLUMN"))
        s.send(wide(P + 3 * MS, 8, "eight", 80))
        s.send(orders.delete(P + 3 * MS, 5, "five"))
        s.watermark(P + 4 * MS)
        before.add(s.records)
        (self.report_before,) = before.run().history
        # The rows of the table at P, after its partition p0 was truncated.
        rows = '1,"one"\n2,"two"\n4,"quattro"\n5,"five"\n6,"six"\n'
        load = orders_at(folder / "dump", P, rows)
        self.chain = Chain(spark, folder / "feed", initial_load=load)
        self.reports = self.chain.run()
        self.stream = s


@pytest.fixture(scope="module")
def reloaded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ReloadedTable:
    return ReloadedTable(spark, tmp_path_factory.mktemp("anew"))


CLOSED_BY_THE_LOAD = [
    (3, "three", tso(600) - P, 0, "insert", "snapshot"),
    (7, "seven now", tso(650) - P, 0, "update", "snapshot"),
]


def test_a_reloaded_table_has_the_rows_of_the_dump_and_later_changes(reloaded: ReloadedTable) -> None:
    assert versions(reloaded.chain, "orders", "id", "v") == [
        (1, "one", tso(600) - P, None, "insert", None),
        (2, "two", tso(600) - P, MS, "insert", "update"),
        (2, "two later", MS, None, "update", None),
        CLOSED_BY_THE_LOAD[0],
        (4, "four", -MS, 0, "insert", "update"),
        (4, "quattro", 0, None, "snapshot", None),
        (5, "five", 0, 3 * MS, "snapshot", "delete"),
        (6, "six", 0, None, "snapshot", None),
        CLOSED_BY_THE_LOAD[1],
        (8, "eight", 3 * MS, None, "insert", None),
        (9, "nine", MS, None, "insert", None),
    ]
    cursor = reloaded.chain.lake.history("shop", "orders").cursor()
    assert cursor
    # `days` counts each version but the three that the load opened once, though most were written twice.
    assert (cursor.versions, cursor.days) == (11, {"2023-11-14": 8})
    open_rows = {r["id"]: r["w"] for r in reloaded.chain.history() if r["_cdc_is_current"]}
    assert open_rows == {1: 70, 2: 70, 4: 70, 6: 70, 8: 80, 9: 70}
    (report,) = reloaded.reports.history
    assert verify_written_tables(reloaded.chain.lake, reloaded.reports.history) == {}
    assert all_intervals(reloaded.chain.lake, "shop", "orders").passed
    assert all_events_placed(reloaded.chain.lake, reloaded.chain.feed).passed
    assert not reload_required(reloaded.report_before).passed
    assert reload_required(report).passed
    assert not history_complete(reloaded.report_before).passed
    assert history_complete(report).description.startswith(f"The history is complete from {P} ")
    life = explain_row(reloaded.chain.lake, reloaded.chain.feed, "shop.orders", ["3"])
    last = life.steps[0]
    assert (last.fate, last.op, last.reason) == (
        Fate.END,
        "snapshot",
        "The table was loaded again, and the dump does not have the row.",
    )
    assert [stage.name for stage in STAGES if stage.due(reloaded.chain.lake, reloaded.chain.feed)] == []


def test_a_rebuild_reloads_at_the_same_positions(reloaded: ReloadedTable, tmp_path: Path) -> None:
    chain = reloaded.chain.copy(tmp_path / "rebuilt")
    before = versions(chain, "orders", "id", "v", "w")
    again = [compare_table_with_rebuild(chain.lake, chain.feed, name) for name in chain.lake.histories()]
    assert [difference for difference in again if not difference.is_equal] == []
    assert list(rebuild_feed(chain.lake, chain.feed))
    assert versions(chain, "orders", "id", "v", "w") == before
    assert [stage.name for stage in STAGES if stage.due(chain.lake, chain.feed)] == []


def test_a_reload_waits_for_the_watermark_and_its_table_does_not(reloaded: ReloadedTable, tmp_path: Path) -> None:
    copy, at = reloaded.chain.copy(tmp_path / "feed"), P + 10 * MS
    rows, columns = '1,"one",70\n2,"two later",71\n6,"six",7', '"id","v","w"'
    settings = orders_at(tmp_path / "dump", at, rows, columns)  # its end is missing
    chain = Chain(copy.lake.spark, copy.folder, initial_load=settings)
    s = reloaded.stream
    s.send(wide(P + 5 * MS, 10, "ten", 100))
    s.watermark(P + 6 * MS)
    chain.add(s.records)
    released = chain.run().release.released
    cursor = chain.lake.released_changes.cursor()
    assert cursor is not None
    assert ([r.table for r in cursor.refused], cursor.holds, released) == (["orders"], [], 1)
    write(tmp_path / "dump", {"shop.orders.0.csv": f"{columns}\n{rows}0\n"})
    assert [stage.name for stage in STAGES if stage.due(chain.lake, chain.feed)] == ["initial_load"]
    assert chain.run().release.loaded == []
    assert [stage.name for stage in STAGES if stage.due(chain.lake, chain.feed)] == [], (
        "no stage is due while the load waits"
    )
    s.watermark(at + 1)
    chain.add(s.records)
    for stage in STAGES[:-1]:  # as if killed before the history
        stage.run(chain.lake, chain.feed)
    assert [stage.name for stage in STAGES if stage.due(chain.lake, chain.feed)] == ["history"]
    (report,) = chain.run().history
    assert (report.opened, report.closed) == (1, 5)
    now = [(r["id"], r["v"], r["w"], r["_cdc_op"]) for r in chain.versions() if r["_cdc_is_current"]]
    assert sorted(now) == [(1, "one", 70, "insert"), (2, "two later", 71, "snapshot"), (6, "six", 70, "snapshot")]
    closed = {r["id"] for r in chain.history() if r["_cdc_closed_by"] == "snapshot" and r["_cdc_to_ts"] == at}
    assert closed == {4, 8, 9, 10}


def test_a_reload_is_refused_where_it_may_lose_changes(reloaded: ReloadedTable, tmp_path: Path) -> None:
    copy = reloaded.chain.copy(tmp_path / "feed")
    chain = Chain(copy.lake.spark, copy.folder, initial_load=orders_at(tmp_path / "dump", P - 1, ""))
    (refused,) = LOAD.run(chain.lake, chain.feed).refused
    assert f"was taken at {P - 1} " in refused.why
    assert f"the table is already loaded at {P} " in refused.why
    released = chain.lake.released_changes.cursor()
    assert released is not None
    trimmed = replace(released, sequence=released.sequence + 1, trimmed=Trimmed(highest=P + MS))
    chain.lake.released_changes.commit(chain.lake.released_changes.stage_rows([]), trimmed)
    row = {"database": "shop", "table": "orders", "path": "dump", "position": P + MS, "is_reload": True}
    with pytest.raises(DumpError, match=rf"maintenance has deleted released changes up to {P + MS} "):
        check_position(chain.lake, row)
    keyless = {"database": "shop", "table": "notes", "path": "dump", "statement": NOTES, "is_reload": True}
    with pytest.raises(DumpError, match=r"shop[.]notes: has no key"):
        check_key(chain.lake, chain.feed, keyless)


def test_maintenance_keeps_changes_until_they_are_applied_again_after_a_load(
    reloaded: ReloadedTable, tmp_path: Path
) -> None:
    copy, at = reloaded.chain.copy(tmp_path / "feed"), P + 2 * MS + 1
    rows, columns = '1,"one",70\n2,"two later",70\n9,"nine",71\n', '"id","v","w"'
    settings = orders_at(tmp_path / "dump", at, rows, columns)
    chain = Chain(copy.lake.spark, copy.folder, initial_load=settings)
    for stage in STAGES[:-1]:  # as if killed before the history
        stage.run(chain.lake, chain.feed)
    other = chain.copy(tmp_path / "other")
    everything = time_of(P + 10 * MS)
    assert trim_changes(chain.lake, everything) == 0
    chain.run()
    now = [(r["id"], r["v"], r["w"], r["_cdc_op"]) for r in chain.versions() if r["_cdc_is_current"]]
    assert sorted(now) == [
        (1, "one", 70, "insert"),
        (2, "two later", 70, "update"),
        (8, "eight", 80, "insert"),
        (9, "nine", 71, "snapshot"),
    ]
    assert trim_changes(chain.lake, everything) > 0

    released = other.lake.released_changes.cursor()
    assert released is not None
    trimmed = replace(released, sequence=released.sequence + 1, tables=[], trimmed=Trimmed(highest=P + 3 * MS))
    other.lake.released_changes.commit(other.lake.released_changes.stage_rows([]), trimmed)
    (failure,) = HISTORY.run(other.lake, other.feed).failures
    assert str(failure.error) == (
        f"shop.orders was reloaded at {at}, but maintenance has deleted changes up to {P + 3 * MS}, which the history needs "
        "again: run the job rebuild."
    )


def test_a_late_table_waits_for_its_dump_while_the_others_go_on(spark: SparkSession, tmp_path: Path) -> None:
    late: dict[str, Any] = {"path": str(tmp_path / "late"), "position": P}
    load = {"path": str(write(tmp_path / "none", {})), "format": "dumpling-csv", "tables": {"shop.items": late}}
    chain, s = Chain(spark, tmp_path / "feed", tables={"include": ["shop.orders"]}), Stream()
    orders, items = Rows(), Rows(table="items")

    def run(at: int) -> Reports:
        s.watermark(at)
        chain.add(s.records)
        return chain.run()

    s.send(orders.insert(P - 3 * MS, 1, "one"))
    s.send(items.insert(P - 3 * MS, 1, "left out"))
    assert run(P - 2 * MS).release.excluded == 1
    chain = Chain(spark, tmp_path / "feed", initial_load=load)
    s.send(items.insert(P - MS, 2, "in the dump"))
    s.send(orders.insert(P + MS, 2, "two"))
    s.send(items.insert(P + MS, 3, "after it"))
    report = run(P + 2 * MS)
    assert [(h.table, h.reason, h.since, h.events) for h in report.release.holds] == [
        ("items", HoldReason.LOAD, P - 2 * MS, 2)
    ]
    assert [r["id"] for r in chain.versions()] == [1, 2]
    dump = {"shop.items-schema.sql": ORDERS.replace("orders", "items"), "shop.items.0.csv": HEADER + '1,"1"\n2,"2"\n'}
    write(tmp_path / "late", dump)
    chain.run()
    assert versions(chain, "items", "id", "v") == [
        (1, "1", 0, None, "snapshot", None),
        (2, "2", 0, None, "snapshot", None),
        (3, "after it", MS, None, "insert", None),
    ]
    assert all_events_placed(chain.lake, chain.feed).passed


def parquet_of_goods(place: Path) -> None:
    """Write the rows of goods as an export to Parquet has them: as text where Parquet has no type."""
    first, second, third = GOODS_VALUES
    sold = [None if r["sold"] is None else dt.datetime.fromisoformat(r["sold"]) for r in GOODS_VALUES]
    rows = [r | {"sold": s} for r, s in zip((first, second, third), sold, strict=True)]
    kinds = {
        "id": pa.decimal128(20, 0), "flag": pa.bool_(), "name": pa.string(), "price": pa.decimal128(12, 2),
        "weight": pa.float64(), "size": pa.string(), "tags": pa.string(), "bits": pa.int64(), "photo": pa.binary(),
        "hash": pa.binary(), "made": pa.timestamp("us"), "sold": pa.timestamp("us", tz="UTC"), "day": pa.date32(),
        "lasts": pa.string(), "vintage": pa.int32(), "more": pa.string(), "note": pa.string(),
    }  # fmt: skip
    flagged = [r | {"flag": None if r["flag"] is None else bool(r["flag"])} for r in rows]
    parquet.write_table(pa.table({c: pa.array([r[c] for r in flagged], t) for c, t in kinds.items()}), place)


@pytest.mark.extended
def test_a_dump_of_a_thousand_files_with_a_copy_of_one_is_loaded_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = {number: f"row {number}" for number in range(1_000)}
    files = {f"shop.orders.{number:09}.csv": f'"id","v"\n{number},"{v}"\n' for number, v in rows.items()}
    files["shop.orders.000001000.csv"] = files["shop.orders.000000007.csv"]
    folder = write(tmp_path / "dump", {"shop.orders-schema.sql": ORDERS, **files})
    load = {"path": str(folder), "format": "dumpling-csv", "position": P}
    chain = Chain(spark, tmp_path / "feed", initial_load=load)
    (report,) = chain.run().history
    assert (report.opened, report.current) == (1_000, 1_000)
    assert {r["id"]: r["v"] for r in chain.history()} == rows


@pytest.mark.parametrize("max_hashes", [2, 3], ids=["by Spark", "by hashes"])
def test_a_key_that_a_dump_has_twice_is_noticed_in_small_and_large_dumps(
    max_hashes: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_assets.stages.load.released_rows._MAX_HASHES", max_hashes)
    for name, third, typed in (("different", '3,"three"\n', 3), ("twice", '1,"one"\n', 0)):
        files = {"shop.orders-schema.sql": ORDERS, "shop.orders.0.csv": HEADER + '1,"one"\n2,"two"\n' + third}
        folder = write(tmp_path / name, {"metadata": METADATA, **files})
        chain = Chain(spark, tmp_path / f"{name}-feed", initial_load={"path": str(folder), "format": "dumpling-csv"})
        (report,) = chain.run().history
        released = chain.lake.released_changes.cursor()
        assert released is not None
        assert [(each.rows, each.typed) for each in released.loads] == [(3, typed)]
        assert report.current == len({"1", "2", third[0]})


def test_sql_and_parquet_hold_the_same_as_csv(spark: SparkSession, tmp_path: Path) -> None:
    sql = write(
        tmp_path / "sql",
        {"shop.goods-schema.sql": GOODS, "shop.goods.000000000.sql": SETTINGS + GOODS_SQL, "metadata": METADATA},
    )
    other = GOODS.replace("`goods`", "`wares`")
    typed = write(tmp_path / "parquet", {"shop.wares-schema.sql": other})
    parquet_of_goods(typed / "shop.wares.parquet")
    settings = {"path": str(typed), "format": "parquet", "position": P + MS}
    load = {"path": str(sql), "format": "dumpling-sql", "tables": {"shop.wares": settings}}
    chain = Chain(spark, tmp_path / "chain", initial_load=load, protocol="simple")
    chain.run()
    for table, position in (("goods", P), ("wares", P + MS)):
        rows = sorted(chain.history(table), key=lambda r: [18446744073709551615, 2, 3].index(int(r["id"])))
        assert {r["_cdc_from_ts"] for r in rows} == {position}
        assert [{c: v for c, v in r.items() if not c.startswith("_cdc_")} for r in rows] == GOODS_VALUES, table


def test_a_dump_without_a_position_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    chain = Chain(spark, tmp_path / "chain", initial_load={"path": str(tmp_path / "dump"), "format": "dumpling-csv"})

    def refused() -> str:
        with pytest.raises(DumpError) as error:
            LOAD.run(chain.lake, chain.feed)
        assert chain.lake.loads.cursor() is None
        return str(error.value)

    assert refused() == f"{tmp_path}/dump: there is no such folder."
    write(tmp_path / "dump", {"shop.orders-schema.sql": ORDERS})
    assert "has no file metadata; give initial_load a position:" in refused()
    write(tmp_path / "dump", {"metadata": "SHOW MASTER STATUS:\n\tLog: mysql-bin.000003\n\tPos: 154\n\tGTID:\n\n"})
    assert "is of a MySQL server, at mysql-bin.000003:154 of its binlog" in refused()


TWO_KEYS = "CREATE TABLE `t5` (`a` int NOT NULL, `b` int NOT NULL, UNIQUE KEY `a` (`a`), UNIQUE KEY `b` (`b`));\n"
DOUBLE_KEY = "CREATE TABLE `t4` (`id` double NOT NULL, `v` text, PRIMARY KEY (`id`));\n"
HEADER = '"id","v"\n'
# A table's name -> the files that damage its dump, and part of the reason that must be given.
DAMAGES: dict[str, tuple[dict[str, str | bytes], str]] = {
    "t1": ({"-schema.sql": "", ".0.csv": HEADER}, "/shop.t1-schema.sql: has no CREATE TABLE"),
    "t2": ({".0.csv": HEADER + '1,"one"\n2,"tw'}, "/shop.t2.0.csv: its end is missing"),
    "t3": ({".0.csv.zst": b""}, "/shop.t3.0.csv.zst: is compressed as .zst"),
    "t4": ({"-schema.sql": DOUBLE_KEY}, "shop.t4: id, double, identifies its rows"),
    "t5": ({"-schema.sql": TWO_KEYS}, "shop.t5: has no primary key but several unique keys"),
    "t6": ({"-schema.sql.gz": b"\x1f\x8b\x08cut"}, "/shop.t6-schema.sql.gz: cannot be read"),
    "cut": ({".0.csv": HEADER, ".1.csv.gz": gzip.compress(HEADER.encode())[:-9]}, "/shop.cut.1.csv.gz: cannot be read"),
    "latin": (
        {".0.csv": HEADER, ".1.csv": HEADER.encode() + b'1,"one"\r\n2,"d\xe9j\xe0"\n'},
        '/shop.latin.1.csv: line 3 is no row of shop.latin, in UTF-8 and in the default form of dumpling-csv: 2,"d',
    ),
    "wide": ({".0.csv": HEADER + '1,"one"\n2,"two",3\n'}, '/shop.wide.0.csv: line 3 is no row of shop.wide'),
    "other": ({".0.csv": '"id","w"\n1,"one"\n'}, "/shop.other.0.csv: has the columns id, w, and its schema file has id, v"),
    "utf16": ({".0.csv": (HEADER + '1,"one"\n').encode("utf-16")}, "/shop.utf16.0.csv: "),
}  # fmt: skip


def test_a_damaged_dump_of_a_table_is_refused_with_the_reason_and_the_others_are_loaded(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = write(
        tmp_path / "dump",
        {"metadata": METADATA, "shop.alone.0.csv": HEADER, "shop.fine.0.csv": HEADER + '1,"one"\n'}
        | {"shop.fine-schema.sql": ORDERS.replace("orders", "fine")},
    )
    for table, (files, _) in DAMAGES.items():
        schema = {} if "-schema.sql.gz" in files else {f"shop.{table}-schema.sql": ORDERS.replace("orders", table)}
        write(place, schema | {f"shop.{table}{name}": data for name, data in files.items()})
    chain = Chain(spark, tmp_path / "chain", initial_load={"path": str(place), "format": "dumpling-csv"})
    report = chain.run()
    assert [each.table for each in report.release.loaded] == ["fine"]
    cursor = chain.lake.released_changes.cursor()
    assert cursor is not None
    reasons = {table: reason for table, (_, reason) in DAMAGES.items()} | {"alone": "has no shop.alone-schema.sql"}
    refusals = {each.table: each.why for each in cursor.refused}
    assert refusals.keys() == reasons.keys()
    assert {table: why for table, why in refusals.items() if reasons[table] not in why} == {}
    assert [stage.name for stage in STAGES if stage.due(chain.lake, chain.feed)] == []


def test_the_check_of_a_table_whose_dump_is_damaged_fails_and_the_run_succeeds(job: Job) -> None:
    place = write(
        job.home / "dump",
        {"metadata": METADATA, "shop.items-schema.sql": ORDERS.replace("orders", "items"), "shop.items.0.csv": HEADER}
        | {"shop.orders-schema.sql": ORDERS, "shop.orders.0.csv": HEADER + '1,"one"'},
    )
    source = "source: {recorded: shop}"
    with_load = f"{source}\n    initial_load: {{path: dump, format: dumpling-csv}}"
    (job.home / "feeds.yaml").write_text(FEEDS.replace(source, with_load))
    s = Stream()
    for table in ("orders", "items"):
        s.send(Rows(table=table).insert(P + 1, 2, "two"))
    s.watermark(P + MS)
    job.add("shop", s.records)
    job.add("crm", [])
    done = job.run()
    assert done.success
    assert evaluations(done, "shop", "history", "shop", "items")["history_complete"].passed
    check = evaluations(done, "shop", "history", "shop", "orders")["history_complete"]
    assert (check.passed, check.severity) == (False, AssetCheckSeverity.ERROR)
    assert f"{place}/shop.orders.0.csv: its end is missing: copy it again." in str(check.description)
    write(place, {"shop.orders.0.csv": HEADER + '1,"one"\n'})
    done = job.run()
    assert done.success
    assert evaluations(done, "shop", "history", "shop", "orders")["history_complete"].passed


def test_the_position_of_a_dump_is_the_one_in_its_metadata(tmp_path: Path) -> None:
    # From Dumpling's own test of a TiDB server.
    text = "SHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: 420633273211289601\n\tGTID:\n\n"
    assert read_dump_position(LOCAL, str(write(tmp_path, {"metadata": text}))) == 420633273211289601


def test_a_dump_is_refused_where_changes_after_it_may_have_expired(spark: SparkSession, tmp_path: Path) -> None:
    place = write(tmp_path / "dump", {"shop.orders-schema.sql": ORDERS, "metadata": METADATA})
    chain = Chain(spark, tmp_path / "chain", initial_load={"path": str(place), "format": "dumpling-csv"})
    of_before, later = P - MS, P + MS
    kept = [  # partition 0 still has a change from before the dump, partition 1 only one from after it
        record(Rows().insert(of_before, 1, "a"), 0, 100),
        record(watermark(later), 0, 101),
        record(watermark(later), 1, 200),
    ]
    chain.add(kept)
    INGEST.run(chain.lake, chain.feed)
    DECODE.run(chain.lake, chain.feed)
    reason = (
        f"was taken at {P} [(].*[)]; topic {TOPIC}, partition 1 begins at offset 200 with commit_ts {later} [(].*[)]: "
        "changes between the two may"
    )
    (refused,) = LOAD.run(chain.lake, chain.feed).refused
    assert re.search(reason, refused.why)
    assert not LOAD.due(chain.lake, chain.feed)
    # With its first record, the partition has lost nothing.
    chain.add([record(watermark(of_before), 1, 0)])
    INGEST.run(chain.lake, chain.feed)
    DECODE.run(chain.lake, chain.feed)
    (planned,) = LOAD.run(chain.lake, chain.feed).planned
    assert (planned["table"], planned["position"]) == ("orders", P)


def test_a_key_has_its_columns_in_the_order_of_the_messages() -> None:
    # As recorded: `pkNames` of Canal-JSON has the columns' order, Open Protocol has none, Simple has the index's order.
    text = "CREATE TABLE t (c INT NOT NULL, b INT NOT NULL, a INT NOT NULL, PRIMARY KEY (b, a, c))"
    schema = apply_ddl({}, text, "shop").tables["shop", "t"]
    keys = {p.name: p.sent_key_columns(schema) for p in (CanalJson(), OpenProtocol(), Simple())}
    assert keys == {"canal-json": ["c", "b", "a"], "open-protocol": ["a", "b", "c"], "simple": ["b", "a", "c"]}


def test_rows_that_a_rename_brought_before_the_dump_are_not_brought_again() -> None:
    sent = {
        "commit_ts": 10,
        "default_database": "shop",
        "message_table": "a",
        "topic": "t",
        "partition": 0,
        "offset": 0,
    }
    sent |= {"ddl_statement": "RENAME TABLE a TO b", "ddl_type": None, "table_schemas": None}
    schemas, _ = apply_statements(CanalJson(), [sent], {})
    renamed = read_statements(schemas, schemas, {})

    def actions(loaded: dict[tuple[str, str], int]) -> dict[str, list[str]]:
        tables = evolve_tables(renamed, {}, loaded=loaded)
        return {name: [type(op).__name__ for step in t.steps for op in step.ops] for (_, name), t in tables.items()}

    assert actions({}) == {"a": ["Close"], "b": ["Arrive"]}
    assert actions({("shop", "b"): 9}) == {"a": ["Close"], "b": ["Arrive"]}
    assert actions({("shop", "b"): 10}) == {"a": ["Close"], "b": []}
