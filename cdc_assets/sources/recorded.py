"""Recorded snapshots: folders of `*.jsonl` and `*.jsonl.gz`, one Kafka record a line.

The form is the contract's: `{"topic", "partition", "offset", "timestamp" (ms), "key" (base64 or null), "value" (base64 or
null), "headers": [{"key", "value" (base64)}]}`.
"""

import io
from collections.abc import Iterable
from typing import Any

from pyarrow.fs import FileSelector, FileType
from pyspark.sql import DataFrame, SparkSession

from cdc_assets.spark.executors import prove_seen
from cdc_assets.stores.storage import LOCAL, Store

_LINE = (
    "topic STRING, partition INT, offset BIGINT, timestamp BIGINT, key STRING, value STRING, "
    "headers ARRAY<STRUCT<key: STRING, value: STRING>>, _corrupt STRING"
)

# Milliseconds, of the years 1 to 9999.
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000, 253_402_300_799_999
# Whether a line is a record.
_GOOD = (
    "r._corrupt IS NULL AND r.topic IS NOT NULL AND r.partition >= 0 AND r.offset >= 0 "
    f"AND r.timestamp BETWEEN {_FIRST_TIME} AND {_LAST_TIME} "
    "AND (r.key IS NULL OR _key IS NOT NULL) AND (r.value IS NULL OR _value IS NOT NULL)"
)
_FIELDS = {
    "topic": "r.topic",
    "partition": "r.partition",
    "offset": "r.offset",
    "timestamp": "timestamp_millis(IF(_good, r.timestamp, NULL))",  # which of other numbers is an error
    "key": "_key",
    "value": "_value",
    "headers": "transform(r.headers, h -> struct(h.key AS key, try_to_binary(h.value, 'base64') AS value))",
}

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
        LocationError: a folder of the driver's machine that executors do not see.
    """
    paths = [f"{folder}/{name}" for name in names]
    if paths:
        prove_seen(spark, paths[0], "source.recorded")
    text = spark.read.text(paths, lineSep="\n")
    parsed = text.where("length(trim(value)) > 0").selectExpr(
        "value AS _text",
        f"from_json(value, '{_LINE}', map('columnNameOfCorruptRecord', '_corrupt')) AS r",
        "_metadata.file_name AS _name",
    )
    # A projection of its own: Spark decodes the base64 once here, and once for each use below otherwise (twice the time).
    decoded = [f"try_to_binary(r.{name}, 'base64') AS _{name}" for name in ("key", "value")]
    judged = parsed.selectExpr("*", *decoded).selectExpr("*", f"coalesce({_GOOD}, false) AS _good")
    return judged.selectExpr(
        *[f"IF(_good, {value}, NULL) AS {name}" for name, value in _FIELDS.items()],
        "IF(_good, NULL, CAST(_text AS BINARY)) AS _line",
        "IF(_good, NULL, _name) AS _file",
    )


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
