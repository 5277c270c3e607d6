"""The Avro encoding of the Simple Protocol (`ticdc-simple-protocol-avro`): values -> the fields of JSON messages.

A value is one raw Avro datum, without magic bytes, header or schema id. The schema is a union of twelve records;
`message.avsc` has the last of them, which contains the others, because a value has only the contents of its fields in their
order.
"""

import json
from decimal import Decimal
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import MapType

from cdc_assets.expressions import compute_once
from cdc_assets.lakehouse.schema import STRING, struct
from cdc_assets.protocols.avro_datum import has_invalid_text, is_complete, parse_datum

# Every value begins with the branch of `Message` in the top union; a row's value goes on with the symbol and the branch DML.
_MESSAGE_BRANCH = b"\x16"
_DML_BEGINS = _MESSAGE_BRANCH + b"\x06\x06"
# A message begins with the branch, then the symbol of its type, then the branch of its payload, which has the same number.
BEGINNINGS = tuple(_MESSAGE_BRANCH + 2 * bytes([2 * n]) for n in range(4))

MESSAGE: dict[str, Any] = json.loads(Path(__file__).with_name("message.avsc").read_text())
# The branches of the union of values, without null.
BRANCHES = ("long", "float", "double", "string", "bytes", "Timestamp", "UnsignedBigint")
# A row image with its values of the branch `string`.
_IMAGE = MapType(STRING, struct(member3=STRING))


def parse(value: Column) -> Column:
    """Return a BINARY value as a STRUCT for the functions below; NULL if it is not a complete message."""
    return parse_datum(F.when(value.startswith(F.lit(_MESSAGE_BRANCH)), F.substr(value, F.lit(2))), MESSAGE)


def unparsed(parsed: Column) -> Column:
    """Return whether a value is not a complete message, or its type is not that of its payload. BOOLEAN, never NULL."""
    payload = parsed["message"]["payload"]
    fits = [
        (parsed["message"]["type"] == kind) & payload[f"member{n}"].isNotNull()
        for n, kind in enumerate(("WATERMARK", "BOOTSTRAP", "DDL", "DML"))
    ]
    return ~(is_complete(parsed) & F.coalesce(reduce(or_, fits), F.lit(False)))


def fields(parsed: Column) -> dict[str, Column]:
    """Return the fields of a message under their names in JSON messages, and `branches`.

    Row images are the texts of JSON objects whose values are the texts that JSON messages have. `branches` is the text of a
    JSON object too: column -> branch of the union of its (new) value.
    """
    payload = parsed["message"]["payload"]
    watermark, bootstrap, ddl, dml = (payload[f"member{n}"] for n in range(4))
    kind = F.coalesce(dml["type"], ddl["type"], parsed["message"]["type"])
    row = {name: dml[name] for name in ("database", "table", "tableID", "schemaVersion")}
    large = {name: dml[name] for name in ("claimCheckLocation", "handleKeyOnly")}
    return {
        "version": F.coalesce(*[each["version"] for each in (dml, watermark, ddl, bootstrap)]),
        "type": kind,
        "sql": ddl["sql"],
        "commitTs": F.coalesce(*[each["commitTs"] for each in (dml, watermark, ddl)]),
        "buildTs": F.coalesce(*[each["buildTs"] for each in (dml, watermark, ddl, bootstrap)]),
        "tableSchema": F.coalesce(bootstrap["tableSchema"], ddl["tableSchema"]),
        "preTableSchema": ddl["preTableSchema"],
        **row,
        **large,
        "checksum": F.struct(dml["checksum"]["corrupted"].alias("corrupted")),
        "data": _image(dml["data"]),
        "old": _image(dml["old"]),
        "branches": F.to_json(F.transform_values(F.coalesce(dml["data"], dml["old"]), _branch)),
    }


def _image(columns: Column) -> Column:
    """Return a row image as the text of a JSON object: column -> the text of its value in JSON messages, or null."""
    return F.to_json(F.transform_values(columns, _value_text))


def _value_text(_: Column, value: Column) -> Column:
    long, float_, double, text, binary, timestamp, unsigned = (value[f"member{n}"] for n in range(len(BRANCHES)))
    signed = unsigned["value"].cast("decimal(20,0)")
    numbers = [each.cast("string") for each in (long, float_, double)]
    # Spark's base64 has line breaks.
    encoded = F.translate(F.base64(binary), "\r\n", "")
    above = F.when(signed < 0, F.lit(Decimal(2**64))).otherwise(F.lit(Decimal(0)))
    return F.coalesce(*numbers, text, encoded, F.to_json(timestamp), (signed + above).cast("string"))


def _branch(_: Column, value: Column) -> Column:
    return F.coalesce(*[F.when(value[f"member{n}"].isNotNull(), name) for n, name in enumerate(BRANCHES)])


def has_invalid_image(value: Column, images: list[str]) -> Column:
    """Return whether a text in a row image is not UTF-8. BOOLEAN, never NULL.

    Args:
        value: the BINARY value of the message.
        images: columns with row images, from `fields`, in which an invalid byte has become U+FFFD.
    """

    def is_invalid(parsed: Column) -> Column:
        dml = parsed["message"]["payload"]["member3"]
        return has_invalid_text(dml["data"], _IMAGE) | has_invalid_text(dml["old"], _IMAGE)

    suspects = [F.coalesce(F.contains(image, F.lit("\ufffd")), F.lit(False)) for image in images]
    # The source may have sent U+FFFD itself, so the messages that have one are parsed again.
    return F.when(reduce(or_, suspects), compute_once(parse(value), is_invalid)).otherwise(F.lit(False))


def claim_check(value: Column) -> Column:
    """Return the location of the claim-check file that a BINARY value names; NULL if it names none."""
    row = F.when(value.startswith(F.lit(_DML_BEGINS)), value)
    return parse(row)["message"]["payload"]["member3"]["claimCheckLocation"]
