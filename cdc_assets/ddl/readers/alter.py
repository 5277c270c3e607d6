"""Read ALTER TABLE. The function of an alteration takes the tokens after its first word."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from cdc_assets.ddl.actions import (
    Action,
    AddColumn,
    AddForeignKey,
    AddKey,
    DdlKind,
    Default,
    DropColumn,
    DropForeignKey,
    DropKey,
    ModifyColumn,
    MoveRows,
    RenameColumn,
    RenameKey,
    RenameTable,
    SetDefault,
    Statement,
)
from cdc_assets.ddl.readers.columns import PARTITION_WORDS, read_column, read_columns_and_keys, read_default
from cdc_assets.ddl.readers.keys import read_key
from cdc_assets.ddl.readers.options import skip_charset, skip_option
from cdc_assets.ddl.readers.other import read_other, read_other_object
from cdc_assets.ddl.readers.partitions import PARTITION_ALTERATIONS, read_exchange, skip_partition_clause
from cdc_assets.ddl.readers.tokens import expect_kind, expect_word, read_column_name, read_table_name, skip_lock_wait
from cdc_assets.mysql_types.tokens import SqlSyntaxError, TokenCursor, TokenKind


def read_alter(cursor: TokenCursor) -> Statement:
    """Read a statement from after ALTER. It is of kind `rename_table` if it only renames the table.

    Foreign keys change neither columns nor rows, so they do not count for the kind.

    Raises:
        SqlSyntaxError: a part of it is not understood.
    """
    cursor.take_any("ONLINE", "OFFLINE")
    ignores_duplicates = cursor.take("IGNORE")
    if not cursor.take("TABLE"):
        return read_other(cursor) if cursor.word() in {"DATABASE", "SCHEMA"} else read_other_object(cursor)
    tolerant = cursor.take("IF", "EXISTS")
    table = read_table_name(cursor)
    skip_lock_wait(cursor)
    actions: list[Action] = []
    after_comma = True
    while not cursor.done:
        if word := cursor.take_any(*_ALTERATIONS):
            if not after_comma and word not in PARTITION_WORDS:
                raise SqlSyntaxError(f"{word!r} is not expected here")
            actions += _ALTERATIONS[word](cursor)
        else:
            actions += _read_option(cursor)
        # MySQL accepts options one after the other without a comma.
        after_comma = cursor.symbol(",")
        if after_comma and cursor.done:
            raise SqlSyntaxError("an alteration is missing after the last comma")
    if ignores_duplicates and any(isinstance(action, AddKey) and action.kind != "index" for action in actions):
        actions.append(MoveRows("ALTER IGNORE with a unique key"))
    others = [action for action in actions if not isinstance(action, AddForeignKey | DropForeignKey)]
    only_renames = bool(others) and all(isinstance(action, RenameTable) for action in others)
    kind: DdlKind = "rename_table" if only_renames else "alter_table"
    exchanges = [(a.other, (MoveRows(a.how),)) for a in actions if isinstance(a, MoveRows) and a.other is not None]
    return Statement(kind, ((table, tuple(actions)), *exchanges), tolerant=tolerant)


def _read_option(cursor: TokenCursor) -> list[Action]:
    """Skip an option, which gives an action only if it deletes all rows: the engine BLACKHOLE."""
    is_engine = cursor.sees("ENGINE")
    if not skip_option(cursor):
        raise SqlSyntaxError(f"ALTER TABLE ... {cursor.peek().text} is not known")
    is_blackhole = is_engine and cursor.tokens[cursor.at - 1].text.upper() == "BLACKHOLE"
    return [MoveRows("ENGINE = BLACKHOLE")] if is_blackhole else []


def _read_add(cursor: TokenCursor) -> list[Action]:
    """Read ADD of columns, keys, partitions; or of what changes neither columns nor keys, which gives no action."""
    if cursor.take("PARTITION"):
        skip_partition_clause(cursor)
        return []
    if cursor.take("SYSTEM", "VERSIONING"):
        return []
    if cursor.take("STATS_EXTENDED"):
        cursor.take("IF", "NOT", "EXISTS")
        skip_partition_clause(cursor)
        return []
    if not cursor.take("COLUMN") and (key := read_key(cursor)) is not None:
        return key
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    if cursor.symbol("("):
        return read_columns_and_keys(cursor, only_if_missing=tolerant)
    return read_column(cursor, only_if_missing=tolerant)


def _read_drop(cursor: TokenCursor) -> list[Action]:
    """Read DROP of a column, a key, partitions; or of what changes neither columns nor keys, which gives no action."""
    if cursor.take("PRIMARY", "KEY"):
        return [DropKey("PRIMARY")]
    if cursor.take("PARTITION"):
        skip_partition_clause(cursor)
        return [MoveRows("DROP PARTITION")]
    if cursor.take("SYSTEM", "VERSIONING"):
        return []
    if cursor.take("PERIOD", "FOR"):
        cursor.name()
        return []
    object_kind = cursor.take_any("INDEX", "KEY", "CONSTRAINT", "FOREIGN", "CHECK", "COLUMN", "STATS_EXTENDED")
    if object_kind == "FOREIGN":
        expect_word(cursor, "KEY")
    tolerant = cursor.take("IF", "EXISTS")
    name = read_column_name(cursor)
    cursor.take_any("RESTRICT", "CASCADE")
    dropped: Mapping[str, list[Action]] = {
        "INDEX": [DropKey(name, tolerant)],
        "KEY": [DropKey(name, tolerant)],
        "CONSTRAINT": [DropKey(name, tolerant), DropForeignKey(name)],
        "FOREIGN": [DropForeignKey(name)],
        "COLUMN": [DropColumn(name, tolerant)],
        "": [DropColumn(name, tolerant)],
    }
    return dropped.get(object_kind, [])


def _read_modification(cursor: TokenCursor, *, has_old_name: bool) -> list[Action]:
    """Read MODIFY, or CHANGE, which has the column's old name before its definition."""
    cursor.take("COLUMN")
    tolerant = cursor.take("IF", "EXISTS")
    old_name = read_column_name(cursor) if has_old_name else ""
    return [
        ModifyColumn(old_name or action.column.name, action.column, action.position, tolerant)
        if isinstance(action, AddColumn)
        else action
        for action in read_column(cursor)
    ]


def _read_rename(cursor: TokenCursor) -> list[Action]:
    """Read RENAME of a column, a key or the table."""
    object_kind = cursor.take_any("COLUMN", "INDEX", "KEY")
    if not object_kind:
        if not cursor.take_any("TO", "AS"):
            cursor.symbol("=")
        return [RenameTable(read_table_name(cursor))]
    tolerant = cursor.take("IF", "EXISTS")
    old_name = cursor.name()
    expect_word(cursor, "TO")
    new_name = cursor.name()
    if object_kind == "COLUMN":
        return [RenameColumn(old_name, new_name, tolerant)]
    return [RenameKey(old_name, new_name)]


def _read_alter(cursor: TokenCursor) -> list[Action]:
    """Read ALTER of a column, of which only the default gives an action; or of a key or a check, which gives none."""
    if cursor.take_any("INDEX", "KEY"):
        cursor.take("IF", "EXISTS")
        cursor.name()
        cursor.take("NOT")
        expect_word(cursor, "VISIBLE", "INVISIBLE", "IGNORED")
        return []
    if cursor.take_any("CHECK", "CONSTRAINT"):
        cursor.name()
        cursor.take("NOT")
        expect_word(cursor, "ENFORCED")
        return []
    cursor.take("COLUMN")
    cursor.take("IF", "EXISTS")
    name = read_column_name(cursor)
    if cursor.take("SET", "DEFAULT"):
        return [SetDefault(name, read_default(cursor))]
    if cursor.take("DROP", "DEFAULT"):
        return [SetDefault(name, Default())]
    expect_word(cursor, "SET")
    expect_word(cursor, "VISIBLE", "INVISIBLE")
    return []


def _read_convert(cursor: TokenCursor) -> list[Action]:
    """Read CONVERT TO CHARACTER SET, which gives no action; or MariaDB's CONVERT PARTITION or CONVERT TABLE."""
    if cursor.word() in {"PARTITION", "TABLE"}:
        return [read_exchange(cursor, "CONVERT PARTITION")]
    expect_word(cursor, "TO")
    if not skip_charset(cursor):
        raise SqlSyntaxError(f"CONVERT TO {cursor.peek().text} is not known")
    if cursor.take("COLLATE"):
        cursor.symbol("=")
        cursor.name()
    return []


def _read_order_by(cursor: TokenCursor) -> list[Action]:
    """Skip ORDER BY, the order in which the server rewrites the rows; no action."""
    expect_word(cursor, "BY")
    while True:
        read_column_name(cursor)
        cursor.take_any("ASC", "DESC")
        if not cursor.sees_symbol(",") or cursor.word(1) in _ALTERATIONS:
            return []
        cursor.next()


def _skipping(*words: str) -> Callable[[TokenCursor], list[Action]]:
    """Return the function of an alteration without an action; `words` follow its first word."""

    def skip(cursor: TokenCursor) -> list[Action]:
        for word in words:
            expect_word(cursor, word)
        return []

    return skip


def _skip_replica(cursor: TokenCursor) -> list[Action]:
    """Skip TiDB's SET TIFLASH REPLICA n LOCATION LABELS 'a', 'b', or COMPACT TIFLASH REPLICA; no action."""
    cursor.take("HYPO")
    expect_word(cursor, "TIFLASH")
    expect_word(cursor, "REPLICA")
    if cursor.peek().kind is TokenKind.NUMBER:
        cursor.next()
    if cursor.take("LOCATION", "LABELS"):
        expect_kind(cursor, TokenKind.STRING)
        while cursor.sees_symbol(",") and cursor.peek(1).kind is TokenKind.STRING:
            cursor.at += 2
    return []


_ALTERATIONS: Mapping[str, Callable[[TokenCursor], list[Action]]] = MappingProxyType(
    {
        "ADD": _read_add,
        "DROP": _read_drop,
        "MODIFY": partial(_read_modification, has_old_name=False),
        "CHANGE": partial(_read_modification, has_old_name=True),
        "RENAME": _read_rename,
        "ALTER": _read_alter,
        **PARTITION_ALTERATIONS,
        "CONVERT": _read_convert,
        "ORDER": _read_order_by,
        "ENABLE": _skipping("KEYS"),
        "DISABLE": _skipping("KEYS"),
        "WITHOUT": _skipping("VALIDATION"),
        "SET": _skip_replica,
        "COMPACT": _skip_replica,
        **dict.fromkeys(("FORCE", "CACHE", "NOCACHE", "SECONDARY_LOAD", "SECONDARY_UNLOAD"), _skipping()),
    }
)
