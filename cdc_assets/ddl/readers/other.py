"""Skip statements that need no schema action: they change no table's structure, and their rows come as row events."""

from cdc_assets.ddl.actions import Statement
from cdc_assets.ddl.readers.tokens import expect_end
from cdc_assets.mysql_types.tokens import SqlSyntaxError, TokenCursor

# First words of such statements.
OTHER_STATEMENTS = frozenset({
    "ADMIN", "ANALYZE", "BEGIN", "BINLOG", "CACHE", "CALL", "CHANGE", "CHECK", "CHECKSUM", "COMMIT", "DEALLOCATE",
    "DELETE", "DESC", "DESCRIBE", "DO", "EXECUTE", "EXPLAIN", "FLUSH", "GRANT", "HANDLER", "HELP", "INSERT",
    "INSTALL", "KILL", "LOAD", "LOCK", "OPTIMIZE", "PREPARE", "PURGE", "RELEASE", "REPAIR", "REPLACE", "RESET",
    "RESIGNAL", "REVOKE", "ROLLBACK", "SAVEPOINT", "SELECT", "SET", "SHOW", "SHUTDOWN", "SIGNAL", "SPLIT", "START",
    "STOP", "UNINSTALL", "UNLOCK", "UPDATE", "USE", "VALUES", "WITH", "XA",
})  # fmt: skip
# Words after CREATE, ALTER and DROP that name something else than a table, a database or an index.
_OTHER_OBJECTS = frozenset({
    "AGGREGATE", "ALGORITHM", "BINDING", "DEFINER", "EVENT", "FUNCTION", "GLOBAL", "HYPO", "INSTANCE", "JSON",
    "LIBRARY", "LOGFILE", "PACKAGE", "PLACEMENT", "PREPARE", "PROCEDURE", "RANGE", "RESOURCE", "ROLE", "SEQUENCE",
    "SERVER", "SESSION", "SPATIAL", "SQL", "STATISTICS", "STATS", "TABLESPACE", "TEMPORARY", "TRIGGER", "UNDO",
    "USER", "VIEW",
})  # fmt: skip
# Objects whose definition contains statements.
_OBJECTS_WITH_BODY = frozenset({"PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "PACKAGE"})


def read_other_object(cursor: TokenCursor) -> Statement:
    """Skip a CREATE, ALTER or DROP of something else than a table, from after its first word, and return kind `other`.

    Raises:
        SqlSyntaxError: no server has such an object, or another statement follows.
    """
    if cursor.word() not in _OTHER_OBJECTS:
        raise SqlSyntaxError(f"CREATE, ALTER or DROP of {cursor.peek().text!r} is not known")
    return read_other(cursor)


def read_other(cursor: TokenCursor) -> Statement:
    """Skip the tokens to the end of the statement, and return kind `other`.

    Raises:
        SqlSyntaxError: another statement follows.
    """
    has_body = False
    while not cursor.at_end:
        if cursor.done and not has_body:
            expect_end(cursor)
            break
        has_body = has_body or cursor.word() in _OBJECTS_WITH_BODY
        cursor.next()
    return Statement("other")
