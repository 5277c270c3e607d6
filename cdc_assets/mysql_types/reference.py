"""Reference tables of MySQL's types, for decoding, casting and checks: families, value ranges, JDBC codes.

Sources: `spec` is the TiCDC Canal-JSON document (its sections on SQL types and integer types), which TiCDC's encoder, as
recorded, follows everywhere; `canal` is Alibaba Canal 1.1.7, as recorded, where it differs from that document.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, NamedTuple

from cdc_assets.mysql_types.types import SPATIAL, MySQLType


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


@dataclass(frozen=True)
class TypeRow:
    """One MySQL base type.

    Attributes:
        family: the family, which decides how values are decoded.
        spark: name of the Spark type of the (signed) type, or of the rule by which `casting.spark_type` chooses it.
        spark_unsigned: the same for the unsigned type; None if it is the same.
        signed: range of values; None if the type has no integer range.
        unsigned: range of values of the unsigned type.
        implicit: the text of the value that MySQL gives existing rows when a NOT NULL column without DEFAULT is added; None
            for enum, which gets its first label.
    """

    family: Family
    spark: str
    spark_unsigned: str | None = None
    signed: Range | None = None
    unsigned: Range | None = None
    implicit: str | None = ""


def _integer(bits: int, spark: str, spark_unsigned: str) -> TypeRow:
    half = 1 << (bits - 1)
    return TypeRow(Family.INTEGER, spark, spark_unsigned, Range(-half, half - 1), Range(0, 2 * half - 1), "0")


TYPES: Mapping[str, TypeRow] = MappingProxyType(
    {
        "tinyint": _integer(8, "tinyint", "smallint"),
        "smallint": _integer(16, "smallint", "int"),
        "mediumint": _integer(24, "int", "int"),
        "int": _integer(32, "int", "bigint"),
        "bigint": _integer(64, "bigint", "decimal(20,0)"),
        "decimal": TypeRow(Family.DECIMAL, "by precision", implicit="0"),
        "float": TypeRow(Family.FLOAT, "float", implicit="0"),
        "double": TypeRow(Family.FLOAT, "double", implicit="0"),
        "bit": TypeRow(Family.BIT, "by width", implicit="0"),
        "char": TypeRow(Family.TEXT, "string"),
        "varchar": TypeRow(Family.TEXT, "string"),
        "tinytext": TypeRow(Family.TEXT, "string"),
        "text": TypeRow(Family.TEXT, "string"),
        "mediumtext": TypeRow(Family.TEXT, "string"),
        "longtext": TypeRow(Family.TEXT, "string"),
        "binary": TypeRow(Family.BINARY, "binary"),
        "varbinary": TypeRow(Family.BINARY, "binary"),
        "tinyblob": TypeRow(Family.BINARY, "binary"),
        "blob": TypeRow(Family.BINARY, "binary"),
        "mediumblob": TypeRow(Family.BINARY, "binary"),
        "longblob": TypeRow(Family.BINARY, "binary"),
        "enum": TypeRow(Family.ENUM, "string", implicit=None),
        "set": TypeRow(Family.SET, "string"),
        "date": TypeRow(Family.DATE, "date", implicit="0000-00-00"),
        "datetime": TypeRow(Family.DATETIME, "timestamp_ntz", implicit="0000-00-00 00:00:00"),
        "timestamp": TypeRow(Family.TIMESTAMP, "timestamp", implicit="0000-00-00 00:00:00"),
        "time": TypeRow(Family.TIME, "string", implicit="00:00:00"),
        "year": TypeRow(Family.YEAR, "smallint", signed=Range(1901, 2155), implicit="0000"),
        "json": TypeRow(Family.JSON, "string", implicit="null"),
        # The bytes that MySQL stores: SRID (4 bytes, little-endian), then WKB.
        **{base: TypeRow(Family.SPATIAL, "binary") for base in sorted(SPATIAL)},
    }
)

TIMESTAMP_RANGE = ("1970-01-01 00:00:01", "2038-01-19 03:14:07.999999")
"""Smallest and largest TIMESTAMP, in UTC."""

Source = Literal["spec", "canal"]


class JdbcRow(NamedTuple):
    """One row of the JDBC table: a code that `sqlType` has for a type and its values.

    Attributes:
        base: the MySQL type.
        code: the code of java.sql.Types.
        unsigned: whether the row is for the unsigned type only (True), the signed type only (False), or both (None).
        values: the values that have this code; None: all values.
        null: whether NULL has this code.
        source: the source of the row.
    """

    base: str
    code: int
    unsigned: bool | None = None
    values: Range | None = None
    null: bool = True
    source: Source = "spec"


def _unsigned_integer(base: str, code: int, promoted: int) -> tuple[JdbcRow, ...]:
    """Return the rows of an unsigned integer, whose code changes above the signed type's largest value."""
    row = TYPES[base]
    if row.signed is None or row.unsigned is None:
        raise ValueError(f"{base} is not an integer type")
    low, high = Range(0, row.signed.high), Range(row.signed.high + 1, row.unsigned.high)
    return (
        JdbcRow(base, code, unsigned=True, values=low),
        JdbcRow(base, promoted, unsigned=True, values=high, null=False),
        # A Canal message has one sqlType for all its rows, so a value or NULL may have the code of another row's value.
        JdbcRow(base, promoted, unsigned=True, source="canal"),
        JdbcRow(base, code, unsigned=True, source="canal"),
    )


JDBC: tuple[JdbcRow, ...] = (
    JdbcRow("tinyint", -6, unsigned=False),  # BOOLEAN too, which is tinyint(1)
    *_unsigned_integer("tinyint", -6, 5),
    JdbcRow("smallint", 5, unsigned=False),
    *_unsigned_integer("smallint", 5, 4),
    JdbcRow("mediumint", 4),
    JdbcRow("int", 4, unsigned=False),
    *_unsigned_integer("int", 4, -5),
    JdbcRow("bigint", -5, unsigned=False),
    *_unsigned_integer("bigint", -5, 3),
    JdbcRow("float", 7),
    JdbcRow("double", 8),
    JdbcRow("decimal", 3),
    JdbcRow("char", 1),
    JdbcRow("varchar", 12),
    JdbcRow("binary", 2004),
    JdbcRow("varbinary", 2004),
    JdbcRow("tinytext", 2005),
    JdbcRow("text", 2005),
    JdbcRow("mediumtext", 2005),
    JdbcRow("longtext", 2005),
    JdbcRow("tinyblob", 2004),
    JdbcRow("blob", 2004),
    JdbcRow("mediumblob", 2004),
    JdbcRow("longblob", 2004),
    JdbcRow("date", 91),
    JdbcRow("datetime", 93),
    JdbcRow("timestamp", 93),
    JdbcRow("time", 92),
    JdbcRow("year", 12),
    JdbcRow("enum", 4),
    JdbcRow("set", -7),
    # Of NULL; and so of all rows of a Canal message whose last row has NULL.
    JdbcRow("set", 2004, source="canal"),
    JdbcRow("bit", -7),
    JdbcRow("json", 12),
    JdbcRow("json", 2004, source="canal"),  # JSON of a MariaDB server, which stores it as a blob
    *(JdbcRow(base, 2004, source="canal") for base in sorted(SPATIAL)),  # TiDB has no spatial types
)


JDBC_NAMES: Mapping[int, str] = MappingProxyType(
    {
        -16: "LONGNVARCHAR", -15: "NCHAR", -9: "NVARCHAR", -8: "ROWID", -7: "BIT", -6: "TINYINT", -5: "BIGINT",
        -4: "LONGVARBINARY", -3: "VARBINARY", -2: "BINARY", -1: "LONGVARCHAR", 0: "NULL", 1: "CHAR", 2: "NUMERIC",
        3: "DECIMAL", 4: "INTEGER", 5: "SMALLINT", 6: "FLOAT", 7: "REAL", 8: "DOUBLE", 12: "VARCHAR", 16: "BOOLEAN",
        70: "DATALINK", 91: "DATE", 92: "TIME", 93: "TIMESTAMP", 1111: "OTHER", 2000: "JAVA_OBJECT", 2001: "DISTINCT",
        2002: "STRUCT", 2003: "ARRAY", 2004: "BLOB", 2005: "CLOB", 2006: "REF", 2009: "SQLXML", 2011: "NCLOB",
        2012: "REF_CURSOR", 2013: "TIME_WITH_TIMEZONE", 2014: "TIMESTAMP_WITH_TIMEZONE",
    }
)  # fmt: skip
"""The names of the codes in java.sql.Types."""


def jdbc_text(code: int) -> str:
    """Return a JDBC code for people, with its name in java.sql.Types if it has one: `12 (VARCHAR)`."""
    name = JDBC_NAMES.get(code)
    return str(code) if name is None else f"{code} ({name})"


def jdbc_rows(mysql_type: MySQLType, sources: frozenset[Source] = frozenset({"spec", "canal"})) -> tuple[JdbcRow, ...]:
    """Return the rows of `JDBC` for a type from these sources; none for a base type that is not in the table."""
    return tuple(
        row
        for row in JDBC
        if row.base == mysql_type.base and row.unsigned in {None, mysql_type.unsigned} and row.source in sources
    )


def value_range(mysql_type: MySQLType) -> Range | None:
    """Return the integer range of a type; None if it has none. A bit of unknown length counts as `bit(64)`.

    The range of YEAR lacks the year 0, which MySQL also stores.
    """
    if mysql_type.base == "bit":
        return Range(0, (1 << (mysql_type.length or 64)) - 1)
    row = TYPES[mysql_type.base]
    return row.unsigned if mysql_type.unsigned else row.signed
