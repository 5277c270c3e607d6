"""Show with `why` what messages state beside the row: their source, both keys of a changed key, flags, character sets."""

import base64
import json
from collections.abc import Callable, Sequence

import pytest

from cdc_assets.operations.why.explain import explain_row
from cdc_assets.operations.why.life import KeyChange, RecordOrigin, RowLife
from cdc_assets.operations.why.text import format_text
from cdc_assets_tests.protocols.debezium_encoder import change, key_with_schema, source, text
from cdc_assets_tests.protocols.open_encoder import (
    GENERATED,
    MULTIPLE_KEY,
    column,
    key_column,
    message,
    resolved,
    row_key,
)
from cdc_assets_tests.protocols.simple_encoder import Table, watermark
from cdc_assets_tests.support import Chain, Stream, dml, record, tso

Made = Callable[..., Chain]


def why(it: Chain, table: str, *key: str) -> RowLife:
    return explain_row(it.lake, it.feed, table, key)


def lines_of(explanation: RowLife) -> Sequence[str]:
    return [line.strip() for line in format_text(explanation).splitlines()]


def test_a_changed_key_in_one_message_of_canal(chain: Made) -> None:
    """Canal sends one UPDATE; `why` shows both keys, whichever is given."""
    it, stream = chain(tidb_extension=False), Stream()
    types = {"id": "bigint", "v": "varchar"}
    head = {"_tidb": None, "id": 17, "ts": 1750000003120}
    stream.send(dml("INSERT", tso(1000), {"id": "1", "v": "a"}, types) | head)
    stream.send(dml("UPDATE", tso(2000), {"id": "3", "v": "a"}, types, old={"id": "1"}) | head)
    it.add(stream.records)
    it.run()
    old, new = why(it, "shop.orders", "1"), why(it, "shop.orders", "3")
    moved = KeyChange('["1"]', '["3"]')
    assert [(str(s.fate), s.op, s.key_change) for s in old.steps] == [
        ("end", "delete", moved),
        ("version", "insert", None),
    ]
    assert [(str(s.fate), s.op, s.key_change) for s in new.steps] == [("version", "insert", moved)]
    for each in (old, new):
        assert 'the key changed: delete under ["1"], insert under ["3"]' in lines_of(each)
        assert 'source: sent_ms=1750000003120, message_id="17"' in lines_of(each)


def test_a_changed_key_in_two_messages_of_debezium(chain: Made) -> None:
    """Each message names the other's key in a header; `why` shows both records for either key."""
    it = chain(protocol="debezium")
    keys = {n: text(key_with_schema({"id": n})) for n in (1, 3)}
    place = source(40, seconds=2, query="UPDATE customers SET id = 3", thread=7)
    halves = [("d", 1, "a", None, "newkey", keys[3], 1), ("c", 3, None, "a", "oldkey", keys[1], 2)]
    it.add(
        [
            change("c", 1, None, "a", source(4), 0),
            *(
                change(op, key, before, after, place, offset)
                | {"headers": [{"key": f"__debezium.{name}", "value": base64.b64encode(other).decode()}]}
                for op, key, before, after, name, other, offset in halves
            ),
        ]
    )
    it.run()
    topic = "s.inventory.customers"
    for asked, other_offset in (("1", 2), ("3", 1)):
        life = why(it, "inventory.customers", asked)
        step = life.steps[0]
        assert step.key_change is not None
        assert (step.key_change.old, step.key_change.new) == ('["1"]', '["3"]')
        half = step.key_change.other_half
        assert isinstance(half, RecordOrigin)
        assert (half.topic, half.partition, half.offset) == (topic, 0, other_offset)
        lines = lines_of(life)
        assert (
            'the key changed: delete under ["1"], insert under ["3"]; the other half is record '
            f"{topic} partition 0 offset {other_offset}"
        ) in lines
        assert 'binlog: server_id=223344, file="mysql-bin.000003", position=40, row=0' in lines
        ending = (
            'source_version="1.9.5.Final", source_name="mysql-server-1", thread=7, query="UPDATE customers SET id = 3"'
        )
        assert any(line.startswith("source: sent_ms=") and line.endswith(ending) for line in lines)
    assert why(it, "inventory.customers", "1").steps[-1].key_change is None


def test_flags_of_open_protocol(chain: Made) -> None:
    it = chain(protocol="open-protocol", partitions=1)
    row = {"id": key_column(1), "g": column(3, 7, GENERATED | MULTIPLE_KEY)}
    events = [message((row_key(tso(1)), {"u": row})), message(resolved(tso(2)))]
    it.add(record(value, 0, n, key=key) for n, (key, value) in enumerate(events))
    it.run()
    life = why(it, "test.t1", "1")
    assert life.steps[0].column_flags == {"id": "binary, handle key, primary key", "g": "generated, multiple key"}
    assert "flags: id binary, handle key, primary key; g generated, multiple key" in lines_of(life)


@pytest.mark.parametrize("kind", ["BOOTSTRAP", "CREATE"])
def test_character_sets_of_simple(chain: Made, kind: str) -> None:
    """They come from the schema that a message carried."""
    it, table, ts = chain(protocol="simple", partitions=1), Table(version=tso(1)), tso(2)
    schema = (
        table.bootstrap()
        if kind == "BOOTSTRAP"
        else table.ddl("CREATE", "CREATE TABLE `user` (`id` INT PRIMARY KEY, `v` VARCHAR(20))", ts)
    )
    messages = [schema, table.insert(tso(3), 1, "a") | {"buildTs": 1708923662983}, watermark(tso(4))]
    it.add(record(json.dumps(m).encode(), 0, n) for n, m in enumerate(messages))
    it.run()
    life = why(it, "simple.user", "1")
    assert life.steps[0].character_sets == {"id": "binary binary", "v": "utf8mb4 utf8mb4_bin"}
    assert "character sets: id binary binary, v utf8mb4 utf8mb4_bin" in lines_of(life)
    assert "source: sent_ms=1708923662983" in lines_of(life)
