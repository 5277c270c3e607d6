"""Compare a history with the source's rows on a real MariaDB server. One small feed, run once."""

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc_assets import cli
from cdc_assets.config.jdbc import PASSWORD, USER, JdbcUrlError, ServerAddress
from cdc_assets.lakehouse import query
from cdc_assets.mysql_types.canonical import CanonicalForm, canonical_form
from cdc_assets.operations.verify import compare, differences
from cdc_assets.operations.verify.compare import verify_history
from cdc_assets.operations.verify.verification import Verification
from cdc_assets.operations.why.life import Fate
from cdc_assets.sources.mysql import DatabaseSnapshot, open_snapshot
from cdc_assets_tests import mariadb
from cdc_assets_tests.mariadb import MariaDB
from cdc_assets_tests.support import Chain, Rows, Stream, ddl, dml, tso

RELEASED = 100
EVERY_BYTE = bytes(range(256))
LONG = "12345678901234567890123456789012345678901234567890"  # digits

# column: its type; a value in Canal-JSON and in SQL; another value in SQL; the text of both for people.
KINDS: dict[str, tuple[str, str, str, str, str, str]] = {
    "i8": ("tinyint", "-128", "-128", "-127", "-128", "-127"),
    "u8": ("tinyint unsigned", "255", "255", "254", "255", "254"),
    "i16": ("smallint", "-32768", "-32768", "0", "-32768", "0"),
    "i24": ("mediumint", "8388607", "8388607", "-8388608", "8388607", "-8388608"),
    "u32": ("int unsigned", "4294967295", "4294967295", "10", "4294967295", "10"),
    "i64": ("bigint", "9223372036854775807", "9223372036854775807", "9223372036854775806", "9223372036854775807",
            "9223372036854775806"),
    "u64": ("bigint unsigned zerofill", "18446744073709551615", "18446744073709551615", "17", "18446744073709551615", "17"),
    "n": ("decimal(20,4)", "-1234567890123456.7800", "-1234567890123456.78", "0.0001", "-1234567890123456.78", "0.0001"),
    "long_n": ("decimal(65,10)", f"{LONG}.0000000100", f"{LONG}.00000001", f"{LONG}", f"{LONG}.00000001", LONG),
    "f": ("float", "1.1", "1.1", "1.1000001", "1.100000023841858", "1.1000001430511475"),
    "d": ("double", "-1.5e-7", "-1.5e-7", "-1.6e-7", "-0.00000015", "-0.00000016"),
    "b9": ("bit(9)", "257", "b'100000001'", "b'1'", "257", "1"),
    "b64": ("bit(64)", "18446744073709551615", "~0", "~0 - 1", "18446744073709551615", "18446744073709551614"),
    "c": ("char(5) character set latin1", "ÿé", "'ÿé'", "'ÿe'", "ÿé", "ÿe"),
    "v": ("varchar(40) collate utf8mb4_general_ci", "Straße 😀", "'Straße 😀'", "'strasse 😀'", "Straße 😀", "strasse 😀"),
    "t": ("text character set gbk", "漢字\n\\", r"'漢字\n\\'", r"'漢字\n\\ '", "漢字\n\\", "漢字\n\\ "),
    "lt": ("longtext", "x" * 70000, "repeat('x', 70000)", "'y'", "x" * 70000, "y"),
    "bin": ("binary(4)", "a\0\0\0", "'a'", "'b'", "0x61000000", "0x62000000"),
    "vb": ("varbinary(300)", EVERY_BYTE.decode("latin-1"), f"x'{EVERY_BYTE.hex()}'", "x'00'",
           f"0x{EVERY_BYTE.hex()}", "0x00"),
    "bl": ("blob", "", "''", "NULL", "0x", "NULL"),
    "e": ("enum('a','ö')", "2", "'ö'", "'a'", "ö", "a"),
    "s": ("set('x','y')", "3", "'x,y'", "''", "x,y", ""),
    "dt": ("date", "2024-02-29", "'2024-02-29'", "'0001-01-01'", "2024-02-29", "0001-01-01"),
    "dtm": ("datetime(3)", "2024-02-29 23:59:59.120", "'2024-02-29 23:59:59.12'", "'9999-12-31 23:59:59.999'",
            "2024-02-29 23:59:59.120000", "9999-12-31 23:59:59.999000"),
    "ts": ("timestamp(6)", "2024-06-01 12:00:00.000001", "'2024-06-01 12:00:00.000001'", "'2024-06-01 12:00:00'",
           "2024-06-01 12:00:00.000001", "2024-06-01 12:00:00.000000"),
    "tm": ("time(2)", "-838:59:59.00", "'-838:59:59'", "'08:00:00.5'", "-838:59:59.000000", "08:00:00.500000"),
    "y": ("year", "2155", "2155", "1901", "2155", "1901"),
}  # fmt: skip
PLAIN, ODD, NULLS, COPIES = 1, 2, 3, 100
# The second row's values; the first of them are no valid dates.
ODD_VALUES = {
    "dt": ("0000-00-00", "'0000-00-00'"),
    "dtm": ("2023-02-30 00:00:00.000", "'2023-02-30'"),
    "ts": ("0000-00-00 00:00:00.000000", "'0000-00-00'"),
    "d": ("123456789012345680000", "123456789012345680000"),
    "f": ("-0", "-0e0"),
    "tm": ("00:00:00.01", "'00:00:00.01'"),
    "n": ("0.0000", "0"),
    "v": ("", "''"),
    "u64": ("100", "100"),
    "c": (" x", "' x  '"),
}
PAIR_KEYS = [('é"\\\n\t/€', EVERY_BYTE), ("A", b""), ("[1]", b"\0")]


def on_the_wire(type_text: str) -> str:
    """Return the name that TiCDC gives a type: without parameters."""
    base = type_text.partition("(")[0].partition(" ")[0]
    return f"{base} unsigned" if " unsigned" in type_text else base


TYPES = {"id": "bigint"} | {c: on_the_wire(kind[0]) for c, kind in KINDS.items()}
ODD_KEY = {"a": "varchar", "b": "varbinary", "n": "int"}


def rows() -> dict[int, dict[str, tuple[str | None, str]]]:
    """Return id -> column -> the value in messages, and in SQL."""
    values = {c: (wire, sql) for c, (_, wire, sql, *_) in KINDS.items()}
    made: dict[int, Any] = {PLAIN: values, ODD: values | ODD_VALUES, NULLS: dict.fromkeys(KINDS, (None, "NULL"))}
    return made | {COPIES + n: values for n in range(len(KINDS))}


def columns_sql() -> str:
    return ", ".join(f"`{c}` {kind} NULL" for c, (kind, *_) in KINDS.items())


@pytest.fixture(scope="module")
def feed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """The feed shop, run once; tests do not change it."""
    it, made = Stream(), Chain(spark, tmp_path_factory.mktemp("verified"))
    made.lake = replace(made.lake, feed="shop")
    it.send(ddl(f"CREATE TABLE kinds (id BIGINT PRIMARY KEY, {columns_sql()})", tso(1), table="kinds"))
    for key, row in rows().items():
        image = {"id": str(key)} | {c: wire for c, (wire, _) in row.items()}
        it.send(dml("INSERT", tso(2), image, TYPES, table="kinds"))
    for n, (a, b) in enumerate(PAIR_KEYS):
        image = {"a": a, "b": b.decode("latin-1"), "n": str(n)}
        it.send(dml("INSERT", tso(3), image, ODD_KEY, key=("a", "b"), table="odd.pairs"))
    logs, orders = Rows(table="logs"), Rows()
    for _ in range(2):
        it.send(logs.insert(tso(3), 1, "twice") | {"pkNames": None})
    for n in range(40):
        it.send(orders.insert(tso(4), n, f"v{n}"))
    it.send(orders.update(tso(6), 7, "later", "v7"))
    counts = {"id": "bigint", "n": "int"}
    for n in range(3):
        it.send(dml("INSERT", tso(4), {"id": str(n), "n": str(n)}, counts, table="counts"))
    it.send(ddl("RENAME TABLE `counts` TO `totals`", tso(5), table="counts", ddl_type="RENAME"))
    it.send(ddl("ALTER TABLE `totals` MODIFY COLUMN `n` BIGINT", tso(6), table="totals", ddl_type="ALTER"))
    wide, old = counts | {"n": "bigint"}, {"id": "2", "n": "2"}
    it.send(dml("UPDATE", tso(7), {"id": "2", "n": "5000000000"}, wide, old=old, table="totals"))
    it.watermark(tso(RELEASED))
    it.send(orders.insert(tso(RELEASED + 1), 1000, "pending"))
    made.add(it.records)
    made.run()
    return made


@pytest.fixture
def source(mariadb_server: MariaDB, monkeypatch: pytest.MonkeyPatch) -> MariaDB:
    """The MariaDB server with the rows that the feed's messages state."""
    monkeypatch.setenv(USER, mariadb.USER)
    monkeypatch.setenv(PASSWORD, mariadb.PASSWORD)
    mariadb_server.run(
        "SET NAMES utf8mb4",
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'",
        "DROP DATABASE IF EXISTS shop",
        "CREATE DATABASE shop CHARACTER SET utf8mb4",
        "USE shop",
        f"CREATE TABLE kinds (id BIGINT PRIMARY KEY, {columns_sql()})",
        *(
            f"INSERT INTO kinds VALUES ({key}, {', '.join(sql for _, sql in row.values())})"
            for key, row in rows().items()
        ),
        "CREATE TABLE `odd.pairs` (a VARCHAR(40), b VARBINARY(300), n INT, PRIMARY KEY (a, b))",
        *(
            f"INSERT INTO `odd.pairs` VALUES (CONVERT(x'{a.encode().hex()}' USING utf8mb4), x'{b.hex()}', {n})"
            for n, (a, b) in enumerate(PAIR_KEYS)
        ),
        "CREATE TABLE logs (id BIGINT, v VARCHAR(20))",
        "INSERT INTO logs VALUES (1, 'twice'), (1, 'twice')",
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO orders VALUES " + ", ".join(f"({n}, 'v{n}')" for n in range(40)),
        "UPDATE orders SET v = 'later' WHERE id = 7",
        "CREATE TABLE totals (id BIGINT PRIMARY KEY, n BIGINT)",
        "INSERT INTO totals VALUES (0, 0), (1, 1), (2, 5000000000)",
    )
    return mariadb_server


def no_session() -> SparkSession:
    raise AssertionError("a JVM is asked for")


def against(feed: Chain, source: MariaDB, table: str, at: int = tso(RELEASED) - 1, samples: int = 100) -> Verification:
    """Verify a table, without a JVM."""
    lake = replace(feed.lake, session=no_session)
    return verify_history(lake, feed.feed, ("shop", table), ServerAddress.from_jdbc_url(source.url), at, samples)


@pytest.mark.parametrize("table", ["kinds", "odd.pairs", "logs", "orders"])
def test_equal_tables_have_no_differences(feed: Chain, source: MariaDB, table: str) -> None:
    result = against(feed, source, table)
    assert (result.counts, result.samples) == ({"missing": 0, "extra": 0, "changed": 0}, [])
    assert (result.is_equal, result.differing_chunks, result.not_compared) == (True, 0, {})
    assert (
        result.rows == result.source_rows == {"kinds": 3 + len(KINDS), "odd.pairs": 3, "logs": 2, "orders": 40}[table]
    )


def test_a_changed_value_of_every_type_is_reported(feed: Chain, source: MariaDB) -> None:
    for n, (column, kind) in enumerate(KINDS.items()):
        source.run(f"UPDATE kinds SET `{column}` = {kind[3]} WHERE id = {COPIES + n}")
    result = against(feed, source, "kinds")
    assert result.counts == {"missing": 0, "extra": 0, "changed": len(KINDS)}
    shown = {int(s.key["id"] or 0): (s.history, s.source) for s in result.samples}
    for n, (column, kind) in enumerate(KINDS.items()):
        theirs = None if kind[5] == "NULL" else kind[5]
        assert shown[COPIES + n] == ({column: kind[4]}, {column: theirs})
    for each in result.samples:
        assert (each.life.verdict.split(",")[0], each.life.steps[0].fate) == ("The row is there", Fate.VERSION)


def test_missing_rows_and_what_became_of_them(feed: Chain, source: MariaDB) -> None:
    source.run("INSERT INTO orders VALUES (1000, 'pending'), (1001, 'never sent')")
    result = against(feed, source, "orders")
    assert result.counts == {"missing": 2, "extra": 0, "changed": 0}
    pending, never = sorted(result.samples, key=lambda s: str(s.key["id"]))
    assert (pending.kind, pending.history, pending.source) == ("missing", None, {"id": "1000", "v": "pending"})
    assert [s.fate for s in pending.life.steps] == [Fate.PENDING]
    assert (never.source, never.life.verdict) == (
        {"id": "1001", "v": "never sent"},
        "The feed has no event of this key.",
    )


def test_extra_rows_and_null_and_swapped_values(feed: Chain, source: MariaDB, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are in several chunks; values that two rows have swapped change the digest."""
    monkeypatch.setattr(compare, "_ROWS_A_CHUNK", 4)
    monkeypatch.setattr(differences, "_MAX_ROWS_IN_MEMORY", 1)
    source.run(
        "DELETE FROM orders WHERE id = 3",
        "UPDATE orders SET v = NULL WHERE id = 20",
        "UPDATE orders SET v = IF(id = 30, 'v31', 'v30') WHERE id IN (30, 31)",
    )
    result = against(feed, source, "orders")
    assert (result.chunks, result.counts) == (11, {"missing": 0, "extra": 1, "changed": 3})
    assert 1 <= result.differing_chunks <= 4
    shown = {s.key["id"]: (s.kind, s.history, s.source) for s in result.samples}
    assert shown == {
        "3": ("extra", {"id": "3", "v": "v3"}, None),
        "20": ("changed", {"v": "v20"}, {"v": None}),
        "30": ("changed", {"v": "v30"}, {"v": "v31"}),
        "31": ("changed", {"v": "v31"}, {"v": "v30"}),
    }
    assert {s.life.key for s in result.samples} == {'["3"]', '["20"]', '["30"]', '["31"]'}


def test_as_of_an_older_position(feed: Chain, source: MariaDB) -> None:
    result = against(feed, source, "orders", at=tso(5))
    assert [(s.history, s.source) for s in result.samples] == [({"v": "v7"}, {"v": "later"})]


@pytest.mark.extended
def test_keys_of_odd_bytes(feed: Chain, source: MariaDB) -> None:
    """Keys differ in letter case, whatever the collation; a key that only the source has is looked up in the events."""
    source.run("UPDATE `odd.pairs` SET a = 'a' WHERE a = 'A'", "UPDATE `odd.pairs` SET n = 9 WHERE b = x'00'")
    result = against(feed, source, "odd.pairs")
    assert result.counts == {"missing": 1, "extra": 1, "changed": 1}
    shown = {s.kind: (s.key, s.life.verdict.split(",")[0]) for s in result.samples}
    assert shown == {
        "missing": ({"a": "a", "b": "0x"}, "The feed has no event of this key."),
        "extra": ({"a": "A", "b": "0x"}, "The row is there"),
        "changed": ({"a": "[1]", "b": "0x00"}, "The row is there"),
    }


def test_a_table_that_was_renamed_and_widened(feed: Chain, source: MariaDB, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Spark reads it, in several parts."""
    monkeypatch.setattr(query, "_ROWS_A_BATCH", 1)
    source.run("UPDATE totals SET n = n + 1 WHERE id > 0", "INSERT INTO totals VALUES (9, NULL)")
    names, at = ("shop", "totals"), tso(RELEASED) - 1
    result = verify_history(feed.lake, feed.feed, names, ServerAddress.from_jdbc_url(source.url), at)
    assert (result.rows, result.source_rows, result.counts) == (3, 4, {"missing": 1, "extra": 0, "changed": 2})
    shown = {(s.kind, s.key["id"]): (s.history, s.source) for s in result.samples}
    assert shown == {
        ("missing", "9"): (None, {"id": "9", "n": None}),
        ("changed", "1"): ({"n": "1"}, {"n": "2"}),
        ("changed", "2"): ({"n": "5000000000"}, {"n": "5000000001"}),
    }
    (renamed,) = [s.life.steps for s in result.samples if s.key["id"] == "1"]
    assert [(s.commit_ts, s.op) for s in renamed] == [(tso(5), "ddl")]


def test_equal_rows_are_counted(feed: Chain, source: MariaDB) -> None:
    """The table has no key; one of three equal rows is missing, and another row."""
    source.run("INSERT INTO logs VALUES (1, 'twice'), (2, NULL)")
    result = against(feed, source, "logs")
    assert result.counts == {"missing": 2, "extra": 0, "changed": 0}
    assert {json.dumps(s.key) for s in result.samples} == {'{"id": "1", "v": "twice"}', '{"id": "2", "v": null}'}
    source.run("DELETE FROM logs")
    assert against(feed, source, "logs").counts == {"missing": 0, "extra": 2, "changed": 0}


def test_columns_of_one_side_and_without_a_common_text(feed: Chain, source: MariaDB) -> None:
    source.run("ALTER TABLE orders ADD COLUMN w INT", "ALTER TABLE kinds DROP COLUMN y, MODIFY lt BLOB")
    assert against(feed, source, "orders").not_compared == {"w": "only the source has it"}
    result = against(feed, source, "kinds")
    assert result.is_equal
    assert result.not_compared == {
        "y": "only the history has it",
        "lt": "the source has it as blob, the history as string",
    }


@pytest.mark.parametrize(
    ("kind", "history", "why"),
    [
        ("json", pa.string(), "each server and protocol writes JSON in its own way"),
        ("point", pa.binary(), "servers give coordinates in the order of their reference system"),
        ("inet6", pa.string(), "inet6 is not a MySQL type"),
    ],
)
def test_types_without_a_common_text(kind: str, history: pa.DataType, why: str) -> None:
    form = canonical_form(kind, history)
    assert not isinstance(form, CanonicalForm)
    assert form.startswith(why)


LEAST, LARGEST = f"0.{'0' * 29}1", f"{'9' * 35}.{'9' * 30}"


@pytest.mark.parametrize(
    ("kind", "held", "values", "texts"),
    [
        (
            "double",
            pa.float64(),
            [1e20, -0.0, 1.5e-7, 1e-40, -1e-40, 5e-31, 1234567890123456.8, 1e300, -1e40, None],
            [
                f"1{'0' * 20}",
                "0",
                "0.00000015",
                "0",
                "0",
                f"0.{'0' * 29}1",
                "1234567890123456.8",
                LARGEST,
                f"-{LARGEST}",
                None,
            ],
        ),
        (
            "decimal(30,10)",
            pa.decimal128(30, 10),
            [Decimal("0.00000001"), Decimal("-120.5"), Decimal(0), Decimal(100), None],
            ["0.00000001", "-120.5", "0", "100", None],
        ),
        ("time(2)", pa.string(), ["-838:59:59.12", "08:00:00", None], ["-838:59:59.120000", "08:00:00.000000", None]),
    ],
)
def test_texts_are_those_of_the_server(
    kind: str, held: pa.DataType, values: list[Any], texts: list[str | None]
) -> None:
    """CAST AS DECIMAL(65,30) cuts doubles off at its largest value; the texts come from a MariaDB server."""
    form = canonical_form(kind, held)
    assert isinstance(form, CanonicalForm)
    assert form.text(pa.array(values, held)).to_pylist() == [None if t is None else t.encode() for t in texts]


@pytest.fixture
def home(feed: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The feed in a feeds file."""
    (tmp_path / "feeds.yaml").write_text(
        f"feeds: {{shop: {{protocol: canal-json, tidb_extension: true, source: {{recorded: {feed.snapshots}}}}}}}\n"
    )
    monkeypatch.setenv("CDC_FEEDS", str(tmp_path / "feeds.yaml"))
    monkeypatch.setenv("CDC_LAKEHOUSE", feed.lake.root)


@pytest.mark.usefixtures("home")
def test_the_command(source: MariaDB, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["verify", "shop", "shop.orders", "--jdbc", source.url]
    assert cli.main(command) == 0
    head, _, caveat = capsys.readouterr().out.splitlines()
    assert head.startswith(f"shop.orders as of {tso(RELEASED) - 1} (")
    assert ") against MariaDB as it is now, at binlog " in head
    assert head.endswith(": equal")
    assert caveat == (
        "The source is read as it is now: what it did after the position shows as a difference, "
        "and a difference that it has undone since does not show."
    )
    source.run("UPDATE orders SET v = 'other' WHERE id = 7")
    assert cli.main(command) == 1
    text = capsys.readouterr().out
    assert '  changed id="7": v: "later" in the history, "other" in the source\n' in text
    assert "\n    The row is there, unchanged since " in text
    assert cli.main([*command, "--at", str(tso(RELEASED + 5)), "--json"]) == 1
    output = json.loads(capsys.readouterr().out)
    assert (output["counts"]["changed"], output["samples"][0]["source"]) == (1, {"v": "other"})
    assert output["caveats"][0].startswith(f"Position {tso(RELEASED + 5)} is not final yet: the table is final up to ")


@pytest.mark.usefixtures("home")
def test_an_error_of_the_source_is_one_line(
    source: MariaDB, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["verify", "shop", "shop.orders", "--jdbc", source.url]
    source.run("DROP TABLE orders")
    assert cli.main(command) == 1
    assert capsys.readouterr().err == "the source database answers: Table 'shop.orders' doesn't exist\n"
    monkeypatch.setenv(PASSWORD, "guessed-wrong")
    assert cli.main(command) == 1
    output = capsys.readouterr().err
    assert output.startswith("the source database answers: Access denied for user 'verifier'@")
    assert "guessed-wrong" not in output
    monkeypatch.delenv(USER)
    assert cli.main(command) == 1
    assert capsys.readouterr().err.startswith("CDC_VERIFY_USER is not set")


def test_a_snapshot_stays_as_it_is(source: MariaDB) -> None:
    with open_snapshot(ServerAddress.from_jdbc_url(source.url), 0) as taken:
        before = list(taken.rows("SELECT COUNT(*) FROM shop.orders"))
        source.run("DELETE FROM orders WHERE id < 10")
        assert list(taken.rows("SELECT COUNT(*) FROM shop.orders")) == before
        file, position = source.run("SHOW MASTER STATUS")[0][:2]
        assert file in taken.description
        assert int(taken.description.rsplit(":", 1)[1]) < position


class Servers:
    """A connection that records the queries, and answers as a server of a version."""

    def __init__(self, version: str) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, list[tuple[str, ...]]] = {
            "SELECT VERSION()": [(version,)],
            "SHOW BINARY LOG STATUS": [("binlog.000002", "157", "", "")],
        }
        self.answers["SHOW MASTER STATUS"] = self.answers["SHOW BINARY LOG STATUS"]

    def cursor(self, _: object) -> "Servers":
        return self

    def execute(self, sql: str) -> None:
        self.asked.append(sql)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self.answers.get(self.asked[-1], []))

    def close(self) -> None:
        pass


def test_tidb_is_asked_as_of_the_position() -> None:
    """The position has the logical part of the TSO."""
    server: Any = Servers("8.0.11-TiDB-v8.5.1")
    taken = DatabaseSnapshot(server, tso(5, 3))
    assert server.asked[-1] == f"SET SESSION tidb_snapshot = '{tso(5, 3)}'"
    assert (taken.is_at_position, taken.description) == (True, f"TiDB as of {tso(5, 3)}")


@pytest.mark.parametrize(
    ("version", "status"), [("8.0.36", "MASTER"), ("8.4.3-log", "BINARY LOG"), ("5.7.44", "MASTER")]
)
def test_mysql_states_the_binlog_before_and_after_the_snapshot(version: str, status: str) -> None:
    """The snapshot takes no lock."""
    server: Any = Servers(version)
    assert DatabaseSnapshot(server, 0).description == "MySQL as it is now, at binlog binlog.000002:157"
    asked = [sql for sql in server.asked if sql != "SELECT VERSION()"]
    assert [sql.partition(" WITH ")[0] for sql in asked[-4:]] == [
        f"SHOW {status} STATUS",
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "START TRANSACTION",
        f"SHOW {status} STATUS",
    ]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (
            "jdbc:mysql://db.example:4000/shop?useSSL=false&sslMode=verify_identity",
            ("db.example", 4000, "VERIFY_IDENTITY"),
        ),
        ("jdbc:mariadb://[::1]", ("::1", 3306, "PREFERRED")),
    ],
)
def test_addresses(url: str, address: tuple[str, int, str]) -> None:
    assert ServerAddress.from_jdbc_url(url) == ServerAddress(*address)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("mysql://db/", "not a JDBC URL of a MySQL server"),
        ("jdbc:postgresql://db/", "not a JDBC URL of a MySQL server"),
        ("jdbc:mysql://db:x/", "not a JDBC URL of a MySQL server"),
        ("jdbc:mysql://root:hunter2@db/", "the URL contains a user or a password: set CDC_VERIFY_USER"),
        ("jdbc:mysql://db/?user=root&password=hunter2", "the URL contains a user or a password: set CDC_VERIFY_USER"),
        ("jdbc:mysql://db/?sslMode=SOME", "sslMode SOME: unknown; allowed: DISABLED"),
    ],
)
def test_addresses_that_are_refused(url: str, why: str) -> None:
    with pytest.raises(JdbcUrlError, match=f"^{why}") as raised:
        ServerAddress.from_jdbc_url(url)
    assert "hunter2" not in str(raised.value)
