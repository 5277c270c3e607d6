"""The data files of a write: written by Spark, listed and described here, so that a commit can name them."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import reduce
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import parquet
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, PyFileSystem
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cdc_assets.lakehouse.log import DataFile
from cdc_assets.stores.storage import Store, make_folder

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# Of texts Delta keeps the beginnings.
_PREFIX = 32
_HIGHEST = "\U0010ffff"
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_CHUNK = 1 << 20


def write_files(rows: DataFrame, table: str, folder: str, partition_by: Sequence[str]) -> None:
    """Write rows as Parquet files into a folder of the table; no reader sees them before a commit names them."""
    writer = rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    (writer.partitionBy(*partition_by) if partition_by else writer).parquet(f"{table}/{folder}")


def write_rows(
    rows: Sequence[Mapping[str, Any]],
    table: str,
    folder: str,
    columns: StructType,
    partition_by: Sequence[str],
    statistics: Sequence[str],
    store: Store,
) -> list[DataFile]:
    """As `write_files` and `described`, of plain rows, without Spark; what a row lacks is NULL."""
    system, base = store.files(table)
    found = []
    for values, part in _parted(pa.Table.from_pylist(list(rows), schema=to_arrow_schema(columns)), partition_by):
        told = {name: _text(value) or _NULL_PARTITION for name, value in values.items()}
        folders = [f"{name}={quote(text, safe='')}" for name, text in told.items()]
        relative = "/".join([folder, *folders, "part-0.parquet"])
        data = pa.BufferOutputStream()
        parquet.write_table(part, data, store_decimal_as_integer=True)
        written = data.getvalue()
        make_folder(system, f"{base}/{relative}".rpartition("/")[0])
        with system.open_output_stream(f"{base}/{relative}") as file:
            file.write(written)
        footer = parquet.read_metadata(pa.BufferReader(written))
        partition = {name: _value(text) for name, text in told.items()}
        statistics_told = _statistics(footer, statistics)
        found.append(DataFile(f"{table}/{relative}", footer.num_rows, partition, *statistics_told, written.size))
    return found


def _parted(rows: pa.Table, keys: Sequence[str]) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """The rows by the values of these columns, without the columns."""
    if not keys:
        if rows.num_rows:
            yield {}, rows
        return
    for values in rows.group_by(list(keys)).aggregate([]).to_pylist():
        same = [pc.is_null(rows[key]) if value is None else pc.equal(rows[key], value) for key, value in values.items()]
        yield values, rows.filter(reduce(pc.and_, same)).drop_columns(list(keys))


def described(
    table: str,
    folder: str,
    partition_by: Sequence[str],
    statistics: Sequence[str],
    store: Store,
    by: str | None = None,
) -> list[DataFile]:
    """The files of `write_files`, with the statistics that their footers tell; without those that hold no row.

    Args:
        table: the table's path.
        folder: in which the files were written.
        partition_by: the columns that they were told apart by.
        statistics: the columns whose statistics are wanted.
        store: how the table is reached.
        by: which of `partition_by` is no partition of the table. Its folders get other names, as some readers (Polars) take
            `name=value` in a path for a column of the table.
    """
    system, base = store.files(table)
    found = []
    for info in list(_files(system, f"{base}/{folder}")):
        relative = info.path.removeprefix(f"{base}/")
        footer = parquet.read_metadata(info.path, filesystem=system)
        if footer.num_rows:
            low, high, nulls = _statistics(footer, statistics)
            partition = _partition(relative, partition_by)
            if by is not None:
                relative = relative.replace(f"/{by}=", "/", 1)
                make_folder(system, f"{base}/{relative}".rpartition("/")[0])
                system.move(info.path, f"{base}/{relative}")
            found.append(DataFile(f"{table}/{relative}", footer.num_rows, partition, low, high, nulls, info.size))
    return found


def written_columns(path: str, store: Store) -> StructType:
    """The columns of a file that Spark has written, as it says in the footer."""
    system, place = store.files(path)
    told = parquet.read_metadata(place, filesystem=system).metadata
    return StructType.fromJson(json.loads(told[_SPARK_SCHEMA]))


def copied(store: Store, path: str, to: str) -> None:
    """Copy a file within a store, which does that itself where it can."""
    (system, source), (_, target) = store.files(path), store.files(to)
    make_folder(system, target.rpartition("/")[0])
    if not isinstance(system, PyFileSystem):
        system.copy_file(source, target)
        return
    with system.open_input_stream(source) as read, system.open_output_stream(target) as written:
        shutil.copyfileobj(read, written, _CHUNK)


def actions(table: str, partition_by: Sequence[str], files: Sequence[DataFile]) -> list[AddAction | RemoveAction]:
    """What a commit says of these files."""
    now = int(datetime.now(UTC).timestamp() * 1000)
    return [
        AddAction(
            path=file.path.removeprefix(f"{table}/"),
            size=file.size,
            partition_values={k: _text(file.partition[k]) for k in partition_by},
            modification_time=now,
            data_change=True,
            stats=json.dumps(
                {
                    "numRecords": file.rows,
                    "minValues": {k: _bound(v, upper=False) for k, v in file.low.items()},
                    "maxValues": {k: _bound(v, upper=True) for k, v in file.high.items()},
                    "nullCount": dict(file.nulls),
                }
            ),
        )
        for file in files
    ]


def _files(system: FileSystem, folder: str) -> Iterator[FileInfo]:
    for info in system.get_file_info(FileSelector(folder, allow_not_found=True, recursive=True)):
        if info.type == FileType.File and info.base_name.endswith(".parquet"):
            yield info


def _partition(relative: str, keys: Sequence[str]) -> dict[str, Any]:
    """The partition's values, out of the folders that Spark made for them."""
    told = dict(part.split("=", 1) for part in relative.split("/")[:-1] if "=" in part)
    return {key: _value(unquote(told[key])) for key in keys}


def _value(text: str) -> object:
    if text in {"true", "false"}:
        return text == "true"
    return None if text == _NULL_PARTITION else text


def _text(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _statistics(
    footer: parquet.FileMetaData, columns: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Smallest and largest value and number of nulls of each of these columns, as far as the footer tells."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    untold: set[str] = set()
    for group in (footer.row_group(n) for n in range(footer.num_row_groups)):
        for part in (group.column(n) for n in range(group.num_columns)):
            name, told = part.path_in_schema, part.statistics
            if name not in columns:
                continue
            if told is None or not told.has_null_count:
                untold.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + told.null_count
            if told.has_min_max:
                low[name] = min(low.get(name, told.min), told.min)
                high[name] = max(high.get(name, told.max), told.max)
            elif told.null_count < group.num_rows:
                untold.add(name)  # too long a text
    kept = {name: count for name, count in nulls.items() if name not in untold}
    return _without(low, untold), _without(high, untold), kept


def _without(values: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _bound(value: object, *, upper: bool) -> object:
    """A value as the log has it; of a long text its beginning, or what is just above everything that begins so."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and len(value) > _PREFIX:
        return value[:_PREFIX] + _HIGHEST * upper
    return value
