"""A generated TiCDC Canal-JSON stream: what the benchmark measures on.

One table of 12 columns, three partitions, one row event a record of about 850 bytes: inserts, updates and deletes over a
set of live keys, 2 % of the records sent again, a watermark in every partition each `WATERMARK_EVERY` events.
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

    def __init__(self, seed: int, first_id: int, first_ms: int, offsets: list[int]) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.rows: dict[int, dict[str, str | None]] = {}
        self.ids: list[int] = []
        self.next_id = first_id
        self.ms = first_ms
        self.offsets = offsets

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

    def row(self, key: int) -> dict[str, str | None]:
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
            "note": None if r.random() < 0.1 else f"{r.getrandbits(32):x}",
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
        types = {c: t for c, (t, _) in _TYPES.items()}
        codes = {c: j for c, (_, j) in _TYPES.items()}
        fields = {"pkNames": ["id"], "sqlType": codes, "mysqlType": types, "old": old, "data": [row]}
        return key % PARTITIONS, self.message(kind, commit_ts, **fields)


def lines(
    events: int,
    seed: int = 1,
    first_id: int = 1,
    after_ms: int = 0,
    offsets: list[int] | None = None,
    repeats: float = REPEATS,
) -> Iterator[str]:
    """Yield a recorded snapshot, line by line: `events` row events, and the watermarks between them.

    A stream that goes on from an earlier one starts `after_ms` milliseconds later, at `offsets`; its rows have keys from
    `first_id` on, so that it inserts, updates and deletes rows of the earlier one where they are the same.
    """
    stream = _Stream(seed, first_id, _FIRST_MS + after_ms, offsets or [0] * PARTITIONS)
    if not after_ms:
        ddl = stream.message("CREATE", stream.ms << 18, isDdl=True, sql=CREATE_TABLE)
        yield stream.record(0, ddl, keyed=False)
    for n in range(1, events + 1):
        stream.ms += 1
        partition, message = stream.change((stream.ms << 18) + n % 5)
        yield stream.record(partition, message)
        if stream.random.random() < repeats:
            yield stream.record(partition, message)
        if n % WATERMARK_EVERY == 0 or n == events:
            stream.ms += 1
            mark = {"_tidb": {"watermarkTs": stream.ms << 18}, "database": "", "table": ""}
            for each in range(PARTITIONS):
                yield stream.record(each, stream.message("TIDB_WATERMARK", stream.ms << 18) | mark, keyed=False)


def write(
    path: Path,
    events: int,
    seed: int = 1,
    first_id: int = 1,
    after_ms: int = 0,
    offsets: list[int] | None = None,
    repeats: float = REPEATS,
) -> None:
    """Write a recorded snapshot to `path`: `lines`."""
    with path.open("w") as out:
        out.writelines(line + "\n" for line in lines(events, seed, first_id, after_ms, offsets, repeats))
