"""Whether a store keeps two drivers from overwriting each other's commits: tried, before the first commit there."""

import uuid
from functools import cache
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from cdc_assets.config.locations import LocationError, scheme_of
from cdc_assets.spark.session import hadoop_path
from cdc_assets.stores import store_of
from cdc_assets.stores.storage import LOG_STORES

_FOLDER = "_exclusive_writes"


@cache
def prove_exclusive(spark: SparkSession, root: str) -> None:
    """Write a file below a root twice, as Delta's commits are written: the store must refuse the second, and keep the first.

    Neither write looks before whether the file is there. Tried once in a process. That deltalake writes its commits under
    the same condition, the tests show.

    Raises:
        LocationError: the root cannot be written, or the store replaces files that are there.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 -- there is no other way to it
    store = store_of(root)
    assert store, root  # noqa: S101 -- elsewhere nothing has to be proved
    path, conf = hadoop_path(spark, f"{root}/{_FOLDER}/{uuid.uuid4().hex}")
    log = getattr(jvm, LOG_STORES[scheme_of(root)])(conf)

    overwrite = recursive = False

    def write(content: str) -> None:
        lines = jvm.java.util.ArrayList()
        lines.add(content)
        log.write(path, lines.iterator(), overwrite, conf)

    try:
        write("first")
        try:
            write("second")
        except Py4JJavaError as error:
            if not _is_refusal(error):
                raise
        else:
            raise LocationError(
                f"{root}: this store replaces a file though it is asked to write it only if it is absent "
                f"({store.condition}). Two runs at once would overwrite each other's commits, and lose rows: choose a "
                "store, or a version of it, with conditional writes."
            )
        finally:
            path.getFileSystem(conf).delete(path, recursive)
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        told = str(cause).splitlines()[0]
    else:
        return
    # Outside the except block: the trace in Java says no more.
    raise LocationError(f"{root}: cannot be written, or knows no conditional writes ({store.condition}): {told}")


def _is_refusal(error: Py4JJavaError) -> bool:
    return str(error.java_exception.getClass().getName()) == "java.nio.file.FileAlreadyExistsException"
