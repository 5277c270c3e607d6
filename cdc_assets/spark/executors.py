"""Check that the executors of a cluster can read local files of the driver's machine, as on a shared mount."""

import uuid
from functools import cache

from pyspark.sql import SparkSession

from cdc_assets.config.locations import LocationError, scheme_of
from cdc_assets.spark.session import hadoop_path, on_cluster
from cdc_assets.stores.storage import Store

_FOLDER = "_seen"  # below the root


def check_file_visible(spark: SparkSession, file: str, setting: str) -> None:
    """Check that the running executors can read a local file; files in a store need no check.

    Args:
        spark: the session.
        file: the file's path or URI.
        setting: the setting of the feeds file or environment that names the file's folder; for the message.

    Raises:
        LocationError: an executor cannot read the file.
    """
    if not _needs_check(file):
        return
    path, conf = hadoop_path(spark, file)
    if path.getFileSystem(conf).getFileStatus(path).getLen() == 0:
        return  # Spark does not read empty files.
    # One copy of the file a task, and two tasks a core, to reach every executor. Spark ignores missing files, and the copies
    # that were read are counted: a task that fails would be retried on another executor.
    session, tasks = spark.newSession(), 2 * spark.sparkContext.defaultParallelism
    session.conf.set("spark.sql.files.maxPartitionBytes", "1")
    copies = session.read.format("binaryFile").option("ignoreMissingFiles", "true").load([file] * tasks)
    if copies.select("length").count() < tasks:
        raise LocationError(
            f"{file}: {setting} is a local folder of the driver's machine, which not every executor of "
            f"{spark.sparkContext.master} can read: move it to a store that all machines reach, or mount it under the same "
            "path on every machine."
        )


@cache
def check_root_visible(spark: SparkSession, root: str, store: Store) -> None:
    """Check that the executors read and write below a root where this process does. Runs once a process for each root.

    Raises:
        LocationError: an executor cannot read a file that this process wrote.
    """
    if not _needs_check(root):
        return
    files, base = store.files(root)
    files.create_dir(f"{base}/{_FOLDER}")
    name = uuid.uuid4().hex
    with files.open_output_stream(f"{base}/{_FOLDER}/{name}") as file:
        file.write(b"seen")
    try:
        check_file_visible(spark, f"{root}/{_FOLDER}/{name}", "CDC_LAKEHOUSE")
    finally:
        files.delete_file(f"{base}/{_FOLDER}/{name}")


def _needs_check(location: str) -> bool:
    return on_cluster() and scheme_of(location) in {"", "file"}
