"""Column types of the Simple Protocol (`ticdc-simple-protocol`): the types in its table schemas as texts of MySQL types.

The document's section "Column definition" has a type in parts: `mysqlType`, `length`, `decimal`, `elements`, `unsigned`,
`zerofill`. Comments say where TiCDC's encoder, as recorded, differs from the document.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from cdc_assets.mysql_types.types import INTEGERS, NUMBERS, MySQLType, UnknownType, parse_type

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


_LARGEST = {"tiny": (1 << 8) - 1, "": (1 << 16) - 1, "medium": (1 << 24) - 1, "long": (1 << 32) - 1}


def capacity(mysql_type: MySQLType) -> int | None:
    """Return how many characters or bytes a type of text or bytes holds; None: it is not known."""
    if mysql_type.length:
        return mysql_type.length
    size, kind = mysql_type.base[:-4], mysql_type.base[-4:]
    return _LARGEST[size] if kind in {"text", "blob"} and size in _LARGEST else None


# The wire types of values that are not NULL, by encoding, the usual one first: in JSON a string, in Avro a branch of the
# union of values, by the document's section "mysqlType reference table". TiCDC's encoder, as recorded, sends UnsignedBigint,
# Timestamp and JSON's object instead of the document's types.
_KINDS: Mapping[str, tuple[str, ...]] = (
    dict.fromkeys([*INTEGERS, "year", "enum", "set", "bit"], ("long",))
    | {"bigint unsigned": ("UnsignedBigint", "long", "string"), "float": ("float",), "double": ("double",)}
    | dict.fromkeys(["decimal", "varchar", "char", "tinytext", "text", "mediumtext", "longtext"], ("string",))
    | dict.fromkeys(["date", "datetime", "time", "json"], ("string",))
    | {"timestamp": ("Timestamp", "string")}
    | dict.fromkeys(["varbinary", "binary", "tinyblob", "blob", "mediumblob", "longblob"], ("bytes",))
)
WIRE_TYPES: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"avro": _KINDS, "json": dict.fromkeys(_KINDS, ("string",)) | {"timestamp": ("object", "string")}}
)
