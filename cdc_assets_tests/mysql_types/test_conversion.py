"""What MySQL makes of existing values under a new type: expected values from the sections of its manual that stand here.

The sections are those of the MySQL 8.4 reference manual. Comments mark the values that are MySQL's own examples.
"""

import itertools
from typing import NamedTuple

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType, TimestampType

from cdc_assets.mysql_types.casting import spark_type
from cdc_assets.mysql_types.conversion import converted
from cdc_assets.mysql_types.descriptors import Family
from cdc_assets.mysql_types.types import MySQLType, parse_type
from cdc_assets_tests.support import frame_of_rows

Values = list[tuple[str | None, str | None]]
"""Old value (bytes as hex, instants in UTC) and new value, as text."""


class Case(NamedTuple):
    section: str
    old: str
    new: str
    values: Values
    zone: str = "UTC"
    of_tidb: bool = True

    @property
    def types(self) -> tuple[MySQLType, MySQLType]:
        return parse_type(self.old), parse_type(self.new)


def typed(text: Column, target: DataType) -> Column:
    if isinstance(target, BinaryType):
        return F.unhex(text)
    return F.concat(text, F.lit(" UTC")).cast(target) if isinstance(target, TimestampType) else text.cast(target)


def as_text(value: Column, target: DataType) -> Column:
    if isinstance(target, BinaryType):
        return F.lower(F.hex(value))
    in_utc = value + F.make_dt_interval(hours=F.lit(7)) if isinstance(target, TimestampType) else value
    return in_utc.cast("string")


def all_converted(spark: SparkSession, cases: list[Case]) -> list[Values]:
    """What becomes of each value of each case, in one job: a column for each case, whose rows are its values."""
    schema = StructType([StructField(f"v{at}", StringType()) for at in range(len(cases))])
    rows = list(itertools.zip_longest(*([old for old, _ in case.values] for case in cases)))
    columns = []
    for at, case in enumerate(cases):
        old, new = case.types
        value = converted(
            typed(F.col(f"v{at}"), spark_type(old)), old, new, spark_type(new), case.zone, of_tidb=case.of_tidb
        )
        assert value is not None, case
        columns.append(as_text(value, spark_type(new)).alias(f"r{at}"))
    frame = frame_of_rows(spark, rows, schema).coalesce(1)
    results = frame.select(*columns).collect()
    return [[(old, results[row][at]) for row, (old, _) in enumerate(case.values)] for at, case in enumerate(cases)]


def unchanged(*texts: str) -> Values:
    return [(text, text) for text in texts]


def refused(*texts: str) -> Values:
    """Values that strict mode refuses, or whose conversion is not known."""
    return [(text, None) for text in texts]


OUT_OF_RANGE = "Out-of-Range and Overflow Handling"
ROUNDING = "Rounding Behavior"
DECIMALS = "DECIMAL Data Type Characteristics"
NUMERIC = "Numeric Type Attributes"
CONVERSION = "Type Conversion in Expression Evaluation"
LITERALS = "Date and Time Literals"
TEMPORAL = "Conversion Between Date and Time Types"
FRACTIONS = "Fractional Seconds in Time Values"
TIME = "The TIME Type"
YEAR = "The YEAR Type"
CHAR = "The CHAR and VARCHAR Types"
BINARY = "The BINARY and VARBINARY Types"
BLOB = "The BLOB and TEXT Types"
ENUM = "The ENUM Type"
SET = "The SET Type"
BIT = "Bit-Value Type - BIT"
JSON = "The JSON Data Type"
ALTER = "ALTER TABLE Statement"

NUMBERS = [
    Case(OUT_OF_RANGE, "bigint", "tinyint", [*unchanged("127", "-128"), *refused("128", "-129"), (None, None)]),
    Case(OUT_OF_RANGE, "int", "int unsigned", [*unchanged("0", "2147483647"), *refused("-1")]),
    Case(
        OUT_OF_RANGE, "bigint unsigned", "bigint", [*unchanged("9223372036854775807"), *refused("9223372036854775808")]
    ),
    Case(OUT_OF_RANGE, "bigint unsigned", "mediumint unsigned", [*unchanged("16777215"), *refused("16777216")]),
    # "round half away from zero"
    Case(
        ROUNDING,
        "decimal(10,1)",
        "int",
        [("2.5", "3"), ("-2.5", "-3"), ("2.4", "2"), ("-0.4", "0"), ("1.5", "2"), ("999999999.9", "1000000000")],
    ),
    Case(ROUNDING, "decimal(12,2)", "decimal(10,0)", [("2.50", "3"), ("-2.50", "-3"), ("2.49", "2")]),
    Case(ROUNDING, "decimal(10,4)", "decimal(6,2)", [("1.0050", "1.01"), ("1.0049", "1.00"), *refused("10000.0000")]),
    Case(
        ROUNDING, "decimal(10,4)", "decimal(6,2) unsigned", [("9999.9949", "9999.99"), *refused("9999.9950", "-1.0000")]
    ),
    Case(ROUNDING, "double", "decimal(10,0)", [("2.5", "3"), ("-2.5", "-3"), ("1e5", "100000"), *refused("1e11")]),
    Case(ROUNDING, "double", "decimal(10,2)", [("0.125", "0.13"), ("-7.1", "-7.10"), ("0", "0.00"), ("1e-7", "0.00")]),
    # Of exact halves the section says "away from zero", and MySQL's code rounds to even: what both agree on is known.
    Case(
        ROUNDING,
        "double",
        "int",
        [
            ("1.5", "2"),
            ("-1.5", "-2"),
            ("2.6", "3"),
            ("-0.4", "0"),
            ("2.4999999999999996", "2"),
            ("1e9", "1000000000"),
            *refused("2.5", "-0.5", "1e10", "-3e9"),
        ],
    ),
    Case(ROUNDING, "float", "decimal(6,1)", [("100.25", "100.3"), ("-0.75", "-0.8"), *refused("1e6")]),
    Case(ROUNDING, "float", "smallint", [("100.25", "100"), ("99.75", "100"), *refused("40000")]),
    Case(DECIMALS, "int", "decimal(5,2)", [("12", "12.00"), ("-999", "-999.00"), *refused("1000")]),
    Case(DECIMALS, "bigint unsigned", "decimal(20,0)", unchanged("18446744073709551615", "0")),
    Case(DECIMALS, "decimal(65,30)", "decimal(65,2)", [("1." + "5" * 30, "1.56"), ("-0." + "0" * 30, "0.00")]),
    Case(
        DECIMALS,
        "decimal(65,2)",
        "decimal(40,10)",
        [("1.25", "1.2500000000"), ("9" * 30 + ".25", "9" * 30 + ".2500000000"), *refused("9" * 31 + ".25")],
    ),
    Case(DECIMALS, "decimal(65,2)", "bigint", [("-12.50", "-13"), *refused("9" * 40 + ".00")]),
    Case(DECIMALS, "int", "decimal(40,1)", [("-7", "-7.0")]),
    # Precision and scale not known: only what the column holds as it is.
    Case(DECIMALS, "int", "decimal", [("-7", "-7"), (None, None)]),
    Case(DECIMALS, "varchar(9)", "decimal", [("7", "7"), *refused("7.5")]),
    Case(
        "Floating-Point Types (Approximate Value)", "bigint", "double", [("9007199254740993", "9.007199254740992E15")]
    ),
    Case("Floating-Point Types (Approximate Value)", "decimal(10,2)", "float", [("0.10", "0.1"), ("-12.50", "-12.5")]),
    Case(
        "Floating-Point Types (Approximate Value)",
        "double",
        "float unsigned",
        [("0.1", "0.1"), ("3.4e38", "3.4E38"), *refused("1e39", "-0.1")],
    ),
    # "if you insert 999.00009 into a FLOAT(7,4) column, the approximate result is 999.0001": which one is not said.
    Case(
        "Floating-Point Types (Approximate Value)",
        "double",
        "float(7,4)",
        [("999.5", "999.5"), *refused("999.00009", "1000")],
    ),
    Case(
        "Floating-Point Types (Approximate Value)", "float", "double", [("0.5", "0.5"), ("-16777216", "-1.6777216E7")]
    ),
    Case(BIT, "bit(8)", "int", [("255", "255"), ("0", "0")]),
    Case(BIT, "bit(64)", "bigint unsigned", unchanged("18446744073709551615")),
    Case(BIT, "bit(64)", "bigint", refused("18446744073709551615")),
    Case(BIT, "int", "bit(4)", [*unchanged("15", "0"), *refused("16", "-1")]),
    Case(BIT, "bit(8)", "bit(4)", [*unchanged("15"), *refused("16")]),
    Case(BIT, "bit(8)", "decimal(5,1)", [("200", "200.0")]),
]

TO_TEXT = [
    Case(CONVERSION, "int", "varchar(5)", [*unchanged("12345", "-1", "0"), *refused("123456")]),
    Case(CONVERSION, "bigint unsigned", "text", unchanged("18446744073709551615")),
    # Its example: 5 in an INT(4) ZEROFILL column is retrieved as 0005.
    Case(NUMERIC, "int(4) zerofill", "varchar(10)", [("5", "0005"), ("12345", "12345")]),
    Case(DECIMALS, "decimal(10,4)", "varchar(20)", [("1.5", "1.5000"), ("-0.5", "-0.5000"), ("0", "0.0000")]),
    Case(DECIMALS, "decimal(30,20)", "text", [("0.00000000000000000001", "0.00000000000000000001")]),
    Case(DECIMALS, "decimal(65,30)", "varchar(70)", unchanged("-1." + "5" * 30)),
    # A FLOAT has about 6 digits, a DOUBLE all that tell it from its neighbours; beyond 15 places with a power of ten.
    Case(
        CONVERSION,
        "double",
        "varchar(40)",
        [
            *unchanged("1e20", "0.1", "-2.5", "0", "100000000000000", "1e15", "0.001", "1.5e300", "-1e-20"),
            ("1e14", "100000000000000"),
            ("1e-15", "0.000000000000001"),
            ("1e-16", "1e-16"),
            ("123456789.125", "123456789.125"),
            ("1234567890123456.7", "1234567890123456.8"),
            ("123456789012345680000", "1.2345678901234568e20"),
            ("0.30000000000000004", "0.30000000000000004"),
            ("5.684341886080802e-14", "0." + "0" * 13 + "5684341886080802"),
            ("1.7976931348623157e308", "1.7976931348623157e308"),
        ],
    ),
    Case(
        CONVERSION,
        "float",
        "varchar(30)",
        [
            ("0.1", "0.1"),
            ("16777216", "16777200"),
            ("3.40282347e38", "3.40282e38"),
            ("1.2345678", "1.23457"),
            ("-1e10", "-10000000000"),
            ("9999995", "10000000"),
            ("1000005", "1000000"),
            ("1e-20", "1e-20"),
        ],
    ),
    Case(
        "Floating-Point Types (Approximate Value)",
        "float(7,4)",
        "varchar(9)",
        [("999.0001", "999.0001"), ("1.5", "1.5000")],
    ),
    Case("The DATE, DATETIME, and TIMESTAMP Types", "date", "varchar(10)", unchanged("2024-02-29", "0999-01-01")),
    Case(
        "The DATE, DATETIME, and TIMESTAMP Types",
        "datetime",
        "varchar(19)",
        # A fraction shows that the type came without its digits.
        [*unchanged("2024-02-29 23:59:59"), *refused("2024-02-29 23:59:59.5")],
    ),
    Case(
        "The DATE, DATETIME, and TIMESTAMP Types",
        "datetime(3)",
        "varchar(30)",
        [("2024-02-29 00:00:00", "2024-02-29 00:00:00.000"), ("2024-02-29 00:00:00.12", "2024-02-29 00:00:00.120")],
    ),
    Case("The DATE, DATETIME, and TIMESTAMP Types", "datetime", "varchar(18)", refused("2024-02-29 23:59:59")),
    Case(
        "The DATE, DATETIME, and TIMESTAMP Types",
        "timestamp(6)",
        "text",
        [("2024-06-01 00:00:00", "2024-06-01 09:00:00.000000")],
        "Asia/Tokyo",
    ),
    Case(
        "The DATE, DATETIME, and TIMESTAMP Types",
        "timestamp",
        "char(19)",
        [("2024-10-27 00:30:00", "2024-10-27 02:30:00"), ("2024-10-27 01:30:00", "2024-10-27 02:30:00")],
        "Europe/Berlin",
    ),
    Case(TIME, "time", "varchar(10)", unchanged("-838:59:59", "08:03:02")),
    Case(TIME, "time(2)", "varchar(20)", [("08:03:02.5", "08:03:02.50"), ("-08:03:02", "-08:03:02.00")]),
    Case(YEAR, "year", "char(4)", [("2024", "2024"), ("0", "0000")]),
    Case(ENUM, "enum('red','Green')", "varchar(10)", unchanged("red", "Green", "")),
    Case(SET, "set('a','b')", "varchar(10)", unchanged("a,b", "")),
    Case(JSON, "json", "text", unchanged('{"a": [1, null]}', '"x"')),
    Case(CHAR, "varchar(10)", "varchar(4)", [*unchanged("abcd", "日本語é", ""), ("abc   ", "abc "), *refused("abcde")]),
    Case(CHAR, "varchar(10)", "char(4)", [("ab  ", "ab"), ("abcd ", "abcd"), ("  ab", "  ab"), *refused("abcde")]),
    Case(CHAR, "char(4)", "varchar(10)", unchanged("abcd")),
    Case(BLOB, "longtext", "tinytext", [*unchanged("x" * 255), *refused("x" * 256, "é" * 128)]),
    Case(BLOB, "varchar(300)", "mediumtext", unchanged("x" * 256)),
]

TO_BINARY = [
    Case(ALTER, "varchar(10)", "varbinary(4)", [("aé", "61c3a9"), ("", ""), *refused("ééé")]),
    Case(BINARY, "varchar(10)", "binary(4)", [("a", "61000000"), ("abcd", "61626364"), *refused("abcde")]),
    Case(BINARY, "varbinary(10)", "binary(4)", [("61", "61000000"), *refused("6162636465")]),
    Case(BINARY, "binary(2)", "varbinary(4)", [("6100", "6100")]),
    Case(BLOB, "longblob", "tinyblob", [("ff" * 255, "ff" * 255), *refused("ff" * 256)]),
    Case(ALTER, "varbinary(10)", "varchar(10)", [("61c3a9", "aé"), *refused("ff", "61c3")]),
    Case(ALTER, "blob", "char(2)", [("61c3a920", "aé"), *refused("616263")]),
    Case(CONVERSION, "int", "binary(4)", [("-12", "2d313200")]),
    Case(CONVERSION, "date", "varbinary(10)", [("2024-02-29", "323032342d30322d3239")]),
    Case(CONVERSION, "enum('é')", "blob", [("é", "c3a9")]),
]

FROM_TEXT = [
    # Strict mode refuses a text that is not one number; it ignores blanks around the number.
    Case(
        CONVERSION,
        "varchar(500)",
        "int",
        [
            ("42", "42"),
            (" -42 ", "-42"),
            ("+7", "7"),
            ("0012", "12"),
            ("1e3", "1000"),
            ("2.5", "3"),
            ("-2.5", "-3"),
            ("0." + "4" + "9" * 60, "0"),
            (".5", "1"),
            ("5.", "5"),
            ("1e-999", "0"),
            *refused(
                "", " ", "12abc", "abc", "1 2", "0x1F", "NaN", "2147483648", "1e", "1e999", "1e999999999", "٣", "1\n"
            ),
        ],
    ),
    Case(CONVERSION, "text", "bigint unsigned", [("18446744073709551615", "18446744073709551615"), *refused("-1")]),
    Case(
        CONVERSION,
        "varchar(80)",
        "decimal(6,2)",
        [
            ("1.005", "1.01"),
            ("-1.005", "-1.01"),
            ("1e2", "100.00"),
            (".5", "0.50"),
            ("12", "12.00"),
            *refused("1,5", "9999.995", "1e4", "x"),
        ],
    ),
    Case(CONVERSION, "text", "decimal(65,30)", [("1.5", "1.5" + "0" * 29), *refused("9" * 36)]),
    Case(
        CONVERSION,
        "varchar(400)",
        "double",
        [("1.5", "1.5"), ("-1e20", "-1.0E20"), (" 7 ", "7.0"), *refused("1e400", "1d", "Infinity", "")],
    ),
    Case(CONVERSION, "varchar(20)", "float", [("0.1", "0.1"), *refused("1e39")]),
    # '20070523' and '070523' are MySQL's examples, '071332' its example of what makes no sense, '10:11:12' that of a trap.
    Case(
        LITERALS,
        "varchar(40)",
        "date",
        [
            (text, "2012-12-31")
            for text in ("2012-12-31", "2012/12/31", "2012^12^31", "2012@12@31", "12.12.31", "121231")
        ]
        + [("20070523", "2007-05-23"), ("070523", "2007-05-23"), ("10:11:12", "2010-11-12")]
        + [("2015-6-9", "2015-06-09"), (" 2015-06-09 ", "2015-06-09"), ("2015-06-09 01:02:03", "2015-06-09")]
        + [("69-01-01", "2069-01-01"), ("70-01-01", "1970-01-01"), ("99-01-01", "1999-01-01")]
        + refused("071332", "2023-02-29", "0000-00-00", "2023-00-00", "2023-13-01", "", "x", "2023", "1-1-1", "2023-01")
        + refused("20230101x", "2023-01-01 25:00:00"),
    ),
    # '20070523091528' and '070523091528' are MySQL's examples, and '2015-10-30 1:2:3'.
    Case(
        LITERALS,
        "varchar(40)",
        "datetime",
        [
            ("20070523091528", "2007-05-23 09:15:28"),
            ("070523091528", "2007-05-23 09:15:28"),
            ("2012^12^31 11+30+45", "2012-12-31 11:30:45"),
            ("2012/12/31 11*30*45", "2012-12-31 11:30:45"),
            ("2015-10-30 1:2:3", "2015-10-30 01:02:03"),
            ("2012-12-31T11:30:45", "2012-12-31 11:30:45"),
            ("2012-12-31", "2012-12-31 00:00:00"),
            ("20121231", "2012-12-31 00:00:00"),
            ("2012-12-31 23:59:59.5", "2013-01-01 00:00:00"),
            ("2012-12-31 23:59:59.499999", "2012-12-31 23:59:59"),
            *refused("071122129015", "2012-12-31 24:00:00", "9999-12-31 23:59:59.5", "0000-00-00 00:00:00", "x"),
            *refused("2012-12-31 11:30:45+02:00", "2012-12-31 11:30:45 x"),
        ],
    ),
    Case(LITERALS, "varchar(40)", "datetime(2)", [("2018-09-08 17:51:04.777", "2018-09-08 17:51:04.78")]),
    Case(
        LITERALS,
        "varchar(40)",
        "timestamp",
        [
            ("2024-06-01 09:00:00", "2024-06-01 00:00:00"),
            ("2024-06-01", "2024-05-31 15:00:00"),
            *refused("1970-01-01 09:00:00", "2038-01-19 12:14:08"),
        ],
        "Asia/Tokyo",
    ),
    # All but the refused are forms, and mostly examples, of the two sections.
    Case(
        f"{LITERALS}, {TIME}",
        "varchar(40)",
        "time",
        [
            ("11:12", "11:12:00"),
            ("1112", "00:11:12"),
            ("12", "00:00:12"),
            ("101112", "10:11:12"),
            ("8:3:2", "08:03:02"),
            ("1 02:03:04", "26:03:04"),
            ("1 2:03", "26:03:00"),
            ("34 22", "838:00:00"),
            ("-1:00:00", "-01:00:00"),
            ("838:59:59", "838:59:59"),
            ("10:11:12.5", "10:11:13"),
            ("-10:11:12.5", "-10:11:13"),
            ("8385959", "838:59:59"),
            *refused("109712", "10:61:00", "839:00:00", "838:59:59.5", "", "x", "10-11-12", "12345678"),
        ],
    ),
    Case(
        YEAR,
        "varchar(10)",
        "year",
        [
            ("1901", "1901"),
            ("2155", "2155"),
            ("0", "2000"),
            ("00", "2000"),
            ("69", "2069"),
            ("70", "1970"),
            ("7", "2007"),
            ("0000", "0"),
            *refused("1900", "2156", "100", "", "x", "-1"),
        ],
    ),
    # Its example: ENUM('0','1','2') makes of '2' the label, of '3' the third label.
    Case(
        ENUM,
        "varchar(10)",
        "enum('0','1','2')",
        [("2", "2"), ("0", "0"), ("3", "2"), *refused("4", "x", "")],
    ),
    Case(
        f"{ENUM}; Case Sensitivity in String Searches",
        "varchar(10)",
        "enum('Red','blue','É')",
        [("Red", "Red"), ("RED", "Red"), ("BLUE", "blue"), ("é", "É"), ("red ", "Red"), *refused("gree", "red,blue")],
    ),
    Case(f"{ENUM}; Case Sensitivity in String Searches", "text", "enum('a','A')", unchanged("a", "A")),
    # Its examples: 'd,a,d' and the like become 'a,d'.
    Case(
        SET,
        "varchar(20)",
        "set('a','b','c','d')",
        [("a,d", "a,d"), ("d,a", "a,d"), ("a,d,a,d,d", "a,d"), ("D,A", "a,d"), ("", ""), *refused("a,d,x", "x", "a,")],
    ),
    # Numbers are printed as JSON prints them, an object's members are ordered: only what cannot change is known.
    Case(
        JSON,
        "text",
        "json",
        [
            *unchanged("1", "-12", "true", "null", '"é x"', "[]", "{}"),
            (' "x"\n', '"x"'),
            *refused("", "x", "1.50", "[1,2]", '{"b":1,"a":2}', '"\\u0041"', "01", "-0", "TRUE"),
        ],
    ),
    Case(JSON, "int", "json", unchanged("5", "-5")),
    Case(JSON, "json", "int", [("5", "5"), *refused('"5"', "true", "[5]", "1.5")]),
    Case(JSON, "json", "double", [("1.5", "1.5"), *refused("null", "{}")]),
    Case(JSON, "json", "json", unchanged('{"a": 1}')),
]

DATES = [
    Case(TEMPORAL, "date", "datetime(3)", [("2024-02-29", "2024-02-29 00:00:00")]),
    Case(TEMPORAL, "date", "timestamp", [("2024-02-29", "2024-02-28 15:00:00"), *refused("1968-01-01")], "Asia/Tokyo"),
    Case(TEMPORAL, "date", "time", [("2024-02-29", "00:00:00"), (None, None)]),
    # Its example.
    Case(
        TEMPORAL,
        "datetime(3)",
        "date",
        [("1999-12-31 23:59:59.499", "1999-12-31"), ("1999-12-31 23:59:59.500", "2000-01-01")],
    ),
    Case(TEMPORAL, "datetime", "date", [("1999-12-31 23:59:59", "1999-12-31")]),
    Case(TEMPORAL, "timestamp", "date", [("1999-12-31 15:00:00", "2000-01-01")], "Asia/Tokyo"),
    Case(
        TEMPORAL,
        "datetime(6)",
        "time(1)",
        [("2012-01-01 10:11:12.25", "10:11:12.3"), *refused("2012-01-01 23:59:59.95")],
    ),
    Case(TEMPORAL, "timestamp", "time", [("2012-01-01 23:00:00", "08:00:00")], "Asia/Tokyo"),
    # MySQL's examples: 17:51:04.777 with two digits.
    Case(FRACTIONS, "datetime(3)", "datetime(2)", [("2018-09-08 17:51:04.777", "2018-09-08 17:51:04.78")]),
    Case(FRACTIONS, "timestamp(3)", "timestamp(2)", [("2018-09-08 17:51:04.777", "2018-09-08 17:51:04.78")], "+05:30"),
    Case(FRACTIONS, "time(3)", "time(2)", [("17:51:04.777", "17:51:04.78"), ("-17:51:04.777", "-17:51:04.78")]),
    Case(
        FRACTIONS,
        "datetime(6)",
        "datetime",
        [
            ("2024-12-31 23:59:59.5", "2025-01-01 00:00:00"),
            ("2024-12-31 23:59:59.499999", "2024-12-31 23:59:59"),
            *refused("9999-12-31 23:59:59.5"),
        ],
    ),
    Case(FRACTIONS, "datetime", "datetime(3)", [("2024-12-31 23:59:59", "2024-12-31 23:59:59")]),
    # Types without their fractional digits: it is not known to which digits MySQL rounds.
    Case(FRACTIONS, "datetime", "datetime", [*unchanged("2024-12-31 23:59:59"), *refused("2024-12-31 23:59:59.5")]),
    Case(
        FRACTIONS, "time(6)", "time", [("23:59:59.5", "24:00:00"), ("-00:00:00.4", "00:00:00"), *refused("838:59:59.5")]
    ),
    # "Converts from the current time zone to UTC": an hour that a clock change leaves out is refused, of two the first.
    Case(
        "The DATE, DATETIME, and TIMESTAMP Types",
        "datetime",
        "timestamp",
        [
            ("2024-07-01 02:30:00", "2024-07-01 00:30:00"),
            ("2024-10-27 02:30:00", "2024-10-27 00:30:00"),
            *refused("2024-03-31 02:30:00", "1969-12-31 23:59:59"),
        ],
        "Europe/Berlin",
    ),
    Case(
        "The DATE, DATETIME, and TIMESTAMP Types",
        "timestamp(3)",
        "datetime(3)",
        [("2024-07-01 00:30:00.5", "2024-07-01 02:30:00.5"), ("2024-01-01 00:30:00.5", "2024-01-01 01:30:00.5")],
        "Europe/Berlin",
    ),
    # 19830905132800, 830905132800 and 19830905, 830905 are MySQL's examples.
    Case(
        LITERALS,
        "bigint",
        "datetime",
        [("19830905132800", "1983-09-05 13:28:00"), ("830905132800", "1983-09-05 13:28:00")],
    ),
    Case(
        LITERALS, "int", "date", [("19830905", "1983-09-05"), ("830905", "1983-09-05"), *refused("0", "19831305", "-1")]
    ),
    Case(LITERALS, "decimal(14,0)", "timestamp", [("20240601000000", "2024-06-01 00:00:00")]),
    Case(
        LITERALS, "int", "time", [("101112", "10:11:12"), ("1112", "00:11:12"), ("-12", "-00:00:12"), *refused("6060")]
    ),
    # DATETIME(N) is an integer, or with N digits a decimal: its examples are NOW() + 0 and NOW(6) + 0.
    Case(TEMPORAL, "datetime", "bigint", [("2012-08-15 08:50:48", "20120815085048")]),
    Case(
        TEMPORAL,
        "datetime(6)",
        "decimal(20,6)",
        [("2012-08-15 08:50:48.123456", "20120815085048.123456"), ("2012-08-15 08:50:48", "20120815085048.000000")],
    ),
    Case(
        TEMPORAL,
        "datetime(6)",
        "bigint",
        [("2012-08-15 08:50:48.5", "20120815085049"), *refused("2012-08-15 08:50:59.5")],
    ),
    Case(TEMPORAL, "datetime", "int", refused("2012-08-15 08:50:48")),
    Case(TEMPORAL, "timestamp", "bigint", [("2012-08-14 23:50:48", "20120815085048")], "Asia/Tokyo"),
    Case(TEMPORAL, "date", "int", [("2012-08-15", "20120815")]),
    Case(TEMPORAL, "date", "double", [("2012-08-15", "2.0120815E7")]),
    Case(TEMPORAL, "time", "int", [("09:05:48", "90548"), ("-838:59:59", "-8385959"), ("00:00:00", "0")]),
    Case(TEMPORAL, "time(6)", "decimal(12,6)", [("09:05:48.5", "90548.500000")]),
    Case(YEAR, "year", "int", [("2024", "2024"), ("0", "0")]),
    Case(
        YEAR,
        "int",
        "year",
        [("2024", "2024"), ("0", "0"), ("1", "2001"), ("69", "2069"), ("70", "1970"), *refused("1900")],
    ),
    Case(YEAR, "decimal(6,1)", "year", [("2024.0", "2024"), *refused("2024.5", "-1.0")]),
]

MANY = ",".join(f"'e{n}'" for n in range(64))
LABELS = [
    Case(ENUM, "enum('a','b','c')", "enum('c','B')", [("c", "c"), ("b", "B"), ("", ""), *refused("a")]),
    # Its table: NULL, '', 'Mercury', 'Venus', 'Earth' have the indexes NULL, 0, 1, 2, 3.
    Case(ENUM, "enum('Mercury','Venus','Earth')", "int", [("", "0"), ("Mercury", "1"), ("Earth", "3"), (None, None)]),
    Case(ENUM, "enum('a','b')", "decimal(3,1)", [("b", "2.0")]),
    Case(ENUM, "enum('a','')", "int", [("a", "1"), *refused("")]),
    Case(ENUM, "int", "enum('a','b')", [("1", "a"), ("2", "b"), *refused("3", "0", "-1")]),
    # A number is an index, as text it is a label.
    Case(ENUM, "tinyint", "enum('0','1')", refused("0", "1")),
    Case(ENUM, "enum('a','b')", "set('b','a')", unchanged("a", "b", "")),
    Case(SET, "set('a','b')", "enum('b')", [("b", "b"), *refused("a,b", "")]),
    Case(SET, "set('a','b','c')", "set('C','b')", [("b,c", "C,b"), ("", ""), *refused("a,b")]),
    # Its table: 'a','b','c','d' have the values 1, 2, 4, 8; 9 is 'a,d'.
    Case(SET, "set('a','b','c','d')", "int", [("a", "1"), ("a,d", "9"), ("", "0")]),
    Case(SET, "int", "set('a','b','c','d')", [("9", "a,d"), ("0", ""), *refused("16", "-1")]),
    Case(SET, f"set({MANY})", "bigint unsigned", [("e0,e63", str(2**63 + 1)), ("e63", str(2**63))]),
    Case(ALTER, "point", "geometry", [("00000000" + "01" * 21, "00000000" + "01" * 21)]),
]

# What a server (MariaDB 10.11) gave back after these statements: recorded/mysql/truth/ddl.events.jsonl, sequence 71 to 84.
RECORDED = [
    Case("recorded", "double", "varchar(30)", unchanged("92.338")),
    Case("recorded", "enum('in','out')", "enum('out','in','lost')", unchanged("out", "in")),
]

# MySQL rounds where MariaDB's manual ("Microseconds in MariaDB") says that it cuts off.
FRACTIONS_CUT = "Microseconds in MariaDB"
NOT_TIDB = [
    case._replace(of_tidb=False)
    for case in (
        Case(FRACTIONS_CUT, "datetime(3)", "datetime", [("2024-01-05 03:04:05.499", "2024-01-05 03:04:05")]),
        Case(FRACTIONS_CUT, "datetime(6)", "datetime(3)", refused("2024-01-05 03:04:05.678500")),
        Case(FRACTIONS_CUT, "timestamp(3)", "timestamp", refused("2024-01-05 03:04:05.5")),
        Case(FRACTIONS_CUT, "datetime(3)", "date", [("2024-01-05 23:59:58.9", "2024-01-05")]),
        Case(FRACTIONS_CUT, "datetime(3)", "date", refused("2024-01-05 23:59:59.5")),
        Case(FRACTIONS_CUT, "datetime(3)", "time", refused("2024-01-05 03:04:05.5")),
        Case(FRACTIONS_CUT, "time(3)", "time", [("-03:04:05.499", "-03:04:05"), *refused("-03:04:05.500")]),
        Case(FRACTIONS_CUT, "time(3)", "int", [("03:04:05.4", "30405"), *refused("03:04:05.5")]),
        Case(FRACTIONS_CUT, "decimal(10,4)", "time(3)", [("12.3454", "00:00:12.345"), *refused("12.3456")]),
        Case(CHAR, "varchar(9)", "varbinary(9)", [("ab", "6162"), *refused("é")]),
        Case(CONVERSION, "varchar(9)", "int", [(" 12 ", "12"), *refused("12.6", "1e2")]),
    )
]

CASES = [*NUMBERS, *TO_TEXT, *TO_BINARY, *FROM_TEXT, *DATES, *LABELS, *RECORDED, *NOT_TIDB]


@pytest.fixture(scope="module")
def elsewhere(spark: SparkSession) -> SparkSession:
    """A session of another zone: nothing may depend on it."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "-07:00")
    return session


@pytest.fixture(scope="module")
def results(elsewhere: SparkSession) -> list[Values]:
    return all_converted(elsewhere, CASES)


@pytest.mark.parametrize("at", range(len(CASES)), ids=[f"{c.old} to {c.new}, {c.section}" for c in CASES])
def test_existing_values_are_converted_as_the_manual_says(results: list[Values], at: int) -> None:
    assert results[at] == CASES[at].values


UNKNOWN = [
    ("bit(8)", "varchar(8)"),
    ("varchar(8)", "bit(8)"),
    ("time", "datetime"),
    ("time", "timestamp"),
    ("time", "date"),
    ("date", "year"),
    ("year", "date"),
    ("double", "date"),
    ("blob", "int"),
    ("blob", "json"),
    ("json", "date"),
    ("decimal(5,2)", "json"),
    ("enum", "varchar(10)"),
    ("enum('a')", "enum"),
    ("set", "int"),
    ("decimal", "text"),
    ("int zerofill", "text"),
    ("int(4) zerofill", "date"),
    ("decimal(5,2) zerofill", "text"),
    ("geometry", "point"),
    ("geometry", "blob"),
]


@pytest.mark.parametrize(("old", "new"), UNKNOWN)
def test_conversions_without_a_rule_in_the_manual_are_unknown(spark: SparkSession, old: str, new: str) -> None:
    was, becomes = parse_type(old), parse_type(new)
    assert converted(F.lit(None).cast(spark_type(was)), was, becomes, spark_type(becomes), "UTC", of_tidb=True) is None


# One type, and values that are hard to read, for every family.
HOSTILE: dict[Family, tuple[str, list[str | None]]] = {
    Family.INTEGER: ("bigint", ["0", "-9223372036854775808", "9223372036854775807", "99999999"]),
    Family.DECIMAL: ("decimal(38,10)", ["-9999999999999999999999999999.9999999999", "0"]),
    Family.FLOAT: ("double", ["NaN", "Infinity", "-0.0", "4.9e-324", "1.7976931348623157e308"]),
    Family.BIT: ("bit(64)", ["18446744073709551615", "0"]),
    Family.TEXT: ("text", ["", "-", ";", "null", "9" * 500, "1e-999999999", "99:99", "0-0-0", "-;;;;;", "\0\ud7ff"]),
    Family.BINARY: ("blob", ["", "ff", "00"]),
    Family.ENUM: ("enum('a','é')", ["", "b"]),
    Family.SET: ("set('a','é')", ["", "b", ",", "a,b"]),
    Family.DATE: ("date", ["0001-01-01", "9999-12-31"]),
    Family.DATETIME: ("datetime(6)", ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"]),
    Family.TIMESTAMP: ("timestamp(6)", ["1970-01-01 00:00:01", "2038-01-19 03:14:07.999999"]),
    Family.TIME: ("time(6)", ["-838:59:59", "", "x", "999999999999:00:00"]),
    Family.YEAR: ("year", ["0", "2155"]),
    Family.JSON: ("json", ["", "null", "[" * 100, '"', "1e400"]),
    Family.SPATIAL: ("geometry", ["", "00"]),
}
NARROW = {
    Family.INTEGER: "tinyint unsigned",
    Family.DECIMAL: "decimal(2,1)",
    Family.FLOAT: "float(3,1) unsigned",
    Family.BIT: "bit(1)",
    Family.TEXT: "char(1)",
    Family.BINARY: "binary(1)",
}


def test_no_value_fails_and_null_stays_null(elsewhere: SparkSession) -> None:
    height = max(len(texts) for _, texts in HOSTILE.values()) + 1
    columns = [[*texts, *[None] * (height - len(texts))] for _, texts in HOSTILE.values()]
    schema = StructType([StructField(family.value, StringType()) for family in HOSTILE])
    frame = frame_of_rows(elsewhere, list(zip(*columns, strict=True)), schema).coalesce(1)
    conversions = []
    for (family, (text, _)), (other, (wide, _)) in itertools.product(HOSTILE.items(), repeat=2):
        was, becomes = parse_type(text), parse_type(NARROW.get(other, wide))
        value = typed(F.col(family.value), spark_type(was))
        new = converted(value, was, becomes, spark_type(becomes), "Europe/Berlin", of_tidb=True)
        if new is not None:
            conversions.append(new.alias(f"{was} to {becomes}"))
    assert len(conversions) > 100
    last = frame.select(*conversions).collect()[-1].asDict()
    assert {pair: value for pair, value in last.items() if value is not None} == {}
