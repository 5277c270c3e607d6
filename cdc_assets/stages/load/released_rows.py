"""The rows of a dump as the gate releases them: typed rows where a history begins with them, else changes.

Typed rows are written once, in files as the history has them. A row is typed if typing loses none of its values and its key
comes once. All other rows go into released_changes as text, like the rows of a table whose history has to be compared with
them.
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
from cdc_assets.initial_load.dumps import DumpError, DumpFile, find_damage, find_line
from cdc_assets.initial_load.rows import DumpColumns, read_plain_rows, read_rows
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
from cdc_assets.spark.executors import check_file_visible
from cdc_assets.spark.session import session_for
from cdc_assets.stages.load.history_start import HistoryStart, plan_history_start
from cdc_assets.stores.storage import Store

_BYTES_PER_ROW = 1 << 7  # a rough guess, to choose a session by
# The files are read up to three times. Each reading numbers its rows from another start, so that no number comes twice.
_SECOND_READING, _LAST_READING = 1 << 61, 1 << 62
_ALL_LINES = 1 << 62  # the number of lines that are not plain, where no line is
# Of so many rows the driver holds a hash of each key in memory; of more, Spark compares the keys.
_MAX_HASHES = 1 << 25


@dataclass(frozen=True)
class TypedDumpRows:
    """The typed rows of a load.

    Attributes:
        rows: how many there are.
        folder: where they are; "": there are none.
        is_complete: whether they are all rows of the dump.
    """

    rows: int = 0
    folder: str = ""
    is_complete: bool = False


@dataclass(frozen=True)
class TableDump:
    """The dump of one table, with rows.

    Attributes:
        lake: the feed's tables.
        feed: the feed.
        row: the table's row of initial_load.
        files: the files with its rows.
        columns: of the dump.
        key: the names of the key's columns; none: the whole row is the key.
    """

    lake: Lakehouse
    feed: Feed
    row: Mapping[str, Any]
    files: list[DumpFile]
    columns: DumpColumns
    key: list[str]

    def stage(self, release: int) -> tuple[Staged, TypedDumpRows]:
        """Write the rows for a release: each is either in the staged files of released_changes, or typed.

        Raises:
            DumpError: a file is damaged or missing.
        """
        try:
            check_file_visible(self._spark, self.files[0].path, "initial_load")
            start = self._history_start
            typed = TypedDumpRows() if start is None else self._stage_typed(start)
            if typed.is_complete:
                return self.lake.released_changes.stage_rows([]), typed
            return self._stage_changes(release, typed), typed
        except (PySparkException, Py4JJavaError) as error:
            if not (damage := find_damage(self.lake.store, self.row["format"], self.files)):
                raise  # the dump is not the cause
            raise DumpError(damage) from error

    @property
    def _name(self) -> tuple[str, str]:
        return self.row["database"], self.row["table"]

    @cached_property
    def _spark(self) -> SparkSession:
        return session_for(self.lake.spark, sum(f.size for f in self.files) // _BYTES_PER_ROW)

    @cached_property
    def _history_start(self) -> HistoryStart | None:
        """The history that begins with the load; None: the rows are changes.

        They are changes if the history may have rows already, if rows of the dump may be equal, or if the release has
        statements after the load: the history applies statements before it could copy the typed rows.
        """
        position, statements = self.row["position"], self.lake.released_changes.files(kind=str(ReleasedKind.DDL))
        if self.row["is_reload"] or not self.key or any(f.high["commit_ts"] > position for f in statements):
            return None
        layout = describe_layout(self.columns)
        return plan_history_start(self.feed, self._name, position, hash_layout(self.columns), layout)

    def _read(self, first_number: int, *, without_plain: bool = False) -> DataFrame:
        """Return the columns of `read_rows`, and `offset` BIGINT, unique to the row."""
        rows = read_rows(*self._source, without_plain=without_plain)
        return rows.withColumn("offset", F.monotonically_increasing_id() + first_number)

    @property
    def _source(self) -> tuple[SparkSession, Store, str, list[DumpFile], DumpColumns, str]:
        """The arguments that the two functions of `rows` have in common."""
        return self._spark, self.lake.store, self.row["format"], self.files, self.columns, self.row["time_zone"]

    def _type_rows(self, start: HistoryStart, rows: DataFrame) -> DataFrame:
        """Add the columns of `Typing.type_rows` to rows with `values`."""
        return start.typing.type_texts(rows.withColumn("wire", F.col("values")))

    def _stage_typed(self, start: HistoryStart) -> TypedDumpRows:
        """Write the typed rows; none if a key comes twice, as rows of one key have to be compared."""
        table = self.lake.loaded_rows(*self._name).with_schema(start.shape, {})
        folder = uuid.uuid4().hex
        not_plain, lossy = self._stage_plain_lines(start, table, folder)
        if not_plain:
            lossy += self._stage_other_lines(start, table, folder, without_plain=not_plain < _ALL_LINES)
        staged = table.list_staged(folder)
        if not staged.rows or self._has_repeated_key(table, staged):
            files, path = table.store.files(f"{table.path}/{folder}")
            files.delete_dir(path)
            return TypedDumpRows()
        return TypedDumpRows(staged.rows, folder, is_complete=not lossy)

    def _stage_plain_lines(self, start: HistoryStart, table: LakeTable[Any], folder: str) -> tuple[int, int]:
        """Write the typed rows of plain lines.

        Returns:
            How many lines are not plain, and how many rows of plain lines lose a value.
        """
        rows, counts = read_plain_rows(*self._source), Observation()
        if rows is None:
            return _ALL_LINES, 0
        numbered = rows.withColumns({"offset": F.monotonically_increasing_id()})
        versions = start.to_versions(self._type_rows(start, numbered), self._key(), F.col("offset"), "plain", "lost")
        # Observing copies each row, so observe the versions, which are shorter than the lines.
        not_plain, lossy = F.count_if(~F.col("plain")), F.count_if(F.col("plain") & F.col("lost"))
        observed = versions.observe(counts, not_plain.alias("not_plain"), lossy.alias("lossy"))
        kept = observed.where(F.col("plain") & ~F.col("lost")).drop("plain", "lost")
        table.stage_partition(kept, f"{folder}/plain", _cdc_is_current=True)
        return counts.get["not_plain"], counts.get["lossy"]

    def _stage_other_lines(
        self, start: HistoryStart, table: LakeTable[Any], folder: str, *, without_plain: bool
    ) -> int:
        """Write the typed rows of all lines, or of those that are not plain; return how many rows lose a value."""
        counts = Observation()
        rows = self._type_rows(start, self._read(_SECOND_READING, without_plain=without_plain))
        versions = start.to_versions(rows, self._key(), F.col("offset"), "bad", "lost")
        observed = versions.observe(counts, F.max("bad").alias("bad"), F.count_if("lost").alias("lossy"))
        kept = observed.where(~F.col("lost")).drop("bad", "lost")
        table.stage_partition(kept, f"{folder}/exact", _cdc_is_current=True)
        self._refuse_bad_line(counts.get["bad"])
        return int(counts.get["lossy"])

    def _has_repeated_key(self, table: LakeTable[Any], staged: Staged) -> bool:
        """Whether a key comes twice, or two keys have one hash, which has the same effect: the rows become changes."""
        if staged.rows <= _MAX_HASHES:
            return _has_repeated_number(_hash_keys(table, staged))
        keys = table.read_staged(self._spark, staged, StructType([CDC_COLUMNS["_cdc_key"]]))
        (distinct,) = keys.agg(F.count_distinct(F.xxhash64("_cdc_key"))).head() or (0,)
        return bool(distinct < staged.rows)

    def _stage_changes(self, release: int, typed: TypedDumpRows) -> Staged:
        """Write the rows that are not typed, as changes of a release."""
        rows = self._read(_LAST_READING)
        if typed.folder and self._history_start is not None:
            rows = self._type_rows(self._history_start, rows).where("lost")
        bad_lines = Observation()
        observed = rows.observe(bad_lines, F.max("bad").alias("bad"))
        changes = observed.select(
            F.lit(str(ReleasedKind.LOADED)).alias("kind"),
            F.lit(release).alias("release"),
            F.lit(self.row["position"]).alias("commit_ts"),
            F.lit(str(Op.SNAPSHOT)).alias("op"),
            F.lit(self.row["database"]).alias("database"),
            F.lit(self.row["table"]).alias("table"),
            F.lit(LOAD_TOPIC).alias("topic"),
            F.lit(0).alias("partition"),
            "offset",
            F.lit(0).alias("index"),
            F.lit(LAST_ORDINAL if self.row["is_reload"] else 1).alias("ordinal"),
            self._key().alias("key"),
            F.array(*map(F.lit, self.key)).cast("array<string>").alias("key_columns"),
            F.lit(0).alias("events"),
            F.lit(0).alias("repeats"),
            F.to_json("values", {"ignoreNullFields": "false"}).alias("after"),
            F.lit(hash_layout(self.columns)).alias("layout_id"),
            F.lit(self.row["position"] >> tso.TSO_LOGICAL_BITS).alias("source_ms"),
        )
        staged = self.lake.released_changes.stage(conform(changes, RELEASED_CHANGES.columns))
        self._refuse_bad_line(bad_lines.get["bad"])
        return staged

    def _key(self) -> Column:
        """Return the key of `values` as messages have it; in a table without a key, the whole row."""
        protocol, columns = protocol_of(self.feed), {name.lower(): (name, t) for name, t in self.columns}

        def key_text(name: str) -> Column:
            own_name, mysql_type = columns[name.lower()]
            text = protocol.dumped_key(F.col("values").getField(own_name), mysql_type)
            return F.lit(None).cast("string") if text is None else text

        if self.key:
            return F.to_json(F.array(*[key_text(name) for name in self.key]))
        return row_as_key(F.to_json(F.struct(*[key_text(name).alias(name) for name, _ in self.columns])))

    def _refuse_bad_line(self, bad: Row | None) -> None:
        """Fail if there is a line that is no row; `bad`: as `read_rows` returns it."""
        if bad is None:
            return
        path, line = find_line(self.lake.store, self.files, bad["checksum"])
        raise DumpError(
            f"{path}: line {line} is no row of {'.'.join(self._name)}, in UTF-8 and in the default form of "
            f"{self.row['format']}: {bad['line']}: mend the line, or take the dump again."
        )


def _hash_keys(table: LakeTable[Any], staged: Staged) -> npt.NDArray[np.uint64]:
    """Return a hash of each row's key."""
    from pandas.util import hash_array  # noqa: PLC0415 -- slow to import, and only a load needs it

    hashes, start = np.empty(staged.rows, np.uint64), 0
    for rows in table.fetch_parts(staged.files, "_cdc_key"):
        hashes[start : start + rows.num_rows] = hash_array(rows["_cdc_key"].to_numpy(), categorize=False)
        start += rows.num_rows
    return hashes


def _has_repeated_number(numbers: npt.NDArray[np.uint64]) -> bool:
    """Return whether a number comes twice. The array is sorted in place."""
    numbers.sort()
    return bool((numbers[1:] == numbers[:-1]).any())


def describe_layout(columns: DumpColumns) -> str:
    """Return the text of the column layout of a dump's rows."""
    return loaded_layout([(name, str(mysql_type)) for name, mysql_type in columns])


def hash_layout(columns: DumpColumns) -> int:
    """Return the hash of `describe_layout`, which is the rows' layout_id."""
    return int.from_bytes(hashlib.blake2b(describe_layout(columns).encode(), digest_size=8).digest(), signed=True)
