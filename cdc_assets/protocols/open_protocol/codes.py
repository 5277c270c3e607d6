"""Reference tables of the Open Protocol: type codes, column flags, DDL types (`ticdc-open-protocol`).

Sources: the document's sections "Column type code", "DDL type code" and "Bit flags of columns". Comments say where TiCDC's
encoder, as recorded, differs from the document.
"""

from collections.abc import Mapping
from enum import IntFlag
from typing import Literal, NamedTuple


class ColumnFlag(IntFlag):
    """The flags of a column, in `f`. A missing `f` is 0."""

    BINARY = 0x01
    HANDLE_KEY = 0x02
    GENERATED = 0x04
    PRIMARY_KEY = 0x08
    UNIQUE_KEY = 0x10
    MULTIPLE_KEY = 0x20
    NULLABLE = 0x40
    UNSIGNED = 0x80


def flags_text(flags: int) -> str:
    """Return the names of the flags in `flags`, for people: `generated, multiple key`; empty if none is set."""
    return ", ".join(str(flag.name).lower().replace("_", " ") for flag in ColumnFlag if flags & flag)


class CodeRow(NamedTuple):
    """One type code.

    Attributes:
        json: the JSON type of values that are not null; `none` if values are always null.
        text: the MySQL type; None for the type NULL.
        binary: the type with the binary flag. For other types the flag has no meaning in the document, and the encoder sets
            it if the character set is binary, which numbers, dates, decimals and JSON have too.
        unsigned: whether the unsigned flag is part of the type.
        may_be_unsigned: whether the flag is permitted without a meaning: the encoder sets it on YEAR and BIT.
    """

    json: Literal["number", "string", "none"]
    text: str | None
    binary: str | None = None
    unsigned: bool = False
    may_be_unsigned: bool = False


CODES: Mapping[int, CodeRow] = {
    1: CodeRow("number", "tinyint", unsigned=True),
    2: CodeRow("number", "smallint", unsigned=True),
    3: CodeRow("number", "int", unsigned=True),
    4: CodeRow("number", "float", unsigned=True),
    5: CodeRow("number", "double", unsigned=True),
    6: CodeRow("none", None),
    7: CodeRow("string", "timestamp"),
    8: CodeRow("number", "bigint", unsigned=True),
    9: CodeRow("number", "mediumint", unsigned=True),
    10: CodeRow("string", "date"),
    11: CodeRow("string", "time"),
    12: CodeRow("string", "datetime"),
    13: CodeRow("number", "year", may_be_unsigned=True),
    14: CodeRow("string", "date"),
    15: CodeRow("string", "varchar", "varbinary"),
    16: CodeRow("number", "bit", may_be_unsigned=True),
    245: CodeRow("string", "json"),
    246: CodeRow("string", "decimal", unsigned=True),
    247: CodeRow("number", "enum"),
    248: CodeRow("number", "set"),
    249: CodeRow("string", "tinytext", "tinyblob"),
    250: CodeRow("string", "mediumtext", "mediumblob"),
    251: CodeRow("string", "longtext", "longblob"),
    252: CodeRow("string", "text", "blob"),
    253: CodeRow("string", "varchar", "varbinary"),
    254: CodeRow("string", "char", "binary"),
}
GEOMETRY = 255  # The document does not support it, and TiDB has no such columns.


def type_text(code: int, flags: int) -> str | None:
    """Return the MySQL type of a code and flags; None for the type NULL, `code <n>` for a code that the table lacks."""
    row = CODES.get(code)
    if row is None:
        return f"code {code}"
    if row.binary and flags & ColumnFlag.BINARY:
        return row.binary
    return f"{row.text} unsigned" if row.unsigned and flags & ColumnFlag.UNSIGNED else row.text


def wrong_flags(code: int, flags: int) -> str | None:
    """Return why a column's flags do not fit its code, for people; None if they fit.

    Wrong are a flag that the document does not have, an unsigned text, and a key that may be NULL: a primary key never is,
    and a handle key is a primary key or a unique key without NULL.
    """
    if flags < 0 or flags > sum(ColumnFlag):
        return "a flag that the protocol does not have"
    row = CODES.get(code)
    if row and flags & ColumnFlag.UNSIGNED and not (row.unsigned or row.may_be_unsigned):
        return "an unsigned column of a type that has no sign"
    if flags & ColumnFlag.NULLABLE and flags & (ColumnFlag.PRIMARY_KEY | ColumnFlag.HANDLE_KEY):
        return "a key column that may be NULL"
    return None


# The names of TiDB's job types in the document, by their numbers. For other types, such as 61 (a statement that changes
# several things of a table), only the statement is used.
DDL_TYPES: Mapping[int, str] = dict(
    enumerate(
        (
            "create schema", "drop schema", "create table", "drop table", "add column", "drop column", "add index",
            "drop index", "add foreign key", "drop foreign key", "truncate table", "modify column", "rebase auto id",
            "rename table", "set default value", "shard row id", "modify table comment", "rename index",
            "add table partition", "drop table partition", "create view", "modify table charset and collate",
            "truncate table partition", "drop view", "recover table", "modify schema charset and collate",
            "lock table", "unlock table", "repair table", "set tiflash replica", "update tiflash replica status",
            "add primary key", "drop primary key", "create sequence", "alter sequence", "drop sequence",
        ),
        start=1,
    )
)  # fmt: skip
