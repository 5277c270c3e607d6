"""The JDBC codes that the field `sqlType` of Canal-JSON has for a column's type.

Sources: `spec` is the TiCDC Canal-JSON document (its sections on SQL types and integer types), which TiCDC's encoder, as
recorded, follows everywhere; `canal` is Alibaba Canal 1.1.7, as recorded, where it differs from that document.
"""

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Literal, NamedTuple

from cdc_assets.mysql_types.descriptors import SPATIAL, TYPES, Range
from cdc_assets.mysql_types.types import MySQLType

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


def _rows(base: str) -> list[JdbcRow]:
    """Return the rows of a type; the code of an unsigned integer changes above the signed type's largest value."""
    descriptor = TYPES[base]
    code, promoted = descriptor.jdbc, descriptor.jdbc_promoted
    if code is None:
        return []
    if promoted is None or descriptor.signed is None or descriptor.unsigned is None:
        return [JdbcRow(base, code)]
    low, high = Range(0, descriptor.signed.high), Range(descriptor.signed.high + 1, descriptor.unsigned.high)
    return [
        JdbcRow(base, code, unsigned=False),
        JdbcRow(base, code, unsigned=True, values=low),
        JdbcRow(base, promoted, unsigned=True, values=high, null=False),
        # A Canal message has one sqlType for all its rows, so a value or NULL may have the code of another row's value.
        JdbcRow(base, promoted, unsigned=True, source="canal"),
        JdbcRow(base, code, unsigned=True, source="canal"),
    ]


JDBC: tuple[JdbcRow, ...] = (
    *chain.from_iterable(map(_rows, TYPES)),
    # Of NULL; and so of all rows of a Canal message whose last row has NULL.
    JdbcRow("set", 2004, source="canal"),
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
