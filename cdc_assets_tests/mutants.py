"""Bend records of real encoders in every part: structure, values, names, statements, bytes, keys, headers, places.

A seed determines every change, so that a failure can be repeated.
"""

import base64
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from cdc_assets_tests.protocols.avro_encoder import message_bytes, read_message
from cdc_assets_tests.protocols.open_encoder import frame
from cdc_assets_tests.support import Record, bytes_of

VALUES: list[Any] = [
    None, True, False, 0, -1, 7, 255, 2**31, 2**63 - 1, -(2**63), 2**64, 10**40, 1.5, -0.0, 1e308,
    "", " ", "x", "null", "0", "-1", "\u00e9", "\x00", "\U0001f600", "`", "'", '"', "\\", "%2e%2e/..", "..", "a" * 300,
    "int", "varchar(", "enum('a','b')", "bit(99)", "decimal(99,98)", "DROP TABLE `x`", "ALTER TABLE x ADD COLUMN (",
    "2024-02-30", "0000-00-00 00:00:00", "8888-88-88", "AAAA", "=", "1e999", "NaN", "\ud800",
    [], {}, [None], [[]], {"": None}, {"a": [1]}, [{"field": 1}], {"t": 3, "f": 1, "v": "1"},
]  # fmt: skip
# Words of types and statements, and other words to put there.
WORDS = [
    "", " ", "(", ")", "((", "'", "''", '"', "`", ",", ";", ".", "--", "/*", "*/", "=", "\\", "\x00", "\u00e9", "0", "-1",
    "99999999999999999999", "1e9", "NULL", "DEFAULT", "int", "tinyint", "bigint unsigned", "decimal(65,30)", "varchar(0)",
    "enum('a','a')", "enum()", "set('", "bit(0)", "datetime(9)", "json", "geometry", "unsigned", "zerofill", "ADD", "DROP",
    "COLUMN", "INDEX", "PRIMARY KEY", "UNIQUE", "MODIFY", "CHANGE", "RENAME TO", "FIRST", "AFTER", "TABLE", "TRUNCATE",
    "PARTITION", "IF EXISTS", "CREATE TABLE t (a int)", "id", "a.b.c", "GENERATED ALWAYS AS (1)", "x" * 70,
]  # fmt: skip
# The keys under which messages name databases and tables: every new name is a history table, and so costs some seconds.
_NAMING = {"database", "table", "schema", "scm", "tbl", "db"}
_NAMES = [
    "",
    "..",
    "%2e%2e/..",
    "a/b",
    "\u00e9",
    "\x00",
    "\\",
    "`",
    "'",
    "x" * 64,
    "x" * 65,
    "_delta_log",
    "con.",
    "\U0001f600",
]
# Letters of several scripts, of one to four bytes in UTF-8, and signs that mean something in paths and in SQL.
_SCRIPTS = [
    "abcXYZ019_",
    "a.b-c d/\\%~#?*[]{}$'\"`",
    "\u00e9\u00df\u0131\u0130",
    "\u8868\u30c6\u30fc\u30d6\u30eb",
    "\u05d0\u0628\u0e01\u0905",
    "\U0001f600\U0002070e",
]
_ID_BYTES = 5  # of a schema id in Confluent's wire format
_LONGEST_NAME = 64  # characters: MySQL's and TiDB's limit
_HEADERS = ["__debezium.newkey", "__debezium.oldkey", "__debezium.context.task", "", "\u00e9", "x" * 300]
_TIMES = [0, -1, 1, 2**31, 4102444800000, 10**15]  # milliseconds; -1 is Kafka's own word for none


class Mutants:
    """Bends recorded records.

    Args:
        lines: the recorded records.
        seed: what it does follows from this alone.
        form: the records' values are "json", "avro", the "frames" of Open Protocol, or each a "datum" of a schema that the
            value names by its id.
    """

    def __init__(self, lines: Sequence[Record], seed: object, form: str) -> None:
        self.chance = random.Random(str(seed))
        self.lines = lines
        self.form = form
        self.names = [self.chance.choice(_NAMES), self._new_name()]
        self.times_bent = Counter[tuple[str, ...]]()  # by field
        messages = [message for line in lines for message in self._messages(line)]
        named = [within[key] for message in messages for within, key in _places(message) if key in _NAMING]
        self.sent_names = {name for name in named if isinstance(name, str)}

    def _new_name(self) -> str:
        """Return a name of any length that a table may have, in one script."""
        letters, length = self.chance.choice(_SCRIPTS), self.chance.randint(1, _LONGEST_NAME)
        return "".join(self.chance.choices(letters, k=length))

    def _messages(self, line: Record) -> list[Any]:
        """Return the content of a record as JSON values; nothing if only a schema could show it."""
        if self.form == "datum":
            return []
        if self.form == "avro":
            return [read_message(bytes_of(line))]
        if self.form == "frames":
            return [json.loads(key) for key in _frames(bytes_of(line, "key")[8:])]
        return [json.loads(bytes_of(line))] if line["value"] else []

    def take(self, count: int, offset: int = 0) -> list[Record]:
        """Return records in one partition, from `offset` on.

        Some records repeat, some change their order, and some offsets are left out.
        """
        made: list[Record] = []
        while len(made) < count:
            again = made and self.chance.random() < 0.05
            made.append(self.chance.choice(made) if again else self.one())
        at = offset
        for n, line in enumerate(made):
            made[n] = line | {"offset": at}
            at += 1 if self.chance.random() < 0.95 else self.chance.randint(2, 1000)
        if self.chance.random() < 0.5:
            self.chance.shuffle(made)
        return made

    def one(self) -> Record:
        """Return a record with a bent part: most often its message."""
        line = self.chance.choice(self.lines)
        made = line | {"partition": 0}
        if self.chance.random() < 0.05:
            return made | self._bent_record(line)
        bend = {
            "json": self._bent_json_record,
            "avro": self._bent_avro,
            "frames": self._bent_frames,
            "datum": self._bent_datum,
        }[self.form]
        return made | {part: _base64(data) for part, data in bend(line).items()}

    def _bent_record(self, line: Record) -> Record:
        """Return a record whose message stays: with another key, no value, other headers, or another Kafka time."""
        chance = self.chance
        part = chance.choice(["key", "value", "headers", "timestamp", "partition"])
        if part in {"key", "value"}:
            other = chance.choice(self.lines)
            choices = [
                None,
                "",
                _base64(chance.randbytes(9)),
                _base64(self._damaged(bytes_of(line, part))),
                other[part],
            ]
            return {part: chance.choice(choices)}
        if part == "headers":
            values = [b"", b"{", b'{"id":[1]}', b"[]", b'{"payload":1}', b"\xff", bytes_of(line, "key")]
            count = chance.randint(0, 3)
            return {
                "headers": [
                    {"key": chance.choice(_HEADERS), "value": _base64(chance.choice(values))} for _ in range(count)
                ]
            }
        return {part: chance.choice(_TIMES) if part == "timestamp" else chance.randint(0, 2)}

    # --- JSON

    def _bent_json_record(self, line: Record) -> dict[str, bytes]:
        part = "key" if bytes_of(line, "key") and self.chance.random() < 0.1 else "value"
        return {part: self._bent_json(bytes_of(line, part))}

    def _bent_json(self, data: bytes) -> bytes:
        try:
            message = json.loads(data)
        except ValueError:
            return self._damaged(data)
        if self.chance.random() < 0.1:
            return self._damaged(data)
        return json.dumps(self.bent(message), ensure_ascii=self.chance.random() < 0.5).encode("utf-8", "surrogatepass")

    def bent(self, message: Any) -> Any:
        """Return a JSON value of which one field is hostile, or one to three parts are bent."""
        chance = self.chance
        if chance.random() < 0.3 and self._bend_next_field(message):
            return message
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            places = list(_places(message))
            if not places:
                return deepcopy(chance.choice(VALUES))
            within, key = chance.choice(places)
            other, another = chance.choice(places)
            way = chance.randrange(8)
            if way == 0:
                del within[key]
            elif way == 1 and isinstance(within, dict):
                within[chance.choice(["", "id", "a", "ID", "\u00e9", "x" * 100])] = within.pop(key)
            elif way == 2 and isinstance(within, list):
                within.append(deepcopy(within[key]))
            elif way == 3:
                within[key], other[another] = deepcopy(other[another]), deepcopy(within[key])
            elif way in {4, 5, 6}:
                within[key] = self._near(within[key])
            else:
                within[key] = deepcopy(chance.choice(VALUES))
        self._limit_names(message)
        return message

    def _bend_next_field(self, message: Any) -> bool:
        """Put a hostile value into the field that had the fewest, so that in turn each field has each value.

        Returns:
            False if the message has no field.
        """
        fields = list(_fields(message))
        if not fields:
            return False
        name, within, key = min(fields, key=lambda field: self.times_bent[field[0]])
        within[key] = deepcopy(VALUES[self.times_bent[name] % len(VALUES)])
        self.times_bent[name] += 1
        self._limit_names(message)
        return True

    def _limit_names(self, message: Any) -> None:
        for within, key in _places(message):
            name = within[key]
            if key in _NAMING and isinstance(name, str) and name not in self.sent_names:
                within[key] = self.names[len(name) % len(self.names)]

    def _near(self, value: Any) -> Any:
        """Return a value of the same kind, slightly changed.

        A number is nearby or far off, a text has another word in it.
        """
        chance = self.chance
        if isinstance(value, str):
            return self._reworded(value)
        if isinstance(value, bool):
            return not value
        if isinstance(value, int | float):
            return chance.choice([value + 1, value - 1, -value, value * 10, str(value), value / 7, value * 2**20])
        return deepcopy(chance.choice(VALUES))

    def _reworded(self, text: str) -> str:
        """Return a text with words dropped, doubled, swapped or added: types, labels, names, statements."""
        chance, words = self.chance, re.findall(r"\w+|\W", text)
        for _ in range(chance.randint(1, 2)):
            at = chance.randrange(len(words) + 1)
            way = chance.randrange(4)
            if way == 0:
                words[at : at + 1] = []
            elif way == 1:
                words[at:at] = words[at : at + 3]
            elif way == 2 and words:
                to = chance.randrange(len(words))
                words.insert(to, words.pop(min(at, len(words) - 1)))
            else:
                words[at : at + chance.randrange(2)] = [chance.choice(WORDS)]
        return "".join(words)

    # --- bytes, and values that are not JSON

    def _damaged(self, data: bytes) -> bytes:
        """Return bytes with some of them changed, cut off, doubled or inserted."""
        chance = self.chance
        at, size = chance.randrange(len(data) + 1), chance.randint(1, 8)
        flipped = bytes([data[at] ^ 1 << chance.randrange(8)]) if at < len(data) else b"\x80"
        return chance.choice(
            [
                data[:at],
                data[:at] + flipped + data[at + 1 :],
                data[:at] + chance.randbytes(size) + data[at:],
                data[:at] + chance.randbytes(size) + data[at + size :],
                data[:at] + data[max(0, at - size) :],
            ]
        )

    def _bent_frames(self, line: Record) -> dict[str, bytes]:
        """Return a record of Open Protocol with bent events, or with bent frames."""
        chance = self.chance
        if chance.random() < 0.1:
            part = chance.choice(["key", "value"])
            return {part: self._damaged(bytes_of(line, part))}
        keys, values = ([*_frames(bytes_of(line, part)[start:])] for part, start in (("key", 8), ("value", 0)))
        events = keys if chance.random() < 0.3 else values
        if not events:
            return {"value": self._damaged(b"")}
        at = chance.randrange(len(events))
        events[at] = self._bent_json(events[at])
        return {"key": bytes_of(line, "key")[:8] + b"".join(map(frame, keys)), "value": b"".join(map(frame, values))}

    def _bent_datum(self, line: Record) -> dict[str, bytes]:
        """Return a key or a value with other bytes, or with the id of another record's schema."""
        chance = self.chance
        part = "key" if bytes_of(line, "key") and chance.random() < 0.2 else "value"
        data, other = bytes_of(line, part), bytes_of(chance.choice(self.lines), chance.choice(["key", "value"]))
        if chance.random() < 0.3:
            return {part: other[:_ID_BYTES] + data[_ID_BYTES:]}
        # The id stays, because no schema has most others.
        return {part: data[:_ID_BYTES] + self._damaged(data[_ID_BYTES:])}

    def _bent_avro(self, line: Record) -> dict[str, bytes]:
        """Return a message of Simple in Avro with other bytes; most often it is still valid Avro."""
        data = bytes_of(line)
        if self.chance.random() < 0.2:
            return {"value": self._damaged(data)}
        return {"value": message_bytes(self.bent(read_message(data)))}


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every (container, key) within a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def _fields(value: Any, name: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield every (name, container, key) within a JSON value; all elements of a list have one name."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        own = (*name, "[]" if isinstance(value, list) else str(key))
        yield own, value, key
        yield from _fields(inner, own)


def _frames(data: bytes) -> Iterator[bytes]:
    while data:
        size = int.from_bytes(data[:8], "big")
        yield data[8 : 8 + size]
        data = data[8 + size :]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
