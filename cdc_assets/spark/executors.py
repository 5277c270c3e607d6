"""Whether a cluster's executors see the driver's files: tried, where these lie in a folder of a machine."""

import uuid
from functools import cache

from pyspark.sql import SparkSession

from cdc_assets.config.locations import LocationError, scheme_of
from cdc_assets.spark.session import hadoop_path, on_cluster
from cdc_assets.stores.storage import Store

_FOLDER = "_seen"


def prove_seen(spark: SparkSession, file: str, named: str) -> None:
    """Be sure that the executors that are there see a file; what lies in a store they ask for by themselves.

    Args:
        spark: the session.
        file: its path or URI.
        named: what names it, of the feeds file or the environment.

    Raises:
        LocationError: one does not see it.
    """
    if not _in_doubt(file):
        return
    path, conf = hadoop_path(spark, file)
    if path.getFileSystem(conf).getFileStatus(path).getLen() == 0:
        return  # Spark does not ask for it.
    # A file a task, and tasks for all cores. What is missing is passed over, as a task that fails is tried again elsewhere.
    own, tasks = spark.newSession(), 2 * spark.sparkContext.defaultParallelism
    own.conf.set("spark.sql.files.maxPartitionBytes", "1")
    copies = own.read.format("binaryFile").option("ignoreMissingFiles", "true").load([file] * tasks)
    if copies.select("length").count() < tasks:
        raise LocationError(
            f"{file}: {named} is a folder of the driver's machine, which not every executor of {spark.sparkContext.master} "
            "sees: put it on a store that all reach, or mount it under the same path everywhere."
        )


@cache
def prove_root_seen(spark: SparkSession, root: str, store: Store) -> None:
    """Be sure that what executors write below a root comes where this process looks for it. Tried once in a process.

    Raises:
        LocationError: one does not see what this process writes there.
    """
    if not _in_doubt(root):
        return
    files, base = store.files(root)
    files.create_dir(f"{base}/{_FOLDER}")
    name = uuid.uuid4().hex
    with files.open_output_stream(f"{base}/{_FOLDER}/{name}") as file:
        file.write(b"seen")
    try:
        prove_seen(spark, f"{root}/{_FOLDER}/{name}", "CDC_LAKEHOUSE")
    finally:
        files.delete_file(f"{base}/{_FOLDER}/{name}")


def _in_doubt(place: str) -> bool:
    return on_cluster() and scheme_of(place) in {"", "file"}
