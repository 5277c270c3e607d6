"""Recorded snapshots: folders of `*.jsonl` and `*.jsonl.gz`, one Kafka record a line.

The form of a line: `{"topic", "partition", "offset", "timestamp" (ms), "key" (base64 or null), "value" (base64 or
null), "headers": [{"key", "value" (base64)}]}`.
"""

import io
from collections.abc import Iterable
from typing import Any

from pyarrow.fs import FileSelector, FileType
from pyspark.sql import DataFrame, SparkSession

from cdc_assets.spark.executors import check_file_visible
from cdc_assets.stores.storage import LOCAL, Store

_LINE = (
    "topic STRING, partition INT, offset BIGINT, timestamp BIGINT, key STRING, value STRING, "
    "headers ARRAY<STRUCT<key: STRING, value: STRING>>, _corrupt STRING"
)

# The years 1 to 9999, in milliseconds.
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000, 253_402_300_799_999
# Condition: the line is a record.
_GOOD = (
    "r._corrupt IS NULL AND r.topic IS NOT NULL AND r.partition >= 0 AND r.offset >= 0 "
    f"AND r.timestamp BETWEEN {_FIRST_TIME} AND {_LAST_TIME} "
    "AND (r.key IS NULL OR _key IS NOT NULL) AND (r.value IS NULL OR _value IS NOT NULL) AND NOT coalesce("
    "exists(r.headers, h -> h.value IS NOT NULL AND try_to_binary(h.value, 'base64') IS NULL), false)"
)
_FIELDS = {
    "topic": "r.topic",
    "partition": "r.partition",
    "offset": "r.offset",
    "timestamp": "timestamp_millis(IF(_good, r.timestamp, NULL))",  # fails for numbers out of range
    "key": "_key",
    "value": "_value",
    "headers": "transform(r.headers, h -> struct(h.key AS key, try_to_binary(h.value, 'base64') AS value))",
}

FileState = list[int]  # size in bytes, modification time in ns


def snapshot_files(folder: str, store: Store = LOCAL) -> dict[str, FileState]:
    """Return the snapshot files in a folder: name -> [size, mtime_ns], sorted by name.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    system, path = store.files(folder)
    try:
        entries = system.get_file_info(FileSelector(path))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"{folder}: no such folder of recorded snapshots (source.recorded in the feeds file)."
        ) from None
    files = [f for f in entries if f.type == FileType.File and f.base_name.endswith((".jsonl", ".jsonl.gz"))]
    return {f.base_name: [f.size, f.mtime_ns] for f in sorted(files, key=lambda f: f.base_name)}


def read_lines(spark: SparkSession, folder: str, names: Iterable[str]) -> DataFrame:
    """Read snapshot files into one row a line; blank lines are skipped.

    Returns:
        topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY,
        headers ARRAY<STRUCT<key STRING, value BINARY>>, `_line` BINARY, `_file` STRING. `_line` and `_file` are null for a
        record. For a line that is not a record, they hold the line and its file's name, and all other columns are null.

    Raises:
        LocationError: the folder is on the driver's machine, and executors cannot read it.
    """
    paths = [f"{folder}/{name}" for name in names]
    if paths:
        check_file_visible(spark, paths[0], "source.recorded")
    text = spark.read.text(paths, lineSep="\n")
    parsed = text.where("length(trim(value)) > 0").selectExpr(
        "value AS _text",
        f"from_json(value, '{_LINE}', map('columnNameOfCorruptRecord', '_corrupt')) AS r",
        "_metadata.file_name AS _name",
    )
    # In a projection of its own, so that Spark decodes the base64 once and not at each use below.
    decoded = [f"try_to_binary(r.{name}, 'base64') AS _{name}" for name in ("key", "value")]
    checked = parsed.selectExpr("*", *decoded).selectExpr("*", f"coalesce({_GOOD}, false) AS _good")
    return checked.selectExpr(
        *[f"IF(_good, {value}, NULL) AS {name}" for name, value in _FIELDS.items()],
        "IF(_good, NULL, CAST(_text AS BINARY)) AS _line",
        "IF(_good, NULL, _name) AS _file",
    )


def locate_lines(folder: str, bad: dict[str, set[bytes]], store: Store = LOCAL) -> list[dict[str, Any]]:
    """Return the file and line number of lines that are not records: Spark reads lines without their numbers.

    Args:
        folder: the folder of the files.
        bad: file name -> the texts of its lines that are not records.
        store: access to the folder.

    Returns:
        One mapping a line: `file`, `line` (from 1), `value` (the line's bytes).
    """
    located: list[dict[str, Any]] = []
    system, path = store.files(folder)
    for name, texts in sorted(bad.items()):
        # pyarrow decompresses files whose names end in .gz.
        with io.BufferedReader(system.open_input_stream(f"{path}/{name}")) as file:
            for number, raw in enumerate(file, start=1):
                line = raw.removesuffix(b"\n")
                if line in texts:
                    located.append({"file": name, "line": number, "value": line})
    return located
