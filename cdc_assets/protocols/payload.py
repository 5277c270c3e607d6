"""TiCDC's large-message handling, the same for all protocols: compressed values, and values in external storage.

`large-message-handle-compression` compresses values with LZ4 (frames) or Snappy (blocks), and no header states it.
`large-message-handle-option=claim-check` puts the complete message into a file, `{"key": base64, "value": base64}`; the
record then has only the key columns and the file's location. With `claim-check-raw-value` the file is the message itself.
"""

from collections.abc import Iterable
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from cdc_assets.lakehouse.schema import frame_of
from cdc_assets.protocols.base import Envelope
from cdc_assets.spark.executors import check_file_visible

LZ4_MAGIC = b"\x04\x22\x4d\x18"
LENGTH_BYTES = 8  # the size of version and lengths in Open Protocol's records


def may_be_compressed(value: Column, envelope: Envelope) -> Column:
    """Return whether a BINARY value does not begin like a message of the protocol. BOOLEAN, never NULL."""
    if envelope.plain:
        beginning = F.substring(value, F.lit(1), F.lit(len(envelope.plain[0])))
        return F.coalesce((F.length(value) > 0) & ~beginning.isin(*map(F.lit, envelope.plain)), F.lit(False))
    begins = F.substring(value, F.lit(1 + envelope.value), F.lit(2))
    # A Snappy block begins with the size of its content, which may look like {, but its next byte is none of these.
    plain = begins.isin(*[F.lit(b"{" + second) for second in (b"", b'"', b"}")])
    blank = F.substring(begins, 1, 1).isin(*[F.lit(c) for c in (b" ", b"\n", b"\r", b"\t")])
    return F.coalesce((F.length(begins) > 0) & ~plain & ~blank, F.lit(False))


def decompress(messages: DataFrame, envelope: Envelope) -> DataFrame:
    """Return the messages with compressed values decompressed; a value that cannot be decompressed stays unchanged.

    In and out: value BINARY, and other columns.
    """
    compressed = may_be_compressed(F.col("value"), envelope)
    value = F.call_function("cdc_decompress", "value", F.lit(bool(envelope.value)))
    return messages.where(~compressed).unionByName(messages.where(compressed).withColumn("value", value))


def resolve_claim_checks(
    events: DataFrame, envelope: Envelope, folder: str, place: list[str], pointer: Column | None = None
) -> DataFrame:
    """Return the events with those that only name a claim-check file replaced by the message in that file.

    A file is found by its base name, and has one event. An event whose file is missing stays unchanged.

    Args:
        events: one event a row, without its envelope: key BINARY, value BINARY, the columns `place`, and others.
        envelope: how the protocol wraps messages.
        folder: the folder of the files, any URI that Spark reads.
        place: the columns that identify an event.
        pointer: STRING, the location of an event's file, or NULL; None: read it from the event's JSON text.

    Returns:
        The same columns.
    """
    spark = events.sparkSession
    if pointer is None:
        field, path = envelope.claim
        name = path.rsplit(".", 1)[-1]
        has_name = F.contains(F.col(field), F.lit(f'"{name}"'.encode()))
        pointer = F.when(has_name, F.get_json_object(F.col(field).cast("string"), path))
    pointing = events.where(pointer.isNotNull())
    claims = [
        (*r[:-1], r["location"].rsplit("/", 1)[-1])
        for r in pointing.select(*place, pointer.alias("location")).collect()
    ]
    if not claims:
        return events
    names = {c[-1] for c in claims}
    folder_paths = map(unquote, spark.read.format("binaryFile").load(folder).inputFiles())  # Lists files, reads none.
    paths = {name: path for path in folder_paths if (name := path.rsplit("/", 1)[-1]) in names}
    if not paths:
        return events
    check_file_visible(spark, next(iter(paths.values())), "claim_check")
    schema = StructType([*[events.schema[c] for c in place], StructField("name", StringType())])
    events_with_file = [dict(zip(schema.names, c, strict=True)) for c in claims if c[-1] in paths]
    places = frame_of(spark, events_with_file, schema)
    files = _read_claim_files(spark, paths.values())
    prefix_lengths = {"key": envelope.key, "value": envelope.value}
    bare = {f"claimed_{part}": F.substr(part, F.lit(1 + length)) for part, length in prefix_lengths.items()}
    claimed = places.join(decompress(files, envelope).withColumns(bare).drop("key", "value"), on="name").drop("name")
    joined = events.join(F.broadcast(claimed), on=place, how="left")
    replaced = {part: F.coalesce(f"claimed_{part}", part) for part in prefix_lengths}
    return joined.withColumns(replaced).drop(*bare)


def _read_claim_files(spark: SparkSession, paths: Iterable[str]) -> DataFrame:
    """Return the messages in claim-check files: name STRING, key BINARY, value BINARY.

    With `claim-check-raw-value` a file is the message's value. No message has a field `value` of its own.
    """
    files = spark.read.format("binaryFile").load(list(paths))
    record = F.from_json(F.col("content").cast("string"), "key STRING, value STRING")
    key, value = (F.try_to_binary(record[part], F.lit("base64")) for part in ("key", "value"))
    name = F.substring_index(F.col("_metadata.file_path"), "/", -1)
    return files.select(name.alias("name"), key.alias("key"), F.coalesce(value, "content").alias("value"))
