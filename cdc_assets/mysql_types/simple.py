"""The column types of the Simple Protocol (`ticdc-simple-protocol`): what its table schemas say, as the text of MySQL types.

The document's section "Column definition" gives a type in parts: `mysqlType`, `length`, `decimal`, `elements`, `unsigned`,
`zerofill`. What TiCDC's encoder, as recorded, puts there beyond the document is noted where it is read.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from cdc_assets.mysql_types.types import INTEGERS, NUMBERS, MySQLType, UnknownType, parse_type

_WITH_LENGTH = INTEGERS | {"char", "varchar", "binary", "varbinary", "bit"}
_WITH_FRACTION = frozenset({"datetime", "timestamp", "time"})


def type_text(data_type: Mapping[str, Any]) -> str:
    """The text of a MySQL type out of a `dataType`; a `mysqlType` that MySQL does not have stays as it is.

    In: `mysqlType` STRING and, where they apply, `length`, `decimal` (absent when zero), `elements`, `unsigned`,
    `zerofill`.
    """
    try:
        named = parse_type(data_type["mysqlType"])
    except UnknownType:
        return str(data_type["mysqlType"])
    # What the name itself says counts: the document's reference table writes `bigint unsigned`.
    return str(named if named.length is not None or named.labels is not None else _completed(named, data_type))


def _completed(named: MySQLType, data_type: Mapping[str, Any]) -> MySQLType:
    length, fraction = data_type.get("length"), data_type.get("decimal") or 0
    if named.base in NUMBERS:  # the encoder calls YEAR and BIT unsigned as well
        unsigned = named.unsigned or bool(data_type.get("unsigned"))
        named = replace(named, unsigned=unsigned, zerofill=named.zerofill or bool(data_type.get("zerofill")))
    if named.base == "decimal" and length:
        return replace(named, length=length, scale=fraction)
    if named.base in {"enum", "set"} and data_type.get("elements"):
        return replace(named, labels=tuple(data_type["elements"]))
    if named.base in _WITH_FRACTION and fraction > 0:
        return replace(named, length=fraction)  # `length` counts the characters of the text
    # A length that says nothing (float and double: the width on the screen; text and blob: what they hold) is left out.
    return replace(named, length=length) if named.base in _WITH_LENGTH and length else named


_LARGEST = {"tiny": (1 << 8) - 1, "": (1 << 16) - 1, "medium": (1 << 24) - 1, "long": (1 << 32) - 1}


def largest_length(mysql_type: MySQLType) -> int | None:
    """How many bytes a text or blob holds; None for other types."""
    size, kind = mysql_type.base[:-4], mysql_type.base[-4:]
    return _LARGEST[size] if kind in {"text", "blob"} and size in _LARGEST else None


# What a value that is not NULL is on the wire, by encoding: the usual first. In JSON a string; in Avro a branch of the union
# of values, by the document's section "mysqlType reference table". UnsignedBigint, Timestamp and JSON's object are what
# TiCDC's encoder, as recorded, sends instead of what the document has.
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
