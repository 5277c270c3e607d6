"""Hold rows whose table schema has not come: all later events of their table wait, and other tables go on."""

import json
from collections.abc import Callable
from typing import Any

from cdc_assets.assets.checks.gate import schemas_arrived
from cdc_assets.lakehouse.released_changes import HoldReason
from cdc_assets_tests.laws.conservation import balanced, conserved
from cdc_assets_tests.protocols.simple_encoder import Table, column, watermark
from cdc_assets_tests.support import Chain, Record, Reports, record, tso

PARTITIONS = 2
Version = tuple[Any, ...]


class Source:
    """Sends messages to the partitions of one topic; a second goes by with every message."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.offsets = [0] * PARTITIONS
        self.unsent: list[Record] = []
        self.seconds = 0

    def send(self, message: dict[str, Any], partition: int = 0, after: int = 1) -> None:
        """Add a message to the next run; `after`: how many seconds after the message before."""
        self.seconds += after
        made = record(json.dumps(message).encode(), partition, self.offsets[partition])
        self.unsent.append(made | {"timestamp": 1_700_000_000_000 + self.seconds * 1000})
        self.offsets[partition] += 1

    def watermark(self, ts: int) -> None:
        for partition in range(PARTITIONS):
            self.send(watermark(ts), partition)

    def run(self) -> Reports:
        """Run the pipeline on the messages that were sent, and check the counts."""
        self.chain.add(self.unsent)
        self.unsent = []
        report = self.chain.run()
        conserved(self.chain.lake, self.chain.feed)
        balanced(report.release)
        return report


def versions(chain: Chain, table: str) -> list[Version]:
    """Return (id, v, from, to, closed by) of each version, in order."""
    rows = [(r["id"], r["v"], r["_cdc_from_ts"], r["_cdc_to_ts"], r["_cdc_closed_by"]) for r in
            chain.history(table, "simple")]  # fmt: skip
    return sorted(rows, key=lambda r: (r[2], r[0]))


def test_a_table_waits_for_its_schema_and_goes_on_where_it_stopped(chain: Callable[..., Chain]) -> None:
    """Three tables: the schema of one comes first, that of another late, and the third is altered while it waits."""
    it = chain(protocol="simple", partitions=PARTITIONS)
    source = Source(it)
    early, late = Table("known", version=1, table_id=11), Table("late", version=2, table_id=12)
    old = Table("altered", version=3, table_id=13)
    new = old.under(4, None, column("w", "int"))

    # Bootstraps come to one partition only, here; the rows of `late` to both.
    source.send(early.bootstrap(), 1)
    source.send(early.bootstrap(), 1)
    source.send(early.insert(tso(2), 1, "one"))
    source.send(late.insert(tso(3), 1, "one"))
    source.send(late.update(tso(5), 1, "two", "one"), 1)
    source.send(old.insert(tso(4), 1, "one"), 1)
    source.watermark(tso(6))
    source.send(late.delete(tso(7), 1, "two"))
    first = source.run()
    assert versions(it, "known") == [(1, "one", tso(2), None, None)]
    held = {h.table: (h.events, h.since, h.first["schema_version"], h.first["table_id"]) for h in first.release.holds}
    assert held == {"late": (2, tso(3), 2, 12), "altered": (1, tso(4), 3, 13)}
    assert {h.reason for h in first.release.holds} == {HoldReason.SCHEMA}
    # One event of `late` is above the watermark.
    assert (first.release.released, first.release.pending) == (1, 4)
    verdict = schemas_arrived(first.release, 120)
    assert (verdict.passed, verdict.only_warns) == (False, True)
    assert {row["table"] for row in verdict.violations} == {"late", "altered"}

    # `late` has no schema yet. An event that a restarted changefeed sends again is a duplicate of a pending one, not late.
    # The ALTER of the other table brings the schemas before and after it.
    source.send(late.insert(tso(3), 1, "one"))
    source.send(new.ddl("ALTER", "ALTER TABLE `altered` ADD COLUMN `w` INT", tso(8), before=old), 0)
    source.send(new.update(tso(9), 1, "two", "one", w="7"), 1)
    source.send(early.update(tso(9), 1, "two", "one"))
    source.watermark(tso(10))
    second = source.run()
    assert versions(it, "known") == [(1, "one", tso(2), tso(9), "update"), (1, "two", tso(9), None, None)]
    assert versions(it, "altered") == [(1, "one", tso(4), tso(9), "update"), (1, "two", tso(9), None, None)]
    assert [r["w"] for r in it.versions("altered", "simple")] == [None, 7]
    assert [(h.table, h.events, h.since) for h in second.release.holds] == [("late", 4, tso(3))]
    assert (second.release.late_repeated, second.release.late_unseen) == (0, 0)

    # Two minutes later it is overdue.
    source.send(watermark(tso(10)), 0, after=120)
    third = source.run()
    verdict = schemas_arrived(third.release, 120)
    assert (verdict.passed, verdict.only_warns) == (False, False)
    assert "send-bootstrap-interval-in-sec" in verdict.description
    assert schemas_arrived(third.release, 600).only_warns
    # A changefeed that sends no bootstraps never sends the schema.
    verdict = schemas_arrived(first.release, 0)
    assert (verdict.passed, verdict.only_warns) == (False, False)
    assert "no BOOTSTRAP message will bring it" in verdict.description
    assert "send-bootstrap-in-msg-count" in verdict.description
    assert "within" not in verdict.description

    # The bootstrap comes after another row: all rows are released in order, and the duplicate is dropped.
    source.send(late.insert(tso(11), 2, "three"), 1)
    source.watermark(tso(12))
    source.send(late.bootstrap(), 1)
    fourth = source.run()
    assert versions(it, "late") == [
        (1, "one", tso(3), tso(5), "update"),
        (1, "two", tso(5), tso(7), "delete"),
        (2, "three", tso(11), None, None),
    ]
    assert (fourth.release.released, fourth.release.duplicate, fourth.release.pending) == (4, 1, 0)
    assert fourth.release.holds == []
    assert schemas_arrived(fourth.release, 120).passed
    assert schemas_arrived(fourth.release, 0) == schemas_arrived(fourth.release, 120)
    numbered = it.lake.table_schemas.read(it.lake.spark).where("schema_version IS NOT NULL")
    numbers = sorted((r["table"], r["table_id"], r["schema_version"]) for r in numbered.collect())
    assert numbers == [("altered", 13, 3), ("altered", 13, 4), ("known", 11, 1), ("late", 12, 2)]

    # A released event comes again.
    source.send(late.insert(tso(11), 2, "three"), 1)
    fifth = source.run()
    assert (fifth.release.late_repeated, fifth.release.late_unseen) == (1, 0)


def test_a_row_names_its_schema_by_table_and_version_or_table_id(chain: Callable[..., Chain]) -> None:
    """Name and version identify a schema; after renames that give them to two tables, the table id decides."""
    it = chain(protocol="simple", partitions=PARTITIONS)
    source = Source(it)
    table = Table("t", version=1, table_id=21)
    truncated = table.under(1, 22)  # TRUNCATE: the same version under another id
    partitioned = Table("p", version=2, table_id=31)
    # Renames have given one name and one version to two tables with different columns.
    one, other = Table("swap", version=3, table_id=41), Table("swap", version=3, table_id=42, key=("id", "v"))
    for each in (table, partitioned, one, other):
        source.send(each.bootstrap())
    source.send(table.insert(tso(1), 1, "one"))
    source.send(truncated.ddl("TRUNCATE", "TRUNCATE TABLE `t`", tso(2), before=table))
    source.send(truncated.insert(tso(3), 2, "two"))
    # A row of a partitioned table has the id of its partition.
    source.send(partitioned.under(2, 32).insert(tso(3), 1, "one"))
    source.send(one.insert(tso(3), 1, "one"))
    source.send(other.insert(tso(4), 1, "one"))
    source.send(one.under(3, 43).insert(tso(5), 1, "which?"))
    # No schema of version 1 has come for this table, only for another one.
    source.send(partitioned.under(1).insert(tso(5), 2, "two"))
    source.watermark(tso(9))
    report = source.run().release
    assert [v[:2] for v in versions(it, "t")] == [(1, "one"), (2, "two")]
    assert [v[:2] for v in versions(it, "p")] == [(1, "one")]
    released = it.lake.released_changes.read(it.lake.spark).where("kind = 'row' AND table = 'swap'")
    keys = {(r["table_id"], tuple(r["key_columns"])) for r in released.collect()}
    assert keys == {(41, ("id",)), (42, ("id", "v"))}
    held = {(h.table, h.since, h.first["table_id"], h.first["schema_version"]) for h in report.holds}
    assert held == {("swap", tso(5), 43, 3), ("p", tso(5), 31, 1)}


def test_an_excluded_table_does_not_wait_for_its_schema(chain: Callable[..., Chain]) -> None:
    it = chain(protocol="simple", partitions=PARTITIONS, tables={"exclude": ["simple.u*"]})
    source = Source(it)
    source.send(Table().insert(tso(1), 1, "one"))
    source.watermark(tso(2))
    report = source.run().release
    assert (report.holds, report.excluded, report.pending) == ([], 1, 0)
