"""An archive of the JVM's classes, which later processes map instead of finding and verifying them (class data sharing).

A JVM finds, parses and verifies some twenty thousand classes before Spark runs its first query.
`python -m cdc_assets.operations.class_archive` writes the archive (`java -XX:ArchiveClassesAtExit`) beside the jars. Without
it processes start slower, nothing else.
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


def make(archive: Path) -> bool:
    """Make the archive, unless it is there: run the pipeline over a few records, and keep the classes that it needed.

    Returns:
        Whether there is one. A JVM that was installed without an archive of its own classes cannot make any.
    """
    if archive.exists():
        return True
    with tempfile.TemporaryDirectory(dir=archive.parent) as work:
        made = Path(work, archive.name)
        options = f"-XX:ArchiveClassesAtExit={made} -Xlog:disable"
        spark = spark_session({"spark.master": "local[2]", "spark.driver.extraJavaOptions": options})
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 -- its process is to be waited for
        _run(spark, Path(work))
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # at which PySpark's JVM ends
        gateway.proc.wait()
        if made.exists():
            made.replace(archive)  # atomic: another process sees the whole archive or none
    return archive.exists()


_TABLE = {
    "database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "es": 0, "sql": "",
    "sqlType": {"id": 4, "v": 12}, "mysqlType": {"id": "int", "v": "varchar"},
}  # fmt: skip
_MESSAGES = [
    # A history that is begun, and one that is merged into.
    [_TABLE | {"type": "INSERT", "old": None, "data": [{"id": "1", "v": "a"}], "_tidb": {"commitTs": 1}},
     {"type": "TIDB_WATERMARK", "isDdl": False, "_tidb": {"watermarkTs": 2}}],
    [_TABLE | {"type": "UPDATE", "old": [{"v": "a"}], "data": [{"id": "1", "v": "b"}], "_tidb": {"commitTs": 3}},
     {"type": "TIDB_WATERMARK", "isDdl": False, "_tidb": {"watermarkTs": 4}}],
]  # fmt: skip


def _run(spark: SparkSession, folder: Path) -> None:
    """Two runs of the pipeline over a few records."""
    entry = {"protocol": "canal-json", "tidb_extension": True, "source": {"recorded": str(folder / "records")}}
    feed = FeedsFile.model_validate({"feeds": {"f": entry}}).feeds["f"]
    lake = Lakehouse(lambda: spark, str(folder / "lake"), "f")
    (folder / "records").mkdir()
    offsets = itertools.count()
    for run, messages in enumerate(_MESSAGES):
        values = [base64.b64encode(json.dumps(message).encode()).decode() for message in messages]
        records: list[dict[str, Any]] = [
            {
                "topic": "t",
                "partition": 0,
                "offset": next(offsets),
                "timestamp": 0,
                "key": None,
                "value": value,
                "headers": [],
            }
            for value in values
        ]
        (folder / "records" / f"{run}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        for stage in STAGES:
            stage.run(lake, feed)


def main() -> int:
    """Fetch the jars, and make the archive."""
    if not make(class_archive(spark_jars())):
        sys.stderr.write("No archive of classes could be made: processes start some seconds slower, nothing else.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
