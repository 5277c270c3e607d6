"""TiCDC's large-message handling, before any protocol: compressed values, and values kept in external storage.

`large-message-handle-compression` compresses values with LZ4 (frames) or Snappy (blocks), and no header tells so.
`large-message-handle-option=claim-check` leaves the key columns and a location in the message, and the whole message in a
file: `{"key": base64, "value": base64}`.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

LZ4_MAGIC = b"\x04\x22\x4d\x18"
# No compressed value is larger unpacked: Kafka's own limits are far below.
_MAX_UNPACKED = 1 << 30
_VARINT_BYTES = 5


def packed(value: Column) -> Column:
    """Whether a BINARY value of a JSON protocol may be compressed: it does not begin as an object or with a blank."""
    first = F.substring(value, 1, 1)
    starts = first.isin(*[F.lit(c) for c in (b"{", b" ", b"\n", b"\r", b"\t")])
    return F.coalesce((F.length(value) > 0) & ~starts, F.lit(False))  # noqa: FBT003


def unpack(raw: DataFrame) -> DataFrame:
    """Decompress the values that are compressed; what is not, or cannot be, stays as it is. In and out: raw records."""
    small = ["topic", "partition", "offset", "timestamp", "batch", "key", "value", "headers"]
    records = raw.select(*small)
    opened = records.where(packed(F.col("value"))).mapInArrow(_unpack_batches, records.schema)
    return records.where(~packed(F.col("value"))).unionByName(opened)


def _unpack_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        at = batch.schema.get_field_index("value")
        values = [_unpacked(v) for v in batch.column(at).to_pylist()]
        yield batch.set_column(at, batch.schema.field(at), pa.array(values, batch.schema.field(at).type))


def _unpacked(value: bytes) -> bytes:
    try:
        if value.startswith(LZ4_MAGIC):
            return bytes(pa.input_stream(pa.py_buffer(value), compression="lz4").read())
        size, shift = 0, 0
        for byte in value[:_VARINT_BYTES]:  # a Snappy block begins with its unpacked size, as a varint
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if not 0 < size <= _MAX_UNPACKED:
            return value
        return bytes(pa.decompress(value, decompressed_size=size, codec="snappy", asbytes=True))
    except (OSError, pa.ArrowInvalid):
        return value


def claim(raw: DataFrame, folder: str) -> DataFrame:
    """Put the messages that lie in `folder` (any URI that Spark reads) in the place of those that only point to them.

    A file is matched by its base name. A message whose file is not there stays as it is. In and out: raw records.
    """
    spark = raw.sparkSession
    pointer = F.get_json_object(F.col("value").cast("string"), "$._tidb.claimCheckLocation")
    pointing = raw.where(F.contains(F.col("value"), F.lit(b"claimCheckLocation")) & pointer.isNotNull())
    claims = {
        (r["topic"], r["partition"], r["offset"]): r["location"].rsplit("/", 1)[-1]
        for r in pointing.select("topic", "partition", "offset", pointer.alias("location")).collect()
    }
    if not claims:
        return raw
    wanted = set(claims.values())
    listed = spark.read.format("binaryFile").load(folder).select("path").collect()  # lists, reads nothing
    paths = {name: r["path"] for r in listed if (name := r["path"].rsplit("/", 1)[-1]) in wanted}
    if not paths:
        return raw
    found = [(*place, name) for place, name in claims.items() if name in paths]
    places = spark.createDataFrame(found, "topic STRING, partition INT, offset BIGINT, name STRING")
    message = F.from_json("value", "value STRING")["value"]
    files = spark.read.text(list(paths.values()), wholetext=True).select(
        F.substring_index(F.col("_metadata.file_path"), "/", -1).alias("name"),
        F.try_to_binary(message, F.lit("base64")).alias("claimed"),
    )
    claimed = places.join(files, on="name").drop("name")
    joined = raw.join(F.broadcast(claimed), on=["topic", "partition", "offset"], how="left")
    return joined.withColumn("value", F.coalesce("claimed", "value")).drop("claimed")
