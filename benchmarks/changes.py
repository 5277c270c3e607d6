"""Make a small number of changes to each of some tables, in steps: the input of a small run, in Canal-JSON."""

import base64
import json
import random
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PARTITIONS = 3
CHANGES = 50
KEYS = CHANGES // 3  # the rows that the changes of a table concern
_FIRST_MS, _STEP_MS, _STEP_OFFSETS = 1_800_000_000_000, 10_000_000, 10_000_000
# MySQL types and the codes that Canal-JSON has for them; the columns take them in turn.
_KINDS = [
    ("int", 4), ("varchar", 12), ("decimal", 3), ("datetime", 93), ("tinyint", -6), ("bigint unsigned", -5),
    ("text", 2005), ("double", 8), ("timestamp", 93), ("date", 91),
]  # fmt: skip

Row = dict[str, str]


@dataclass(frozen=True)
class Change:
    """A change of a row of a table at a commit_ts."""

    table: int
    commit_ts: int
    row: Row
    old: Row | None  # None: the row is inserted


@dataclass
class Changes:
    """The source: tables `shop.t0000` ... with a number of columns, of which the first is the key.

    The first step inserts the rows.
    """

    tables: int = 1
    columns: int = 12
    step: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        kinds = [(f"c{i}", *_KINDS[i % len(_KINDS)]) for i in range(self.columns - 1)]
        self.kinds = [("id", "bigint", -5), *kinds]

    def write(self, folder: Path, touched: Iterable[int] | None = None) -> list[Change]:
        """Write the next step's snapshot, with `CHANGES` to each table or to those in `touched`; return the changes."""
        tables = list(range(self.tables) if touched is None else touched)
        made = list(self._changes(tables))
        (folder / f"{self.step}.jsonl").write_text("".join(line + "\n" for line in self._lines(made)))
        self.step += 1
        return made

    def _changes(self, tables: list[int]) -> Iterator[Change]:
        chance = random.Random(self.step)  # noqa: S311
        commit_ts = (_FIRST_MS + self.step * _STEP_MS) << 18
        rows: dict[tuple[int, int], Row] = {}
        for _ in range(CHANGES):
            for table in tables:
                commit_ts += 1 << 18
                key = chance.randrange(KEYS)
                row = {"id": str(key)} | {c: _value(chance, kind) for c, kind, _ in self.kinds[1:]}
                old = rows.get((table, key))
                if old is None and self.step:
                    old = row | {"c0": "-1"}
                rows[table, key] = row
                yield Change(table, commit_ts, row, old)

    def _lines(self, changes: list[Change]) -> Iterator[str]:
        offsets = [self.step * _STEP_OFFSETS] * PARTITIONS
        types = {c: kind for c, kind, _ in self.kinds}
        codes = {c: code for c, _, code in self.kinds}

        def line(partition: int, message: Mapping[str, object], commit_ts: int) -> str:
            full_message = {
                "id": 0,
                "isDdl": False,
                "sql": "",
                "es": commit_ts >> 18,
                "ts": (commit_ts >> 18) + 5,
                **message,
            }
            record = {
                "topic": "changes",
                "partition": partition,
                "offset": offsets[partition],
                "timestamp": commit_ts >> 18,
                "key": None,
                "value": base64.b64encode(json.dumps(full_message).encode()).decode(),
                "headers": [],
            }
            offsets[partition] += 1
            return json.dumps(record)

        event: dict[str, object]
        nothing = dict.fromkeys(("pkNames", "sqlType", "mysqlType", "data", "old"))
        mark = (_FIRST_MS + self.step * _STEP_MS) << 18
        for change in changes:
            event = {"pkNames": ["id"], "sqlType": codes, "mysqlType": types, "data": [change.row]}
            event |= {"database": "shop", "table": f"t{change.table:04d}", "old": change.old and [change.old]}
            event |= {"type": "UPDATE" if change.old else "INSERT", "_tidb": {"commitTs": change.commit_ts}}
            yield line(zlib.crc32(f"{change.table}/{change.row['id']}".encode()) % PARTITIONS, event, change.commit_ts)
            mark = change.commit_ts + (1 << 18)
        for partition in range(PARTITIONS):
            event = nothing | {"database": "", "table": "", "type": "TIDB_WATERMARK", "_tidb": {"watermarkTs": mark}}
            yield line(partition, event, mark)


def _value(chance: random.Random, kind: str) -> str:
    number, day = chance.randrange(10**6), f"{chance.randrange(1, 29):02d}"
    return {
        "int": f"{number}",
        "varchar": f"v{number}",
        "decimal": f"{number}.{number % 100:02d}",
        "datetime": f"2026-01-{day} 10:11:12.{number % 1000:03d}",
        "tinyint": f"{number % 2}",
        "bigint unsigned": f"{1000 * number}",
        "text": f"lorem ipsum {number % 1000}",
        "double": repr(number / 10**6),
        "timestamp": f"2026-02-{day} 01:02:03",
        "date": f"2026-03-{day}",
    }[kind]
