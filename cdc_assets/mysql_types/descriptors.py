"""The descriptors of MySQL's types: what the project knows of each type, but how its values are decoded and converted.

A new type is a row of `TYPES`. A new `Family` also needs an entry in each table of functions by family: in `casting`,
`conversion`, `canonical` and `type_checks.values`. Two protocols have tables by their own codes and semantic types:
`protocols.open_protocol.codes` and `protocols.debezium.semantics`.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class Family(StrEnum):
    """A family of types whose values are written, decoded and checked in the same way."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    BIT = "bit"
    TEXT = "text"
    BINARY = "binary"
    ENUM = "enum"
    SET = "set"
    DATE = "date"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    TIME = "time"
    YEAR = "year"
    JSON = "json"
    SPATIAL = "spatial"


class Range(NamedTuple):
    """Smallest and largest value, both included."""

    low: int
    high: int


LARGEST_LENGTH = (1 << 32) - 1
"""The length of a LONGTEXT."""


@dataclass(frozen=True)
class TypeDescriptor:
    """What the project knows of a MySQL base type.

    Attributes:
        family: the family, which decides how values are decoded.
        spark: name of the Spark type of the (signed) type, or of the rule by which `casting.spark_type` chooses it.
        jdbc: the code of java.sql.Types in TiCDC's Canal-JSON document; of a signed integer, and of an unsigned integer
            within the signed range. None: TiDB does not have the type.
        debezium_jdbc: the codes of java.sql.Types that Debezium's schema-change records have beside the type's name.
            Recorded of 1.9.5.Final and 3.5.0.Final, except for names that a server never prints: BOOLEAN (16), REAL (7),
            NUMERIC (2), NCHAR (-15) and NVARCHAR (-9).
        simple: the wire type of values that are not NULL in the Simple Protocol's Avro, by the document's section "mysqlType
            reference table"; None: TiDB does not have the type.
        spark_unsigned: the same for the unsigned type; None if it is the same.
        synonyms: MySQL's other names of the type ("Using Data Types from Other Database Engines").
        signed: range of values; None if the type has no integer range.
        unsigned: range of values of the unsigned type.
        implicit: the text of the value that MySQL gives existing rows when a NOT NULL column without DEFAULT is added; None
            for enum, which gets its first label.
        max_length: the largest length that a type text may have ("Numeric Data Type Syntax", "Date and Time Data Type
            Syntax").
        declared_length: MySQL's length for a type that a DDL statement has without one.
        capacity: how many bytes a TEXT or BLOB holds; None for other types.
        byte_type: of a text type, the type that it is with `byte` or `character set binary`.
        max_labels: how many labels an enum or set may have.
        jdbc_promoted: the code of an unsigned integer above the signed range; None: the same.
    """

    family: Family
    spark: str
    jdbc: int | None
    debezium_jdbc: tuple[int, ...]
    simple: str | None
    _: KW_ONLY
    spark_unsigned: str | None = None
    synonyms: tuple[str, ...] = ()
    signed: Range | None = None
    unsigned: Range | None = None
    implicit: str | None = ""
    max_length: int = LARGEST_LENGTH
    declared_length: int | None = None
    capacity: int | None = None
    byte_type: str | None = None
    max_labels: int | None = None
    jdbc_promoted: int | None = None


def _integer(
    bits: int,
    spark: str,
    spark_unsigned: str,
    jdbc: int,
    promoted: int | None,
    debezium: tuple[int, ...],
    *synonyms: str,
) -> TypeDescriptor:
    half = 1 << (bits - 1)
    return TypeDescriptor(
        *(Family.INTEGER, spark, jdbc, debezium, "long"),
        spark_unsigned=spark_unsigned,
        synonyms=synonyms,
        signed=Range(-half, half - 1),
        unsigned=Range(0, 2 * half - 1),
        implicit="0",
        jdbc_promoted=promoted,
    )


def _text(size_bits: int, byte_type: str, *synonyms: str) -> TypeDescriptor:
    row = Family.TEXT, "string", 2005, (12,), "string"
    return TypeDescriptor(*row, synonyms=synonyms, capacity=(1 << size_bits) - 1, byte_type=byte_type)


def _blob(size_bits: int, *synonyms: str) -> TypeDescriptor:
    row = Family.BINARY, "binary", 2004, (2004,), "bytes"
    return TypeDescriptor(*row, synonyms=synonyms, capacity=(1 << size_bits) - 1)


def _spatial(*synonyms: str) -> TypeDescriptor:
    """Return a type whose bytes, as MySQL stores them, are the SRID (4 bytes, little-endian), then WKB."""
    return TypeDescriptor(Family.SPATIAL, "binary", None, (1111,), None, synonyms=synonyms)


TYPES: Mapping[str, TypeDescriptor] = MappingProxyType(
    {
        "tinyint": _integer(8, "tinyint", "smallint", -6, 5, (5, 16), "int1", "bool", "boolean"),
        "smallint": _integer(16, "smallint", "int", 5, 4, (5,), "int2"),
        "mediumint": _integer(24, "int", "int", 4, None, (4,), "int3", "middleint"),
        "int": _integer(32, "int", "bigint", 4, -5, (4,), "integer", "int4"),
        "bigint": _integer(64, "bigint", "decimal(20,0)", -5, 3, (-5,), "int8", "serial"),
        "decimal": TypeDescriptor(
            *(Family.DECIMAL, "by precision", 3, (2, 3), "string"),
            synonyms=("dec", "numeric", "fixed"),
            implicit="0",
            max_length=65,
            declared_length=10,
        ),
        "float": TypeDescriptor(Family.FLOAT, "float", 7, (6,), "float", synonyms=("float4",), implicit="0"),
        "double": TypeDescriptor(
            *(Family.FLOAT, "double", 8, (6, 7, 8), "double"),  # FLOAT(25) and longer is a DOUBLE
            synonyms=("float8", "real", "double precision"),
            implicit="0",
        ),
        "bit": TypeDescriptor(
            *(Family.BIT, "by width", -7, (-7,), "long"), implicit="0", max_length=64, declared_length=1
        ),
        "char": TypeDescriptor(
            *(Family.TEXT, "string", 1, (1, -15), "string"),
            synonyms=("character", "national char", "national character", "nchar"),
            declared_length=1,
            byte_type="binary",
        ),
        "varchar": TypeDescriptor(
            *(Family.TEXT, "string", 12, (12, -9), "string"),
            synonyms=(
                *("char varying", "character varying", "varcharacter", "national char varying"),
                *("national character varying", "national varchar", "national varcharacter"),
                *("nchar varying", "nchar varchar", "nchar varcharacter", "nvarchar"),
            ),
            byte_type="varbinary",
        ),
        "tinytext": _text(8, "tinyblob"),
        "text": _text(16, "blob"),
        "mediumtext": _text(
            24,
            "mediumblob",
            *("long", "long varchar", "long char varying", "long character varying", "long varcharacter"),
        ),
        "longtext": _text(32, "longblob"),
        "binary": TypeDescriptor(Family.BINARY, "binary", 2004, (-2,), "bytes", declared_length=1),
        "varbinary": TypeDescriptor(Family.BINARY, "binary", 2004, (-3,), "bytes"),
        "tinyblob": _blob(8),
        "blob": _blob(16),
        "mediumblob": _blob(24, "long varbinary"),
        "longblob": _blob(32),
        "enum": TypeDescriptor(Family.ENUM, "string", 4, (1,), "long", implicit=None, max_labels=65_535),
        "set": TypeDescriptor(Family.SET, "string", -7, (1,), "long", max_labels=64),
        "date": TypeDescriptor(Family.DATE, "date", 91, (91,), "string", implicit="0000-00-00"),
        "datetime": TypeDescriptor(
            *(Family.DATETIME, "timestamp_ntz", 93, (93,), "string"), implicit="0000-00-00 00:00:00", max_length=6
        ),
        "timestamp": TypeDescriptor(
            *(Family.TIMESTAMP, "timestamp", 93, (2014,), "string"), implicit="0000-00-00 00:00:00", max_length=6
        ),
        "time": TypeDescriptor(Family.TIME, "string", 92, (92,), "string", implicit="00:00:00", max_length=6),
        "year": TypeDescriptor(Family.YEAR, "smallint", 12, (4,), "long", signed=Range(1901, 2155), implicit="0000"),
        "json": TypeDescriptor(Family.JSON, "string", 12, (1111,), "string", implicit="null"),
        "geometry": _spatial(),
        "point": _spatial(),
        "linestring": _spatial(),
        "polygon": _spatial(),
        "multipoint": _spatial(),
        "multilinestring": _spatial(),
        "multipolygon": _spatial(),
        "geometrycollection": _spatial("geomcollection"),
    }
)


def bases_of(*families: Family) -> frozenset[str]:
    """Return the names of the types of these families."""
    return frozenset(base for base, descriptor in TYPES.items() if descriptor.family in families)


INTEGERS = bases_of(Family.INTEGER)
NUMBERS = bases_of(Family.INTEGER, Family.DECIMAL, Family.FLOAT)
SPATIAL = bases_of(Family.SPATIAL)

TIMESTAMP_RANGE = ("1970-01-01 00:00:01", "2038-01-19 03:14:07.999999")
"""Smallest and largest TIMESTAMP, in UTC."""
