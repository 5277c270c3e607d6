"""What a DDL statement does: actions on tables, before they are applied to any.

The stage `table_schemas` reads each statement once, and keeps its actions as text; release and history use these.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, NamedTuple

from cdc_assets.ddl.defaults import default_text
from cdc_assets.mysql_types.reference import TYPES
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
        name: verbatim.
        type: canonical text of its `MySQLType`, labels included.
        nullable: whether it takes NULL.
        default: the default's value as text (the dialect `ddl` of `casting.decode`): labels of enum and set, decimal
            digits of a bit, bytes as ISO-8859-1 characters. None: no default, NULL, or an expression.
        generated: whether an expression computes it.
        virtual: whether it is generated and not stored: TiCDC sends no values of such a column.
        computed_default: whether only the server knows the default: an expression, CURRENT_TIMESTAMP, AUTO_INCREMENT, a
            literal of which `defaults` does not know the value.
        charset: its character set, where a message states it. Statements are not read for it, so it is not compared.
        collation: its collation, likewise.
    """

    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    generated: bool = False
    virtual: bool = False
    computed_default: bool = False
    charset: str | None = field(default=None, compare=False)
    collation: str | None = field(default=None, compare=False)

    @property
    def fill(self) -> str | None:
        """What existing rows get when this column is added, like `default`; None: NULL, or no value that is known.

        A NOT NULL column without a default gets MySQL's implicit one ("Data Type Default Values"). That of dates, the zero
        date, no history holds.
        """
        if self.default is not None or self.nullable or self.generated or self.computed_default:
            return self.default
        mysql_type = parsed(self.type)
        if mysql_type is None:
            return None  # of a type that MySQL does not have the implicit default is not known
        implicit = TYPES[mysql_type.base].implicit
        if implicit is not None and implicit.startswith("0000-"):
            return None
        return mysql_type.labels[0] if implicit is None and mysql_type.labels else implicit

    @property
    def is_filled(self) -> bool:
        """Whether existing rows get something else than NULL when this column is added."""
        return self.default is not None or self.computed_default or self.generated or not self.nullable


@dataclass(frozen=True)
class AddColumn:
    """ADD COLUMN. `position` is where it goes: None at the end, "" first, else after the column of that name."""

    column: Column
    position: str | None = None
    only_if_missing: bool = False


@dataclass(frozen=True)
class ModifyColumn:
    """MODIFY or CHANGE: the column `old_name` becomes `column`. `position` as in `AddColumn`; None leaves its place."""

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
    """ALTER COLUMN ... SET DEFAULT, DROP DEFAULT. What the default's text is depends on the column's type."""

    name: str
    default: "Default"


@dataclass(frozen=True)
class AddKey:
    """A key. `columns` is empty for a key over expressions, which identifies no column."""

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
class RenameTable:
    """RENAME TO."""

    new_name: TableName


@dataclass(frozen=True)
class MoveRows:
    """Rows come or go, and no row event says so: TRUNCATE PARTITION, DROP PARTITION, EXCHANGE PARTITION."""

    how: str


_OfColumn = AddColumn | ModifyColumn | DropColumn | RenameColumn | SetDefault
Action = _OfColumn | AddKey | DropKey | RenameKey | RenameTable | MoveRows


Changes = tuple[tuple[TableName, tuple[Action, ...]], ...]


@dataclass(frozen=True)
class Statement:
    """What a DDL statement does.

    Attributes:
        kind: the statement's kind.
        changes: the tables it names, in order, each with what happens to it; for CREATE TABLE its columns and keys, for
            a rename the old name and the `RenameTable`.
        like: the table whose structure CREATE TABLE ... LIKE copies.
        tolerant: IF EXISTS or IF NOT EXISTS.
        replaces: OR REPLACE: a table of the name that is there is dropped first.
        database: of CREATE DATABASE and DROP DATABASE.
    """

    kind: DdlKind
    changes: Changes = ()
    like: TableName | None = None
    tolerant: bool = False
    replaces: bool = False
    database: str | None = None

    @property
    def names(self) -> tuple[TableName, ...]:
        """The tables that it names as they are before it, those that it creates included."""
        return tuple(name for name, _ in self.changes)

    @property
    def new_names(self) -> tuple[TableName, ...]:
        """The names that it gives to tables."""
        return tuple(a.new_name for _, actions in self.changes for a in actions if isinstance(a, RenameTable))


class Default(NamedTuple):
    """The default in a statement: a literal, or (`computed`) an expression; neither: NULL or none."""

    literal: Token | None = None
    computed: bool = False

    def given_to(self, column: Column, mysql_type: MySQLType | None) -> Column:
        """Return the column with this default. Of a literal whose value is not known, only the server knows the default."""
        text = None if self.literal is None or mysql_type is None else default_text(self.literal, mysql_type)
        unknown = self.computed or (self.literal is not None and text is None)
        return replace(column, default=text, computed_default=unknown)


def text_of(statement: Statement) -> str:
    """Return a statement as text, for a column of a table; `statement_of` reads it."""
    return json.dumps(_plain(statement), ensure_ascii=False, separators=(",", ":"))


def statement_of(text: str) -> Statement:
    """Return the statement whose `text_of` this is."""
    found: Statement = _valued(json.loads(text))
    return found


_KINDS: dict[str, Any] = {
    each.__name__: each
    for each in (
        Statement, TableName, Column, AddColumn, ModifyColumn, DropColumn, RenameColumn, SetDefault, Default, Token,
        AddKey, DropKey, RenameKey, RenameTable, MoveRows,
    )
}  # fmt: skip


def _plain(value: object) -> object:
    """A value as JSON has it: an object names its class, and leaves out what is as by default."""
    if isinstance(value, TokenKind):
        return {"_": "TokenKind", "name": value.name}
    if is_dataclass(value):
        told = {f.name: getattr(value, f.name) for f in fields(value) if getattr(value, f.name) != f.default}
        return {"_": type(value).__name__, **{name: _plain(each) for name, each in told.items()}}
    if isinstance(value, tuple):
        names: Sequence[str] = getattr(value, "_fields", ())
        if names:
            return {"_": type(value).__name__, **{n: _plain(each) for n, each in zip(names, value, strict=True)}}
        return [_plain(each) for each in value]
    return value


def _valued(plain: Any) -> Any:  # noqa: ANN401 -- JSON, and what it stands for
    if isinstance(plain, list):
        return tuple(_valued(each) for each in plain)
    if not isinstance(plain, dict):
        return plain
    told = {name: _valued(each) for name, each in plain.items() if name != "_"}
    return TokenKind[told["name"]] if plain["_"] == "TokenKind" else _KINDS[plain["_"]](**told)
