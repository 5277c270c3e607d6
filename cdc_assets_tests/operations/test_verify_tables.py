"""Compare histories with a MariaDB server whose rows change: which rows the job waits for, and which differences stay."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.config import SourceComparison
from cdc_assets.config.jdbc import PASSWORD, USER
from cdc_assets.operations.verify import tables
from cdc_assets.operations.verify.sides import RowVersion
from cdc_assets.operations.verify.tables import holds_image, verify_tables
from cdc_assets.operations.verify.verification import Grade, NotCompared, Verification
from cdc_assets_tests import mariadb
from cdc_assets_tests.mariadb import MariaDB
from cdc_assets_tests.ports import free_port
from cdc_assets_tests.support import Chain, Message, Rows, Stream, ddl, tso

ORDERS, LOGS, ITEMS = Rows(table="orders"), Rows(table="logs"), Rows(table="items")
RELEASED = 100
NONE = {"missing": 0, "extra": 0, "changed": 0}
Act = Callable[[], object]


class Follower(logging.Handler):
    """Records the log lines of a comparison, and acts once when it waits for the history."""

    def __init__(self, lines: list[str], act: Act | None) -> None:
        super().__init__()
        self._lines = lines
        self._act = act

    def emit(self, record: logging.LogRecord) -> None:
        """Record a line."""
        self._lines.append(record.getMessage())
        if "waiting at most" in record.getMessage() and self._act:
            act, self._act = self._act, None
            act()


class Feed:
    """A feed of the server's tables: the next run releases what is sent."""

    def __init__(self, chain: Chain, stream: Stream, server: MariaDB) -> None:
        self.chain = chain
        self.stream = stream
        self.server = server
        self.lines: list[str] = []

    def ingest(self, *messages: Message, watermark: int) -> None:
        """Run the pipeline so that it releases these messages."""
        seen = len(self.stream.records)
        for message in messages:
            self.stream.send(message)
        self.stream.watermark(tso(watermark))
        self.chain.add(self.stream.records[seen:])
        self.chain.run()

    def verify(
        self, *names: str, meanwhile: Act | None = None, **settings: Any
    ) -> dict[str, Verification | NotCompared]:
        """Compare tables, and act as soon as the source is read, if a table differs."""
        follower = Follower(self.lines, meanwhile)
        log = logging.getLogger(__name__)
        log.setLevel(logging.INFO)
        log.addHandler(follower)
        given = {"jdbc": self.server.url, "cron": "0 4 * * *", "settle_minutes": 1} | settings
        lake = replace(self.chain.lake, session=no_session)
        pairs = [("shop", name) for name in names]
        try:
            outcomes = verify_tables(lake, self.chain.feed, SourceComparison.model_validate(given), pairs, log)
            return {table: outcome for (_, table), outcome in outcomes}
        finally:
            log.removeHandler(follower)


def no_session() -> SparkSession:
    raise AssertionError("a JVM is asked for")


def begin() -> Stream:
    it = Stream()
    for n in range(4):
        it.send(ORDERS.insert(tso(2), n, f"v{n}"))
    for _ in range(2):
        it.send(LOGS.insert(tso(3), 1, "twice") | {"pkNames": None})
    it.send(ITEMS.insert(tso(3), 1, "a"))
    it.send(Rows(table="keyless").insert(tso(3), 1, "a"))
    it.send(Rows(table="left").insert(tso(3), 1, "a"))
    it.send(ddl("DROP TABLE `left`", tso(4), table="left", ddl_type="ERASE"))
    it.watermark(tso(RELEASED))
    return it


@pytest.fixture(scope="module")
def begun(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """A feed of five tables, run once; tests do not change it."""
    chain = Chain(spark, tmp_path_factory.mktemp("begun"))
    chain.add(begin().records)
    chain.run()
    return chain


@pytest.fixture
def feed(begun: Chain, mariadb_server: MariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Feed:
    """A copy of the feed, and the server with the rows that its messages state."""
    monkeypatch.setenv(USER, mariadb.USER)
    monkeypatch.setenv(PASSWORD, mariadb.PASSWORD)
    monkeypatch.setattr(tables, "_POLL_SECONDS", 0.1)
    mariadb_server.run(
        "DROP DATABASE IF EXISTS shop",
        "CREATE DATABASE shop CHARACTER SET utf8mb4",
        "USE shop",
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO orders VALUES (0, 'v0'), (1, 'v1'), (2, 'v2'), (3, 'v3')",
        "CREATE TABLE logs (id BIGINT, v VARCHAR(20))",
        "INSERT INTO logs VALUES (1, 'twice'), (1, 'twice')",
        "CREATE TABLE items (id BIGINT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO items VALUES (1, 'a')",
        "CREATE TABLE keyless (v VARCHAR(20))",
    )
    return Feed(begun.copy(tmp_path / "copy"), begin(), mariadb_server)


def compared(outcome: Verification | NotCompared) -> Verification:
    assert isinstance(outcome, Verification), outcome
    return outcome


def why(outcome: Verification) -> dict[str, tuple[str | None, str]]:
    """Return kind of difference -> key and verdict of its sample."""
    return {each.kind: (each.key["id"], each.life.verdict.split(",")[0]) for each in outcome.samples}


def test_equal_tables_pass_without_a_wait(feed: Feed) -> None:
    outcomes = feed.verify("orders", "logs", "items")
    for outcome in map(compared, outcomes.values()):
        assert (outcome.grade, outcome.counts, outcome.position) == (Grade.PASSED, NONE, tso(RELEASED) - 1)
        assert outcome.digest == outcome.source_digest
        assert len(outcome.digest) == 64
        assert "MariaDB" in outcome.server
        assert outcome.versions.keys() == {"cdc-assets", "pyspark", "delta-spark"}
    assert len({compared(outcome).digest for outcome in outcomes.values()}) == 3
    assert feed.lines == []


def test_differences_of_each_kind_stay(feed: Feed) -> None:
    feed.server.run(
        "DELETE FROM orders WHERE id = 1",
        "UPDATE orders SET v = 'other' WHERE id = 2",
        "INSERT INTO orders VALUES (9, 'never sent')",
    )
    outcome = compared(feed.verify("orders", settle_minutes=0)["orders"])
    assert (outcome.grade, outcome.counts) == (Grade.ERROR, {"missing": 1, "extra": 1, "changed": 1})
    assert (outcome.later, outcome.unsettled, outcome.not_examined) == (0, 0, 0)
    assert why(outcome) == {
        "missing": ("9", "The feed has no event of this key."),
        "extra": ("1", "The row is there"),
        "changed": ("2", "The row is there"),
    }
    assert outcome.digest != outcome.source_digest
    assert outcome.caveats[-1].startswith("No run has changed the history since the source was read.")


def test_rows_that_changed_after_the_position_are_waited_for(feed: Feed) -> None:
    """Rows of each kind, and one that had changed twice when its first change arrived."""
    feed.server.run(
        "DELETE FROM orders WHERE id = 1",
        "UPDATE orders SET v = 'first' WHERE id = 2",
        "INSERT INTO orders VALUES (9, 'new')",
    )

    def change_and_ingest() -> None:
        feed.server.run("UPDATE orders SET v = 'second' WHERE id = 2", "DELETE FROM orders WHERE id = 9")
        feed.ingest(
            ORDERS.delete(tso(110), 1, "v1"),
            ORDERS.update(tso(111), 2, "first", "v2"),
            ORDERS.insert(tso(112), 9, "new"),
            ORDERS.update(tso(114), 2, "second", "first"),
            ORDERS.delete(tso(115), 9, "new"),
            watermark=120,
        )

    outcomes = feed.verify("items", "orders", meanwhile=change_and_ingest)
    items, orders = compared(outcomes["items"]), compared(outcomes["orders"])
    assert (items.grade, items.later) == (Grade.PASSED, 0)
    assert (orders.grade, orders.later, orders.counts, orders.unsettled) == (Grade.PASSED, 3, NONE, 0)
    assert orders.position == tso(RELEASED) - 1
    began, ended = feed.lines
    assert began.startswith("shop.orders: 3 rows differ from the source as it is now; waiting at most 1 minutes until")
    assert ended == "shop.orders: 0 rows are not in the history yet as the source had them"


def test_copies_of_a_row_are_waited_for(feed: Feed) -> None:
    """The table has no key, and gets a third copy."""
    feed.server.run("INSERT INTO logs VALUES (1, 'twice')")
    row = LOGS.insert(tso(110), 1, "twice") | {"pkNames": None}
    outcome = compared(feed.verify("logs", meanwhile=lambda: feed.ingest(row, watermark=120))["logs"])
    assert (outcome.grade, outcome.later, outcome.counts) == (Grade.PASSED, 1, NONE)


def test_a_lost_change_stays_a_difference_while_others_come(feed: Feed) -> None:
    feed.server.run("UPDATE orders SET v = 'lost' WHERE id = 1", "UPDATE orders SET v = 'sent' WHERE id = 2")
    outcome = compared(
        feed.verify(
            "orders",
            meanwhile=lambda: feed.ingest(ORDERS.update(tso(110), 2, "sent", "v2"), watermark=120),
            settle_minutes=0,
        )["orders"]
    )
    assert (outcome.grade, outcome.later, outcome.unsettled) == (Grade.ERROR, 1, 0)
    assert outcome.counts == NONE | {"changed": 1}
    (sample,) = outcome.samples
    assert (sample.key, sample.history, sample.source) == ({"id": "1"}, {"v": "v1"}, {"v": "lost"})
    assert not [caveat for caveat in outcome.caveats if caveat.startswith("No run")]


def test_rows_that_change_again_before_they_come_are_not_decided(feed: Feed) -> None:
    feed.server.run("UPDATE orders SET v = 'a' WHERE id = 1", "INSERT INTO orders VALUES (9, 'new')")
    again = ("UPDATE orders SET v = 'b' WHERE id = 1", "DELETE FROM orders WHERE id = 9")
    outcome = compared(feed.verify("orders", meanwhile=lambda: feed.server.run(*again), settle_minutes=0)["orders"])
    assert (outcome.grade, outcome.unsettled, outcome.counts, outcome.samples) == (Grade.WARNING, 2, NONE, [])


def test_the_job_waits_for_a_limited_number_of_rows(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_EXAMINED", 2)
    feed.server.run("UPDATE orders SET v = 'x'", "INSERT INTO orders VALUES (9, 'new')")
    sent = [ORDERS.update(tso(110 + n), n, "x", f"v{n}") for n in range(4)]
    ingest = lambda: feed.ingest(*sent, ORDERS.insert(tso(115), 9, "new"), watermark=120)  # noqa: E731
    outcome = compared(feed.verify("orders", meanwhile=ingest)["orders"])
    assert (outcome.grade, outcome.later, outcome.not_examined, outcome.counts) == (Grade.WARNING, 3, 2, NONE)


def test_a_table_that_cannot_be_compared_fails_alone(feed: Feed) -> None:
    feed.server.run("DROP TABLE items")
    outcomes = feed.verify("items", "keyless", "orders", "left")
    assert compared(outcomes["orders"]).grade == Grade.PASSED
    items, keyless, left = outcomes["items"], outcomes["keyless"], outcomes["left"]
    assert isinstance(items, NotCompared)
    assert items.grade == Grade.ERROR
    assert items.reason == (
        "The table was not compared: the source database answers: Table 'shop.items' doesn't exist. Mend the cause and run "
        "the job again, or leave the table out of tables: of verify: in the feeds file."
    )
    assert isinstance(keyless, NotCompared)
    assert keyless.grade == Grade.ERROR
    assert "its rows cannot be matched, as id of its key cannot be compared" in keyless.reason
    assert left == NotCompared(
        Grade.PASSED, "The source has no such table, and the history has no row at its position."
    )


def test_a_table_that_is_created_again_and_has_no_row_yet(feed: Feed) -> None:
    """Its history has the columns of the dropped table."""
    drop, create = "DROP TABLE orders", "CREATE TABLE orders (code varchar(9) PRIMARY KEY, v varchar(20))"
    feed.server.run(drop, create)
    dropped = ddl(drop, tso(110), table="orders", ddl_type="DROP")
    feed.ingest(dropped, ddl(create, tso(111), table="orders"), watermark=120)
    outcome = compared(feed.verify("orders")["orders"])
    assert (outcome.grade, outcome.rows, outcome.source_rows) == (Grade.PASSED, 0, 0)


def test_columns_that_change_meanwhile(feed: Feed) -> None:
    """A column changes at the source only, or on both sides."""
    feed.server.run("INSERT INTO orders VALUES (9, 'lost')")
    rename = "ALTER TABLE orders RENAME COLUMN v TO w"
    statement = ddl(rename, tso(110), table="orders", ddl_type="ALTER")
    acts: list[Act] = [lambda: feed.server.run(rename), lambda: feed.ingest(statement, watermark=120)]
    for act, undo in zip(acts, ("ALTER TABLE orders RENAME COLUMN w TO v", "DO 0"), strict=True):
        assert feed.verify("orders", meanwhile=act, settle_minutes=0)["orders"] == NotCompared(
            Grade.WARNING,
            "The table was not compared: its columns changed while it was compared. The next run of the job compares it.",
        )
        feed.server.run(undo)


def test_a_source_that_does_not_answer_and_one_without_a_login(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = f"jdbc:mysql://127.0.0.1:{free_port()}/"
    for outcome in feed.verify("orders", "items", jdbc=closed).values():
        assert isinstance(outcome, NotCompared)
        assert outcome.grade == Grade.ERROR
        assert "the source database answers: Can't connect to MySQL server" in outcome.reason
    monkeypatch.delenv(USER)
    outcome = feed.verify("orders")["orders"]
    assert isinstance(outcome, NotCompared)
    assert "CDC_VERIFY_USER is not set" in outcome.reason


def test_tables_that_are_blocked_or_not_released_are_not_compared(feed: Feed) -> None:
    odd = ITEMS.insert(tso(110), 2, "b") | {"sqlType": {"id": -5, "v": 3}}  # DECIMAL's code beside varchar
    feed.ingest(odd, watermark=120)
    outcomes = feed.verify("items", "orders", "unseen")
    items, unseen = outcomes["items"], outcomes["unseen"]
    assert isinstance(items, NotCompared)
    assert items.grade == Grade.WARNING
    assert f"the table is blocked from commit_ts {tso(110)} (" in items.reason
    assert compared(outcomes["orders"]).grade == Grade.PASSED
    assert unseen == NotCompared(
        Grade.WARNING,
        "The table was not compared, as it has no final position: the table has no released change in its history yet.",
    )


A, B = 10, 11  # digests


def version(digest: int, from_ts: int, to_ts: int | None) -> RowVersion:
    return RowVersion(b"", digest, from_ts, to_ts)


@pytest.mark.parametrize(
    ("versions", "image", "has_key", "expected"),
    [
        ([], {}, True, True),
        ([], {A: 1}, True, False),
        # Open since before the position, or later.
        ([version(A, 1, None)], {A: 1}, True, True),
        ([version(A, 1, 7), version(B, 7, None)], {B: 1}, True, True),
        ([version(A, 1, 7), version(B, 7, 9)], {B: 1}, True, True),
        # No row: after a delete, between two versions, before an insert; but not at an update.
        ([version(A, 1, 7)], {}, True, True),
        ([version(A, 1, 7), version(B, 8, None)], {}, True, True),
        ([version(B, 8, None)], {}, True, True),
        ([version(A, 1, 7), version(B, 7, None)], {}, True, False),
        ([version(A, 1, None)], {}, True, False),
        # Within one tick of the clock.
        ([version(A, 1, 7), version(B, 7, 7), version(A, 7, None)], {B: 1}, True, True),
        ([version(A, 5, 5), version(B, 5, None)], {A: 1}, True, True),
        # Copies of rows: as many at one time.
        ([version(A, 1, None), version(A, 1, 7)], {A: 2}, False, True),
        ([version(A, 1, None), version(A, 1, 7)], {A: 1}, False, True),
        ([version(A, 1, None), version(A, 7, None)], {A: 2}, False, True),
        ([version(A, 1, 7), version(A, 7, None)], {A: 2}, False, False),
        ([version(A, 1, None), version(A, 7, 7)], {A: 2}, False, False),
        ([version(A, 1, 7)], {}, False, True),
    ],
)
def test_images_at_the_position_or_later(
    versions: list[RowVersion], image: dict[int, int], has_key: bool, expected: bool
) -> None:
    """The position is 5."""
    assert holds_image(versions, 5, image, has_key=has_key) is expected
