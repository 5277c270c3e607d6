"""Data files: written before the commit that adds them, and described by their statistics so that a commit can add them."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import parquet
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, PyFileSystem
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cdc_assets.lakehouse.log import DataFile
from cdc_assets.stores.storage import Store, has_folders, make_folder

_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# Delta keeps only so many characters of a text as its minimum or maximum.
_PREFIX = 32
_HIGHEST = "\U0010ffff"
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_CHUNK = 1 << 20
V = TypeVar("V")


def write_files(rows: DataFrame, table: str, folder: str, partition_by: Sequence[str]) -> None:
    """Write rows as Parquet files into a folder of the table; no reader sees the files before a commit adds them."""
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
    """Write Python rows like `write_files`, without Spark, and describe the files; a column that a row lacks is NULL."""
    if not rows:
        return []
    from pyarrow import dataset  # noqa: PLC0415 -- imports pandas, which loading the definitions must not wait for

    system, base = store.files(table)
    arrow_rows = pa.Table.from_pylist(list(rows), schema=to_arrow_schema(columns))
    parquet_files, written = dataset.ParquetFileFormat(), list[Any]()
    dataset.write_dataset(
        arrow_rows,
        f"{base}/{folder}",
        filesystem=system,
        format=parquet_files,
        file_options=parquet_files.make_write_options(store_decimal_as_integer=True),
        partitioning=dataset.partitioning(pa.schema(map(arrow_rows.schema.field, partition_by)), flavor="hive"),
        basename_template="part-{i}.parquet",
        existing_data_behavior="overwrite_or_ignore",
        create_dir=has_folders(system),
        use_threads=False,
        file_visitor=written.append,
    )
    files = []
    for file in written:
        relative = file.path.removeprefix(f"{base}/")
        partition, bounds = _partition(relative, partition_by), _statistics(file.metadata, statistics)
        files.append(DataFile(f"{table}/{relative}", file.metadata.num_rows, partition, *bounds, file.size))
    return files


def describe_files(
    table: str,
    folder: str,
    partition_by: Sequence[str],
    statistics: Sequence[str],
    store: Store,
    by: str | None = None,
) -> list[DataFile]:
    """Return the files that `write_files` wrote, with the statistics of their footers; files without rows are left out.

    Args:
        table: the table's path.
        folder: the folder below it into which the files were written.
        partition_by: the columns by which they were partitioned.
        statistics: the columns whose statistics are read.
        store: how the table is reached.
        by: the column of `partition_by` that is not a column of the table. Its folders are renamed, because some readers
            (Polars) read `name=value` in a path as a column of the table.
    """
    system, base = store.files(table)
    files = []
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
            files.append(DataFile(f"{table}/{relative}", footer.num_rows, partition, low, high, nulls, info.size))
    return files


def read_file_schema(path: str, store: Store) -> StructType:
    """Return the columns of a file that Spark wrote, from the schema in its footer."""
    system, place = store.files(path)
    metadata = parquet.read_metadata(place, filesystem=system).metadata
    return StructType.fromJson(json.loads(metadata[_SPARK_SCHEMA]))


def copy_file(store: Store, path: str, to: str) -> None:
    """Copy a file within a store, on the server if the store supports it."""
    (system, source), (_, target) = store.files(path), store.files(to)
    make_folder(system, target.rpartition("/")[0])
    if not isinstance(system, PyFileSystem):
        system.copy_file(source, target)
        return
    with system.open_input_stream(source) as read, system.open_output_stream(target) as written:
        shutil.copyfileobj(read, written, _CHUNK)


def add_actions(table: str, partition_by: Sequence[str], files: Sequence[DataFile]) -> list[AddAction | RemoveAction]:
    """Return the actions of a commit that adds these files."""
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
    """Return the partition's values, from the names of the folders that Spark made for them."""
    texts = dict(part.split("=", 1) for part in relative.split("/")[:-1] if "=" in part)
    return {key: _value(unquote(texts[key])) for key in keys}


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
    """Return minimum, maximum and number of nulls of these columns; a column without statistics of all rows is absent."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    incomplete: set[str] = set()
    for group in (footer.row_group(n) for n in range(footer.num_row_groups)):
        for chunk in (group.column(n) for n in range(group.num_columns)):
            name, values = chunk.path_in_schema, chunk.statistics
            if name not in columns:
                continue
            if values is None or not values.has_null_count:
                incomplete.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + values.null_count
            if values.has_min_max:
                low[name] = min(low.get(name, values.min), values.min)
                high[name] = max(high.get(name, values.max), values.max)
            elif values.null_count < group.num_rows:
                incomplete.add(name)  # Parquet writers leave out the bounds of long texts.
    return _without(low, incomplete), _without(high, incomplete), _without(nulls, incomplete)


def _without(values: Mapping[str, V], names: set[str]) -> dict[str, V]:
    return {name: value for name, value in values.items() if name not in names}


def _bound(value: object, *, upper: bool) -> object:
    """Return a minimum or maximum as the log states it: a long text is cut, so that it stays a bound of the values."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and len(value) > _PREFIX:
        return value[:_PREFIX] + _HIGHEST * upper
    return value
