"""Recorded snapshots: folders of `*.jsonl` and `*.jsonl.gz`, one Kafka record a line.

The form is the contract's: `{"topic", "partition", "offset", "timestamp" (ms), "key" (base64 or null), "value" (base64 or
null), "headers": [{"key", "value" (base64)}]}`.
"""

import io
from collections.abc import Iterable
from typing import Any

from pyarrow.fs import FileSelector, FileType
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.executors import prove_seen
from cdc_assets.storage import LOCAL, Store

_LINE = (
    "topic STRING, partition INT, offset BIGINT, timestamp BIGINT, key STRING, value STRING, "
    "headers ARRAY<STRUCT<key: STRING, value: STRING>>, _corrupt STRING"
)

# Milliseconds, of the years 1 to 9999.
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000, 253_402_300_799_999

FileState = list[int]  # size in bytes, modification time in ns


def snapshot_files(folder: str, store: Store = LOCAL) -> dict[str, FileState]:
    """Name -> [size, mtime_ns] of the snapshot files in `folder`, by name.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    system, path = store.files(folder)
    try:
        found = system.get_file_info(FileSelector(path))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"{folder}: no such folder of recorded snapshots (source.recorded in the feeds file)."
        ) from None
    files = [f for f in found if f.type == FileType.File and f.base_name.endswith((".jsonl", ".jsonl.gz"))]
    return {f.base_name: [f.size, f.mtime_ns] for f in sorted(files, key=lambda f: f.base_name)}


def read_lines(spark: SparkSession, folder: str, names: Iterable[str]) -> DataFrame:
    """Read snapshot files into one row a line.

    Out: topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY,
    headers ARRAY<STRUCT<key STRING, value BINARY>>, `_line` BINARY and `_file` STRING where the line is not a record (the
    other columns are null then), else null. Blank lines are skipped.

    Raises:
        PlaceError: a folder of the driver's machine that executors do not see.
    """
    paths = [f"{folder}/{name}" for name in names]
    if paths:
        prove_seen(spark, paths[0], "source.recorded")
    text = spark.read.text(paths, lineSep="\n")
    parsed = text.where(F.length(F.trim("value")) > 0).select(
        F.col("value").alias("_text"),
        F.from_json("value", _LINE, {"columnNameOfCorruptRecord": "_corrupt"}).alias("r"),
        F.col("_metadata.file_name").alias("_name"),
    )
    headers = F.transform(
        "r.headers",
        lambda h: F.struct(h["key"].alias("key"), F.try_to_binary(h["value"], F.lit("base64")).alias("value")),
    )
    # A projection of its own: Spark decodes the base64 once here, and once for each use below otherwise (twice the time).
    lines = parsed.select("*", _binary("r.key").alias("_key"), _binary("r.value").alias("_value"))
    key, value = F.col("_key"), F.col("_value")
    good = (
        F.col("r._corrupt").isNull()
        & F.col("r.topic").isNotNull()
        & (F.col("r.partition") >= 0)
        & (F.col("r.offset") >= 0)
        & F.col("r.timestamp").between(_FIRST_TIME, _LAST_TIME)
        & (F.col("r.key").isNull() | key.isNotNull())
        & (F.col("r.value").isNull() | value.isNotNull())
    )
    judged = lines.select("*", F.coalesce(good, F.lit(False)).alias("_good"))

    def field(column: Column, name: str) -> Column:
        return F.when(F.col("_good"), column).alias(name)

    return judged.select(
        field(F.col("r.topic"), "topic"),
        field(F.col("r.partition"), "partition"),
        field(F.col("r.offset"), "offset"),
        F.timestamp_millis(F.when(F.col("_good"), F.col("r.timestamp"))).alias("timestamp"),
        field(key, "key"),
        field(value, "value"),
        field(headers, "headers"),
        F.when(~F.col("_good"), F.col("_text").cast("binary")).alias("_line"),
        F.when(~F.col("_good"), F.col("_name")).alias("_file"),
    )


def _binary(name: str) -> Column:
    return F.try_to_binary(F.col(name), F.lit("base64"))


def locate_lines(folder: str, bad: dict[str, set[bytes]], store: Store = LOCAL) -> list[dict[str, Any]]:
    """Give bad lines, which Spark found without their place, their file and line number (from 1).

    Args:
        folder: where the files are.
        bad: file name -> the texts of its lines that are not records.
        store: how the folder is reached.
    """
    found: list[dict[str, Any]] = []
    system, path = store.files(folder)
    for name, texts in sorted(bad.items()):
        # What ends in .gz is unpacked.
        with io.BufferedReader(system.open_input_stream(f"{path}/{name}")) as file:
            for number, raw in enumerate(file, start=1):
                line = raw.removesuffix(b"\n")
                if line in texts:
                    found.append({"file": name, "line": number, "value": line})
    return found
