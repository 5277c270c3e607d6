"""Type text: expected values from the MySQL 8.4 manual (data types, synonyms) and from recorded `mysqlType` fields."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.mysql_types.types import MySQLType, UnknownType, declared, parse_type

pytestmark = pytest.mark.fast

CASES = {
    # TiCDC's default: no parameters
    "decimal": MySQLType("decimal"),
    "bigint unsigned": MySQLType("bigint", unsigned=True),
    "int unsigned zerofill": MySQLType("int", unsigned=True, zerofill=True),
    "float unsigned": MySQLType("float", unsigned=True),
    "enum": MySQLType("enum"),
    "set": MySQLType("set"),
    "bit": MySQLType("bit"),
    "year": MySQLType("year"),
    # content-compatible, SHOW CREATE TABLE, users
    "int(8) unsigned zerofill": MySQLType("int", 8, None, unsigned=True, zerofill=True),
    "INT(10) ZEROFILL": MySQLType("int", 10, None, unsigned=True, zerofill=True),
    "decimal(10, 4)": MySQLType("decimal", 10, 4),
    "decimal(65,30)": MySQLType("decimal", 65, 30),
    "DECIMAL(12,2) UNSIGNED": MySQLType("decimal", 12, 2, unsigned=True),
    "decimal(5)": MySQLType("decimal", 5, 0),
    "double(15,4)": MySQLType("double", 15, 4),
    "float(7,2)": MySQLType("float", 7, 2),
    "float(24)": MySQLType("float"),
    "float(25)": MySQLType("double"),
    "year(4)": MySQLType("year", 4),
    "datetime(6)": MySQLType("datetime", 6),
    "TIMESTAMP ( 3 )": MySQLType("timestamp", 3),
    "time(1)": MySQLType("time", 1),
    "bit(64)": MySQLType("bit", 64),
    "  VarChar(255)  ": MySQLType("varchar", 255),
    "char(20) character set utf8mb4 collate utf8mb4_bin": MySQLType("char", 20),
    "varchar(10) charset latin1 binary": MySQLType("varchar", 10),
    "char(4) character set binary": MySQLType("binary", 4),
    "text collate binary": MySQLType("text"),
    "bigint(20) signed": MySQLType("bigint", 20),
    "int /*!50000 unsigned */": MySQLType("int", unsigned=True),
    "int /* unsigned */": MySQLType("int"),
    "json": MySQLType("json"),
    "point": MySQLType("point"),
    "geometrycollection": MySQLType("geometrycollection"),
    # synonyms
    "bool": MySQLType("tinyint", 1),
    "BOOLEAN": MySQLType("tinyint", 1),
    "integer": MySQLType("int"),
    "int1": MySQLType("tinyint"),
    "int2": MySQLType("smallint"),
    "int3": MySQLType("mediumint"),
    "middleint": MySQLType("mediumint"),
    "int4": MySQLType("int"),
    "int8": MySQLType("bigint"),
    "serial": MySQLType("bigint", unsigned=True),
    "dec(6,1)": MySQLType("decimal", 6, 1),
    "numeric(6,1)": MySQLType("decimal", 6, 1),
    "fixed": MySQLType("decimal"),
    "real": MySQLType("double"),
    "float4": MySQLType("float"),
    "float8": MySQLType("double"),
    "double precision unsigned": MySQLType("double", unsigned=True),
    "character(3)": MySQLType("char", 3),
    "character varying(3)": MySQLType("varchar", 3),
    "nvarchar(3)": MySQLType("varchar", 3),
    "nchar(3)": MySQLType("char", 3),
    "national char(3)": MySQLType("char", 3),
    "national varchar(3)": MySQLType("varchar", 3),
    "national character varying(3)": MySQLType("varchar", 3),
    "char byte": MySQLType("binary"),
    "char(5) byte": MySQLType("binary", 5),
    "long": MySQLType("mediumtext"),
    "long varchar": MySQLType("mediumtext"),
    "long varbinary": MySQLType("mediumblob"),
    # labels
    "enum('red','green','b''lue','日本,x','with space')": MySQLType(
        "enum", labels=("red", "green", "b'lue", "日本,x", "with space")
    ),
    "ENUM('a)','(b', '')": MySQLType("enum", labels=("a)", "(b", "")),
    r"enum('it\'s','a\\b','tab\t','nul\0','p\%')": MySQLType("enum", labels=("it's", "a\\b", "tab\t", "nul\0", "p\\%")),
    "enum('trailing  ',' leading')": MySQLType("enum", labels=("trailing", " leading")),
    "set('a','b','c','d é')": MySQLType("set", labels=("a", "b", "c", "d é")),
    "enum('😀','\"','`')": MySQLType("enum", labels=("😀", '"', "`")),
    "enum('x') character set latin1": MySQLType("enum", labels=("x",)),
    "enum('unsigned','/* no comment */','-- nor this')": MySQLType(
        "enum", labels=("unsigned", "/* no comment */", "-- nor this")
    ),
}


@pytest.mark.parametrize("text", CASES)
def test_each_spelling_is_read(text: str) -> None:
    assert parse_type(text) == CASES[text]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "foo",
        "int int",
        "int(",
        "int(x)",
        "varchar(10) foo",
        "varchar unsigned",
        "`int`",
        "enum('a'",
        "enum(1)",
        "decimal(10,4",
        "'int'",
        "int; drop table t",
        "decimal(10,4,2)",
        "enum('a',)",
    ],
)
def test_a_text_that_is_not_a_type_is_refused(text: str) -> None:
    with pytest.raises(UnknownType):
        parse_type(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("INTEGER(10)   UNSIGNED", "int(10) unsigned"),
        ("Decimal( 10 , 4 )", "decimal(10,4)"),
        ("int zerofill", "int unsigned zerofill"),
        (r"SET('a\'b','c\\d')", r"set('a''b','c\\d')"),
    ],
)
def test_types_have_one_canonical_text(text: str, canonical: str) -> None:
    assert str(parse_type(text)) == canonical


@pytest.mark.parametrize(
    ("text", "as_declared"),
    [
        ("char", "char(1)"),
        ("binary", "binary(1)"),
        ("bit", "bit(1)"),
        ("decimal", "decimal(10,0)"),
        ("dec(4)", "decimal(4,0)"),
        ("varchar(5)", "varchar(5)"),
        ("int", "int"),
        ("datetime", "datetime"),
    ],
)
def test_lengths_that_mysql_takes_when_none_is_given(text: str, as_declared: str) -> None:
    assert str(declared(parse_type(text))) == as_declared


# MySQL removes trailing blanks of labels, so they are not kept. Surrogates are no text.
LABELS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12).map(lambda label: label.rstrip(" ")),
    min_size=1,
    max_size=5,
).map(tuple)
TYPES = st.one_of(
    st.builds(
        MySQLType,
        st.sampled_from(["tinyint", "smallint", "mediumint", "int", "bigint"]),
        st.none() | st.integers(1, 255),
        st.none(),
        st.booleans(),
    ),
    st.builds(MySQLType, st.sampled_from(["decimal", "double", "float"]), st.integers(31, 65), st.integers(0, 30)),
    st.builds(
        MySQLType,
        st.sampled_from(["char", "varchar", "binary", "varbinary"]),
        st.none() | st.integers(0, 65535),
    ),
    st.builds(MySQLType, st.just("bit"), st.none() | st.integers(1, 64)),
    st.builds(MySQLType, st.sampled_from(["time", "datetime", "timestamp"]), st.none() | st.integers(0, 6)),
    st.builds(MySQLType, st.sampled_from(["enum", "set"]), labels=st.none() | LABELS),
)


@given(TYPES)
def test_canonical_text_reads_back(mysql_type: MySQLType) -> None:
    assert parse_type(str(mysql_type)) == mysql_type


@pytest.mark.parametrize(
    "text",
    [
        "bit(65)",
        "decimal(66,0)",
        "decimal(40,31)",
        "decimal(8,22)",
        "datetime(7)",
        f"varchar({'9' * 5000})",
        f"set({','.join(map(repr, map(str, range(65))))})",
    ],
)
def test_impossible_parameters_are_refused(text: str) -> None:
    with pytest.raises(UnknownType, match="is more than"):
        parse_type(text)


@given(st.text())
def test_any_text_is_a_type_or_refused(text: str) -> None:
    with contextlib.suppress(UnknownType):
        parse_type(text)
