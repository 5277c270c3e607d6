"""SQL text -> what a DDL statement does. A statement is understood to its last token, or not at all.

Grammar: the chapters on data definition of the MySQL 8.4 reference manual, MariaDB's and TiDB's. What changes neither a
column nor a key nor a table's name (options, partitions, comments, foreign keys, checks) is read and left out. Names come
out verbatim, and those without a database with an empty one: which one is meant, `resolve` says.

sqlglot's parser (30.x) does not serve: it keeps statements that it does not know as a text of class `Command` without an
error, loses `unsigned` of floats, `zerofill` and positions of columns, and has no tree for many alterations.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from cdc_assets.ddl.actions import (
    Action,
    AddColumn,
    AddKey,
    Column,
    DdlKind,
    Default,
    DropColumn,
    DropKey,
    ModifyColumn,
    MoveRows,
    RenameColumn,
    RenameKey,
    RenameTable,
    SetDefault,
    Statement,
    TableName,
)
from cdc_assets.ddl.defaults import read_literal
from cdc_assets.mysql_types.tokens import SqlSyntaxError, TokenCursor, TokenKind, executed_texts, tokens_of
from cdc_assets.mysql_types.types import MySQLType, NoSuchTypeError, declared, parsed, read_type


@lru_cache(maxsize=4096)
def read_statement(sql: str) -> Statement:
    """Read one DDL statement; `other` for a statement that changes no table's structure or contents.

    Raises:
        SqlSyntaxError: a part of the text is not understood.
    """
    first, *others = (_read(text) for text in executed_texts(sql))
    if any(other != first for other in others):
        raise SqlSyntaxError("whether the server executes a comment for some versions alone is not told")
    return first


def _read(sql: str) -> Statement:
    cursor = TokenCursor(tokens_of(sql))
    if cursor.take("SET", "STATEMENT"):  # MariaDB: variables that hold for the statement alone
        while not cursor.take("FOR"):
            _skip_token(cursor)
    verb = cursor.take_any(*_READERS)
    if not verb:
        if not cursor.done and cursor.word() not in _OTHER_STATEMENTS:
            raise SqlSyntaxError(f"a statement that begins with {cursor.peek().text!r} is not known")
        _skip_other(cursor)
        return Statement("other")
    statement = _READERS[verb](cursor)
    _expect_end(cursor)
    return statement


# The first words of statements that change no table's structure, and whose rows, if any, come as row events.
_OTHER_STATEMENTS = frozenset({
    "ADMIN", "ANALYZE", "BEGIN", "BINLOG", "CACHE", "CALL", "CHANGE", "CHECK", "CHECKSUM", "COMMIT", "DEALLOCATE",
    "DELETE", "DESC", "DESCRIBE", "DO", "EXECUTE", "EXPLAIN", "FLUSH", "GRANT", "HANDLER", "HELP", "INSERT",
    "INSTALL", "KILL", "LOAD", "LOCK", "OPTIMIZE", "PREPARE", "PURGE", "RELEASE", "REPAIR", "REPLACE", "RESET",
    "RESIGNAL", "REVOKE", "ROLLBACK", "SAVEPOINT", "SELECT", "SET", "SHOW", "SHUTDOWN", "SIGNAL", "SPLIT", "START",
    "STOP", "UNINSTALL", "UNLOCK", "UPDATE", "USE", "VALUES", "WITH", "XA",
})  # fmt: skip
# What CREATE, ALTER and DROP may be about that is no table, and no database or index either.
_OTHER_OBJECTS = frozenset({
    "AGGREGATE", "ALGORITHM", "BINDING", "DEFINER", "EVENT", "FUNCTION", "GLOBAL", "HYPO", "INSTANCE", "JSON",
    "LIBRARY", "LOGFILE", "PACKAGE", "PLACEMENT", "PREPARE", "PROCEDURE", "RANGE", "RESOURCE", "ROLE", "SEQUENCE",
    "SERVER", "SESSION", "SPATIAL", "SQL", "STATISTICS", "STATS", "TABLESPACE", "TEMPORARY", "TRIGGER", "UNDO",
    "USER", "VIEW",
})  # fmt: skip
# Of these the text may hold several statements.
_WITH_BODY = frozenset({"PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "PACKAGE"})


def _skip_other(cursor: TokenCursor) -> None:
    """Skip a statement about something that is no table.

    Raises:
        SqlSyntaxError: another statement follows.
    """
    body = False
    while not cursor.at_end:
        if cursor.done and not body:
            _expect_end(cursor)
            return
        body = body or cursor.word() in _WITH_BODY
        cursor.next()


def _other_object(cursor: TokenCursor) -> Statement:
    if cursor.word() not in _OTHER_OBJECTS:
        raise SqlSyntaxError(f"{cursor.peek().text!r} is not known here")
    _skip_other(cursor)
    return Statement("other")


def _expect_end(cursor: TokenCursor) -> None:
    while cursor.symbol(";"):
        pass
    if not cursor.at_end:
        raise SqlSyntaxError(f"{cursor.peek().text!r} is not expected here")


def _skip_token(cursor: TokenCursor) -> None:
    if cursor.done:
        raise SqlSyntaxError("the statement ends too early")
    cursor.next()


def _create(cursor: TokenCursor) -> Statement:
    replaces = cursor.take("OR", "REPLACE")
    if cursor.take("TABLE"):
        return _create_table(cursor, replaces=replaces)
    if cursor.take_any("DATABASE", "SCHEMA"):
        tolerant = cursor.take("IF", "NOT", "EXISTS")
        name = cursor.name()
        while not cursor.done:
            _expect_option(cursor)
        # OR REPLACE drops the database first.
        return Statement("drop_database" if replaces else "create_database", tolerant=tolerant, database=name)
    cursor.take_any("ONLINE", "OFFLINE")
    if not any(cursor.sees(*words, "INDEX") for words in (*(((kind,)) for kind in _INDEX_KINDS), ())):
        return _other_object(cursor)  # views, triggers, users, and temporary tables, which no event is written for
    unique = cursor.take_any(*_INDEX_KINDS) == "UNIQUE"
    cursor.next()
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    name = cursor.name()
    _read_index_options(cursor)
    _expect_word(cursor, "ON")
    table = _table_name(cursor)
    _wait(cursor)
    _read_index_options(cursor)
    key = AddKey("unique" if unique else "index", _key_parts(cursor), name, only_if_missing=tolerant)
    _read_index_options(cursor)
    _read_how(cursor)
    dropped = (DropKey(name, if_exists=True),) if replaces else ()
    return Statement("create_index", ((table, (*dropped, key)),), tolerant=tolerant)


_INDEX_KINDS = ("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR")


def _create_table(cursor: TokenCursor, *, replaces: bool) -> Statement:
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    table = _table_name(cursor)
    in_parentheses = cursor.symbol("(")
    if cursor.take("LIKE"):
        like = _table_name(cursor)
        if in_parentheses:
            cursor.expect_symbol(")")
        return Statement("create_table", ((table, ()),), like=like, tolerant=tolerant, replaces=replaces)
    if not in_parentheses:
        raise SqlSyntaxError(f"CREATE TABLE {table.table} does not list the columns")
    actions = _elements(cursor)
    while not cursor.done and not cursor.sees("PARTITION", "BY"):
        _expect_option(cursor)
        cursor.symbol(",")
    if cursor.take("PARTITION", "BY"):
        _read_partitioning(cursor)
    return Statement("create_table", ((table, tuple(actions)),), tolerant=tolerant, replaces=replaces)


def _elements(cursor: TokenCursor, *, only_if_missing: bool = False) -> list[Action]:
    """Read columns and keys up to the parenthesis that closes them."""
    actions: list[Action] = []
    while True:
        key = _key_definition(cursor)
        if key is None:
            actions += _column(cursor, only_if_missing=only_if_missing)
        elif key.columns:
            actions.append(key)
        if not cursor.symbol(","):
            break
    cursor.expect_symbol(")")
    return actions


def _alter(cursor: TokenCursor) -> Statement:
    cursor.take_any("ONLINE", "OFFLINE")
    cursor.take("IGNORE")
    if not cursor.take("TABLE"):
        if cursor.word() in {"DATABASE", "SCHEMA"}:
            _skip_other(cursor)
            return Statement("other")
        return _other_object(cursor)
    tolerant = cursor.take("IF", "EXISTS")
    table = _table_name(cursor)
    _wait(cursor)
    actions: list[Action] = []
    separated = True
    while not cursor.done:
        if verb := cursor.take_any(*_ALTERATIONS):
            if not separated and verb not in _PARTITIONS:
                raise SqlSyntaxError(f"{verb!r} is not expected here")
            actions += _ALTERATIONS[verb](cursor)
        elif not _read_option(cursor):
            raise SqlSyntaxError(f"ALTER TABLE ... {cursor.peek().text} is not known")
        # Between options there need not be a comma.
        separated = cursor.symbol(",")
        if separated and cursor.done:
            raise SqlSyntaxError("an alteration is missing after the last comma")
    only_renames = bool(actions) and all(isinstance(action, RenameTable) for action in actions)
    kind: DdlKind = "rename_table" if only_renames else "alter_table"
    return Statement(kind, ((table, tuple(actions)),), tolerant=tolerant)


def _drop(cursor: TokenCursor) -> Statement:
    if cursor.take_any("TABLE", "TABLES"):
        tolerant = cursor.take("IF", "EXISTS")
        tables = [_table_name(cursor)]
        while cursor.symbol(","):
            tables.append(_table_name(cursor))
        _wait(cursor)
        cursor.take_any("RESTRICT", "CASCADE")
        return Statement("drop_table", tuple((table, ()) for table in tables), tolerant=tolerant)
    if cursor.take_any("DATABASE", "SCHEMA"):
        tolerant = cursor.take("IF", "EXISTS")
        return Statement("drop_database", tolerant=tolerant, database=cursor.name())
    cursor.take_any("ONLINE", "OFFLINE")
    if not cursor.take("INDEX"):
        return _other_object(cursor)
    tolerant = cursor.take("IF", "EXISTS")
    key = DropKey(cursor.name(), if_exists=tolerant)
    _expect_word(cursor, "ON")
    table = _table_name(cursor)
    _wait(cursor)
    _read_how(cursor)
    return Statement("drop_index", ((table, (key,)),), tolerant=tolerant)


def _rename(cursor: TokenCursor) -> Statement:
    if cursor.take("USER"):
        _skip_other(cursor)
        return Statement("other")
    if not cursor.take_any("TABLE", "TABLES"):
        raise SqlSyntaxError(f"RENAME {cursor.peek().text} is not known")
    tolerant = cursor.take("IF", "EXISTS")
    changes = []
    while True:
        old = _table_name(cursor)
        _wait(cursor)
        _expect_word(cursor, "TO")
        changes.append((old, (RenameTable(_table_name(cursor)),)))
        if not cursor.symbol(","):
            return Statement("rename_table", tuple(changes), tolerant=tolerant)


def _truncate(cursor: TokenCursor) -> Statement:
    cursor.take("TABLE")
    table = _table_name(cursor)
    _wait(cursor)
    return Statement("truncate_table", ((table, ()),))


def _recover(cursor: TokenCursor) -> Statement:
    """TiDB's RECOVER TABLE t and FLASHBACK TABLE t; what names a job, a time or another name cannot be followed."""
    if cursor.take("TABLE") and not cursor.sees("BY"):
        name = _table_name(cursor)
        if cursor.done:
            return Statement("recover_table", ((name, ()),))
    raise SqlSyntaxError("which rows come back is not told")


_READERS: Mapping[str, Callable[[TokenCursor], Statement]] = MappingProxyType(
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


def _wait(cursor: TokenCursor) -> None:
    """MariaDB's WAIT n and NOWAIT: how long the statement waits for a lock."""
    if cursor.take("WAIT"):
        _expect_kind(cursor, TokenKind.NUMBER)
    else:
        cursor.take("NOWAIT")


# Alterations. Each reads all that follows its first word.


def _add(cursor: TokenCursor) -> list[Action]:
    if cursor.take("PARTITION"):
        _skip_partitions(cursor)
        return []
    if cursor.take("SYSTEM", "VERSIONING"):
        return []
    if cursor.take("STATS_EXTENDED"):
        cursor.take("IF", "NOT", "EXISTS")
        _skip_partitions(cursor)
        return []
    if not cursor.take("COLUMN"):
        key = _key_definition(cursor)
        if key is not None:
            return [key] if key.columns else []
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    if cursor.symbol("("):
        return _elements(cursor, only_if_missing=tolerant)
    return _column(cursor, only_if_missing=tolerant)


def _drop_part(cursor: TokenCursor) -> list[Action]:
    if cursor.take("PRIMARY", "KEY"):
        return [DropKey("PRIMARY")]
    if cursor.take("PARTITION"):
        _skip_partitions(cursor)
        return [MoveRows("DROP PARTITION")]
    if cursor.take("SYSTEM", "VERSIONING"):
        return []
    if cursor.take("PERIOD", "FOR"):
        cursor.name()
        return []
    what = cursor.take_any("INDEX", "KEY", "CONSTRAINT", "FOREIGN", "CHECK", "COLUMN", "STATS_EXTENDED")
    if what == "FOREIGN":
        _expect_word(cursor, "KEY")
    tolerant = cursor.take("IF", "EXISTS")
    name = cursor.name()
    cursor.take_any("RESTRICT", "CASCADE")
    if what in {"INDEX", "KEY", "CONSTRAINT"}:
        return [DropKey(name, tolerant)]
    return [DropColumn(name, tolerant)] if what in {"COLUMN", ""} else []


def _modify(cursor: TokenCursor) -> list[Action]:
    cursor.take("COLUMN")
    tolerant = cursor.take("IF", "EXISTS")
    return _as_modification(cursor.peek().text, _column(cursor), if_exists=tolerant)


def _change(cursor: TokenCursor) -> list[Action]:
    cursor.take("COLUMN")
    tolerant = cursor.take("IF", "EXISTS")
    old_name = cursor.name()
    return _as_modification(old_name, _column(cursor), if_exists=tolerant)


def _as_modification(old_name: str, definition: list[Action], *, if_exists: bool) -> list[Action]:
    return [
        ModifyColumn(old_name, action.column, action.position, if_exists) if isinstance(action, AddColumn) else action
        for action in definition
    ]


def _rename_part(cursor: TokenCursor) -> list[Action]:
    what = cursor.take_any("COLUMN", "INDEX", "KEY")
    if not what:
        if not cursor.take_any("TO", "AS"):
            cursor.symbol("=")
        return [RenameTable(_table_name(cursor))]
    tolerant = cursor.take("IF", "EXISTS")
    old_name = cursor.name()
    _expect_word(cursor, "TO")
    new_name = cursor.name()
    if what == "COLUMN":
        return [RenameColumn(old_name, new_name, tolerant)]
    return [RenameKey(old_name, new_name)]


def _alter_part(cursor: TokenCursor) -> list[Action]:
    if cursor.take_any("INDEX", "KEY"):
        cursor.take("IF", "EXISTS")
        cursor.name()
        cursor.take("NOT")
        _expect_any(cursor, "VISIBLE", "INVISIBLE", "IGNORED")
        return []
    if cursor.take_any("CHECK", "CONSTRAINT"):
        cursor.name()
        cursor.take("NOT")
        _expect_word(cursor, "ENFORCED")
        return []
    cursor.take("COLUMN")
    cursor.take("IF", "EXISTS")
    name = cursor.name()
    if cursor.take("SET", "DEFAULT"):
        return [SetDefault(name, _default(cursor))]
    if cursor.take("DROP", "DEFAULT"):
        return [SetDefault(name, Default())]
    _expect_word(cursor, "SET")
    _expect_any(cursor, "VISIBLE", "INVISIBLE")
    return []


def _truncate_part(cursor: TokenCursor) -> list[Action]:
    _expect_word(cursor, "PARTITION")
    _skip_partitions(cursor)
    return [MoveRows("TRUNCATE PARTITION")]


def _exchange(cursor: TokenCursor) -> list[Action]:
    _expect_word(cursor, "PARTITION")
    _skip_partitions(cursor)
    return [MoveRows("EXCHANGE PARTITION")]


def _first(cursor: TokenCursor) -> list[Action]:
    """TiDB's FIRST PARTITION LESS THAN: the partitions before it go."""
    _expect_word(cursor, "PARTITION")
    _skip_partitions(cursor)
    return [MoveRows("FIRST PARTITION")]


def _discard(cursor: TokenCursor) -> list[Action]:
    _skip_partitions(cursor)
    return [MoveRows("DISCARD TABLESPACE")]


def _import(cursor: TokenCursor) -> list[Action]:
    _skip_partitions(cursor)
    return [MoveRows("IMPORT TABLESPACE")]


def _convert(cursor: TokenCursor) -> list[Action]:
    """A character set; MariaDB's CONVERT PARTITION, CONVERT TABLE."""
    if cursor.take_any("PARTITION", "TABLE"):
        _skip_partitions(cursor)
        return [MoveRows("CONVERT PARTITION")]
    _expect_word(cursor, "TO")
    if not _read_charset(cursor):
        raise SqlSyntaxError(f"CONVERT TO {cursor.peek().text} is not known")
    if cursor.take("COLLATE"):
        cursor.symbol("=")
        cursor.name()
    return []


def _order(cursor: TokenCursor) -> list[Action]:
    _expect_word(cursor, "BY")
    while True:
        _table_name(cursor)  # a column may be written with its table
        cursor.take_any("ASC", "DESC")
        if cursor.peek() != (TokenKind.OTHER, ",") or cursor.word(1) in _ALTERATIONS:
            return []
        cursor.next()


def _partition(cursor: TokenCursor) -> list[Action]:
    if cursor.take("BY"):
        _read_partitioning(cursor)
    else:  # TiDB's options of one partition
        cursor.name()
        _expect_option(cursor)
    return []


def _of_partitions(cursor: TokenCursor) -> list[Action]:
    """REBUILD PARTITION and the like, whose rows stay; TiDB's REMOVE TTL."""
    _expect_any(cursor, "PARTITION", "PARTITIONING", "FIRST", "MAXVALUE", "TTL")
    _skip_partitions(cursor)
    return []


def _keys(cursor: TokenCursor) -> list[Action]:
    _expect_word(cursor, "KEYS")
    return []


def _validation(cursor: TokenCursor) -> list[Action]:
    _expect_word(cursor, "VALIDATION")
    return []


def _nothing(cursor: TokenCursor) -> list[Action]:  # noqa: ARG001 -- every alteration has the same signature
    return []


def _replica(cursor: TokenCursor) -> list[Action]:
    """TiDB's SET TIFLASH REPLICA n LOCATION LABELS 'a', 'b'; COMPACT TIFLASH REPLICA."""
    cursor.take("HYPO")
    _expect_word(cursor, "TIFLASH")
    _expect_word(cursor, "REPLICA")
    if cursor.peek().kind is TokenKind.NUMBER:
        cursor.next()
    if cursor.take("LOCATION", "LABELS"):
        _expect_kind(cursor, TokenKind.STRING)
        while cursor.peek() == (TokenKind.OTHER, ",") and cursor.peek(1).kind is TokenKind.STRING:
            cursor.at += 2
    return []


_ALTERATIONS: Mapping[str, Callable[[TokenCursor], list[Action]]] = MappingProxyType(
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
        "ORDER": _order,
        "PARTITION": _partition,
        **dict.fromkeys(
            (
                "REORGANIZE", "REBUILD", "ANALYZE", "CHECK", "OPTIMIZE", "REPAIR", "REMOVE", "UPGRADE", "COALESCE", "SPLIT",
                "MERGE", "LAST",
            ),
            _of_partitions,
        ),
        "ENABLE": _keys,
        "DISABLE": _keys,
        "WITHOUT": _validation,
        "SET": _replica,
        "COMPACT": _replica,
        **dict.fromkeys(("FORCE", "CACHE", "NOCACHE", "SECONDARY_LOAD", "SECONDARY_UNLOAD"), _nothing),
    }
)  # fmt: skip

# Options of tables and databases, and how an alteration is done: a name, and a value of one token.
_OPTIONS = frozenset({
    "ALGORITHM", "LOCK", "AUTOEXTEND_SIZE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "COLLATE", "COMMENT",
    "COMPRESSION", "CONNECTION", "DELAY_KEY_WRITE", "ENCRYPTION", "ENGINE", "TYPE", "ENGINE_ATTRIBUTE",
    "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PASSWORD", "ROW_FORMAT",
    "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE", "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES",
    "TABLESPACE", "STORAGE", "ENCRYPTED", "ENCRYPTION_KEY_ID", "IETF_QUOTES", "PAGE_CHECKSUM", "PAGE_COMPRESSED",
    "PAGE_COMPRESSION_LEVEL", "SEQUENCE", "TRANSACTIONAL", "SHARD_ROW_ID_BITS", "PRE_SPLIT_REGIONS", "AUTO_ID_CACHE",
    "AUTO_RANDOM_BASE", "ATTRIBUTES", "TTL_ENABLE", "TTL_JOB_INTERVAL", "STATS_BUCKETS", "STATS_TOPN",
    "STATS_COL_CHOICE", "STATS_COL_LIST", "STATS_SAMPLE_RATE", "STATS_OPTIONS", "AFFINITY", "UNION",
})  # fmt: skip
_VALUES = (TokenKind.WORD, TokenKind.QUOTED, TokenKind.STRING, TokenKind.NUMBER, TokenKind.HEX, TokenKind.BITS)


def _expect_option(cursor: TokenCursor) -> None:
    if not _read_option(cursor):
        raise SqlSyntaxError(f"{cursor.peek().text!r} is not expected here")


def _read_option(cursor: TokenCursor) -> bool:
    """Read one option of a table, with its value. False: none stands here."""
    cursor.take("DEFAULT")
    if _read_charset(cursor) or any(cursor.take(*words) for words in _FLAGS):
        return True
    if cursor.take("TTL"):
        cursor.symbol("=")
        cursor.name()
        cursor.expect_symbol("+")
        _expect_word(cursor, "INTERVAL")
        _read_value(cursor)
        cursor.name()
        return True
    if any(cursor.take(*words) for words in _OPTIONS_OF_TWO_WORDS):
        cursor.take("SET")
        cursor.symbol("=")
        _read_value(cursor)
        return True
    return _read_plain_option(cursor, _OPTIONS)


# Options without a value.
_FLAGS = (("START", "TRANSACTION"), ("WITH", "SYSTEM", "VERSIONING"), ("WITH", "VALIDATION"))
_OPTIONS_OF_TWO_WORDS = (("PLACEMENT", "POLICY"), ("DATA", "DIRECTORY"), ("INDEX", "DIRECTORY"))


def _read_plain_option(cursor: TokenCursor, names: AbstractSet[str]) -> bool:
    """Read an option of these names, or of MariaDB's engines, which always have an equals sign. False: none stands here."""
    if cursor.word() not in names and not (cursor.word() and cursor.peek(1) == (TokenKind.OTHER, "=")):
        return False
    cursor.next()
    cursor.symbol("=")
    _read_value(cursor)
    return True


def _read_charset(cursor: TokenCursor) -> bool:
    if not (cursor.take("CHARACTER", "SET") or cursor.take("CHAR", "SET") or cursor.take("CHARSET")):
        return False
    cursor.symbol("=")
    _read_value(cursor)
    return True


def _read_value(cursor: TokenCursor) -> None:
    if cursor.symbol("("):
        cursor.at -= 1
        cursor.skip_group()
        return
    cursor.symbol("-")
    if cursor.peek().kind not in _VALUES:
        raise SqlSyntaxError(f"{cursor.peek().text!r} is not a value")
    cursor.next()


def _read_how(cursor: TokenCursor) -> None:
    """Read how an index is made or dropped: ALGORITHM and LOCK."""
    while cursor.take_any("ALGORITHM", "LOCK"):
        cursor.symbol("=")
        _read_value(cursor)


# The words of how a table is partitioned, beside parentheses.
_OF_PARTITIONING = frozenset({
    "LINEAR", "HASH", "KEY", "ALGORITHM", "RANGE", "LIST", "COLUMNS", "SYSTEM_TIME", "INTERVAL", "LIMIT", "STARTS",
    "AUTO", "PARTITIONS", "SUBPARTITION", "SUBPARTITIONS", "BY", "CURRENT_TIMESTAMP", "TIMESTAMP", "NOW", "UPDATE",
    "INDEXES", "GLOBAL", "LOCAL", "FIRST", "LAST", "PARTITION", "LESS", "THAN", "MAXVALUE", "NULL", "MICROSECOND",
    "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR",
})  # fmt: skip


def _read_partitioning(cursor: TokenCursor) -> None:
    """Read how a table is partitioned, to the end of the statement."""
    while not cursor.done:
        token = cursor.peek()
        if token == (TokenKind.OTHER, "("):
            cursor.skip_group()
        elif (
            cursor.word() in _OF_PARTITIONING
            or token.kind in {TokenKind.NUMBER, TokenKind.STRING}
            or token.text in {"=", ","}
        ):
            cursor.next()
        else:
            raise SqlSyntaxError(f"{token.text!r} is not expected in PARTITION BY")


def _skip_partitions(cursor: TokenCursor) -> None:
    """Skip the partitions that an alteration is about, to the end of the statement: no other follows such a one."""
    while not cursor.done:
        if cursor.peek() == (TokenKind.OTHER, "("):
            cursor.skip_group()
        else:
            cursor.next()


def _table_name(cursor: TokenCursor) -> TableName:
    """Take a table's name, with an empty database where none is written."""
    cursor.symbol(".")
    first = cursor.name()
    return TableName(first, cursor.name()) if cursor.symbol(".") else TableName("", first)


def _expect_word(cursor: TokenCursor, word: str) -> None:
    if not cursor.take(word):
        raise SqlSyntaxError(f"expected {word}, found {cursor.peek().text!r}")


def _expect_any(cursor: TokenCursor, *words: str) -> None:
    if not cursor.take_any(*words):
        raise SqlSyntaxError(f"expected {' or '.join(words)}, found {cursor.peek().text!r}")


def _expect_kind(cursor: TokenCursor, kind: TokenKind) -> None:
    if cursor.peek().kind is not kind:
        raise SqlSyntaxError(f"{cursor.peek().text!r} is not expected here")
    cursor.next()


def _key_definition(cursor: TokenCursor) -> AddKey | None:
    """Read a key or another constraint. None: a column stands here; an AddKey without columns: of no consequence."""
    symbol = ""
    if cursor.take("CONSTRAINT"):
        cursor.take("IF", "NOT", "EXISTS")
        if cursor.word() not in {"PRIMARY", "UNIQUE", "FOREIGN", "CHECK"}:
            symbol = cursor.name()
    if cursor.take("PRIMARY", "KEY"):
        return _primary_key(cursor)
    if cursor.take("UNIQUE"):
        cursor.take_any("INDEX", "KEY")
        return _named_key(cursor, "unique", symbol)
    if cursor.word() in {"INDEX", "KEY", "FULLTEXT"} or (
        cursor.word() in _INDEX_KINDS and (cursor.word(1) in {"INDEX", "KEY"} or cursor.word() == "SPATIAL")
    ):
        cursor.take_any(*_INDEX_KINDS)
        cursor.take_any("INDEX", "KEY")
        return _named_key(cursor, "index", "")
    if _read_constraint(cursor):
        return AddKey("index", ())
    if symbol:
        raise SqlSyntaxError(f"CONSTRAINT {symbol} {cursor.peek().text} is not known")
    return None


def _primary_key(cursor: TokenCursor) -> AddKey:
    """Read a primary key, from after PRIMARY KEY."""
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    if cursor.peek() != (TokenKind.OTHER, "(") and cursor.word() != "USING":
        cursor.name()  # PRIMARY KEY takes a name, and ignores it
    _read_index_options(cursor)
    key = AddKey("primary", _key_parts(cursor), "PRIMARY", only_if_missing=tolerant)
    _read_index_options(cursor)
    return key


def _read_constraint(cursor: TokenCursor) -> bool:
    """Read a constraint that makes no key. False: none stands here."""
    if cursor.take("FOREIGN", "KEY"):
        cursor.take("IF", "NOT", "EXISTS")
        if cursor.peek() != (TokenKind.OTHER, "("):
            cursor.name()
        _key_parts(cursor)
        _expect_word(cursor, "REFERENCES")
        _read_reference(cursor)
    elif cursor.take("CHECK"):
        cursor.take("IF", "NOT", "EXISTS")
        _read_check(cursor)
    elif cursor.take("PERIOD", "FOR"):
        cursor.take("IF", "NOT", "EXISTS")
        cursor.name()
        _key_parts(cursor)
    else:
        return False
    return True


def _named_key(cursor: TokenCursor, kind: Literal["unique", "index"], symbol: str) -> AddKey:
    tolerant = cursor.take("IF", "NOT", "EXISTS")
    name = symbol
    if cursor.peek() != (TokenKind.OTHER, "(") and cursor.word() not in {"USING", "TYPE"}:
        name = cursor.name()
    _read_index_options(cursor)
    key = AddKey(kind, _key_parts(cursor), name, only_if_missing=tolerant)
    _read_index_options(cursor)
    return key


def _read_index_options(cursor: TokenCursor) -> None:
    """Read what an index is made like; none of it tells its columns."""
    while True:
        if cursor.take_any("USING", "TYPE", "COMMENT") or cursor.take("WITH", "PARSER"):
            _read_value(cursor)
        elif cursor.take("NOT", "IGNORED") or cursor.take_any(*_INDEX_FLAGS):
            continue
        elif cursor.word() in {"ALGORITHM", "LOCK"} or not _read_plain_option(cursor, _INDEX_OPTIONS):
            return


_INDEX_FLAGS = (
    "VISIBLE", "INVISIBLE", "IGNORED", "CLUSTERED", "NONCLUSTERED", "GLOBAL", "LOCAL", "ADD_COLUMNAR_REPLICA_ON_DEMAND",
)  # fmt: skip
_INDEX_OPTIONS = frozenset({"KEY_BLOCK_SIZE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "PRE_SPLIT_REGIONS"})


def _read_reference(cursor: TokenCursor) -> None:
    """Read what a foreign key refers to, from after REFERENCES."""
    _table_name(cursor)
    if cursor.peek() == (TokenKind.OTHER, "("):
        _key_parts(cursor)
    if cursor.take("MATCH"):
        _expect_any(cursor, "FULL", "PARTIAL", "SIMPLE")
    while cursor.sees("ON", "DELETE") or cursor.sees("ON", "UPDATE"):
        cursor.at += 2
        if cursor.take("SET"):
            _expect_any(cursor, "NULL", "DEFAULT")
        elif not cursor.take("NO", "ACTION"):
            _expect_any(cursor, "CASCADE", "RESTRICT")


def _read_check(cursor: TokenCursor) -> None:
    cursor.expect_symbol("(")
    cursor.at -= 1
    cursor.skip_group()
    if cursor.sees("NOT", "ENFORCED"):
        cursor.at += 2
    else:
        cursor.take("ENFORCED")


def _key_parts(cursor: TokenCursor) -> tuple[str, ...]:
    """The columns of a key; none when a part of it is an expression."""
    cursor.expect_symbol("(")
    columns: list[str] = []
    only_columns = True
    while True:
        if cursor.peek() == (TokenKind.OTHER, "("):
            only_columns = False
        else:
            columns.append(cursor.name())
        cursor.skip_group()  # the expression, or the length of a prefix
        cursor.take_any("ASC", "DESC")
        if not cursor.symbol(","):
            break
    cursor.expect_symbol(")")
    return tuple(columns) if only_columns else ()


def _column(cursor: TokenCursor, *, only_if_missing: bool = False) -> list[Action]:
    """Read a column's definition: the column, then the keys that are declared with it."""
    name = cursor.name()
    serial = cursor.sees("SERIAL")
    text = _type(cursor)
    mysql_type = parsed(text)
    column = Column(name, text)
    keys: list[Action] = []
    if serial:  # BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE
        column = replace(column, nullable=False, computed_default=True)
        keys.append(AddKey("unique", (name,), only_if_missing=only_if_missing))
    position: str | None = None
    while not _ends_item(cursor):
        if cursor.take("FIRST"):
            position = ""
        elif cursor.take("AFTER"):
            position = cursor.name()
        elif cursor.take("UNIQUE"):
            cursor.take("KEY")
            _read_index_options(cursor)
            keys.append(AddKey("unique", (name,), only_if_missing=only_if_missing))
        elif cursor.take("PRIMARY", "KEY") or cursor.take("KEY"):
            _read_index_options(cursor)
            keys.append(AddKey("primary", (name,), "PRIMARY", only_if_missing=only_if_missing))
            column = replace(column, nullable=False)
        else:
            column = _with_attribute(cursor, column, mysql_type)
    return [AddColumn(column, position, only_if_missing), *keys]


def _ends_item(cursor: TokenCursor) -> bool:
    ends = cursor.done or cursor.peek() in {(TokenKind.OTHER, ","), (TokenKind.OTHER, ")")}
    return ends or cursor.word() in _PARTITIONS


# These may follow the last alteration without a comma.
_PARTITIONS = ("PARTITION", "REMOVE")


def _type(cursor: TokenCursor) -> str:
    """Read a type. One that MySQL does not have (UUID, INET6) stays as it is written: `columns:` may name another."""
    at = cursor.at
    if cursor.word() in {"MARIADB_SCHEMA", "ORACLE_SCHEMA"} and cursor.peek(1) == (TokenKind.OTHER, "."):
        cursor.at += 2
    try:
        return str(declared(read_type(cursor)))
    except NoSuchTypeError:
        cursor.at = at
    name = cursor.next()
    if name.kind is not TokenKind.WORD:
        raise SqlSyntaxError(f"expected a type, found {name.text!r}")
    begin = cursor.at
    cursor.skip_group()
    return name.text.lower() + "".join(token.text for token in cursor.tokens[begin : cursor.at])


# VIRTUAL is what a generated column is unless STORED follows.
_ATTRIBUTES: Mapping[tuple[str, ...], Callable[[Column], Column]] = MappingProxyType(
    {
        ("NOT", "NULL"): lambda column: replace(column, nullable=False),
        ("NULL",): lambda column: replace(column, nullable=True),
        ("SERIAL", "DEFAULT", "VALUE"): lambda column: replace(column, nullable=False, computed_default=True),
        ("AUTO_INCREMENT",): lambda column: replace(column, computed_default=True),
        ("STORED",): lambda column: replace(column, virtual=False),
        ("PERSISTENT",): lambda column: replace(column, virtual=False),
        ("VIRTUAL",): lambda column: column,
        ("VISIBLE",): lambda column: column,
        ("INVISIBLE",): lambda column: column,
        ("NOT", "SECONDARY"): lambda column: column,
        ("WITH", "SYSTEM", "VERSIONING"): lambda column: column,
        ("WITHOUT", "SYSTEM", "VERSIONING"): lambda column: column,
    }
)


def _with_attribute(cursor: TokenCursor, column: Column, mysql_type: MySQLType | None) -> Column:
    """Read one attribute of a column."""
    for words, change in _ATTRIBUTES.items():
        if cursor.take(*words):
            return change(column)
    if cursor.take("DEFAULT"):
        return _default(cursor).given_to(column, mysql_type)
    if cursor.take("GENERATED"):
        if not cursor.take("BY", "DEFAULT"):
            _expect_word(cursor, "ALWAYS")
        if not cursor.sees("AS"):
            raise SqlSyntaxError(f"expected AS, found {cursor.peek().text!r}")
    if cursor.take("AS"):
        return _generated(cursor, column)
    _skip_attribute(cursor)
    return column


def _generated(cursor: TokenCursor, column: Column) -> Column:
    """Read how a column is computed, from after AS."""
    if cursor.take("ROW"):  # of a table with system versioning
        _expect_any(cursor, "START", "END")
        return replace(column, computed_default=True)
    if cursor.take("IDENTITY"):
        return replace(column, nullable=False, computed_default=True)
    if cursor.peek() != (TokenKind.OTHER, "("):
        raise SqlSyntaxError(f"expected an expression, found {cursor.peek().text!r}")
    cursor.skip_group()
    return replace(column, generated=True, virtual=True)


def _skip_attribute(cursor: TokenCursor) -> None:
    """Skip an attribute that changes nothing here.

    Raises:
        SqlSyntaxError: it is not known.
    """
    if cursor.take("ON", "UPDATE"):
        _expect_any(cursor, "CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP")
        cursor.skip_group()
    elif cursor.take("REFERENCES"):
        _read_reference(cursor)
    elif cursor.take("CONSTRAINT"):
        if not cursor.sees("CHECK"):
            cursor.name()
    elif cursor.take("CHECK"):
        _read_check(cursor)
    elif cursor.take("AUTO_RANDOM"):
        cursor.skip_group()
    elif cursor.sees("COMPRESSED") and cursor.peek(1) != (TokenKind.OTHER, "="):
        cursor.next()
    elif not _read_charset(cursor) and not _read_plain_option(cursor, _COLUMN_OPTIONS):
        raise SqlSyntaxError(f"{cursor.peek().text!r} is not known in a column's definition")


_COLUMN_OPTIONS = frozenset(
    {"COMMENT", "COLUMN_FORMAT", "STORAGE", "SRID", "COLLATE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"}
)


def _default(cursor: TokenCursor) -> Default:
    """Read the default's value, from after DEFAULT."""
    if cursor.peek() == (TokenKind.OTHER, "("):
        return _default_expression(cursor)
    literal = read_literal(cursor)
    if literal is not None:
        return Default(literal)
    token = cursor.next()
    if token.kind is not TokenKind.WORD:
        raise SqlSyntaxError(f"{token.text!r} is not a default")
    if token.text.upper() == "NULL":
        return Default()
    if token.text.upper() in {"NEXT", "PREVIOUS"} and cursor.take("VALUE", "FOR"):  # of a sequence of MariaDB's
        _table_name(cursor)
    cursor.skip_group()
    return Default(computed=True)


def _default_expression(cursor: TokenCursor) -> Default:
    """Read a default in parentheses: a literal, or what only the server computes."""
    start = cursor.at
    cursor.expect_symbol("(")
    literal = read_literal(cursor)
    if literal is not None and cursor.symbol(")"):
        return Default(literal)
    cursor.at = start
    cursor.skip_group()
    return Default(computed=True)
