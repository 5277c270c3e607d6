"""The Spark session and its settings, by the number of rows too."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from cdc_assets.stores.jars import class_archive, spark_jars
from cdc_assets.stores.storage import LOCAL, Store

_ENV_PREFIX = "CDC_SPARK_"
# The environment variable whose jars Spark puts after its own on the class path; no Spark setting does that.
_LAST_JARS = "SPARK_DIST_CLASSPATH"
# The folder of checkpoints, below the root; runs on a cluster only.
_CHECKPOINTS = "_checkpoints"

_DEFAULTS = {
    "spark.app.name": "cdc_assets",
    "spark.master": "local[*]",
    "spark.driver.memory": "3g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark keeps jobs with their plans for the UI, which is off.
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.log.level": "ERROR",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,cdc_assets.Functions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # No result may depend on the machine's time zone.
    "spark.sql.session.timeZone": "UTC",
    # Few tasks, as most runs are small and each task has a fixed cost.
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    # With debugging on, PySpark sends the caller's line to the JVM at each call that builds an expression, and a run builds
    # thousands of expressions.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A message may contain a column twice; the default policy would fail the stage.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # Parquet has no minimum and maximum for INT96 timestamps, Spark's default.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.vacuum.parallelDelete.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}

# Defaults for a local master.
_LOCAL_DEFAULTS = {
    # No other machine connects to the driver.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

# Avro allocates memory for a length before it reads the data. In a corrupt record the length may be any number, and the JVM
# would run out of memory. No collection is larger than MySQL's 65,535 labels of an enum, and TiDB's largest row has 120 MB.
_AVRO_LIMITS = {"collectionItems": 1 << 16, "string": 1 << 27, "bytes": 1 << 27}
_JAVA_OPTIONS = [f"-Dorg.apache.avro.limits.{what}.maxLength={limit}" for what, limit in _AVRO_LIMITS.items()]
# In any other time zone Delta recomputes the list of a table's files at each commit.
_JAVA_OPTIONS += ["-Duser.timezone=UTC"]
# A new process spends more time on compiling Spark's generated code than on running it, and less inlining shortens the
# compilation. A JVM without these options ignores them.
_JAVA_OPTIONS += [
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:FreqInlineSize=40",
    "-XX:MaxInlineLevel=6",
    "-XX:InlineSmallCode=700",
]

# Up to this number of rows, Spark interprets the expressions of its plans: generating and compiling code for them would take
# longer than it saves.
INTERPRETED_ROW_LIMIT = 50_000
_CODEGEN_MODE = "spark.sql.codegen.factoryMode"
_INTERPRETED = {
    _CODEGEN_MODE: "NO_CODEGEN",
    # Adaptive execution would optimize the plan again and start a job for each shuffle.
    "spark.sql.adaptive.enabled": "false",
    # Files of few megabytes hold enough rows for several tasks.
    "spark.sql.files.openCostInBytes": str(1 << 18),
}
# Each task has a fixed cost, which about this number of interpreted rows is worth.
_ROWS_A_TASK = 10_000
_TASKS = ("spark.sql.shuffle.partitions", "spark.sql.files.minPartitionNum")
_COMPILED = {
    _CODEGEN_MODE: "FALLBACK",
    # Keep a shuffle partition for each core, however small the partitions are.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "true",
}


def session_for(spark: SparkSession, rows: int) -> SparkSession:
    """Return a new session for plans over about `rows` rows: interpreted up to `INTERPRETED_ROW_LIMIT`, else compiled.

    Each session has its own settings, so that two stages or two tables can run at the same time.
    """
    session = spark.newSession()
    if rows > INTERPRETED_ROW_LIMIT:
        _set(session, _COMPILED)
    else:
        tasks = min(spark.sparkContext.defaultParallelism, 1 + rows // _ROWS_A_TASK)
        _set(session, _INTERPRETED | dict.fromkeys(_TASKS, str(tasks)))
    return session


@contextmanager
def temporary_settings(session: SparkSession, values: Mapping[str, str | None]) -> Iterator[None]:
    """Set settings of a session and restore them afterwards; None sets Spark's default."""
    before = {key: session.conf.get(key, None) for key in values}
    _set(session, values)
    try:
        yield
    finally:
        _set(session, before)


def _set(session: SparkSession, values: Mapping[str, str | None]) -> None:
    for key, value in values.items():
        if value is None:
            session.conf.unset(key)
        else:
            session.conf.set(key, value)


@contextmanager
def compiled_plans(session: SparkSession) -> Iterator[None]:
    """Temporarily give a session of `session_for` the settings for many rows: a run of few changes reads a large table."""
    configured = session.newSession().conf
    with temporary_settings(session, {key: configured.get(key, None) for key in (*_INTERPRETED, *_TASKS)} | _COMPILED):
        yield


def is_local(master: str) -> bool:
    """Return whether a Spark master runs its tasks in the driver's process, without executors."""
    return master == "local" or master.startswith("local[")


def on_cluster() -> bool:
    """Return whether Spark runs in this process with executors in other processes, perhaps on other machines."""
    context = SparkContext._active_spark_context  # noqa: SLF001 -- public methods would start Spark
    return context is not None and not is_local(str(context.master))


def hadoop_path(spark: SparkSession, location: str) -> tuple[Any, Any]:
    """Return a location as a Hadoop Path object in the JVM, and the session's Hadoop configuration."""
    jvm: Any = spark._jvm  # noqa: SLF001 -- PySpark has no public access to the JVM
    return jvm.org.apache.hadoop.fs.Path(location), spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001


def checkpointed(frame: DataFrame, *, eager: bool = True) -> DataFrame:
    """Return the rows of a frame with their plan cut off, so that they are computed once.

    On a cluster the rows are written to files below the root at once, because a lost executor loses a local checkpoint.

    Args:
        frame: the rows.
        eager: whether to compute the rows now; else the first action computes them. On a cluster they are computed now.
    """
    if not on_cluster():
        return frame.localCheckpoint(eager)
    spark, rows = frame.sparkSession, frame.checkpoint()
    folder, conf = hadoop_path(spark, spark.sparkContext.getCheckpointDir() or "")
    folder.getFileSystem(conf).deleteOnExit(folder)
    return rows


def spark_settings(configured: Mapping[str, object], store: Store = LOCAL) -> dict[str, str]:
    """Return every Spark setting, jars included.

    Later settings override earlier ones: the defaults, those of `store`, `configured`, environment variables. The variable
    `CDC_SPARK_DRIVER_MEMORY` sets `spark.driver.memory`: lower case, with dots for underscores. A setting with capital
    letters can only be set in the feeds file.
    """
    from_env = {
        "spark." + name.removeprefix(_ENV_PREFIX).lower().replace("_", "."): value
        for name, value in os.environ.items()
        if name.startswith(_ENV_PREFIX)
    }
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in configured.items()}
    settings = _DEFAULTS | store.spark_settings() | texts | from_env
    local = is_local(settings["spark.master"])
    checkpoints = {"spark.checkpoint.dir": f"{store.locations[0]}/{_CHECKPOINTS}"} if store.locations else {}
    settings = (_LOCAL_DEFAULTS if local else checkpoints) | settings
    for side in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        settings[side] = " ".join([*_JAVA_OPTIONS, *filter(None, [settings.get(side)])])
    jars = spark_jars()
    if local:
        # For frames that a user of the session creates from Python values; the pipeline runs no Python on executors.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # On the class path, because spark.jars copies every jar at each start.
        present = settings.get("spark.driver.extraClassPath")
        if not present and (archive := class_archive(jars)).exists():
            # A JVM that cannot use the archive starts without it; these options suppress its warnings.
            settings["spark.driver.extraJavaOptions"] += (
                f" -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"
            )
        settings["spark.driver.extraClassPath"] = os.pathsep.join([*map(str, jars), *([present] if present else [])])
    else:
        present = settings.get("spark.jars")
        settings["spark.jars"] = ",".join([*map(str, [*jars, *store.jars()]), *([present] if present else [])])
    return settings


def _start(settings: Mapping[str, str]) -> SparkSession:
    return SparkSession.builder.config(map={**settings}).getOrCreate()


def spark_session(
    configured: Mapping[str, object] | None = None,
    store: Store = LOCAL,
) -> SparkSession:
    """Return the running session, or a new one with `spark_settings`."""
    settings = spark_settings(configured or {}, store)
    with _last_jars(store.jars() if is_local(settings["spark.master"]) else []):
        return _start(settings)


@contextmanager
def _last_jars(jars: Sequence[Path]) -> Iterator[None]:
    """Put jars at the end of the class path of a JVM that is started within this context.

    At the end, because a JVM accepts a class archive only if its class path begins as the archive's does, and because Spark
    looks up its own classes for every closure and would search earlier jars first.
    """
    before = os.environ.get(_LAST_JARS)
    os.environ[_LAST_JARS] = os.pathsep.join([*map(str, jars), *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del os.environ[_LAST_JARS]
        else:
            os.environ[_LAST_JARS] = before
