"""Check that two drivers cannot overwrite each other's Delta commits below a root."""

import uuid
from functools import cache
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from cdc_assets.config.locations import LocationError, scheme_of
from cdc_assets.spark.session import hadoop_path
from cdc_assets.stores import store_of
from cdc_assets.stores.storage import LOG_STORES

_FOLDER = "_exclusive_writes"  # below the root


@cache
def check_exclusive_writes(spark: SparkSession, root: str) -> None:
    """Check that the object store refuses to write a file that exists.

    The check writes one file twice with the log store that writes Delta's commits, which sends a conditional request and
    does not look for the file before. It runs once a process for each root. The tests show that deltalake sends its
    commits with the same condition.

    Raises:
        LocationError: the root is not writable, or the store replaces existing files.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 -- PySpark has no public access to the JVM
    store = store_of(root)
    assert store, root  # noqa: S101 -- the caller checks roots in object stores only
    path, conf = hadoop_path(spark, f"{root}/{_FOLDER}/{uuid.uuid4().hex}")
    log_store = getattr(jvm, LOG_STORES[scheme_of(root)])(conf)

    overwrite = recursive = False

    def write(content: str) -> None:
        lines = jvm.java.util.ArrayList()
        lines.add(content)
        log_store.write(path, lines.iterator(), overwrite, conf)

    try:
        write("first")
        try:
            write("second")
        except Py4JJavaError as error:
            if not _is_refusal(error):
                raise
        else:
            raise LocationError(
                f"{root}: this store replaces an existing file, although the request says to write it only if it is absent "
                f"({store.condition}). Two runs at the same time would overwrite each other's commits and lose rows: use a "
                "store, or a version of it, that supports conditional writes."
            )
        finally:
            path.getFileSystem(conf).delete(path, recursive)
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        message = str(cause).splitlines()[0]
    else:
        return
    # Outside the except block, so that the Java stack trace is not chained.
    raise LocationError(
        f"{root}: is not writable, or the store does not support conditional writes ({store.condition}): {message}"
    )


def _is_refusal(error: Py4JJavaError) -> bool:
    return str(error.java_exception.getClass().getName()) == "java.nio.file.FileAlreadyExistsException"
