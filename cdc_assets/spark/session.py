"""The Spark session: its settings, and how it goes about few rows and many."""

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
# By which Spark is told what comes after its own jars; no setting does that.
_LAST_JARS = "SPARK_DIST_CLASSPATH"
# Below the root, of runs on a cluster.
_CHECKPOINTS = "_checkpoints"

_DEFAULTS = {
    "spark.app.name": "cdc_assets",
    "spark.master": "local[*]",
    "spark.driver.memory": "3g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Kept for a UI that is off, plans and all.
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.log.level": "ERROR",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,cdc_assets.Functions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Instants are instants: no result may depend on the machine's zone.
    "spark.sql.session.timeZone": "UTC",
    # Few, adaptive tasks: a run is small more often than not, and a task costs more than a thousand rows.
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    # Without it PySpark looks up the caller's line, and tells the JVM, at each call that builds an expression: five times as
    # slow (100 calls took 0.44 s with it, 0.15 s without), and a run builds some thousands.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A hostile message may name a column twice.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # Of instants in the old form a file's footer tells no smallest and largest.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.vacuum.parallelDelete.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}

# Where there are no executors but the driver.
_ALONE = {
    # No other machine has to reach it.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

# Avro makes room for as much as a length says before it reads: in a corrupt record that may be any number, and the JVM dies.
# No row has more values, and no type more labels, than MySQL's 65,535 labels of an enum; and TiDB's largest row has 120 MB.
_AVRO_LIMITS = {"collectionItems": 1 << 16, "string": 1 << 27, "bytes": 1 << 27}
_JAVA_OPTIONS = [f"-Dorg.apache.avro.limits.{what}.maxLength={limit}" for what, limit in _AVRO_LIMITS.items()]
# In any other zone Delta makes the list of a table's files anew at each commit.
_JAVA_OPTIONS += ["-Duser.timezone=UTC"]
# A new process spends more on compiling what Spark generates than on running it: with less of it inlined 200,000 events took
# 25 s instead of 30, and the third time as long as before. Where a JVM does not know these, it goes without.
_JAVA_OPTIONS += [
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:FreqInlineSize=40",
    "-XX:MaxInlineLevel=6",
    "-XX:InlineSmallCode=700",
]

# To generate and compile code for the expressions of its plans takes Spark a third of a small run; over more rows than this
# that is gained back. (Measured: a run of 100 records took 5.3 s interpreted and 8.0 s compiled; decoding 100,000 records
# in a new process took as long in both ways.)
SMALL = 50_000
_EVALUATION = "spark.sql.codegen.factoryMode"
_FEW_ROWS = {
    _EVALUATION: "NO_CODEGEN",
    # One task a stage is enough. An adaptive plan would be optimized again, and start a job, for each shuffle.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.files.minPartitionNum": "1",
}
_MANY_ROWS = {
    _EVALUATION: "FALLBACK",
    # Of what is shuffled each core gets a part, however little it is.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "true",
}


def session_for(spark: SparkSession, rows: int) -> SparkSession:
    """Return a session of its own for plans over about `rows` rows: interpreted where they are few, else compiled.

    What is set in it is nobody else's, so that two stages, or two tables, can be at work at once.
    """
    session = spark.newSession()
    for key, value in (_MANY_ROWS if rows > SMALL else _FEW_ROWS).items():
        session.conf.set(key, value)
    return session


@contextmanager
def settings_of(session: SparkSession, values: Mapping[str, str | None]) -> Iterator[None]:
    """Set settings of a session, those that are None to Spark's default; afterwards they are as they were before."""
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
def compiled(session: SparkSession) -> Iterator[None]:
    """Give a session of `session_for` the settings for many rows: for a large table in a run of few changes.

    (Measured: 10,000 rows of 3,300,000 found by their keys, all columns: 5.0 s interpreted, 1.4 s compiled.)
    """
    configured = session.newSession().conf
    with settings_of(session, {key: configured.get(key, None) for key in _FEW_ROWS} | _MANY_ROWS):
        yield


def is_local(master: str) -> bool:
    """Whether a master is threads of the driver's own process: there are no executors but it."""
    return master == "local" or master.startswith("local[")


def on_cluster() -> bool:
    """Whether Spark has started in this process, with executors that are processes of their own, and may be elsewhere."""
    context = SparkContext._active_spark_context  # noqa: SLF001 -- asked for without starting it
    return context is not None and not is_local(str(context.master))


def hadoop_path(spark: SparkSession, place: str) -> tuple[Any, Any]:
    """A place as Hadoop's own Path, in the JVM, and the configuration by which it finds its file system."""
    jvm: Any = spark._jvm  # noqa: SLF001 -- there is no other way to it
    return jvm.org.apache.hadoop.fs.Path(place), spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001


def settled(frame: DataFrame, *, eager: bool = True) -> DataFrame:
    """The rows computed once, for a plan that begins with them.

    Where executors may be lost, and with them what they keep, the rows go into files below the root, at once.

    Args:
        frame: of rows.
        eager: whether to compute them at once; otherwise with the first use.
    """
    if not on_cluster():
        return frame.localCheckpoint(eager)
    spark, done = frame.sparkSession, frame.checkpoint()
    folder, conf = hadoop_path(spark, spark.sparkContext.getCheckpointDir() or "")
    folder.getFileSystem(conf).deleteOnExit(folder)
    return done


def spark_settings(configured: Mapping[str, object], store: Store = LOCAL) -> dict[str, str]:
    """Return every Spark setting: the defaults, over them `store`'s, `configured`, and the environment's; and the jars.

    An environment variable `CDC_SPARK_MASTER` stands for `spark.master`, `CDC_SPARK_DRIVER_MEMORY` for
    `spark.driver.memory`: lower case, underscores as dots. A setting with capitals goes into the feeds file.
    """
    from_env = {
        "spark." + name.removeprefix(_ENV_PREFIX).lower().replace("_", "."): value
        for name, value in os.environ.items()
        if name.startswith(_ENV_PREFIX)
    }
    given = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in configured.items()}
    settings = _DEFAULTS | store.spark_settings() | given | from_env
    local = is_local(settings["spark.master"])
    settings = (_ALONE if local else _for_cluster(store)) | settings
    for side in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        settings[side] = " ".join([*_JAVA_OPTIONS, *filter(None, [settings.get(side)])])
    jars = spark_jars()
    if local:
        # For frames that the session's user makes of Python's values; the pipeline has no Python outside the driver.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # A second faster than spark.jars, which copies every jar for each session.
        present = settings.get("spark.driver.extraClassPath")
        if not present and (archive := class_archive(jars)).exists():
            # Of a JVM that does not take it nothing is to be heard: it starts all the same.
            settings["spark.driver.extraJavaOptions"] += (
                f" -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"
            )
        settings["spark.driver.extraClassPath"] = os.pathsep.join([*map(str, jars), *([present] if present else [])])
    else:
        present = settings.get("spark.jars")
        settings["spark.jars"] = ",".join([*map(str, [*jars, *store.jars()]), *([present] if present else [])])
    return settings


def _for_cluster(store: Store) -> dict[str, str]:
    """What Spark is to be told where its executors are processes of their own."""
    return {"spark.checkpoint.dir": f"{store.places[0]}/{_CHECKPOINTS}"} if store.places else {}


def _built(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def spark_session(
    configured: Mapping[str, object] | None = None,
    store: Store = LOCAL,
) -> SparkSession:
    """Return the running session, or start one under `spark_settings`."""
    settings = spark_settings(configured or {}, store)
    with _behind_spark(store.jars() if is_local(settings["spark.master"]) else []):
        return _built(settings)


@contextmanager
def _behind_spark(jars: Sequence[Path]) -> Iterator[None]:
    """Within it a JVM that is started has these jars at the end of its class path.

    A JVM takes an archive of classes for a class path that begins as the archive's. And Spark reads its own classes again
    for every closure: so it does not look for each in all of these first.
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
