"""Measure changes into a table that has many versions already."""

import math

from pyspark.sql import functions as F

from benchmarks import generate
from benchmarks.form import Bench
from benchmarks.measuring import Ratio, Section, Timing, medians, total
from benchmarks.stages import Place, prepare, run_stages
from cdc_assets.lakehouse.history import HistoryCursor
from cdc_assets.stages import HISTORY

_ALLOWED = 2.5
_TABLE = ("bench", "orders")
_CLOSED = 2  # versions for each open one
_FILE = 250_000  # versions


def measure(bench: Bench) -> Section:
    """Apply the same changes to tables of each size, in turn."""
    form = bench.form
    places = {size: _with_versions(bench, size) for size in form.versions}
    rounds: dict[int, list[list[Timing]]] = {size: [] for size in form.versions}
    for number in range(form.warm_up + form.rounds):
        for size, place in places.items():
            generate.write_updates(place.snapshots / f"{number}.jsonl", form.changes, size // (1 + _CLOSED), number + 1)
            steps = run_stages(bench.spark, place)
            history = next(t for t in steps if t.name == HISTORY.name)
            bench.say(f"  into {size:,}: {total(steps, '').seconds:.2f} s, of which history {history.seconds:.2f} s")
            if number >= form.warm_up:
                rounds[size].append(steps)
    totals: dict[int, Timing] = {}
    histories: dict[int, Timing] = {}
    for size, each in rounds.items():
        steps = medians(each)
        totals[size] = total(steps, f"into {size:,}, all stages")
        history_step = next(t for t in steps if t.name == HISTORY.name)
        histories[size] = Timing(
            f"into {size:,}, history", history_step.seconds, history_step.cpu_seconds, history_step.jobs
        )
    smallest, largest = min(places), max(places)
    against = f"{form.changes:,} changes into {largest:,} versions / into {smallest:,}"
    return Section(
        "versions",
        f"{form.changes:,} changes into tables of many versions",
        "One version in three is open; their keys are spread over all files. The changes are to keys all over the table: "
        "updates of existing rows, one in ten a delete, one in ten a new row.",
        [timing for size in places for timing in (totals[size], histories[size])],
        [
            Ratio(f"{against}, stages", totals[largest].seconds / totals[smallest].seconds, _ALLOWED),
            Ratio(f"{against}, history", histories[largest].seconds / histories[smallest].seconds, _ALLOWED),
        ],
    )


def _with_versions(bench: Bench, size: int) -> Place:
    """Return a feed whose table has a number of versions: the pipeline made one row, and the rest was filled in."""
    bench.say(f"A table of {size:,} versions ...")
    place, keys = prepare(bench.again(f"versions-{size}")), size // (1 + _CLOSED)
    generate.write_updates(place.snapshots / "begin.jsonl", 1, keys, 0)
    run_stages(bench.spark, place)
    lake = place.lake(bench.spark)
    history = lake.history(*_TABLE)
    cursor, columns = history.cursor(), history.schema()
    if cursor is None or columns is None:
        raise RuntimeError("the table was not made")
    closed = F.col("number") >= 1
    made = {
        "_cdc_key": F.concat(F.lit('["'), F.col("id"), F.lit('"]')),
        "_cdc_from_ts": F.lit(generate.TABLE_TS) + 1 + (F.lit(_CLOSED) - F.col("number")),
        "_cdc_to_ts": F.when(closed, F.lit(generate.TABLE_TS) + 2 + (F.lit(_CLOSED) - F.col("number"))),
        "_cdc_valid_from": F.timestamp_millis(F.lit(generate.TABLE_TS >> 18)),
        "_cdc_valid_to": F.when(closed, F.timestamp_millis(F.lit(generate.TABLE_TS >> 18))),
        "_cdc_is_current": ~closed,
        "_cdc_op": F.when(F.col("number") == _CLOSED, "insert").otherwise("update"),
        "_cdc_closed_by": F.when(closed, F.lit("update")),
        "_cdc_topic": F.lit("bench"),
        "_cdc_partition": F.lit(0),
        "_cdc_offset": F.col("id"),
        "id": F.col("id"),
        "note": F.sha1(F.concat_ws("/", "id", "number").cast("binary")),
        "token": F.unhex(F.md5(F.col("id").cast("string").cast("binary"))),
        "status": F.lit("paid"),
        "weight": F.rand(1),
        "amount": F.rand(2) * 10_000,
    }
    numbered = bench.spark.range(1, keys + 1).crossJoin(bench.spark.range(1 + _CLOSED).toDF("number"))
    # Not in key order, because the files of runs reach from the first key to the last.
    spread = numbered.repartition(math.ceil(size / _FILE), F.xxhash64("id", "number"))
    rows = spread.select(*[made.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in columns])
    table = history.with_schema(columns, {})
    advanced = HistoryCursor(
        sequence=cursor.sequence + 1,
        release=cursor.release,
        versions=cursor.versions + keys * (1 + _CLOSED),
        current=cursor.current + keys,
    )
    table.commit(table.stage(rows), advanced)
    return place
