"""The types in Simple's table schemas: as the recorded tables declare them, and as the document names them."""

import json
from typing import Any

import pytest

from cdc_assets.mysql_types.types import parse_type
from cdc_assets.protocols.simple.wire_types import type_text
from cdc_assets_tests.support import RECORDED, bytes_of, read_lines

TICDC = RECORDED / "ticdc"

# The column mysqlType of the document's section "mysqlType reference table".
REFERENCE = [
    "tinyint", "tinyint unsigned", "smallint", "smallint unsigned", "mediumint", "mediumint unsigned", "int",
    "int unsigned", "bigint", "bigint unsigned", "float", "double", "decimal", "varchar", "char", "varbinary", "binary",
    "tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob", "date", "datetime",
    "timestamp", "time", "year", "enum", "set", "bit", "json", "bool",
]  # fmt: skip


@pytest.mark.parametrize("name", REFERENCE)
def test_every_name_of_the_reference_table_is_a_type(name: str) -> None:
    read = parse_type(type_text({"mysqlType": name, "charset": "binary", "collate": "binary", "length": 0}))
    assert (read.base, read.unsigned) == (
        "tinyint" if name == "bool" else name.split(maxsplit=1)[0],
        "unsigned" in name,
    )


@pytest.mark.parametrize("scenario", ["types", "tz", "orders", "nopk", "nokey", "large"])
def test_columns_have_the_types_that_they_were_declared_with(scenario: str) -> None:
    """The recorded schemas are compared with the CREATE TABLE statements."""
    declared = {
        (shape["table"], column["name"]): parse_type(column["type"])
        for shape in read_lines(TICDC / "truth" / f"{scenario}.tables")
        for column in shape["columns"]
    }
    messages = [json.loads(bytes_of(line)) for line in read_lines(TICDC / "simple-json" / scenario)]
    schemas = [m["tableSchema"] for m in messages if "tableSchema" in m]
    compared = 0
    for table in schemas:
        for column in table["columns"]:
            want, got = declared[table["table"], column["name"]], parse_type(type_text(column["dataType"]))
            assert (got.base, got.unsigned, got.zerofill, got.labels) == (
                want.base,
                want.unsigned,
                want.zerofill,
                want.labels,
            )
            if want.length is not None or want.base in {"datetime", "timestamp", "time"}:
                assert (got.length, got.scale) == (want.length, want.scale), column
            compared += 1
    assert compared


@pytest.mark.parametrize(
    ("data_type", "text"),
    [
        ({"mysqlType": "decimal", "length": 12, "decimal": 2}, "decimal(12,2)"),
        ({"mysqlType": "decimal", "length": 20}, "decimal(20,0)"),  # the encoder leaves a zero out
        ({"mysqlType": "int", "length": 8, "unsigned": True, "zerofill": True}, "int(8) unsigned zerofill"),
        ({"mysqlType": "year", "length": 4, "unsigned": True, "zerofill": True}, "year"),
        ({"mysqlType": "bit", "length": 10, "unsigned": True}, "bit(10)"),
        ({"mysqlType": "enum", "length": 4, "elements": ["it's", "a,b"]}, "enum('it''s','a,b')"),
        ({"mysqlType": "timestamp", "length": 26, "decimal": 6}, "timestamp(6)"),
        ({"mysqlType": "datetime", "length": 19}, "datetime"),
        ({"mysqlType": "double", "length": 22}, "double"),
        ({"mysqlType": "mediumtext", "length": 16777215}, "mediumtext"),
        ({"mysqlType": "bigint unsigned", "length": 20}, "bigint(20) unsigned"),
        ({"mysqlType": "vector", "length": 3}, "vector"),
    ],
)
def test_parts_become_one_text(data_type: dict[str, Any], text: str) -> None:
    assert type_text(data_type) == text
