"""Generate a TiCDC Canal-JSON stream, the input of most measurements.

One table of 12 columns, three partitions, one row event in a record of about 888 bytes: inserts, updates and
deletes over a set of live keys, 2 % of the records sent again, a watermark in every partition each
`WATERMARK_EVERY` events.
"""

import base64
import json
import random
from collections.abc import Iterator
from pathlib import Path

PARTITIONS = 3
WATERMARK_EVERY = 5_000
REPEATS = 0.02
_FIRST_MS = 1_795_161_600_000
# The commit_ts of the table's statement.
TABLE_TS = _FIRST_MS << 18
# A step's time and offsets after those of the one before it.
_STEP_MS = 10_000_000

Row = dict[str, str | None]

_TYPES = {
    "id": ("bigint", -5),
    "buyer": ("bigint unsigned", -5),
    "region": ("varchar", 12),
    "status": ("enum", 4),
    "amount": ("decimal", 3),
    "qty": ("int unsigned", 4),
    "weight": ("double", 8),
    "note": ("varchar", 12),
    "token": ("varbinary", 2004),
    "gift": ("tinyint", -6),
    "created": ("datetime", 93),
    "updated": ("timestamp", 93),
}
CREATE_TABLE = (
    "CREATE TABLE `bench`.`orders` (`id` BIGINT NOT NULL,`buyer` BIGINT UNSIGNED NOT NULL,`region` VARCHAR(16),"
    "`status` ENUM('new','paid','shipped','cancelled'),`amount` DECIMAL(12,2),`qty` INT UNSIGNED,`weight` DOUBLE,"
    "`note` VARCHAR(64),`token` VARBINARY(32),`gift` TINYINT(1),`created` DATETIME,`updated` TIMESTAMP(3),PRIMARY KEY(`id`))"
)


class _Stream:
    """The state of the generated source: the live rows, the clock, and the next offset of each partition."""

    def __init__(self) -> None:
        self.random = random.Random(1)  # noqa: S311
        self.rows: dict[int, Row] = {}
        self.ids: list[int] = []
        self.next_id = 1
        self.ms = _FIRST_MS
        self.offsets = [0] * PARTITIONS

    def create_table(self) -> str:
        return self.record(0, self.message("CREATE", self.ms << 18, isDdl=True, sql=CREATE_TABLE), keyed=False)

    def events(self, events: int) -> Iterator[str]:
        for n in range(1, events + 1):
            self.ms += 1
            partition, message = self.change((self.ms << 18) + n % 5)
            yield self.record(partition, message)
            if self.random.random() < REPEATS:
                yield self.record(partition, message)
            if n % WATERMARK_EVERY == 0 or n == events:
                yield from self.watermarks()

    def record(self, partition: int, message: dict[str, object], *, keyed: bool = True) -> str:
        value = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
        offset = self.offsets[partition]
        self.offsets[partition] += 1
        line = {
            "topic": "bench",
            "partition": partition,
            "offset": offset,
            "timestamp": self.ms,
            "key": "" if keyed else None,
            "value": base64.b64encode(value).decode(),
            "headers": [],
        }
        return json.dumps(line, separators=(",", ":"))

    def message(self, kind: str, commit_ts: int, **fields: object) -> dict[str, object]:
        base: dict[str, object] = {"id": 0, "database": "bench", "table": "orders", "pkNames": None, "isDdl": False}
        base |= {"type": kind, "es": commit_ts >> 18, "ts": (commit_ts >> 18) + 7, "sql": "", "sqlType": None}
        return base | {"mysqlType": None, "old": None, "data": None} | fields | {"_tidb": {"commitTs": commit_ts}}

    def row(self, key: int) -> Row:
        r = self.random
        at = f"2026-11-{r.randint(1, 28):02d} {r.randint(0, 23):02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d}"
        return {
            "id": str(key),
            "buyer": str(r.randint(1, 2**24)),
            "region": r.choice(("eu", "us", "jp", "br")),
            "status": str(r.randint(1, 4)),
            "amount": f"{r.randint(-9999, 9999)}.{r.randint(0, 99):02d}",
            "qty": str(r.randint(0, 999)),
            "weight": repr(r.randint(0, 9999) / 100),
            "note": None if r.random() < 0.1 else f"{r.getrandbits(88):022x}",
            "token": r.randbytes(3).decode("latin-1"),
            "gift": str(r.randint(0, 1)),
            "created": at,
            "updated": f"{at}.{r.randint(0, 999):03d}",
        }

    def change(self, commit_ts: int) -> tuple[int, dict[str, object]]:
        kind = self.random.choices(("INSERT", "UPDATE", "DELETE"), (6, 3, 1))[0] if len(self.ids) > 100 else "INSERT"
        old = None
        if kind == "INSERT":
            key = self.next_id
            self.next_id += 1
            self.ids.append(key)
            row = self.rows[key] = self.row(key)
        else:
            at = self.random.randrange(len(self.ids))
            key = self.ids[at]
            row = self.rows[key]
            if kind == "UPDATE":
                old = [row]
                row = self.rows[key] = self.row(key)
            else:
                self.ids[at] = self.ids[-1]
                self.ids.pop()
                del self.rows[key]
        return key % PARTITIONS, self.event(kind, commit_ts, row, old)

    def event(self, kind: str, commit_ts: int, row: Row, old: list[Row] | None) -> dict[str, object]:
        types = {c: t for c, (t, _) in _TYPES.items()}
        codes = {c: j for c, (_, j) in _TYPES.items()}
        fields = {"pkNames": ["id"], "sqlType": codes, "mysqlType": types, "old": old, "data": [row]}
        return self.message(kind, commit_ts, **fields)

    def watermarks(self) -> Iterator[str]:
        self.ms += 1
        mark = {"_tidb": {"watermarkTs": self.ms << 18}, "database": "", "table": ""}
        for each in range(PARTITIONS):
            yield self.record(each, self.message("TIDB_WATERMARK", self.ms << 18) | mark, keyed=False)


def write(path: Path, events: int, after: int = 0, into: Path | None = None) -> None:
    """Write a recorded snapshot to `path`: the table's statement, `events` row events, and the watermarks between them.

    Args:
        path: the file.
        events: how many row events it has, repeats not counted.
        after: how many row events follow, of the same rows and of new ones.
        into: the file that these are written to.
    """
    stream = _Stream()
    with path.open("w") as out:
        out.write(stream.create_table() + "\n")
        out.writelines(line + "\n" for line in stream.events(events))
    if into is not None:
        with into.open("w") as out:
            out.writelines(line + "\n" for line in stream.events(after))


def value_size(line: str) -> int:
    """Return the size of the Kafka value of a recorded record, in bytes."""
    return len(base64.b64decode(json.loads(line)["value"]))


def write_updates(path: Path, changes: int, keys: int, step: int) -> None:
    """Write changes to a table that has rows with the keys 1 to `keys`: one in ten deletes, one in ten inserts a row.

    Step 0 makes the table, with new rows only. The steps follow one another in time and offsets; none meets a key twice.
    """
    stream = _Stream()
    stream.random.seed(step)
    stream.ms += step * _STEP_MS
    stream.offsets = [step * _STEP_MS] * PARTITIONS
    stream.next_id = keys + step * changes + 1
    met = stream.random.sample(range(1, keys + 1), changes) if step else []
    with path.open("w") as out:
        if not step:
            out.write(stream.create_table() + "\n")
        for n in range(changes):
            stream.ms += 1
            kind = "INSERT" if not step or n % 10 == 0 else "DELETE" if n % 10 == 1 else "UPDATE"
            key = stream.next_id + n if kind == "INSERT" else met[n]
            old = [stream.row(key)] if kind == "UPDATE" else None
            message = stream.event(kind, stream.ms << 18, stream.row(key), old)
            out.write(stream.record(key % PARTITIONS, message) + "\n")
        out.writelines(line + "\n" for line in stream.watermarks())
