"""Defaults: what MySQL makes of each literal form in a column of each type.

The expected values follow the MySQL 8.4 reference manual. A MariaDB server executes all of them; where it differs, the row
says what it gives.
"""

import pymysql
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_assets.ddl.defaults import convert_default
from cdc_assets.ddl.literals import read_literal
from cdc_assets.mysql_types.casting import decode, spark_type
from cdc_assets.mysql_types.tokens import TokenCursor, TokenKind, tokenize
from cdc_assets.mysql_types.types import declared, parse_type
from cdc_assets_tests.mariadb import MariaDB

UNKNOWN = None
SIZES = "enum('small','Large','5')"
LETTERS = "set('a','b','C')"
# Type, literal, value.
CASES: list[tuple[str, str, str | None]] = [
    # integers: "Out-of-Range and Overflow Handling", "Rounding Behavior"
    ("int", "7", "7"),
    ("int", "'7'", "7"),
    ("int", "' 7 '", "7"),
    ("int", "-7", "-7"),
    ("int", "- 7", "-7"),
    ("int", "+7", "7"),
    ("int", "007", "7"),
    ("int", "1.6", "2"),
    ("int", "'1.6'", "2"),
    ("int", "1.5", "2"),
    ("int", "-1.5", "-2"),
    ("int", "2.5", "3"),
    ("int", ".5", "1"),
    ("int", "-.5", "-1"),
    ("int", "5.", "5"),
    ("int", "1e3", "1000"),
    ("int", "'1e3'", "1000"),
    ("int", "16e-1", "2"),
    ("int", "25e-1", UNKNOWN),
    ("int", "TRUE", "1"),
    ("int", "false", "0"),
    ("int", "0x41", "65"),
    ("int", "b'101'", "5"),
    ("int", "0b101", "5"),
    ("int", "'12' '3'", "123"),
    ("tinyint unsigned", "255", "255"),
    ("boolean", "TRUE", "1"),
    ("bigint unsigned", "18446744073709551615", "18446744073709551615"),
    ("bigint", "-9223372036854775808", "-9223372036854775808"),
    # decimals
    ("decimal(6,2)", "'1.5'", "1.50"),
    ("decimal(6,2)", "1.5", "1.50"),
    ("decimal(5,1)", "1.25", "1.3"),
    ("decimal(5,1)", "-1.25", "-1.3"),
    ("decimal(5,1)", "'1.25'", "1.3"),
    ("decimal(5,1)", "-0.01", "0.0"),
    ("decimal(5,2)", "1e2", "100.00"),
    ("decimal(5,2)", ".5", "0.50"),
    ("decimal", "1.5", "2"),
    ("decimal(30,10)", "12345678901234567890.0123456789", "12345678901234567890.0123456789"),
    ("decimal(65,0)", "9" * 65, "9" * 65),
    ("decimal(5,2)", "0x10", "16.00"),
    # floats
    ("float", ".5", "0.5"),
    ("double", "1e3", "1000"),
    ("double", "-1.5E-3", "-0.0015"),
    ("double", "'2.5'", "2.5"),
    ("double", "7", "7"),
    ("double", "1e300", "1e+300"),
    ("float(5,2)", "1.25", "1.25"),
    ("float(5,2)", "1.255", UNKNOWN),
    ("double unsigned", "3.25", "3.25"),
    # the section "Bit-Value Type - BIT"
    ("bit(4)", "b'101'", "5"),
    ("bit(8)", "5", "5"),
    ("bit(8)", "0x0F", "15"),
    ("bit(8)", "'5'", "53"),
    ("bit(64)", "18446744073709551615", "18446744073709551615"),
    ("bit", "TRUE", "1"),
    # text: "The CHAR and VARCHAR Types", "String Literals"
    ("char(5)", "'x  '", "x"),
    ("varchar(5)", "'x  '", "x  "),
    ("varchar(2)", "'ab   '", "ab"),
    ("char(2)", "'ab   '", "ab"),
    ("varchar(10)", "'a' 'b'", "ab"),
    ("varchar(10)", "'a'\n'b' 'c'", "abc"),
    ("varchar(10)", "'it''s'", "it's"),
    ("varchar(10)", '"it\'s"', "it's"),
    ("varchar(10)", r"'a\nb\\c\'d\"'", "a\nb\\c'd\""),
    ("varchar(10)", r"'100\%'", r"100\%"),
    ("varchar(10)", "''", ""),
    ("varchar(10)", "'é😀'", "é😀"),
    ("varchar(10)", "5", "5"),
    ("varchar(10)", "-5", "-5"),
    ("varchar(10)", "1.50", "1.50"),
    ("varchar(10)", ".5", "0.5"),
    ("varchar(10)", "1e3", "1000"),
    ("varchar(10)", "1.5e-1", "0.15"),
    ("varchar(10)", "1e30", UNKNOWN),
    ("varchar(10)", "TRUE", "1"),
    ("varchar(10)", "0x4142", "AB"),
    ("varchar(10)", "x'4142'", "AB"),
    ("varchar(10)", "b'1000001'", "A"),
    ("varchar(10)", "x'e9'", UNKNOWN),
    ("varchar(10)", "_utf8'é'", "é"),
    ("varchar(10)", "_utf8mb4 'a' 'b'", "ab"),
    ("varchar(10)", "_utf8mb4 x'c3a9'", "é"),
    ("varchar(10)", "_latin1 0xE9", "é"),
    ("varchar(10)", "_latin1'abc'", "abc"),
    ("varchar(10)", "_latin1'é'", UNKNOWN),
    ("varchar(10)", "_ucs2 x'00e9'", "é"),
    ("varchar(10)", "N'abc'", "abc"),
    ("varchar(10)", "n'é'", "é"),
    ("varchar(19)", "DATE '2024-1-5'", "2024-01-05"),
    ("varchar(19)", "TIMESTAMP '2024-1-5 3:4:5'", "2024-01-05 03:04:05"),
    ("varchar(19)", "TIME '10:20'", "10:20:00"),
    ("text", "'x '", "x "),
    # bytes
    ("varbinary(4)", "x'00ff'", "\0ÿ"),
    ("varbinary(4)", "0x0AFF", "\nÿ"),
    ("varbinary(4)", "'é'", "Ã©"),
    ("varbinary(4)", "5", "5"),
    ("varbinary(4)", "_binary'ab'", "ab"),
    ("varbinary(4)", "b'1000001'", "A"),
    # labels: "The ENUM Type", "The SET Type"
    (SIZES, "'small'", "small"),
    (SIZES, "'LARGE'", "Large"),
    (SIZES, "'large  '", "Large"),
    (SIZES, "'5'", "5"),
    (SIZES, "0x736d616c6c", "small"),
    (LETTERS, "'b,a'", "a,b"),
    (LETTERS, "'c,A,a'", "a,C"),
    (LETTERS, "''", ""),
    (LETTERS, "'b'", "b"),
    # dates: "Date and Time Literals", "2-Digit Years in Dates"
    ("date", "'2024-01-05'", "2024-01-05"),
    ("date", "'2024-1-5'", "2024-01-05"),
    ("date", "'24-1-5'", "2024-01-05"),
    ("date", "'99-12-31'", "1999-12-31"),
    ("date", "'2024.01.05'", "2024-01-05"),
    ("date", "'2024/1/5'", "2024-01-05"),
    ("date", "'2024@01^05'", "2024-01-05"),
    ("date", "20240105", "2024-01-05"),
    ("date", "'20240105'", "2024-01-05"),
    ("date", "240105", "2024-01-05"),
    ("date", "'240105'", "2024-01-05"),
    ("date", "50105", "2005-01-05"),
    ("date", "700101", "1970-01-01"),
    ("date", "DATE '2024-1-5'", "2024-01-05"),
    ("date", "DATE'20240105'", "2024-01-05"),
    ("date", "TIMESTAMP '2024-01-05 10:00:00'", "2024-01-05"),
    ("date", "'2024-01-05 10:00:00'", "2024-01-05"),
    ("date", "'0000-00-00'", UNKNOWN),
    ("date", "'2024-00-00'", UNKNOWN),
    ("date", "0", UNKNOWN),
    ("datetime", "'2024-01-05'", "2024-01-05 00:00:00"),
    ("datetime", "'2024-01-05 03'", "2024-01-05 03:00:00"),
    ("datetime", "'2024-01-05 03:04'", "2024-01-05 03:04:00"),
    ("datetime", "'2024-01-05 3:4:5'", "2024-01-05 03:04:05"),
    ("datetime", "'2024-01-05T03:04:05'", "2024-01-05 03:04:05"),
    ("datetime", "'2024-01-05  03:04:05'", "2024-01-05 03:04:05"),
    ("datetime", "'2024/01/05 03.04.05'", "2024-01-05 03:04:05"),
    ("datetime", "'20240105030405'", "2024-01-05 03:04:05"),
    ("datetime", "'240105030405'", "2024-01-05 03:04:05"),
    ("datetime", "20240105030405", "2024-01-05 03:04:05"),
    ("datetime", "240105030405", "2024-01-05 03:04:05"),
    ("datetime", "20240105", "2024-01-05 00:00:00"),
    ("datetime", "DATE '2024-01-05'", "2024-01-05 00:00:00"),
    ("datetime", "TIMESTAMP '2024-01-05 03:04'", "2024-01-05 03:04:00"),
    ("datetime(3)", "'2024-01-05 03:04:05.123'", "2024-01-05 03:04:05.123"),
    ("datetime(6)", "'2024-01-05 03:04:05.1'", "2024-01-05 03:04:05.100000"),
    ("datetime(2)", "20240105030405.25", "2024-01-05 03:04:05.25"),
    ("datetime", "'2024-12-31 23:59:59.6'", "2025-01-01 00:00:00"),
    ("datetime(1)", "'2024-01-05 03:04:05.25'", "2024-01-05 03:04:05.3"),
    ("timestamp null", "'2024-01-05 03:04'", "2024-01-05 03:04:00"),
    ("timestamp null", "20240105030405", "2024-01-05 03:04:05"),
    ("timestamp(3) null", "'2024-01-05 03:04:05.5'", "2024-01-05 03:04:05.500"),
    ("timestamp null", "'1970-01-01 23:00:00'", UNKNOWN),  # in which zone?
    ("timestamp null", "'2024-01-05 03:04:05+01:00'", UNKNOWN),
    # the section "The TIME Type"
    ("time", "'10:20'", "10:20:00"),
    ("time", "'10:20:30'", "10:20:30"),
    ("time", "'1:2:3'", "01:02:03"),
    ("time", "102030", "10:20:30"),
    ("time", "'102030'", "10:20:30"),
    ("time", "1112", "00:11:12"),
    ("time", "'1112'", "00:11:12"),
    ("time", "'12'", "00:00:12"),
    ("time", "12", "00:00:12"),
    ("time", "'1 02:03:04'", "26:03:04"),
    ("time", "'1 02:03'", "26:03:00"),
    ("time", "'1 02'", "26:00:00"),
    ("time", "-102030", "-10:20:30"),
    ("time", "'-10:20'", "-10:20:00"),
    ("time", "'838:59:59'", "838:59:59"),
    ("time", "'34 22:59:59'", "838:59:59"),
    ("time", "TIME '10:20:30'", "10:20:30"),
    ("time", "0", "00:00:00"),
    ("time(3)", "'10:20:30.5'", "10:20:30.500"),
    ("time(2)", "102030.25", "10:20:30.25"),
    ("time", "'10:20:30.6'", "10:20:31"),
    ("time", "'2024-01-05 10:20:30'", "10:20:30"),
    # the section "The YEAR Type"
    ("year", "24", "2024"),
    ("year", "'24'", "2024"),
    ("year", "2024", "2024"),
    ("year", "'2024'", "2024"),
    ("year", "70", "1970"),
    ("year", "69", "2069"),
    ("year", "0", "0000"),
    ("year", "'0'", "2000"),
    ("year", "'00'", "2000"),
    ("year", "1901", "1901"),
    ("year", "2155", "2155"),
    # JSON takes defaults in parentheses only
    ("json", "'[]'", "[]"),
    ("json", "'{}'", "{}"),
    ("json", "'null'", "null"),
    ("json", '\'{"b": 1, "a": 2}\'', UNKNOWN),
    ("point", "x'00'", UNKNOWN),
]


def value_of(mysql_type: str, literal: str) -> str | None:
    """Return the value of a column of this type with this default."""
    cursor = TokenCursor(tokenize(literal))
    literal_value = read_literal(cursor)
    assert literal_value is not None
    assert cursor.peek().kind is TokenKind.END
    return convert_default(literal_value, declared(parse_type(mysql_type.removesuffix(" null"))))


@pytest.mark.fast
@pytest.mark.parametrize(("mysql_type", "literal", "expected"), CASES)
def test_the_value_of_a_default(mysql_type: str, literal: str, expected: str | None) -> None:
    assert value_of(mysql_type, literal) == expected


@pytest.mark.fast
@pytest.mark.parametrize(
    ("mysql_type", "literal"),
    [
        ("tinyint", "300"), ("int unsigned", "-1"), ("int", "'abc'"), ("int", "''"), ("decimal(3,1)", "100"),
        ("bit(2)", "b'101'"), ("bit(1)", "'1'"), ("char(2)", "'abc'"), ("varbinary(2)", "'abc'"), (SIZES, "'huge'"),
        (SIZES, "1"), (LETTERS, "'a,z'"), ("date", "'2024-13-01'"), ("date", "'2024-02-30'"), ("date", "'2024'"),
        ("datetime", "'2024-01-05 25:00:00'"), ("time", "'839:00:00'"), ("time", "'10:70'"), ("year", "1900"),
        ("year", "'024'"), ("year", "2156"), ("float", "1e39"), ("double unsigned", "-1"), ("time", "1e3"), ("date", "2e7"),
        ("date", "TIME '10:20'"),
    ],
)  # fmt: skip
def test_a_default_outside_its_type_is_unknown(mysql_type: str, literal: str) -> None:
    assert value_of(mysql_type, literal) is None


@pytest.mark.fast
@pytest.mark.parametrize("text", ["NULL", "CURRENT_TIMESTAMP", "now()", "(uuid())", "-x", "`a`", ""])
def test_what_is_no_literal_is_not_read(text: str) -> None:
    cursor = TokenCursor(tokenize(text))
    assert read_literal(cursor) is None
    assert cursor.at == 0


# Where MariaDB prints another text, truncates where MySQL rounds, or refuses the default (None).
MARIADB: dict[tuple[str, str], str | None] = {
    ("double", "1e300"): "1e300",
    ("varchar(2)", "'ab   '"): None,
    ("datetime", "'2024-12-31 23:59:59.6'"): "2024-12-31 23:59:59",
    ("datetime(1)", "'2024-01-05 03:04:05.25'"): "2024-01-05 03:04:05.2",
    ("time", "'10:20:30.6'"): "10:20:30",
}


def shown(mariadb_server: MariaDB, mysql_type: str, literal: str) -> str | None:
    """Return what an existing row has in a column that is added with this default, as text; None: the server refuses it."""
    base = parse_type(mysql_type.removesuffix(" null")).base
    column = {"bit": "c + 0", "varbinary": "CONVERT(c USING latin1)"}.get(base, "c")
    mariadb_server.run("CREATE OR REPLACE TABLE d.t (id INT) CHARACTER SET utf8mb4", "INSERT INTO d.t VALUES (1)")
    try:
        mariadb_server.run(f"ALTER TABLE d.t ADD COLUMN c {mysql_type} DEFAULT {literal}")
    except pymysql.MySQLError:
        return None
    ((value,),) = mariadb_server.run(f"SELECT CAST({column} AS CHAR) FROM d.t")
    return str(value)


@pytest.mark.extended
def test_a_server_gives_the_same(mariadb_server: MariaDB) -> None:
    mariadb_server.run("CREATE DATABASE d", "SET NAMES utf8mb4", "SET sql_mode = 'STRICT_TRANS_TABLES'")
    cases_with_value = {
        (t, literal): MARIADB.get((t, literal), value) for t, literal, value in CASES if value is not UNKNOWN
    }
    assert {case: shown(mariadb_server, *case) for case in cases_with_value} == cases_with_value


def test_histories_take_every_value(spark: SparkSession) -> None:
    """In the form in which `casting` reads defaults."""
    cases_with_value = [
        (declared(parse_type(t.removesuffix(" null"))), value) for t, _, value in CASES if value is not UNKNOWN
    ]
    typed = [
        decode(F.lit(value), t, "ddl", "UTC", spark_type(t)).isNotNull().alias(f"{n}")
        for n, (t, value) in enumerate(cases_with_value)
    ]
    (row,) = spark.range(1).select(*typed).collect()
    assert [cases_with_value[int(name)] for name, is_value in row.asDict().items() if not is_value] == []
