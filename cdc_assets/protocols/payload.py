"""TiCDC's large-message handling, before any protocol: compressed values, and values kept in external storage.

`large-message-handle-compression` compresses values with LZ4 (frames) or Snappy (blocks), and no header tells so.
`large-message-handle-option=claim-check` leaves the key columns and a location in the message, and the whole message in a
file: `{"key": base64, "value": base64}`.
"""

from urllib.parse import unquote

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from cdc_assets.lakehouse.schema import frame_of
from cdc_assets.protocols.base import Envelope
from cdc_assets.spark.executors import check_file_visible

LZ4_MAGIC = b"\x04\x22\x4d\x18"
LENGTH_BYTES = 8  # of the numbers in Open Protocol's frames


def packed(value: Column, envelope: Envelope) -> Column:
    """Whether a BINARY value may be compressed: it does not begin as the protocol's messages do. BOOLEAN, never NULL."""
    if envelope.plain:
        beginning = F.substring(value, F.lit(1), F.lit(len(envelope.plain[0])))
        return F.coalesce((F.length(value) > 0) & ~beginning.isin(*map(F.lit, envelope.plain)), F.lit(False))
    begins = F.substring(value, F.lit(1 + envelope.value), F.lit(2))
    # A Snappy block may begin with {, as the size of its content, but none goes on like this.
    plain = begins.isin(*[F.lit(b"{" + second) for second in (b"", b'"', b"}")])
    blank = F.substring(begins, 1, 1).isin(*[F.lit(c) for c in (b" ", b"\n", b"\r", b"\t")])
    return F.coalesce((F.length(begins) > 0) & ~plain & ~blank, F.lit(False))


def unpack(messages: DataFrame, envelope: Envelope) -> DataFrame:
    """Decompress the values that are compressed; what is not, or cannot be, stays. In and out: value BINARY, and more."""
    compressed = packed(F.col("value"), envelope)
    opened = F.call_function("cdc_decompress", "value", F.lit(bool(envelope.value)))
    return messages.where(~compressed).unionByName(messages.where(compressed).withColumn("value", opened))


def claim(
    events: DataFrame, envelope: Envelope, folder: str, place: list[str], pointer: Column | None = None
) -> DataFrame:
    """Put the messages that lie in `folder` (any URI that Spark reads) in the place of those that only point to them.

    A file is matched by its base name; it holds a record of one event. An event whose file is not there stays as it is.

    In and out: an event a row, out of its envelope: key BINARY, value BINARY, the columns `place` that tell it from others,
    and more. `pointer` is where an event's file is, STRING or NULL; without it, what stands in the event's JSON text.
    """
    spark = events.sparkSession
    if pointer is None:
        field, path = envelope.claim
        name = path.rsplit(".", 1)[-1]
        named = F.contains(F.col(field), F.lit(f'"{name}"'.encode()))
        pointer = F.when(named, F.get_json_object(F.col(field).cast("string"), path))
    pointing = events.where(pointer.isNotNull())
    claims = [
        (*r[:-1], r["location"].rsplit("/", 1)[-1])
        for r in pointing.select(*place, pointer.alias("location")).collect()
    ]
    if not claims:
        return events
    wanted = {c[-1] for c in claims}
    listed = map(unquote, spark.read.format("binaryFile").load(folder).inputFiles())  # lists, reads nothing
    paths = {name: path for path in listed if (name := path.rsplit("/", 1)[-1]) in wanted}
    if not paths:
        return events
    check_file_visible(spark, next(iter(paths.values())), "claim_check")
    schema = StructType([*[events.schema[c] for c in place], StructField("name", StringType())])
    pointed = [dict(zip(schema.names, c, strict=True)) for c in claims if c[-1] in paths]
    places = frame_of(spark, pointed, schema)
    record = F.from_json("value", "key STRING, value STRING")
    files = spark.read.text(list(paths.values()), wholetext=True).select(
        F.substring_index(F.col("_metadata.file_path"), "/", -1).alias("name"),
        *[F.try_to_binary(record[part], F.lit("base64")).alias(part) for part in ("key", "value")],
    )
    ahead = {"key": envelope.key, "value": envelope.value}
    bare = {f"claimed_{part}": F.substr(part, F.lit(1 + before)) for part, before in ahead.items()}
    claimed = places.join(unpack(files, envelope).withColumns(bare).drop("key", "value"), on="name").drop("name")
    joined = events.join(F.broadcast(claimed), on=place, how="left")
    arrived = {part: F.coalesce(f"claimed_{part}", part) for part in ahead}
    return joined.withColumns(arrived).drop(*bare)
