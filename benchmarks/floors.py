"""What the same bytes cost without any of the pipeline's care: the floors that its stages stand beside."""

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_assets.session import EVALUATION

_RECORD = "topic STRING, partition INT, offset BIGINT, timestamp BIGINT, key STRING, value STRING"
_ROW = "MAP<STRING, STRING>"
_MESSAGE = (
    "database STRING, `table` STRING, pkNames ARRAY<STRING>, isDdl BOOLEAN, type STRING, es BIGINT, ts BIGINT, sql STRING, "
    f"sqlType MAP<STRING, INT>, mysqlType {_ROW}, data ARRAY<{_ROW}>, old ARRAY<{_ROW}>, "
    "_tidb STRUCT<commitTs: BIGINT, watermarkTs: BIGINT>"
)


def recorded(spark: SparkSession, file: Path) -> DataFrame:
    """The recorded file's messages, parsed: the file's own JSON and base64, then one `from_json` into maps."""
    records = spark.read.schema(_RECORD).json(str(file))
    return _parsed(records, F.unbase64("value").cast("string"))


def plain(spark: SparkSession, file: Path) -> DataFrame:
    """The messages of a file that has nothing but them, one a line: one `from_json` into maps, no more."""
    return _parsed(spark.read.text(str(file)), F.col("value"))


def _parsed(records: DataFrame, text: Column) -> DataFrame:
    kept = [c for c in ("topic", "partition", "offset", "timestamp") if c in records.columns]
    return records.select(*kept, F.from_json(text, _MESSAGE).alias("m")).select(*kept, "m.*")


def discard(rows: DataFrame) -> None:
    """Compute every row and every column, and write nothing."""
    _as_spark_is(rows)
    rows.write.format("noop").mode("overwrite").save()


def append(rows: DataFrame, path: Path) -> None:
    """A plain Delta append."""
    _as_spark_is(rows)
    rows.write.format("delta").mode("append").save(str(path))


def _as_spark_is(rows: DataFrame) -> None:
    """Undo what the pipeline's stages leave behind in the session: they choose by the number of rows how Spark evaluates."""
    rows.sparkSession.conf.unset(EVALUATION)
