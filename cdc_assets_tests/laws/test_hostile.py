"""Hostile input: records of real encoders, bent in every part. No run dies of them, and the feed goes on.

What is bent is told by a seed, so that a failure comes again. Watermarks stay whole: one that is believed makes everything
after it late, and that is its meaning.
"""

import base64
import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from cdc_assets.checks.conservation import events_placed, records_decoded, records_taken
from cdc_assets_tests.protocols.open_encoder import frame
from cdc_assets_tests.support import RECORDED, Chain, Record, bytes_of, read_lines

# Configuration -> its settings in the feeds file.
FEEDS: dict[str, dict[str, Any]] = {
    "ticdc/canal-json_ext": {"protocol": "canal-json", "tidb_extension": True},
    "mysql/canal117-flat": {"protocol": "canal-json"},
    "ticdc/open-protocol": {"protocol": "open-protocol"},
    "ticdc/simple-json": {"protocol": "simple"},
    "ticdc/simple-avro": {"protocol": "simple", "encoding": "avro"},
    "mysql/dbz195-schemas": {"protocol": "debezium"},
    "mysql/dbz350m-noschemas-tx": {"protocol": "debezium"},
}
# The recorded sets that are bent, and the one that then comes whole.
SETS = {"ticdc": (("orders", "types"), "nopk"), "mysql": (("customers", "types"), "composite")}
MUTANTS = 300
WATERMARKS = (b"WATERMARK", b'"op":"m"', b'"t":3')

VALUES: list[Any] = [
    None, True, False, 0, -1, 7, 2**31, 2**63 - 1, -(2**63), 2**64, 10**40, 1.5, -0.0, 1e308,
    "", " ", "x", "null", "0", "-1", "\u00e9", "\x00", "\U0001f600", "`", "'", '"', "\\", "%2e%2e/..", "..", "a" * 300,
    "int", "varchar(", "enum('a','b')", "bit(99)", "decimal(99,98)", "DROP TABLE `x`", "ALTER TABLE x ADD COLUMN (",
    "2024-02-30", "0000-00-00 00:00:00", "8888-88-88", "AAAA", "=", "1e999", "NaN",
    [], {}, [None], [[]], {"": None}, {"a": [1]}, [{"field": 1}], {"t": 3, "f": 1, "v": "1"},
]  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) within a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from places(inner)


def bent(message: Any, chance: random.Random) -> Any:
    """A message with one to three parts replaced, removed, doubled, renamed or swapped."""
    for _ in range(chance.randint(1, 3)):
        found = list(places(message))
        if not found:
            return deepcopy(chance.choice(VALUES))
        within, key = chance.choice(found)
        other, another = chance.choice(found)
        way = chance.randrange(6)
        if way == 0:
            del within[key]
        elif way == 1 and isinstance(within, dict):
            within[chance.choice(["", "id", "a", "K", "\u00e9", "x" * 100])] = within.pop(key)
        elif way == 2 and isinstance(within, list):
            within.append(deepcopy(within[key]))
        elif way == 3:
            within[key], other[another] = deepcopy(other[another]), deepcopy(within[key])
        else:
            within[key] = deepcopy(chance.choice(VALUES))
    return message


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Bytes with some of them changed, cut off, doubled or put in."""
    at, size = chance.randrange(len(data) + 1), chance.randint(1, 8)
    return chance.choice(
        [
            data[:at],
            data[:at] + chance.randbytes(size) + data[at:],
            data[:at] + chance.randbytes(size) + data[at + size :],
            data[:at] + data[max(0, at - size) :],
        ]
    )


def bent_json(data: bytes, chance: random.Random) -> bytes:
    try:
        message = json.loads(data)
    except ValueError:
        return damaged(data, chance)
    return damaged(data, chance) if chance.random() < 0.1 else json.dumps(bent(message, chance)).encode()


def bent_frames(line: Record, chance: random.Random) -> dict[str, bytes]:
    """A record of Open Protocol in whose events something is bent, or whose frames are."""
    if chance.random() < 0.2:
        part = chance.choice(["key", "value"])
        return {part: damaged(bytes_of(line, part), chance)}
    keys, values = ([*frames(bytes_of(line, part)[start:])] for part, start in (("key", 8), ("value", 0)))
    events = keys if chance.random() < 0.3 else values
    if not events:
        return {"value": damaged(b"", chance)}
    at = chance.randrange(len(events))
    events[at] = bent_json(events[at], chance)
    return {"key": bytes_of(line, "key")[:8] + b"".join(map(frame, keys)), "value": b"".join(map(frame, values))}


def frames(data: bytes) -> Iterator[bytes]:
    while data:
        size = int.from_bytes(data[:8], "big")
        yield data[8 : 8 + size]
        data = data[8 + size :]


def mutant(name: str, line: Record, chance: random.Random) -> Record:
    """A record in which something is bent."""
    if "open" in name:
        parts = bent_frames(line, chance)
    elif "avro" in name:
        parts = {"value": damaged(bytes_of(line), chance)}
    else:
        part = "key" if "dbz" in name and line["key"] and chance.random() < 0.2 else "value"
        parts = {part: bent_json(bytes_of(line, part), chance)}
    made = line | {part: base64.b64encode(data).decode() for part, data in parts.items()}
    return made | {"partition": 0}


@pytest.mark.parametrize("name", FEEDS)
def test_bent_records_stop_nothing(chain: Callable[..., Chain], name: str) -> None:
    chance = random.Random(f"{name} 1")
    bent_sets, whole_set = SETS[name.partition("/")[0]]
    lines = [line for each in bent_sets for line in read_lines(RECORDED / name / each)]
    whole = [line for line in lines if not any(mark in bytes_of(line) + bytes_of(line, "key") for mark in WATERMARKS)]
    mutants = [mutant(name, chance.choice(whole), chance) | {"offset": n} for n in range(MUTANTS)]
    made = chain(**FEEDS[name], type_mapping="warn")
    for part in (mutants[: MUTANTS // 2], mutants[MUTANTS // 2 :]):
        made.add(part)
        report = made.run()
        assert report.ingest.taken == len(part)
        for verdict in (records_taken(report.ingest), records_decoded(report.decode), events_placed(report.release)):
            assert verdict.passed, verdict.violations
    good = read_lines(RECORDED / name / whole_set)
    made.add([line | {"topic": "whole", "offset": n, "partition": 0} for n, line in enumerate(good)])
    report = made.run()
    assert report.decode.undecodable == 0
    assert report.history, "the feed goes on"
