"""A DDL statement read into what it does to tables, before it is applied to any.

Grammar: the chapter on data definition statements of the MySQL 8.4 reference manual; what changes neither a column nor
a key nor a table's name (options, partitions, comments, foreign keys, checks) is read over. Names come out verbatim.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple

from cdc_assets.ddl.defaults import default_text, read_literal
from cdc_assets.mysql_types.reference import TYPES
from cdc_assets.mysql_types.tokens import Cursor, Kind, SqlSyntaxError, Token, tokenize
from cdc_assets.mysql_types.types import MySQLType, declared, parse_type, read_type

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
        mysql_type = parse_type(self.type)
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


@dataclass(frozen=True)
class DropColumn:
    """DROP COLUMN."""

    name: str


@dataclass(frozen=True)
class RenameColumn:
    """RENAME COLUMN."""

    old_name: str
    new_name: str


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


@dataclass(frozen=True)
class DropKey:
    """DROP PRIMARY KEY (named PRIMARY, as MySQL names it), DROP INDEX, DROP CONSTRAINT."""

    name: str


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
        database: of CREATE DATABASE and DROP DATABASE.
    """

    kind: DdlKind
    changes: Changes = ()
    like: TableName | None = None
    tolerant: bool = False
    database: str | None = None


class Default(NamedTuple):
    """The default in a statement: a literal, or (`computed`) an expression; neither: NULL or none."""

    literal: Token | None = None
    computed: bool = False

    def text(self, mysql_type: MySQLType) -> str | None:
        """The literal's value as text, as `Column.default` wants it; None: there is none, or it is not known."""
        return None if self.literal is None else default_text(self.literal, mysql_type)

    def given_to(self, column: Column, mysql_type: MySQLType) -> Column:
        """The column with this default. One whose literal's value is not known has a default that only the server knows."""
        text = self.text(mysql_type)
        unknown = self.computed or (self.literal is not None and text is None)
        return replace(column, default=text, computed_default=unknown)


def read_statement(sql: str, default_database: str) -> Statement:
    """Read one DDL statement; `other` for a statement that changes no table's structure or contents.

    Raises:
        SqlSyntaxError: the statement is not MySQL's DDL, or a column's type is not known.
    """
    cursor = Cursor(tokenize(sql))
    verb = cursor.take_any(*_READERS)
    return _READERS[verb](cursor, default_database) if verb else Statement("other")


def _create(cursor: Cursor, database: str) -> Statement:
    cursor.take("OR", "REPLACE")
    if cursor.take("TABLE"):
        return _create_table(cursor, database)
    if cursor.take_any("DATABASE", "SCHEMA"):
        tolerant = cursor.take("IF", "NOT", "EXISTS")
        return Statement("create_database", tolerant=tolerant, database=cursor.name())
    cursor.take_any("ONLINE", "OFFLINE")
    unique = cursor.take_any("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR") == "UNIQUE"
    if not cursor.take("INDEX"):
        return Statement("other")  # views, triggers, users, and temporary tables, which no event is written for
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.name()
    _skip_using(cursor)
    _expect_word(cursor, "ON")
    table = _table_name(cursor, database)
    _skip_using(cursor)
    key = AddKey("unique" if unique else "index", _key_parts(cursor), name)
    return Statement("create_index", ((table, (key,)),), tolerant=tolerant)


def _create_table(cursor: Cursor, database: str) -> Statement:
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    table = _table_name(cursor, database)
    in_parentheses = cursor.symbol("(")
    if cursor.take("LIKE"):
        return Statement("create_table", ((table, ()),), like=_table_name(cursor, database), tolerant=tolerant)
    if not in_parentheses:
        raise SqlSyntaxError(f"CREATE TABLE {table.table} does not list the columns")
    actions: list[Action] = []
    while True:
        key = _key_definition(cursor)
        if key is None:
            actions += _column(cursor)
        elif key.columns:
            actions.append(key)
        cursor.skip_item()
        if not cursor.symbol(","):
            break
    cursor.expect_symbol(")")
    return Statement("create_table", ((table, tuple(actions)),), tolerant=tolerant)


def _alter(cursor: Cursor, database: str) -> Statement:
    cursor.take_any("ONLINE", "OFFLINE")
    cursor.take("IGNORE")
    if not cursor.take("TABLE"):
        return Statement("other")
    tolerant = cursor.take("IF", "EXISTS")
    table = _table_name(cursor, database)
    actions: list[Action] = []
    in_list = False  # of partitions, or of columns to order by
    while not cursor.done:
        if verb := cursor.take_any(*_ALTERATIONS):
            done = _ALTERATIONS[verb](cursor, database)
            in_list = any(isinstance(action, MoveRows) for action in done)
            actions += done
        elif word := cursor.take_any(*_OF_NO_CONSEQUENCE):
            in_list = word in _LISTS
        elif not in_list:
            raise SqlSyntaxError(f"ALTER TABLE ... {cursor.peek().text} is not known")
        cursor.skip_item()
        if not cursor.symbol(",") and not cursor.done:
            raise SqlSyntaxError(f"{cursor.peek().text!r} is not expected here")
    only_renames = bool(actions) and all(isinstance(action, RenameTable) for action in actions)
    kind: DdlKind = "rename_table" if only_renames else "alter_table"
    return Statement(kind, ((table, tuple(actions)),), tolerant=tolerant)


def _drop(cursor: Cursor, database: str) -> Statement:
    if cursor.take_any("TABLE", "TABLES"):
        tolerant = cursor.take("IF", "EXISTS")
        tables = [_table_name(cursor, database)]
        while cursor.symbol(","):
            tables.append(_table_name(cursor, database))
        return Statement("drop_table", tuple((table, ()) for table in tables), tolerant=tolerant)
    if cursor.take_any("DATABASE", "SCHEMA"):
        tolerant = cursor.take("IF", "EXISTS")
        return Statement("drop_database", tolerant=tolerant, database=cursor.name())
    cursor.take_any("ONLINE", "OFFLINE")
    if not cursor.take("INDEX"):
        return Statement("other")
    tolerant = cursor.take("IF", "EXISTS")
    key = DropKey(cursor.name())
    _expect_word(cursor, "ON")
    return Statement("drop_index", ((_table_name(cursor, database), (key,)),), tolerant=tolerant)


def _rename(cursor: Cursor, database: str) -> Statement:
    if not cursor.take_any("TABLE", "TABLES"):
        return Statement("other")
    tolerant = cursor.take("IF", "EXISTS")
    changes = []
    while True:
        old = _table_name(cursor, database)
        _expect_word(cursor, "TO")
        changes.append((old, (RenameTable(_table_name(cursor, database)),)))
        if not cursor.symbol(","):
            return Statement("rename_table", tuple(changes), tolerant=tolerant)


def _truncate(cursor: Cursor, database: str) -> Statement:
    cursor.take("TABLE")
    return Statement("truncate_table", ((_table_name(cursor, database), ()),))


def _recover(cursor: Cursor, database: str) -> Statement:
    """TiDB's RECOVER TABLE t and FLASHBACK TABLE t; what names a job, a time or another name cannot be followed."""
    if cursor.take("TABLE") and not cursor.sees("BY"):
        name = _table_name(cursor, database)
        if cursor.done:
            return Statement("recover_table", ((name, ()),))
    raise SqlSyntaxError("which rows come back is not told")


_READERS: Mapping[str, Callable[[Cursor, str], Statement]] = MappingProxyType(
    {
        "CREATE": _create,
        "ALTER": _alter,
        "DROP": _drop,
        "RENAME": _rename,
        "TRUNCATE": _truncate,
        "RECOVER": _recover,
        "FLASHBACK": _recover,
    }
)


def _add(cursor: Cursor, database: str) -> list[Action]:  # noqa: ARG001 -- every alteration has the same signature
    if not cursor.take("COLUMN"):
        if cursor.sees("PARTITION"):
            return []
        key = _key_definition(cursor)
        if key is not None:
            return [key] if key.columns else []
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    if not cursor.symbol("("):
        return _column(cursor, only_if_missing=tolerant)
    actions: list[Action] = []
    while True:
        actions += _column(cursor, only_if_missing=tolerant)
        cursor.skip_item()
        if not cursor.symbol(","):
            break
    cursor.expect_symbol(")")
    return actions


def _drop_part(cursor: Cursor, database: str) -> list[Action]:  # noqa: ARG001 -- see _add
    if cursor.take("PRIMARY", "KEY"):
        return [DropKey("PRIMARY")]
    if cursor.take_any("INDEX", "KEY", "CONSTRAINT"):
        cursor.take("IF", "EXISTS")
        return [DropKey(cursor.name())]
    if cursor.take_any("FOREIGN", "CHECK"):
        return []
    if cursor.take("PARTITION"):
        return [MoveRows("DROP PARTITION")]
    cursor.take("COLUMN")
    cursor.take("IF", "EXISTS")
    return [DropColumn(cursor.name())]


def _truncate_part(cursor: Cursor, database: str) -> list[Action]:  # noqa: ARG001 -- see _add
    return [MoveRows("TRUNCATE PARTITION")] if cursor.take("PARTITION") else []


def _exchange(cursor: Cursor, database: str) -> list[Action]:  # noqa: ARG001 -- see _add
    return [MoveRows("EXCHANGE PARTITION")]


def _first(cursor: Cursor, database: str) -> list[Action]:  # noqa: ARG001 -- see _add
    """TiDB's FIRST PARTITION LESS THAN: the partitions before it go."""
    return [MoveRows("FIRST PARTITION")]


def _discard(cursor: Cursor, database: str) -> list[Action]:  # noqa: ARG001 -- see _add
    return [MoveRows("DISCARD TABLESPACE")]


def _import(cursor: Cursor, database: str) -> list[Action]:  # noqa: ARG001 -- see _add
    return [MoveRows("IMPORT TABLESPACE")]


def _convert(cursor: Cursor, database: str) -> list[Action]:  # noqa: ARG001 -- see _add
    """A character set; MariaDB's CONVERT PARTITION, CONVERT TABLE."""
    return [MoveRows("CONVERT PARTITION")] if cursor.take_any("PARTITION", "TABLE") else []


def _modify(cursor: Cursor, database: str) -> list[Action]:  # noqa: ARG001 -- see _add
    cursor.take("COLUMN")
    cursor.take("IF", "EXISTS")
    old_name = cursor.peek().text
    return _as_modification(old_name, _column(cursor))


def _change(cursor: Cursor, database: str) -> list[Action]:  # noqa: ARG001 -- see _add
    cursor.take("COLUMN")
    cursor.take("IF", "EXISTS")
    old_name = cursor.name()
    return _as_modification(old_name, _column(cursor))


def _as_modification(old_name: str, definition: list[Action]) -> list[Action]:
    return [
        ModifyColumn(old_name, action.column, action.position) if isinstance(action, AddColumn) else action
        for action in definition
    ]


def _rename_part(cursor: Cursor, database: str) -> list[Action]:
    what = cursor.take_any("COLUMN", "INDEX", "KEY")
    if not what:
        if not cursor.take_any("TO", "AS"):
            cursor.symbol("=")
        return [RenameTable(_table_name(cursor, database))]
    cursor.take("IF", "EXISTS")
    old_name = cursor.name()
    _expect_word(cursor, "TO")
    new_name = cursor.name()
    return [RenameColumn(old_name, new_name) if what == "COLUMN" else RenameKey(old_name, new_name)]


def _alter_part(cursor: Cursor, database: str) -> list[Action]:  # noqa: ARG001 -- see _add
    if cursor.take_any("INDEX", "CHECK", "CONSTRAINT"):
        return []
    cursor.take("COLUMN")
    name = cursor.name()
    if cursor.take("SET", "DEFAULT"):
        return [SetDefault(name, _default(cursor))]
    return [SetDefault(name, Default())] if cursor.take("DROP", "DEFAULT") else []


_ALTERATIONS: Mapping[str, Callable[[Cursor, str], list[Action]]] = MappingProxyType(
    {
        "ADD": _add,
        "DROP": _drop_part,
        "MODIFY": _modify,
        "CHANGE": _change,
        "RENAME": _rename_part,
        "ALTER": _alter_part,
        "TRUNCATE": _truncate_part,
        "EXCHANGE": _exchange,
        "FIRST": _first,
        "DISCARD": _discard,
        "IMPORT": _import,
        "CONVERT": _convert,
    }
)
# The first words of all other alterations that MySQL 8.4, MariaDB 11 and TiDB 8 have: they change neither columns nor keys
# nor rows.
_OF_NO_CONSEQUENCE = (
    # options of the table
    "AUTOEXTEND_SIZE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "DEFAULT", "CHARACTER", "CHARSET", "CHECKSUM", "COLLATE",
    "COMMENT", "COMPRESSION", "CONNECTION", "DATA", "INDEX", "DELAY_KEY_WRITE", "ENCRYPTION", "ENGINE", "TYPE",
    "ENGINE_ATTRIBUTE", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PASSWORD", "ROW_FORMAT",
    "START", "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE", "STATS_AUTO_RECALC", "STATS_PERSISTENT",
    "STATS_SAMPLE_PAGES", "TABLESPACE", "STORAGE", "UNION",
    "ENCRYPTED", "ENCRYPTION_KEY_ID", "IETF_QUOTES", "PAGE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL",
    "SEQUENCE", "TRANSACTIONAL",
    "SHARD_ROW_ID_BITS", "PRE_SPLIT_REGIONS", "AUTO_ID_CACHE", "AUTO_RANDOM_BASE", "PLACEMENT", "ATTRIBUTES", "TTL",
    "TTL_ENABLE", "TTL_JOB_INTERVAL", "STATS_BUCKETS", "STATS_TOPN", "STATS_COL_CHOICE", "STATS_COL_LIST",
    "STATS_SAMPLE_RATE", "STATS_OPTIONS", "AFFINITY",
    # how it is done, and where the rows lie
    "ALGORITHM", "LOCK", "FORCE", "ORDER", "DISABLE", "ENABLE", "WITH", "WITHOUT", "WAIT", "NOWAIT", "SECONDARY_LOAD",
    "SECONDARY_UNLOAD", "SET", "CACHE", "NOCACHE", "COMPACT",
    # partitions whose rows stay
    "PARTITION", "REMOVE", "REORGANIZE", "COALESCE", "REBUILD", "ANALYZE", "CHECK", "OPTIMIZE", "REPAIR", "UPGRADE",
    "SPLIT", "MERGE", "LAST",
)  # fmt: skip
# Of these the alterations that name several things, with commas between them.
_LISTS = ("ORDER", "REORGANIZE", "REBUILD", "ANALYZE", "CHECK", "OPTIMIZE", "REPAIR", "UNION", "SPLIT", "MERGE", "SET")


def _table_name(cursor: Cursor, database: str) -> TableName:
    first = cursor.name()
    return TableName(first, cursor.name()) if cursor.symbol(".") else TableName(database, first)


def _expect_word(cursor: Cursor, word: str) -> None:
    if not cursor.take(word):
        raise SqlSyntaxError(f"expected {word}, found {cursor.peek().text!r}")


def _skip_using(cursor: Cursor) -> None:
    if cursor.take_any("USING", "TYPE"):
        cursor.next()


def _key_definition(cursor: Cursor) -> AddKey | None:
    """Read a key or another constraint. None: a column stands here; an AddKey without columns: of no consequence."""
    symbol = ""
    if cursor.take("CONSTRAINT") and cursor.word() not in {"PRIMARY", "UNIQUE", "FOREIGN", "CHECK"}:
        symbol = cursor.name()
    if cursor.take("PRIMARY", "KEY"):
        if cursor.peek() != (Kind.OTHER, "(") and cursor.word() != "USING":
            cursor.name()  # PRIMARY KEY takes a name, and ignores it
        _skip_using(cursor)
        return AddKey("primary", _key_parts(cursor), "PRIMARY")
    if cursor.take("UNIQUE"):
        cursor.take_any("INDEX", "KEY")
        return _named_key(cursor, "unique", symbol)
    if cursor.take_any("INDEX", "KEY"):
        return _named_key(cursor, "index", "")
    if cursor.take_any("FULLTEXT", "SPATIAL") or (cursor.word() == "VECTOR" and cursor.word(1) in {"INDEX", "KEY"}):
        cursor.take("VECTOR")
        cursor.take_any("INDEX", "KEY")
        return _named_key(cursor, "index", "")
    if cursor.take_any("FOREIGN", "CHECK") or cursor.take("PERIOD", "FOR"):
        return AddKey("index", ())
    return None


def _named_key(cursor: Cursor, kind: Literal["unique", "index"], symbol: str) -> AddKey:
    cursor.take("IF", "NOT", "EXISTS")
    name = symbol
    if cursor.peek() != (Kind.OTHER, "(") and cursor.word() not in {"USING", "TYPE"}:
        name = cursor.name()
    _skip_using(cursor)
    return AddKey(kind, _key_parts(cursor), name)


def _key_parts(cursor: Cursor) -> tuple[str, ...]:
    """The columns of a key; none when a part of it is an expression."""
    cursor.expect_symbol("(")
    columns: list[str] = []
    only_columns = True
    while True:
        if cursor.peek() == (Kind.OTHER, "("):
            only_columns = False
        else:
            columns.append(cursor.name())
        cursor.skip_group()  # the expression, or the length of a prefix
        cursor.take_any("ASC", "DESC")
        if not cursor.symbol(","):
            break
    cursor.expect_symbol(")")
    return tuple(columns) if only_columns else ()


def _column(cursor: Cursor, *, only_if_missing: bool = False) -> list[Action]:
    """Read a column's definition: the column, then the keys that are declared with it."""
    name = cursor.name()
    serial = cursor.sees("SERIAL")
    mysql_type = declared(read_type(cursor))
    column = Column(name, str(mysql_type))
    keys: list[Action] = []
    if serial:  # BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE
        column = replace(column, nullable=False, computed_default=True)
        keys.append(AddKey("unique", (name,)))
    position: str | None = None
    while not cursor.done and cursor.peek() not in {(Kind.OTHER, ","), (Kind.OTHER, ")")}:
        if cursor.take("FIRST"):
            position = ""
        elif cursor.take("AFTER"):
            position = cursor.name()
        elif cursor.take("UNIQUE"):
            cursor.take("KEY")
            keys.append(AddKey("unique", (name,)))
        elif cursor.take("PRIMARY", "KEY") or cursor.take("KEY"):
            keys.append(AddKey("primary", (name,), "PRIMARY"))
            column = replace(column, nullable=False)
        else:
            column = _with_attribute(cursor, column, mysql_type)
    return [AddColumn(column, position, only_if_missing), *keys]


# VIRTUAL is what a generated column is unless STORED follows; the expression itself is read over.
_ATTRIBUTES: Mapping[tuple[str, ...], Callable[[Column], Column]] = MappingProxyType(
    {
        ("NOT", "NULL"): lambda column: replace(column, nullable=False),
        ("NULL",): lambda column: replace(column, nullable=True),
        ("SERIAL", "DEFAULT", "VALUE"): lambda column: replace(column, nullable=False, computed_default=True),
        ("AUTO_INCREMENT",): lambda column: replace(column, computed_default=True),
        ("AS",): lambda column: replace(column, generated=True, virtual=True),
        ("STORED",): lambda column: replace(column, virtual=False),
        ("PERSISTENT",): lambda column: replace(column, virtual=False),
    }
)


def _with_attribute(cursor: Cursor, column: Column, mysql_type: MySQLType) -> Column:
    """Read one attribute of a column."""
    for words, change in _ATTRIBUTES.items():
        if cursor.take(*words):
            return change(column)
    if cursor.take("DEFAULT"):
        return _default(cursor).given_to(column, mysql_type)
    _skip_attribute(cursor)
    return column


def _skip_attribute(cursor: Cursor) -> None:
    """Skip what changes nothing here, or one word of it."""
    if cursor.peek() == (Kind.OTHER, "("):
        cursor.skip_group()
    elif cursor.take("ON"):  # ON UPDATE CURRENT_TIMESTAMP(3); of a foreign key: ON DELETE SET NULL
        cursor.next()
        cursor.take_any("SET", "NO")
        cursor.next()
    elif cursor.take_any("COMMENT", "COLUMN_FORMAT", "STORAGE", "COLLATE", "CONSTRAINT"):
        cursor.next()
    else:
        cursor.next()


def _default(cursor: Cursor) -> Default:
    """Read the default's value, from after DEFAULT."""
    if cursor.peek() == (Kind.OTHER, "("):
        return _default_expression(cursor)
    literal = read_literal(cursor)
    if literal is not None:
        return Default(literal)
    token = cursor.next()
    if token.kind is not Kind.WORD:
        raise SqlSyntaxError(f"{token.text!r} is not a default")
    if token.text.upper() == "NULL":
        return Default()
    cursor.skip_group()
    return Default(computed=True)


def _default_expression(cursor: Cursor) -> Default:
    """Read a default in parentheses: a literal, or what only the server computes."""
    start = cursor.at
    cursor.expect_symbol("(")
    literal = read_literal(cursor)
    if literal is not None and cursor.symbol(")"):
        return Default(literal)
    cursor.at = start
    cursor.skip_group()
    return Default(computed=True)
