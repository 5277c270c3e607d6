"""Whether an event's JDBC code (`sqlType`) is one that the reference table has for its MySQL type and value."""

from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType

from cdc_assets.mysql_types.reference import JdbcRow, Source, jdbc_rows
from cdc_assets.mysql_types.types import MySQLType


def code_is_permitted(
    code: Column,
    value: Column,
    mysql_type: MySQLType,
    sources: frozenset[Source] = frozenset({"spec", "canal"}),
) -> Column:
    """Whether `code` may stand beside `value` for this type, by the rows of `reference.JDBC`.

    Args:
        code: INT, the code in `sqlType`; in an UPDATE it belongs to the new value.
        value: STRING, the value's text on the wire, NULL included.
        mysql_type: the type in `mysqlType`.
        sources: whose rows count: only `spec` for TiCDC; `spec` and `canal` when the encoder may be Canal's.

    Returns:
        BOOLEAN, never NULL. False for a type that the table does not have, and for a NULL code.
    """
    permitted = [(code == row.code) & _covers(row, value) for row in jdbc_rows(mysql_type, sources)]
    return F.coalesce(reduce(or_, permitted, F.lit(False)), F.lit(False))


def _covers(row: JdbcRow, value: Column) -> Column:
    null_counts = value.isNull() & F.lit(row.null)
    if row.values is None:
        return null_counts | value.isNotNull()
    number = value.try_cast(DecimalType(38, 0))
    low, high = (F.lit(str(limit)).cast(DecimalType(38, 0)) for limit in row.values)
    return null_counts | F.coalesce(number.between(low, high), F.lit(False))
