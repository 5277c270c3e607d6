"""Column types of the Simple Protocol (`ticdc-simple-protocol`): the types in its table schemas as texts of MySQL types.

The document's section "Column definition" has a type in parts: `mysqlType`, `length`, `decimal`, `elements`, `unsigned`,
`zerofill`. Comments say where TiCDC's encoder, as recorded, differs from the document.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cdc_assets.mysql_types.descriptors import INTEGERS, NUMBERS, TYPES
from cdc_assets.mysql_types.types import MySQLType, UnknownType, parse_type

_WITH_LENGTH = INTEGERS | {"char", "varchar", "binary", "varbinary", "bit"}
_WITH_FRACTION = frozenset({"datetime", "timestamp", "time"})


def type_text(data_type: Mapping[str, Any]) -> str:
    """Return the text of the MySQL type of a `dataType`; a `mysqlType` that MySQL does not have stays unchanged.

    Args:
        data_type: `mysqlType` and, if the type has them, `length`, `decimal` (absent if zero), `elements`, `unsigned`,
            `zerofill`.
    """
    try:
        named = parse_type(data_type["mysqlType"])
    except UnknownType:
        return str(data_type["mysqlType"])
    # The name may have parts of the type itself: the document's reference table has `bigint unsigned`.
    return str(named if named.length is not None or named.labels is not None else _with_parts(named, data_type))


def _with_parts(named: MySQLType, data_type: Mapping[str, Any]) -> MySQLType:
    length, fraction = data_type.get("length"), data_type.get("decimal") or 0
    if named.base in NUMBERS:  # Not YEAR and BIT, which the encoder marks as unsigned too.
        unsigned = named.unsigned or bool(data_type.get("unsigned"))
        named = replace(named, unsigned=unsigned, zerofill=named.zerofill or bool(data_type.get("zerofill")))
    if named.base == "decimal" and length:
        return replace(named, length=length, scale=fraction)
    if named.base in {"enum", "set"} and data_type.get("elements"):
        return replace(named, labels=tuple(data_type["elements"]))
    if named.base in _WITH_FRACTION and fraction > 0:
        return replace(named, length=fraction)  # `length` is the number of characters of the text.
    # The length of other types is not part of the type: a display width (float, double), or a capacity (text, blob).
    return replace(named, length=length) if named.base in _WITH_LENGTH and length else named


# The wire types of values that are not NULL, by encoding, the usual one first: in JSON a string, in Avro a branch of the
# union of values. TiCDC's encoder, as recorded, sends UnsignedBigint, Timestamp and JSON's object instead of the document's
# types. Since TiCDC 8.5.4 its new architecture sends BIT as the text of the number.
_KINDS: Mapping[str, tuple[str, ...]] = (
    {base: (descriptor.simple,) for base, descriptor in TYPES.items() if descriptor.simple}
    | {"bigint unsigned": ("UnsignedBigint", "long", "string")}
    | {"timestamp": ("Timestamp", "string")}
    | {"bit": ("long", "string")}
)
WIRE_TYPES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "avro": _KINDS,
    "json": dict.fromkeys(_KINDS, ("string",)) | {"timestamp": ("object", "string")},
}
