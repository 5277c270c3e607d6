"""Rebuild: everything that is derived from raw_records, derived again by today's decoder, in the place of what is there.

The new tables are built beside the old ones, by the pipeline's own stages, and then take their place: one Delta commit a
table, so that no reader sees half a table. Meanwhile raw_records' cursor says `rebuilding`, and the pipeline refuses to run;
a rebuild that died is repeated from its beginning by the next.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pyarrow.fs import FileSystem
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.feeds import Feed
from cdc_assets.gate.release import release
from cdc_assets.history import apply as history
from cdc_assets.lakehouse import Cursor, Lakehouse, LakeTable, history_tables, next_sequence
from cdc_assets.protocols.decode import decode
from cdc_assets.schema import conform
from cdc_assets.sources import ingest
from cdc_assets.table_schemas import learn


class RebuildError(RuntimeError):
    """The feed cannot be rebuilt."""


@dataclass(frozen=True)
class _Beside(Lakehouse):
    """The tables that are built, reading the raw records of the feed itself."""

    of: Lakehouse

    @cached_property
    def raw_records(self) -> LakeTable:
        """The feed's own."""
        return self.of.raw_records


@dataclass(frozen=True)
class Replaced:
    """A table that a rebuild has replaced."""

    table: str
    rows: int


def rebuild(lake: Lakehouse, feed: Feed) -> Iterator[Replaced]:
    """Derive change_events, table_schemas, released_changes, the histories and their quarantine again from raw_records.

    As all events are there from the beginning, one that had come too late is now in its place.

    Raises:
        RebuildError: there are no raw records, or maintenance has deleted some of them.
        ConcurrentRunError: a run, or another rebuild, committed meanwhile: rebuild again.
    """
    raw = lake.raw_records
    cursor = raw.cursor()
    if cursor is None:
        raise RebuildError(f"{raw.name}: nothing was taken in yet.")
    if "trimmed" in cursor:
        raise RebuildError(
            f"{raw.name}: maintenance has deleted the records up to batch {cursor['trimmed']}; the history that was made "
            "of them cannot be made again."
        )
    marked: Cursor = cursor | {"sequence": next_sequence(cursor), "rebuilding": True}
    raw.append(conform(lake.spark.range(0), ingest.SCHEMA, {}), marked)
    place = f"{lake.root.rstrip('/')}/rebuilding/{lake.feed}/{marked['sequence']}"
    beside = _Beside(lake.spark, place, lake.feed, lake)
    beside.quarantine.create(lake.quarantine.read().schema)
    decode(beside, feed)
    learn(beside, feed)
    release(beside, feed)
    for _ in history.apply(beside, feed, history.pending_tables(beside)):
        pass
    yield from _replace(lake, beside)
    raw.append(
        conform(lake.spark.range(0), ingest.SCHEMA, {}),
        {name: value for name, value in marked.items() if name != "rebuilding"} | {"sequence": marked["sequence"] + 1},
    )
    files, path = FileSystem.from_uri(place)
    files.delete_dir(path)


def _replace(lake: Lakehouse, beside: Lakehouse) -> Iterator[Replaced]:
    """Put the new rows into the feed's tables.

    The releases get one number, above all that were there, which is what each history's cursor goes by. So the released
    changes are replaced before any history: a rebuild that dies in between, and comes again, finds a number above it.
    """
    number = next_sequence(lake.released_changes.cursor())
    for old, new in ((lake.change_events, beside.change_events), (lake.table_schemas, beside.table_schemas)):
        yield _overwrite(old, new.read(), (new.cursor() or {}) | {"sequence": next_sequence(old.cursor())})
    released = beside.released_changes.cursor() or {}
    numbered = released | {"sequence": number, "tables": [[d, t, number] for d, t, _ in released.get("tables", [])]}
    changes = beside.released_changes.read().withColumn("release", _number(number))
    yield _overwrite(lake.released_changes, changes, numbered)
    made = history_tables(beside.root, lake.feed)
    for name in made:
        new = beside.history(*name)
        yield _overwrite(lake.history(*name), new.read(), (new.cursor() or {}) | {"sequence": number}, like=new)
    for name in sorted(set(history_tables(lake.root, lake.feed)) - set(made)):
        table = lake.history(*name)
        yield _overwrite(table, table.read().limit(0), {"sequence": number, "versions": 0, "current": 0})
    of_history = F.col("stage") == history.STAGE
    derived = beside.quarantine.read().withColumn(
        "batch", F.when(of_history, _number(number)).otherwise(F.col("batch"))
    )
    kept = lake.quarantine.read().where(F.col("stage") == ingest.STAGE)
    cursor = {"sequence": next_sequence(lake.quarantine.cursor())}
    yield _overwrite(lake.quarantine, kept.unionByName(derived), cursor)


def _number(number: int) -> Column:
    return F.lit(number).cast("bigint")


def _overwrite(table: LakeTable, rows: DataFrame, cursor: Cursor, like: LakeTable | None = None) -> Replaced:
    """Replace a table's rows and columns, in one commit; a table that is not there yet is made `like` another."""
    if like is not None and not table.exists():
        detail = like.delta().detail().select("partitionColumns", "properties").head()
        if detail is not None:
            own = {k: v for k, v in detail["properties"].items() if k != "delta.columnMapping.maxColumnId"}
            table.create(rows.schema, detail["partitionColumns"], own)
    detail = table.delta().detail().select("partitionColumns").head()
    partitions = detail["partitionColumns"] if detail else []
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    with table.transaction(cursor):
        (writer.partitionBy(*partitions) if partitions else writer).save(table.path)
    return Replaced(table.name, table.read().count())
