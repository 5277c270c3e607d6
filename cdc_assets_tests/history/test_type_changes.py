"""Convert existing values to new types: pairs of types on a real MariaDB, in an SQL mode that is not strict.

The history may have the server's value, no value, or a value that `reload_required` reports, but no other value.
"""

from collections.abc import Iterator

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from cdc_assets.history.excluded_values import does_not_fit
from cdc_assets.history.type_changes import adds_digits, fits_history_column, keeps_values, may_exclude
from cdc_assets.mysql_types.casting import decode, spark_type
from cdc_assets.mysql_types.conversion import converted
from cdc_assets.mysql_types.types import MySQLType, declared, parse_type
from cdc_assets_tests.mariadb import MariaDB
from cdc_assets_tests.support import frame_of_rows

pytestmark = pytest.mark.extended

# Type -> values, as SQL. FLOAT is left out as a new type: the server's text of it has six digits only.
VALUES = {
    "tinyint": ("0", "1", "-1", "127"),
    "tinyint unsigned": ("0", "200"),
    "int": ("-70000", "12", "20240105"),
    "bigint": ("-9000000000", "20240105030405"),
    "bigint unsigned": ("12", "18446744073709551615"),
    "int(7) zerofill": ("12", "4294967295"),
    "decimal(10,2)": ("12.35", "-12.35", "99999999.99"),
    "decimal(10,4)": ("1.0050", "12.3456"),
    "decimal(10,2) unsigned": ("12.35",),
    "float": ("0.1", "-2.5", "3.4e10"),
    "double": ("0.1", "-2.5", "1e20", "12.345", "2.25"),
    "float(7,2)": ("12.35",),
    "double(8,1)": ("12.3",),
    "double unsigned": ("2.5",),
    "bit(1)": ("1",),
    "bit(8)": ("65", "255"),
    "bit(16)": ("258",),
    "char(9)": ("'ab'", "'12'", "''"),
    "varchar(9)": ("'ab '", "'12.6'", "''", "'é'"),
    "varchar(40)": ("'2024-01-05 03:04:05'", "'03:04:05.6'", "'1e2'"),
    "text": ("'ab '", "'12'"),
    "binary(4)": ("'ab'",),
    "binary(8)": ("'abcdefgh'",),
    "varbinary(20)": ("'ab'", "''"),
    "blob": ("'12'",),
    "enum('a','b','12')": ("'a'", "'12'"),
    "enum('b','a')": ("'a'",),
    "set('a','b')": ("'a,b'", "''"),
    "set('b','a','c')": ("'a'",),
    "date": ("'2024-01-05'", "'1969-02-03'"),
    "datetime": ("'2024-01-05 03:04:05'",),
    "datetime(3)": ("'2024-01-05 03:04:05.678'", "'2024-01-05 23:59:59.999'"),
    "datetime(6)": ("'2024-01-05 03:04:05.123456'",),
    "timestamp": ("'2024-01-05 03:04:05'",),
    "timestamp(3)": ("'2024-01-05 03:04:05.678'",),
    "time": ("'-100:00:01'",),
    "time(3)": ("'03:04:05.678'", "'-00:00:00.500'"),
    "year": ("2024", "1999"),
}
PAIRS = [(old, new) for old in VALUES for new in VALUES if old != new and new != "float"]
_PAIRS_A_JOB = 80
Texts = list[tuple[str | None, str | None]]
"""The texts of values before and after a statement; bytes as hexadecimal digits."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Texts]]:
    """The values that the server has after each change of type."""
    server = MariaDB(tmp_path_factory.mktemp("types"))
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        cursor.execute("CREATE DATABASE types CHARACTER SET latin1")
        cursor.execute("USE types")
        conversions = {}
        for old, values in VALUES.items():
            cursor.execute(f"CREATE OR REPLACE TABLE source (id int AUTO_INCREMENT PRIMARY KEY, c {old})")
            cursor.execute(f"INSERT INTO source (c) VALUES {', '.join(f'({value})' for value in values)}")
            cursor.execute(f"SELECT {text_of(old)} FROM source ORDER BY id")
            before = [row[0] for row in cursor.fetchall()]
            for new in (new for other, new in PAIRS if other == old):
                cursor.execute("CREATE OR REPLACE TABLE t AS SELECT * FROM source")
                cursor.execute(f"ALTER TABLE t MODIFY c {new}")
                cursor.execute(f"SELECT {text_of(new)} FROM t ORDER BY id")
                after = [row[0] for row in cursor.fetchall()]
                conversions[old, new] = list(zip(before, after, strict=True))
    yield conversions
    server.stop()


def text_of(kind: str) -> str:
    """Return SQL for the text of a value."""
    if kind.startswith(("binary", "varbinary", "blob")):
        return "HEX(c)"
    return "CAST(c + 0 AS CHAR)" if kind.startswith("bit") else "CAST(c AS CHAR)"


def typed(text: Column, kind: MySQLType) -> Column:
    if isinstance(spark_type(kind), BinaryType):
        return F.unhex(text)
    return decode(text, kind, "canal-json" if kind.base == "bit" else "ddl", "UTC", spark_type(kind))


def expected_and_actual(before: Column, after: Column, old: MySQLType, new: MySQLType) -> Column:
    """Return a struct of the server's value, the history's, and whether the history reports its value."""
    target, value = spark_type(new), typed(before, old)
    is_kept = fits_history_column(old, new) and keeps_values(old, new) and not adds_digits(old, new)
    result = value.try_cast(target) if is_kept else converted(value, old, new, target, "UTC", of_tidb=False)
    is_reported = does_not_fit(value, new) if is_kept and may_exclude(old, new) else F.lit(False)
    return F.struct(
        typed(after, new).cast("string").alias("server"),
        (F.lit(None) if result is None else result).cast("string").alias("history"),
        F.coalesce(is_reported, F.lit(False)).alias("reported"),
    )


def test_no_value_differs_without_a_report(results: dict[tuple[str, str], Texts], spark: SparkSession) -> None:
    wrong, equal = [], 0
    for begin in range(0, len(PAIRS), _PAIRS_A_JOB):
        pairs = PAIRS[begin : begin + _PAIRS_A_JOB]
        names = [f"{side}{n}" for n in range(len(pairs)) for side in ("before", "after")]
        most = max(len(results[pair]) for pair in pairs)
        rows = [[t for pair in pairs for t in (*results[pair], *[(None, None)] * most)[n]] for n in range(most)]
        frame = frame_of_rows(spark, rows, StructType([StructField(name, StringType()) for name in names]))
        compared = [
            expected_and_actual(
                F.col(f"before{n}"), F.col(f"after{n}"), *(declared(parse_type(t)) for t in pair)
            ).alias(f"pair{n}")
            for n, pair in enumerate(pairs)
        ]
        for row in frame.coalesce(1).select(*names, *compared).collect():
            for n, pair in enumerate(pairs):
                one = row[f"pair{n}"]
                is_equal = one["history"] == one["server"]
                equal += is_equal and one["history"] is not None
                if one["history"] is not None and not is_equal and not one["reported"]:
                    wrong.append((*pair, row[f"before{n}"], one["server"], one["history"]))
    assert not wrong
    assert equal > len(PAIRS) / 2  # else most conversions would be unknown
