"""An archive of the JVM's classes, which later processes map instead of finding and verifying them (class data sharing).

`python -m cdc_assets.operations.class_archive` writes the archive (`java -XX:ArchiveClassesAtExit`) beside the jars. Without
it every process starts more slowly: measured in docs/speed.md.
"""

import base64
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc_assets.config import FeedsFile
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.spark.session import spark_session
from cdc_assets.stages import STAGES
from cdc_assets.stores.jars import class_archive, spark_jars

_TABLE = {
    "database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "es": 0, "sql": "",
    "sqlType": {"id": 4, "v": 12}, "mysqlType": {"id": "int", "v": "varchar"},
}  # fmt: skip
_MESSAGES = [
    [_TABLE | {"type": "INSERT", "old": None, "data": [{"id": "1", "v": "a"}], "_tidb": {"commitTs": 1}},
     {"type": "TIDB_WATERMARK", "isDdl": False, "_tidb": {"watermarkTs": 2}}],
    [_TABLE | {"type": "UPDATE", "old": [{"v": "a"}], "data": [{"id": "1", "v": "b"}], "_tidb": {"commitTs": 3}},
     {"type": "TIDB_WATERMARK", "isDdl": False, "_tidb": {"watermarkTs": 4}}],
]  # fmt: skip


def make_archive(archive: Path) -> bool:
    """Write the archive of the classes that the pipeline uses on a few records, unless it exists.

    Returns:
        Whether it exists now. A JVM that was installed without an archive of its own classes cannot write one.
    """
    if archive.exists():
        return True
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        written = Path(folder, archive.name)
        options = f"-XX:ArchiveClassesAtExit={written} -Xlog:disable"
        spark = spark_session({"spark.master": "local[2]", "spark.driver.extraJavaOptions": options})
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 -- the JVM writes the archive when it exits: wait for it
        _run_pipeline(spark, Path(folder))
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # PySpark's JVM exits at the end of its input
        gateway.proc.wait()
        if written.exists():
            written.replace(archive)  # atomic, so that no other process sees a part of the archive
    return archive.exists()


def _run_pipeline(spark: SparkSession, folder: Path) -> None:
    """Run every stage twice: the first run begins a history, the second merges into it."""
    entry = {"protocol": "canal-json", "tidb_extension": True, "source": {"recorded": str(folder / "records")}}
    feed = FeedsFile.model_validate({"feeds": {"f": entry}}).feeds["f"]
    lake = Lakehouse(lambda: spark, str(folder / "lake"), "f")
    (folder / "records").mkdir()
    offsets = itertools.count()
    for run, messages in enumerate(_MESSAGES):
        lines = [json.dumps(_build_record(message, next(offsets))) + "\n" for message in messages]
        (folder / "records" / f"{run}.jsonl").write_text("".join(lines))
        for stage in STAGES:
            stage.run(lake, feed)


def _build_record(message: dict[str, Any], offset: int) -> dict[str, Any]:
    """Return a message as a recorded Kafka record."""
    value = base64.b64encode(json.dumps(message).encode()).decode()
    place = {"topic": "t", "partition": 0, "offset": offset}
    return place | {"timestamp": 0, "key": None, "value": value, "headers": []}


def main() -> int:
    """Fetch the jars, and write the archive beside them."""
    if not make_archive(class_archive(spark_jars())):
        sys.stderr.write("This JVM cannot write a class archive: every process starts more slowly, nothing else.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
