"""The rows of a dump as the gate releases them: typed, once, where a history begins with them; else as changes.

Typed rows are those of which no value is lost in typing, and that come once. What no type holds goes into released_changes
as text, as all rows do whose history has to compare them with others.
"""

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_assets import tso
from cdc_assets.config import Feed
from cdc_assets.initial_load.apply import Beginning, beginning
from cdc_assets.initial_load.dumps import DumpError, DumpFile, line_number, unreadable
from cdc_assets.initial_load.rows import Columns, read_plain_rows, read_rows
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.history import CDC_COLUMNS
from cdc_assets.lakehouse.initial_load import LAST_ORDINAL, LOAD_TOPIC
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import RELEASED_CHANGES, ReleasedKind
from cdc_assets.lakehouse.schema import conform
from cdc_assets.lakehouse.table import LakeTable, Staged
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.keys import row_as_key
from cdc_assets.protocols.loaded import loaded_layout
from cdc_assets.spark.executors import prove_seen
from cdc_assets.spark.session import session_for
from cdc_assets.stores.storage import Store

_ROW_BYTES = 1 << 7  # of a dumped row, about
# Each reading has numbers of its own for its rows.
_SECOND_READING, _LAST_READING = 1 << 61, 1 << 62
_ALL = 1 << 62  # lines: none is plain
# Of so many rows the keys are told apart without Spark, in a fifth of the processor time: 8 bytes of each, 268 MB.
_HASHES_AT_ONCE = 1 << 25


@dataclass(frozen=True)
class Typed:
    """What is kept typed of a load.

    Attributes:
        rows: how many rows.
        folder: where; "": nowhere.
        all: whether these are all that the dump has.
    """

    rows: int = 0
    folder: str = ""
    all: bool = False


@dataclass(frozen=True)
class Dump:
    """The dump of one table, with rows.

    Attributes:
        lake: the feed's tables.
        feed: the feed.
        row: of initial_load.
        files: with the rows.
        columns: of the dump.
        key: those that make the key; none: the whole row does.
    """

    lake: Lakehouse
    feed: Feed
    row: Mapping[str, Any]
    files: list[DumpFile]
    columns: Columns
    key: list[str]

    def released(self, number: int) -> tuple[Staged, Typed]:
        """The rows for a release of this number: in files of released_changes, and typed; each is in one of the two.

        Raises:
            DumpError: a file is damaged, or gone.
        """
        try:
            prove_seen(self._spark, self.files[0].path, "initial_load")
            typed = Typed() if self._begun is None else self._typed(self._begun)
            rest = self.lake.released_changes.stage_rows([]) if typed.all else self._changes(number, typed)
        except (PySparkException, Py4JJavaError) as error:
            if not (told := unreadable(self.lake.store, self.row["format"], self.files)):
                raise  # it is not the dump's
            raise DumpError(told) from error
        return rest, typed

    @property
    def _name(self) -> tuple[str, str]:
        return self.row["database"], self.row["table"]

    @cached_property
    def _size(self) -> int:
        return sum(f.size for f in self.files)

    @cached_property
    def _spark(self) -> SparkSession:
        return session_for(self.lake.spark, self._size // _ROW_BYTES)

    @cached_property
    def _begun(self) -> Beginning | None:
        """The history that begins with the load; None: it has to be compared with rows that are there, or with each other.

        Statements that are released already and come after the load are applied before the rest of what the history gets.
        """
        position, statements = self.row["position"], self.lake.released_changes.files(kind=str(ReleasedKind.DDL))
        if self.row["anew"] or not self.key or any(f.high["commit_ts"] > position for f in statements):
            return None
        return beginning(self.feed, self._name, position, layout_id(self.columns), layout(self.columns))

    def _read(self, numbered_from: int, *, but_plain: bool = False) -> DataFrame:
        """In: the files. Out: `read_rows`, and `offset` BIGINT, a number that no other row has."""
        found = read_rows(*self._told, but_plain=but_plain)
        return found.withColumn("offset", F.monotonically_increasing_id() + numbered_from)

    @property
    def _told(self) -> tuple[SparkSession, Store, str, list[DumpFile], Columns, str]:
        return self._spark, self.lake.store, self.row["format"], self.files, self.columns, self.row["time_zone"]

    def _texts(self, begun: Beginning, rows: DataFrame) -> DataFrame:
        """Rows of the dump typed."""
        return begun.typing.typed_texts(rows.withColumn("wire", F.col("values")))

    def _typed(self, begun: Beginning) -> Typed:
        table = self.lake.loaded_rows(*self._name).with_schema(begun.shape, {})
        folder = uuid.uuid4().hex
        others, lost = self._typed_plainly(begun, table, folder)
        if others:
            lost += self._typed_exactly(begun, table, folder, but_plain=others < _ALL)
        staged = table.list_staged(folder)
        if not staged.rows or self._repeats(table, staged):
            files, path = table.store.files(f"{table.path}/{folder}")
            files.delete_dir(path)
            return Typed()
        return Typed(staged.rows, folder, all=not lost)

    def _typed_plainly(self, begun: Beginning, table: LakeTable[Any], folder: str) -> tuple[int, int]:
        """Write the rows of plain lines; how many lines are none, and how many rows lose a value."""
        found, watch = read_plain_rows(*self._told), Observation()
        if found is None:
            return _ALL, 0
        numbered = found.withColumns({"offset": F.monotonically_increasing_id()})
        made = begun.versions(self._texts(begun, numbered), self._key(), F.col("offset"), "plain", "lost")
        # Seen on the way to the files, when a row is as short as it gets: what looks at rows has each copied.
        others, lost = F.count_if(~F.col("plain")), F.count_if(F.col("plain") & F.col("lost"))
        told = made.observe(watch, others.alias("others"), lost.alias("lost"))
        fine = told.where(F.col("plain") & ~F.col("lost")).drop("plain", "lost")
        table.stage_partition(fine, f"{folder}/plain", _cdc_is_current=True)
        return watch.get["others"], watch.get["lost"]

    def _typed_exactly(self, begun: Beginning, table: LakeTable[Any], folder: str, *, but_plain: bool) -> int:
        """Write the rows of all other lines; how many lose a value."""
        watch = Observation()
        rows = self._texts(begun, self._read(_SECOND_READING, but_plain=but_plain))
        made = begun.versions(rows, self._key(), F.col("offset"), "bad", "lost")
        told = made.observe(watch, F.max("bad").alias("bad"), F.count_if("lost").alias("lost"))
        fine = told.where(~F.col("lost")).drop("bad", "lost")
        table.stage_partition(fine, f"{folder}/exact", _cdc_is_current=True)
        self._refuse(watch.get["bad"])
        return int(watch.get["lost"])

    def _repeats(self, table: LakeTable[Any], staged: Staged) -> bool:
        """Whether a key comes twice."""
        # Of some billion different keys two may have one hash: then the rows are compared, as those of one key are.
        if staged.rows <= _HASHES_AT_ONCE:
            return _any_twice(_hashes(table, staged))
        keys = table.read_staged(self._spark, staged, StructType([CDC_COLUMNS["_cdc_key"]]))
        (different,) = keys.agg(F.count_distinct(F.xxhash64("_cdc_key"))).head() or (0,)
        return bool(different < staged.rows)

    def _changes(self, number: int, typed: Typed) -> Staged:
        """The rows that are not typed, as changes of a release."""
        found = self._read(_LAST_READING)
        if typed.folder and self._begun is not None:
            found = self._texts(self._begun, found).where("lost")
        watch = Observation()
        told = found.observe(watch, F.max("bad").alias("bad"))
        rows = told.select(
            F.lit(str(ReleasedKind.LOADED)).alias("kind"),
            F.lit(number).alias("release"),
            F.lit(self.row["position"]).alias("commit_ts"),
            F.lit(str(Op.SNAPSHOT)).alias("op"),
            F.lit(self.row["database"]).alias("database"),
            F.lit(self.row["table"]).alias("table"),
            F.lit(LOAD_TOPIC).alias("topic"),
            F.lit(0).alias("partition"),
            "offset",
            F.lit(0).alias("index"),
            F.lit(LAST_ORDINAL if self.row["anew"] else 1).alias("ordinal"),
            self._key().alias("key"),
            F.array(*map(F.lit, self.key)).cast("array<string>").alias("key_columns"),
            F.lit(0).alias("events"),
            F.lit(0).alias("repeats"),
            F.to_json("values", {"ignoreNullFields": "false"}).alias("after"),
            F.lit(layout_id(self.columns)).alias("layout_id"),
            F.lit(self.row["position"] >> tso.TSO_LOGICAL_BITS).alias("source_ms"),
        )
        staged = self.lake.released_changes.stage(conform(rows, RELEASED_CHANGES.columns))
        self._refuse(watch.get["bad"])
        return staged

    def _key(self) -> Column:
        """The key as messages have it; of a table without one, the whole row."""
        protocol, types = protocol_of(self.feed), {name.lower(): (name, t) for name, t in self.columns}

        def value(name: str) -> Column:
            own, mysql_type = types[name.lower()]
            found = protocol.dumped_key(F.col("values").getField(own), mysql_type)
            return F.lit(None).cast("string") if found is None else found

        if self.key:
            return F.to_json(F.array(*[value(name) for name in self.key]))
        return row_as_key(F.to_json(F.struct(*[value(name).alias(name) for name, _ in self.columns])))

    def _refuse(self, bad: Row | None) -> None:
        """Fail where a line is no row."""
        if bad is None:
            return
        path, line = line_number(self.lake.store, self.files, bad["checksum"])
        raise DumpError(
            f"{path}: line {line} is no row of {'.'.join(self._name)}, in UTF-8 and in the default form of "
            f"{self.row['format']}: {bad['line']}: mend it, or take the dump anew."
        )


def _hashes(table: LakeTable[Any], staged: Staged) -> npt.NDArray[np.uint64]:
    """Those of the rows' keys."""
    from pandas.util import hash_array  # noqa: PLC0415 -- slow to import, and only a load needs it

    found, at = np.empty(staged.rows, np.uint64), 0
    for rows in table.fetch_parts(staged.files, "_cdc_key"):
        found[at : at + rows.num_rows] = hash_array(rows["_cdc_key"].to_numpy(), categorize=False)
        at += rows.num_rows
    return found


def _any_twice(numbers: npt.NDArray[np.uint64]) -> bool:
    """Whether a number comes twice; they are sorted in their place."""
    numbers.sort()
    return bool((numbers[1:] == numbers[:-1]).any())


def layout(columns: Columns) -> str:
    """The text of the layout that rows of a dump have."""
    return loaded_layout([(name, str(mysql_type)) for name, mysql_type in columns])


def layout_id(columns: Columns) -> int:
    """Its hash."""
    return int.from_bytes(hashlib.blake2b(layout(columns).encode(), digest_size=8).digest(), signed=True)
