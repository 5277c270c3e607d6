"""The Avro encoding of the Simple Protocol (`ticdc-simple-protocol-avro`): values -> the fields of JSON messages.

A value is one raw Avro datum, without magic bytes, header or schema id. The schema, a union of twelve records, is in this
module, because a value has only the contents of its fields in their order.
"""

from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.expressions import compute_once
from cdc_assets.protocols.avro_datum import is_complete, parse_datum

# Every value begins with the branch of `Message` in the top union; a row's value goes on with the symbol and the branch DML.
_MESSAGE_BRANCH = b"\x16"
_DML_BEGINS = _MESSAGE_BRANCH + b"\x06\x06"
# A message begins with the branch, then the symbol of its type, then the branch of its payload, which has the same number.
BEGINNINGS = tuple(_MESSAGE_BRANCH + 2 * bytes([2 * n]) for n in range(4))

_Schema = str | dict[str, Any] | list[Any]


def _record(name: str, /, **fields: _Schema) -> _Schema:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def _enum(name: str, *symbols: str) -> _Schema:
    return {"type": "enum", "name": name, "symbols": list(symbols)}


def _array(items: _Schema) -> _Schema:
    return {"type": "array", "items": items}


def _maybe(schema: _Schema) -> _Schema:
    return ["null", schema]


_DATA_TYPE = _record(
    "DataType",
    mysqlType="string",
    charset="string",
    collate="string",
    length="long",
    decimal=_maybe("int"),
    elements=_maybe(_array("string")),
    unsigned=_maybe("boolean"),
    zerofill=_maybe("boolean"),
)
_COLUMN = _record("ColumnSchema", name="string", dataType=_DATA_TYPE, nullable="boolean", default=_maybe("string"))
_INDEX = _record(
    "IndexSchema", name="string", unique="boolean", primary="boolean", nullable="boolean", columns=_array("string")
)
_TABLE = _record(
    "TableSchema",
    database="string",
    table="string",
    tableID="long",
    version="long",
    columns=_array(_COLUMN),
    indexes=_array(_INDEX),
)
_CHECKSUM = _record("Checksum", version="int", corrupted="boolean", current="long", previous="long")
_WATERMARK = _record("Watermark", version="int", commitTs="long", buildTs="long")
_BOOTSTRAP = _record("Bootstrap", version="int", buildTs="long", tableSchema=_TABLE)
_DDL = _record(
    "DDL",
    version="int",
    type=_enum("DDLType", "CREATE", "ALTER", "ERASE", "RENAME", "TRUNCATE", "CINDEX", "DINDEX", "QUERY"),
    sql="string",
    commitTs="long",
    buildTs="long",
    tableSchema=_maybe("TableSchema"),
    preTableSchema=_maybe("TableSchema"),
)
_TIMESTAMP = _record("Timestamp", location="string", value="string")
_UNSIGNED = _record("UnsignedBigint", value="long")
_VALUE = ["null", "long", "float", "double", "string", "bytes", _TIMESTAMP, _UNSIGNED]
BRANCHES = ("long", "float", "double", "string", "bytes", "Timestamp", "UnsignedBigint")
_DML = _record(
    "DML",
    version="int",
    database="string",
    table="string",
    tableID="long",
    type=_enum("DMLType", "INSERT", "UPDATE", "DELETE"),
    commitTs="long",
    buildTs="long",
    schemaVersion="long",
    claimCheckLocation=_maybe("string"),
    handleKeyOnly=_maybe("boolean"),
    checksum=_maybe(_CHECKSUM),
    data=_maybe({"type": "map", "values": _VALUE}),
    # By name, because Avro permits one definition of a named type, and `data` has it.
    old=_maybe({"type": "map", "values": [*_VALUE[:-2], "Timestamp", "UnsignedBigint"]}),
)
MESSAGE = _record(
    "Message",
    type=_enum("MessageType", "WATERMARK", "BOOTSTRAP", "DDL", "DML"),
    payload=[_WATERMARK, _BOOTSTRAP, _DDL, _DML],
)


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


def invalid_text(value: Column, names: list[str], schemas: list[str], images: list[str]) -> Column:
    """Return whether a text in a BINARY value is not UTF-8. BOOLEAN, never NULL.

    Args:
        value: the value.
        names: columns with names, from `fields`.
        schemas: columns with table schemas, from `fields`.
        images: columns with row images, from `fields`, in which an invalid byte has become U+FFFD.
    """

    def invalid(text: Column) -> Column:
        return F.coalesce(~F.is_valid_utf8(text), F.lit(False))

    def invalid_in(texts: Column) -> Column:
        return F.coalesce(F.exists(texts, invalid), F.lit(False))

    def invalid_column(column: Column) -> Column:
        data_type = column["dataType"]
        texts = (column["name"], column["default"], *(data_type[part] for part in ("mysqlType", "charset", "collate")))
        return reduce(or_, map(invalid, texts)) | invalid_in(data_type["elements"])

    def invalid_schema(table: Column) -> Column:
        columns = F.exists(table["columns"], invalid_column)
        indexes = F.exists(table["indexes"], lambda i: invalid(i["name"]) | invalid_in(i["columns"]))
        return F.coalesce(invalid(table["schema"]) | invalid(table["table"]) | columns | indexes, F.lit(False))

    def invalid_image(image: Column) -> Column:
        values = F.exists(F.map_values(image), lambda v: invalid(v["member3"]))
        return F.coalesce(values | F.exists(F.map_keys(image), invalid), F.lit(False))

    def invalid_row(parsed: Column) -> Column:
        dml = parsed["message"]["payload"]["member3"]
        return invalid_image(dml["data"]) | invalid_image(dml["old"])

    in_names = [*[invalid(F.col(name)) for name in names], *[invalid_schema(F.col(name)) for name in schemas]]
    suspects = [F.coalesce(F.contains(image, F.lit("\ufffd")), F.lit(False)) for image in images]
    # The source may have sent U+FFFD itself, so the messages that have one are parsed again.
    in_images = F.when(reduce(or_, suspects), compute_once(parse(value), invalid_row)).otherwise(F.lit(False))
    return reduce(or_, in_names) | in_images


def claim_check(value: Column) -> Column:
    """Return the location of the claim-check file that a BINARY value names; NULL if it names none."""
    row = F.when(value.startswith(F.lit(_DML_BEGINS)), value)
    return parse(row)["message"]["payload"]["member3"]["claimCheckLocation"]
