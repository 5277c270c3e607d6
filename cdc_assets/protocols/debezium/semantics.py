"""Debezium's types: what a Kafka Connect field states of a MySQL column.

Sources: the document `debezium-mysql-change-event-values`, and the connectors 1.9.5.Final and 3.5.0.Final as recorded.
A field has a Connect type and may have a semantic name: one of Debezium's (`io.debezium.*`) or Connect's
(`org.apache.kafka.connect.data.*`). The names depend on the MySQL type and on the connector's settings
`decimal.handling.mode`, `time.precision.mode`, `bigint.unsigned.handling.mode` and `binary.handling.mode`. What a message
does not state follows from the feed's `connector_settings`, else from the connector's defaults and the value itself
(`assumed_field`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from cdc_assets.mysql_types.casting import MAX_PRECISION
from cdc_assets.mysql_types.descriptors import SPATIAL, TYPES, Family, bases_of
from cdc_assets.mysql_types.types import MySQLType, parsed

_CONNECT = "org.apache.kafka.connect.data."
DECIMAL = f"{_CONNECT}Decimal"
BITS = "io.debezium.data.Bits"
GEOMETRY = "io.debezium.data.geometry.Geometry"
ISO_DATE, ISO_TIME, ISO_TIMESTAMP = (f"io.debezium.time.Iso{what}" for what in ("Date", "Time", "Timestamp"))
# The semantic and Connect type of a column in a message without a schema.
UNSTATED = "unstated"
# The semantic types of fields whose form no message states: bytes and decimals as texts. With `UNSTATED_` the setting is not
# given either, and each value decides.
HEX_BYTES, BASE64_BYTES, UNSTATED_BYTES = "bytes in hex", "bytes in base64", "bytes in base64 or hex"
UNSTATED_DECIMAL = "decimal in base64 or digits"
# The semantic and Connect type of a field that does not have Connect's form.
_UNREADABLE = "unreadable"

_TEXTS, _BYTES = bases_of(Family.TEXT), bases_of(Family.BINARY)
_BY_WIDTH = ("tinyint", "tinyint unsigned", "smallint", "smallint unsigned", "mediumint", "mediumint unsigned", "int",
             "int unsigned", "bigint", "bigint unsigned")  # fmt: skip


class SemanticRow(NamedTuple):
    """One semantic type.

    Attributes:
        text: the MySQL type that follows from the field alone; `{name}` is a parameter of the field.
        types: the MySQL types that the field may stand for.
        connect: its Connect type, which decides the JSON type of values.
    """

    text: str
    types: frozenset[str]
    connect: str


def _row(text: str, *types: str, connect: str) -> SemanticRow:
    return SemanticRow(text, frozenset(types), connect)


SEMANTICS: Mapping[str, SemanticRow] = {
    # TINYINT(1) with the connector's TinyIntOneToBooleanConverter
    "boolean": _row("bit(1)", "bit", "tinyint", "tinyint unsigned", connect="boolean"),
    "int8": _row("tinyint", "tinyint", connect="int8"),
    "int16": _row("smallint", *_BY_WIDTH[:3], connect="int16"),
    "int32": _row("int", *_BY_WIDTH[:7], connect="int32"),
    "int64": _row("bigint", *_BY_WIDTH, connect="int64"),
    "float": _row("float", "float", "float unsigned", connect="float"),
    # FLOAT, which 1.9.5 widens; DECIMAL with decimal.handling.mode=double
    "double": _row("double", *(f"{t}{u}" for t in ("float", "double", "decimal") for u in ("", " unsigned")),
                   connect="double"),
    # DECIMAL with decimal.handling.mode=string; bytes with binary.handling.mode=base64 or hex; JSON of MariaDB
    "string": _row("longtext", *_TEXTS, *_BYTES, "json", "decimal", "decimal unsigned", connect="string"),
    "bytes": _row("longblob", *_BYTES, connect="bytes"),
    BITS: _row("bit({length})", "bit", connect="bytes"),
    # BIGINT UNSIGNED with bigint.unsigned.handling.mode=precise
    DECIMAL: _row("decimal({connect.decimal.precision},{scale})", "decimal", "decimal unsigned", "bigint unsigned",
                  connect="bytes"),
    "io.debezium.time.Date": _row("date", "date", connect="int32"),
    f"{_CONNECT}Date": _row("date", "date", connect="int32"),
    "io.debezium.time.Time": _row("time", "time", connect="int32"),
    "io.debezium.time.MicroTime": _row("time", "time", connect="int64"),
    "io.debezium.time.NanoTime": _row("time", "time", connect="int64"),
    f"{_CONNECT}Time": _row("time", "time", connect="int32"),
    "io.debezium.time.Timestamp": _row("datetime(3)", "datetime", connect="int64"),
    "io.debezium.time.MicroTimestamp": _row("datetime(6)", "datetime", connect="int64"),
    "io.debezium.time.NanoTimestamp": _row("datetime(6)", "datetime", connect="int64"),
    f"{_CONNECT}Timestamp": _row("datetime(3)", "datetime", connect="int64"),
    "io.debezium.time.ZonedTimestamp": _row("timestamp(6)", "timestamp", connect="string"),
    # The next three with time.precision.mode=isostring
    ISO_DATE: _row("date", "date", connect="string"),
    ISO_TIME: _row("time", "time", connect="string"),
    ISO_TIMESTAMP: _row("datetime(6)", "datetime", connect="string"),
    "io.debezium.time.Year": _row("year", "year", connect="int32"),
    "io.debezium.data.Enum": _row("enum", "enum", connect="string"),
    "io.debezium.data.EnumSet": _row("set", "set", connect="string"),
    "io.debezium.data.Json": _row("json", "json", "longtext", connect="string"),
    "io.debezium.data.geometry.Point": _row("point", "point", connect="struct"),
    GEOMETRY: _row("geometry", *SPATIAL, connect="struct"),
}  # fmt: skip

# The connector's settings that decide how values are written.
TIME_MODE, DECIMAL_MODE, BINARY_MODE = "time.precision.mode", "decimal.handling.mode", "binary.handling.mode"
DEFAULT_TIME_MODE = "adaptive_time_microseconds"
# The semantic type of each family from a connector with default settings, for messages without a schema.
_DEFAULTS: Mapping[Family, str] = {
    Family.INTEGER: "int64",
    Family.FLOAT: "double",
    Family.BIT: BITS,
    Family.TEXT: "string",
    Family.ENUM: "io.debezium.data.Enum",
    Family.SET: "io.debezium.data.EnumSet",
    Family.TIMESTAMP: "io.debezium.time.ZonedTimestamp",
    Family.YEAR: "io.debezium.time.Year",
    Family.JSON: "io.debezium.data.Json",
    Family.SPATIAL: GEOMETRY,
}
# time.precision.mode -> the semantic types of DATE, TIME and DATETIME, without `io.debezium.time.`. A mode that adapts to
# the column sends more than `_MILLISECOND_DIGITS` in microseconds.
_MILLISECOND_DIGITS = 3
_TIMES: Mapping[str, tuple[str, str, str]] = {
    DEFAULT_TIME_MODE: ("Date", "MicroTime", "Timestamp"),
    "adaptive": ("Date", "Time", "Timestamp"),
    "connect": ("Date", "Time", "Timestamp"),
    "microseconds": ("Date", "MicroTime", "MicroTimestamp"),
    "nanoseconds": ("Date", "NanoTime", "NanoTimestamp"),
    "isostring": ("IsoDate", "IsoTime", "IsoTimestamp"),
}
_ADAPTING = frozenset({DEFAULT_TIME_MODE, "adaptive"})
# With the connector's column.propagate.source.type, parameters of a field state its MySQL type and its column's name.
_SOURCE = "__debezium.source.column."
COLUMN_NAME = f"{_SOURCE}name"


@dataclass(frozen=True)
class Field:
    """One column in a message's schema.

    Attributes:
        name: the column's name.
        semantic: the semantic name; without one the Connect type.
        connect: the Connect type.
        parameters: (name, value) of each parameter.
    """

    name: str
    semantic: str
    connect: str
    parameters: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.semantic

    @property
    def alone(self) -> MySQLType | None:
        """The MySQL type that follows from the field alone; None if MySQL's connector does not have its semantic type."""
        stated = dict(self.parameters)
        if source_type := stated.get(f"{_SOURCE}type"):
            return column_type(source_type, stated.get(f"{_SOURCE}length"), stated.get(f"{_SOURCE}scale"))
        row = SEMANTICS.get(self.semantic)
        if row is None:
            return None
        parameters = {"connect.decimal.precision": str(MAX_PRECISION), "scale": "0"} | stated
        text = row.text
        for name, value in parameters.items():
            text = text.replace(f"{{{name}}}", value)
        return parsed(text)

    def resolve(self, declared_type: MySQLType | None) -> MySQLType | None:
        """Return the declared type if the field may stand for it, else the type that follows from the field alone."""
        if self.semantic == UNSTATED:
            return declared_type
        row = SEMANTICS.get(self.semantic)
        fits = declared_type is not None and row is not None and stands_for(declared_type) in row.types
        return declared_type if fits else self.alone


def stands_for(mysql_type: MySQLType) -> str:
    """Return a type in the form of `SemanticRow.types`: its base, with `unsigned` if it is unsigned."""
    return f"{mysql_type.base} unsigned" if mysql_type.unsigned else mysql_type.base


def column_type(
    name: str, length: str | int | None, scale: str | int | None, labels: Sequence[str] = ()
) -> MySQLType | None:
    """Return the type of a column that the connector describes in parts; None if MySQL has no such type.

    Args:
        name: the type's name, such as `DECIMAL UNSIGNED`.
        length: the length or precision.
        scale: the scale.
        labels: the labels of enum and set, each in quotes; Debezium 1.9.5 states none.
    """
    words = name.split()
    signs = [w for w in words if w.upper() in {"SIGNED", "UNSIGNED", "ZEROFILL"}]
    base = " ".join(words[: len(words) - len(signs)])
    numbers = ",".join(str(n) for n in (length, scale) if n is not None)
    inner = ",".join(labels) if base.upper() in {"ENUM", "SET"} else numbers
    parameters = f"({inner})" if inner else ""
    # The connector states a length for some types, such as texts, for which MySQL's grammar has none.
    return parsed(" ".join([base + parameters, *signs])) or parsed(name)


class ConnectorObject(BaseModel):
    """The fields that are read of a JSON object that a connector wrote."""

    model_config = ConfigDict(strict=True, alias_generator=to_camel)


def layout(text: str) -> tuple[Field, ...]:
    """Return the columns of a column layout, in the table's order.

    A field that does not have Connect's form keeps its name, with a type that MySQL's connector does not have.

    Args:
        text: the JSON array of the fields in a message's schema, or, for messages without a schema, of the columns' names.
    """
    return tuple(field for field in map(_field, json.loads(text)) if field)


class _ConnectField(ConnectorObject):
    field: str
    type: str
    name: str | None = None
    parameters: dict[str, str] | None = None


def _field(entry: Any) -> Field | None:  # noqa: ANN401 -- JSON
    if isinstance(entry, str):
        return Field(entry, UNSTATED, UNSTATED)
    try:
        field = _ConnectField.model_validate(entry)
    except ValidationError:
        name = entry.get("field") if isinstance(entry, dict) else None
        return Field(name, _UNREADABLE, _UNREADABLE) if isinstance(name, str) else None
    return Field(field.field, field.name or field.type, field.type, tuple((field.parameters or {}).items()))


def deciding_setting(field: Field, mysql_type: MySQLType | None) -> str | None:
    """Return the connector's setting that decides how a column's values are written; None: the message states it."""
    family = TYPES[mysql_type.base].family if mysql_type else None
    if family is Family.BINARY and field.semantic in {UNSTATED, "string"}:
        return BINARY_MODE
    if field.semantic != UNSTATED:
        return None
    if family is Family.DECIMAL:
        return DECIMAL_MODE
    return TIME_MODE if family in {Family.DATE, Family.TIME, Family.DATETIME} else None


def assumed_field(field: Field, mysql_type: MySQLType | None, settings: Mapping[str, str]) -> Field:
    """Return the field by which a column's values are read.

    Args:
        field: the column's field in the message.
        mysql_type: the column's MySQL type; None: unknown.
        settings: the connector's settings, by its names. What they lack is assumed.
    """
    setting = deciding_setting(field, mysql_type)
    if mysql_type is None or (setting is None and field.semantic != UNSTATED):
        return field
    mode, family = settings.get(setting or ""), TYPES[mysql_type.base].family
    parameters = (("scale", str(mysql_type.scale or 0)),) if family is Family.DECIMAL else ()
    if setting == TIME_MODE:
        semantic = _time_semantic(mysql_type, mode or DEFAULT_TIME_MODE)
    elif setting == DECIMAL_MODE:
        semantic = mode if mode in {"string", "double"} else DECIMAL
        if mode is None and not mysql_type.scale:
            semantic = UNSTATED_DECIMAL
    elif setting == BINARY_MODE and mode is None:
        semantic = UNSTATED_BYTES if field.semantic == UNSTATED else field.semantic
    elif setting == BINARY_MODE:
        semantic = HEX_BYTES if mode == "hex" else BASE64_BYTES
    else:
        is_boolean = family is Family.BIT and mysql_type.length in {None, 1}
        semantic = "boolean" if is_boolean else _DEFAULTS[family]
    return Field(field.name, semantic, field.connect, parameters)


def _time_semantic(mysql_type: MySQLType, mode: str) -> str:
    """Return the semantic type of a DATE, TIME or DATETIME in a `time.precision.mode`."""
    names = dict(zip((Family.DATE, Family.TIME, Family.DATETIME), _TIMES[mode], strict=True))
    name = names[TYPES[mysql_type.base].family]
    is_finer = mode in _ADAPTING and (mysql_type.length or 0) > _MILLISECOND_DIGITS
    return f"io.debezium.time.{'Micro' if is_finer and name in {'Time', 'Timestamp'} else ''}{name}"
