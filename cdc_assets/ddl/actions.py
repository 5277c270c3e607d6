"""Schema actions: what a DDL statement does to tables.

The stage `table_schemas` reads each statement once and stores its actions as text. Release and history use the actions.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, NamedTuple

from cdc_assets.ddl.defaults import convert_default
from cdc_assets.mysql_types.descriptors import TYPES
from cdc_assets.mysql_types.tokens import Token, TokenKind
from cdc_assets.mysql_types.types import MySQLType, parsed

DdlKind = Literal[
    "create_table",
    "alter_table",
    "drop_table",
    "truncate_table",
    "rename_table",
    "create_database",
    "drop_database",
    "create_index",
    "drop_index",
    "recover_table",
    "other",
]


class TableName(NamedTuple):
    """A table's name; compares equal to the plain pair."""

    database: str
    table: str


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: as the statement or message writes it.
        type: the canonical text of its `MySQLType`, labels included.
        nullable: whether it takes NULL.
        default: the default's value as text (the dialect `ddl` of `casting.decode`): labels of enum and set, decimal
            digits of a bit, bytes as ISO-8859-1 characters. A TIMESTAMP is in the session's time zone, or in UTC with a Z at
            the end. None: no default, NULL, or an expression.
        generated: whether an expression computes its values.
        virtual: whether it is generated and not stored. TiCDC sends no values of such a column.
        expression: the tokens of the expression, if a statement has it; equal texts compute equal values.
        computed_default: whether only the server knows the default: an expression, CURRENT_TIMESTAMP, AUTO_INCREMENT, or a
            literal whose value `defaults` cannot compute.
        bare_timestamp: whether it is a TIMESTAMP without NULL, NOT NULL and DEFAULT. The server makes it NOT NULL with a
            default if it has explicit_defaults_for_timestamp=OFF, the default of MySQL up to 5.7 and MariaDB up to 10.9.
        charset: its character set, if a message states it. The readers of statements skip it, so it is not compared.
        collation: its collation, likewise.
    """

    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    generated: bool = False
    virtual: bool = False
    expression: str | None = field(default=None, compare=False)
    computed_default: bool = False
    bare_timestamp: bool = False
    charset: str | None = field(default=None, compare=False)
    collation: str | None = field(default=None, compare=False)

    @property
    def fill(self) -> str | None:
        """The value that existing rows get when this column is added, as text like `default`; None: NULL, or not known.

        A NOT NULL column without a default gets MySQL's implicit default ("Data Type Default Values"). The implicit default
        of dates is the zero date, which no history can hold.
        """
        if self.default is not None or self.nullable or self.generated or self.computed_default:
            return self.default
        mysql_type = parsed(self.type)
        if mysql_type is None:
            return None  # MySQL has no such type, so its implicit default is not known.
        implicit = TYPES[mysql_type.base].implicit
        if implicit is not None and implicit.startswith("0000-"):
            return None
        if mysql_type.base == "time" and mysql_type.length:
            return f"{implicit}.{'0' * mysql_type.length}"
        return mysql_type.labels[0] if implicit is None and mysql_type.labels else implicit

    @property
    def is_filled(self) -> bool:
        """Whether existing rows get another value than NULL when this column is added."""
        return self.default is not None or self.computed_default or self.generated or not self.nullable


@dataclass(frozen=True)
class AddColumn:
    """ADD COLUMN. `position` is where the column goes: None: last; empty: first; else after the column of this name."""

    column: Column
    position: str | None = None
    only_if_missing: bool = False


@dataclass(frozen=True)
class ModifyColumn:
    """MODIFY or CHANGE: the column `old_name` becomes `column`. `position` is as in `AddColumn`, but None keeps it."""

    old_name: str
    column: Column
    position: str | None = None
    if_exists: bool = False


@dataclass(frozen=True)
class DropColumn:
    """DROP COLUMN."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class RenameColumn:
    """RENAME COLUMN."""

    old_name: str
    new_name: str
    if_exists: bool = False


@dataclass(frozen=True)
class SetDefault:
    """ALTER COLUMN ... SET DEFAULT or DROP DEFAULT. The text of the default depends on the type that the column has."""

    name: str
    default: "Default"


@dataclass(frozen=True)
class AddKey:
    """A key. `columns` is empty for a key over expressions."""

    kind: Literal["primary", "unique", "index"]
    columns: tuple[str, ...]
    name: str = ""
    only_if_missing: bool = False


@dataclass(frozen=True)
class DropKey:
    """DROP PRIMARY KEY (named PRIMARY, as MySQL names it), DROP INDEX, DROP CONSTRAINT."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class RenameKey:
    """RENAME INDEX."""

    old_name: str
    new_name: str


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key: columns of a child table that refer to columns of its parent table.

    Attributes:
        name: its name; empty: the statement gives none.
        columns: the child's columns.
        parent: the parent table.
        parent_columns: the parent's columns, parallel to `columns`; empty: the parent's primary key.
        on_delete: what the server does to the child's rows when their parent is deleted: CASCADE, SET NULL or SET DEFAULT.
            None: nothing, or it refuses the statement.
        on_update: likewise when the parent's columns change.
        index_name: the name between FOREIGN KEY and the columns. Some versions of the server take it as the key's name.
    """

    name: str
    columns: tuple[str, ...]
    parent: TableName
    parent_columns: tuple[str, ...] = ()
    on_delete: str | None = None
    on_update: str | None = None
    index_name: str = ""

    @property
    def changes_rows(self) -> bool:
        """Whether the server changes rows of the child when rows of the parent change."""
        return self.on_delete is not None or self.on_update is not None


@dataclass(frozen=True)
class AddForeignKey:
    """ADD FOREIGN KEY, or REFERENCES in the definition of a column."""

    key: ForeignKey
    only_if_missing: bool = False


@dataclass(frozen=True)
class DropForeignKey:
    """DROP FOREIGN KEY, or DROP CONSTRAINT."""

    name: str


@dataclass(frozen=True)
class RenameTable:
    """RENAME TO."""

    new_name: TableName


@dataclass(frozen=True)
class MoveRows:
    """Rows are added or deleted without row events, as by TRUNCATE PARTITION, or by ALTER IGNORE with a unique key.

    Attributes:
        how: the alteration, for people.
        other: the table that gets or gives these rows, as by EXCHANGE PARTITION; it has an action of its own.
    """

    how: str
    other: TableName | None = None


_ColumnAction = AddColumn | ModifyColumn | DropColumn | RenameColumn | SetDefault
Action = _ColumnAction | AddKey | DropKey | RenameKey | AddForeignKey | DropForeignKey | RenameTable | MoveRows
Changes = tuple[tuple[TableName, tuple[Action, ...]], ...]


@dataclass(frozen=True)
class Statement:
    """What a DDL statement does.

    Attributes:
        kind: the statement's kind.
        changes: the tables that it names, in order, each with its actions: for CREATE TABLE the columns and keys to add, for
            a rename the old name and the `RenameTable`.
        like: the table whose columns and keys CREATE TABLE ... LIKE copies.
        tolerant: whether it has IF EXISTS or IF NOT EXISTS.
        replaces: whether it has OR REPLACE, which first drops an existing table of this name.
        database: the database that CREATE DATABASE or DROP DATABASE names.
    """

    kind: DdlKind
    changes: Changes = ()
    like: TableName | None = None
    tolerant: bool = False
    replaces: bool = False
    database: str | None = None

    @property
    def names(self) -> tuple[TableName, ...]:
        """The tables that it names, by their names before it, including those that it creates."""
        return tuple(name for name, _ in self.changes)

    @property
    def new_names(self) -> tuple[TableName, ...]:
        """The new names that it gives to tables."""
        return tuple(a.new_name for _, actions in self.changes for a in actions if isinstance(a, RenameTable))


class Default(NamedTuple):
    """The default in a statement: a `literal`, an expression (`computed`), or neither: NULL or no default."""

    literal: Token | None = None
    computed: bool = False

    def apply_to(self, column: Column, mysql_type: MySQLType | None) -> Column:
        """Return the column with this default.

        Args:
            column: the column.
            mysql_type: its type; None: MySQL has no such type, so the value of a literal is not known.
        """
        text = None if self.literal is None or mysql_type is None else convert_default(self.literal, mysql_type)
        only_server_knows = self.computed or (self.literal is not None and text is None)
        return replace(column, default=text, computed_default=only_server_knows)


def encode_statement(statement: Statement) -> str:
    """Return a statement as a JSON text that `decode_statement` reads."""
    return json.dumps(_to_json(statement), ensure_ascii=False, separators=(",", ":"))


def decode_statement(text: str) -> Statement:
    """Return the statement that `encode_statement` has written as `text`."""
    statement: Statement = _from_json(json.loads(text))
    return statement


_CLASSES: dict[str, Any] = {
    each.__name__: each
    for each in (
        Statement, TableName, Column, AddColumn, ModifyColumn, DropColumn, RenameColumn, SetDefault, Default, Token,
        AddKey, DropKey, RenameKey, ForeignKey, AddForeignKey, DropForeignKey, RenameTable, MoveRows,
    )
}  # fmt: skip


def _to_json(value: object) -> object:
    """Return a value as JSON: an object with the name of its class and the fields that differ from their default."""
    if isinstance(value, TokenKind):
        return {"_": "TokenKind", "name": value.name}
    if is_dataclass(value):
        values = {f.name: getattr(value, f.name) for f in fields(value) if getattr(value, f.name) != f.default}
        return {"_": type(value).__name__, **{name: _to_json(each) for name, each in values.items()}}
    if isinstance(value, tuple):
        names: Sequence[str] = getattr(value, "_fields", ())
        if names:
            return {"_": type(value).__name__, **{n: _to_json(each) for n, each in zip(names, value, strict=True)}}
        return [_to_json(each) for each in value]
    return value


def _from_json(value: Any) -> Any:  # noqa: ANN401 -- JSON of any form, and the value that `_to_json` made it from
    """Return the value that `_to_json` returned as `value`."""
    if isinstance(value, list):
        return tuple(_from_json(each) for each in value)
    if not isinstance(value, dict):
        return value
    values = {name: _from_json(each) for name, each in value.items() if name != "_"}
    return TokenKind[values["name"]] if value["_"] == "TokenKind" else _CLASSES[value["_"]](**values)
