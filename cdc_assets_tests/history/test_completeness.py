"""Find the position from which a history is complete, and the rows that came before it."""

from collections.abc import Callable

import pytest

from cdc_assets import read
from cdc_assets.assets.checks.history import history_complete
from cdc_assets.history.completeness import NEVER
from cdc_assets.operations.why.explain import explain_row
from cdc_assets.operations.why.text import format_text
from cdc_assets_tests.protocols.debezium_encoder import MS, change, read_source, source
from cdc_assets_tests.support import RECORDED, Chain, Rows, Stream, ddl, read_lines, tso

SEEN = "The history first saw the row by {} at {} ({}): the source had it before, and since when is not known."
CREATE = "CREATE TABLE {} (id BIGINT PRIMARY KEY, v VARCHAR(20))"


def unseen(it: Chain, table: str, key: str) -> str | None:
    """Return what `why` states about a row's time before the history had it; the text form has the same lines."""
    life = explain_row(it.lake, it.feed, f"shop.{table}", [key])
    head = format_text(life).splitlines()
    assert head[2] == life.complete.reason == complete(it, table)[2]
    assert life.first_seen_by is None or head[3] == life.first_seen_by
    return life.first_seen_by


def complete(it: Chain, table: str) -> tuple[int, int, str]:
    completeness = read.table(it.lake.feed, f"shop.{table}", root=it.lake.root).complete()
    return completeness.position, completeness.met, completeness.reason


def test_a_history_states_the_position_from_which_it_is_complete(chain: Callable[..., Chain]) -> None:
    it, s, met, born = chain(), Stream(), Rows(), Rows(table="born")
    s.send(met.update(tso(10), 1, "b", "a"))
    s.send(met.update(tso(20), 1, "c", "b"))
    s.send(met.delete(tso(30), 2, "a"))
    s.send(met.insert(tso(30), 3, "a"))
    s.send(ddl(CREATE.format("born"), tso(40), table="born"))
    s.send(born.insert(tso(50), 1, "a"))
    s.send(born.update(tso(60), 1, "b", "a"))
    s.watermark(tso(70))
    it.add(s.records)
    first = {r.table: history_complete(r) for r in it.run().history}
    assert first["orders"].metadata == {"complete_from": "never", "met_first_by_update_or_delete": 2}
    assert not first["orders"].passed
    assert "2 rows were met first by an UPDATE or a DELETE" in first["orders"].description
    assert "initial_load" in first["orders"].description
    assert first["born"].passed
    assert first["born"].metadata["complete_from"] == f"{tso(40)} (2023-11-14 22:13:20.040 UTC)"
    assert complete(it, "orders") == (NEVER, 2, first["orders"].description)
    assert complete(it, "born") == (tso(40), 0, first["born"].description)
    assert unseen(it, "orders", "1") == SEEN.format("an UPDATE", tso(10), "2023-11-14 22:13:20.010 UTC")
    assert unseen(it, "orders", "2") == SEEN.format("a DELETE", tso(30), "2023-11-14 22:13:20.030 UTC")
    assert (unseen(it, "orders", "3"), unseen(it, "born", "1")) == (None, None)

    later = Stream(topic="later")
    later.send(ddl("TRUNCATE TABLE orders", tso(80), ddl_type="TRUNCATE"))
    later.send(met.insert(tso(90), 1, "anew"))
    later.send(born.delete(tso(90), 9, "never seen"))
    later.watermark(tso(100))
    s.watermark(tso(100))
    it.add([*later.records, *s.records])
    second = {r.table: history_complete(r) for r in it.run().history}
    assert second["orders"].passed, "nothing of before the TRUNCATE is missing"
    assert second["orders"].metadata["complete_from"].startswith(f"{tso(80)} ")
    assert not second["born"].passed
    assert second["born"].metadata["met_first_by_update_or_delete"] == 1
    assert "but 1 rows were met first by an UPDATE or a DELETE since" in second["born"].description
    assert complete(it, "born") == (tso(40), 1, second["born"].description)
    assert unseen(it, "orders", "1") is None, "since the TRUNCATE it has been there from its INSERT on"
    assert unseen(it, "born", "9") == SEEN.format("a DELETE", tso(90), "2023-11-14 22:13:20.090 UTC")


def test_a_history_is_complete_when_the_connectors_snapshot_has_ended(chain: Callable[..., Chain]) -> None:
    """`history_complete` fails for no table whose snapshot is half read."""
    it = chain(protocol="debezium")
    markers = ["first", "true", "last"]
    reads = [
        change("r", n, None, "a", read_source(milliseconds=10 * n) | {"snapshot": marker}, n)
        for n, marker in enumerate(markers)
    ]
    it.add(reads[:2])
    half = history_complete(it.run().history[0])
    assert not half.passed
    assert half.metadata == {"complete_from": "never", "met_first_by_update_or_delete": 0}
    it.add([*reads[2:], change("u", 0, "a", "b", source(200, seconds=1), 3)])
    ended = history_complete(it.run().history[0])
    assert ended.passed
    assert ended.metadata["complete_from"].startswith(f"{(MS + 20) << 18} ")


@pytest.mark.parametrize("config", ["dbz195-schemas", "dbz350m-noschemas-tx"])
def test_recorded_snapshots_of_connectors_have_ended(chain: Callable[..., Chain], config: str) -> None:
    it = chain(protocol="debezium")
    it.add(read_lines(RECORDED / "mysql" / config / "composite"))
    assert [r.table for r in it.run().history if not history_complete(r).passed] == []
