"""From where on a history is complete, and which rows a feed that began in the middle met too late."""

from collections.abc import Callable

from cdc_assets.checks.history import history_complete
from cdc_assets_tests.support import Chain, Rows, Stream, ddl, tso

CREATE = "CREATE TABLE {} (id BIGINT PRIMARY KEY, v VARCHAR(20))"


def test_a_history_tells_from_where_on_it_is_complete(chain: Callable[..., Chain]) -> None:
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
