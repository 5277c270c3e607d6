"""Measure questions about one row, and between two positions, of a feed with many versions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from benchmarks import generate
from benchmarks.form import Bench
from benchmarks.measuring import Ratio, Section, Timing, median, timed
from benchmarks.stages import Place, prepare, run_stages
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.operations.diff import DiffSide, compare_rows
from cdc_assets.operations.why.explain import explain_row

_ALLOWED = 5.0  # seconds
_TABLE = ("bench", "orders")
_CHUNK = 1_000_000  # rows that are written at once
_EACH = 3  # versions of a key


def measure(bench: Bench) -> Section:
    """Measure feeds with these numbers of versions, events and released changes; no measured process has a JVM."""
    timings: list[Timing] = []
    ratios: list[Ratio] = []
    for size in bench.form.versions:
        place = _filled(bench, size)
        lake, feed = place.lake(bench.spark), place.feed()
        name, key = ".".join(_TABLE), str(2 * size // _EACH // 3)
        position = generate.TABLE_TS + size // 2
        before, after = (DiffSide(lake, *_TABLE, at) for at in (position, position + size // 100))
        asked: dict[str, Callable[[], object]] = {
            "why": partial(explain_row, lake, feed, name, [key]),
            "why, never seen": partial(explain_row, lake, feed, name, ["-1"]),
            "diff, 1 row in 100": partial(compare_rows, before, after),
        }
        for what, ask in asked.items():
            timings.append(median([timed(f"{what}, of {size:,}", ask) for _ in range(bench.form.rounds)]))
            ratios.append(Ratio(f"{what}, of {size:,} / {_ALLOWED:g} s", timings[-1].seconds / _ALLOWED, 1))
    return Section(
        "asking",
        "Why a row looks so, and what differs between two positions",
        f"So many versions, change events and released changes, {_EACH} of each key, in files that reach from the first key "
        "to the last. Without a JVM.",
        timings,
        ratios,
    )


def _filled(bench: Bench, size: int) -> Place:
    """Return a feed that the pipeline made of a small number of rows, and that was then filled up."""
    bench.say(f"A feed of {size:,} versions ...")
    place = prepare(bench.again(f"asking-{size}"))
    generate.write_updates(place.snapshots / "begin.jsonl", 100, 0, 0)
    run_stages(bench.spark, place)
    lake, random = place.lake(bench.spark), np.random.default_rng(1)
    keys = random.permutation(np.arange(size) % (size // _EACH) + 1_000)
    for start in range(0, size, _CHUNK):
        _fill(lake, keys[start : start + _CHUNK], start)
    return place


def _fill(lake: Lakehouse, keys: np.ndarray, start: int) -> None:
    """Append a version, an event and a change of each of these keys, with one commit_ts for each round."""
    number = np.arange(start, start + len(keys))
    ids = pa.array(keys).cast(pa.string())
    ts = pa.array(number + generate.TABLE_TS + 1)
    # Only ended versions: open ones would have been closed by the next change.
    until = pa.array(number + generate.TABLE_TS + 1 + _EACH)
    place = {"topic": "bench", "partition": 0, "offset": pa.array(number + _CHUNK), "index": 0}
    image = pc.binary_join_element_wise(
        '{"id":"', ids, '","note":"', pc.cast(ts, pa.string()), '","status":"paid"}', ""
    )
    event_columns = {
        "kind": "row",
        "database": _TABLE[0],
        "table": _TABLE[1],
        "op": "update",
        "commit_ts": ts,
        "after": image,
    }
    event_columns |= {"key": pc.binary_join_element_wise('["', ids, '"]', "")}
    append(lake.change_events, event_columns | place | {"batch": 1, "before": image}, len(keys))
    append(lake.released_changes, event_columns | place | {"release": 1, "events": 1, "repeats": 0}, len(keys))
    version = {"_cdc_key": event_columns["key"], "_cdc_from_ts": ts, "_cdc_to_ts": until, "_cdc_is_current": False}
    version |= {"_cdc_op": "update", "_cdc_closed_by": "update", "id": pa.array(keys), "note": pc.cast(ts, pa.string())}
    version |= {"_cdc_topic": "bench", "_cdc_partition": 0, "_cdc_offset": place["offset"], "status": "paid"}
    append(lake.history(*_TABLE), version, len(keys))


def append(table: LakeTable[Any], values: dict[str, object], count: int) -> None:
    """Append rows to a table; a value is one for all rows, or an array; missing columns are NULL."""
    log = table.log()
    if log is None:
        raise RuntimeError(f"{table.name} was not made")
    fields = pa.schema(log.table.schema().to_arrow())
    columns = [
        value.cast(f.type) if isinstance(value := values.get(f.name), pa.Array) else pa.array([value] * count, f.type)
        for f in fields
    ]
    write_deltalake(log.table, pa.table(columns, schema=fields), mode="append")
