"""Skip options of tables and databases, and how an alteration is executed: nothing that a schema action holds."""

from collections.abc import Set as AbstractSet

from cdc_assets.ddl.readers.tokens import expect_word
from cdc_assets.mysql_types.tokens import SqlSyntaxError, TokenCursor, TokenKind

# Options of one word, whose value is one token or a group in parentheses.
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
_VALUE_KINDS = (TokenKind.WORD, TokenKind.QUOTED, TokenKind.STRING, TokenKind.NUMBER, TokenKind.HEX, TokenKind.BITS)


def expect_option(cursor: TokenCursor) -> None:
    """Skip one option with its value.

    Raises:
        SqlSyntaxError: no option comes next.
    """
    if not skip_option(cursor):
        raise SqlSyntaxError(f"{cursor.peek().text!r} is not expected here")


def skip_option(cursor: TokenCursor) -> bool:
    """Skip one option with its value if it comes next, and return whether it does."""
    cursor.take("DEFAULT")
    if skip_charset(cursor) or any(cursor.take(*words) for words in _OPTIONS_WITHOUT_VALUE):
        return True
    if cursor.take("TTL"):
        cursor.symbol("=")
        cursor.name()
        cursor.expect_symbol("+")
        expect_word(cursor, "INTERVAL")
        skip_value(cursor)
        cursor.name()
        return True
    if any(cursor.take(*words) for words in _OPTIONS_OF_TWO_WORDS):
        cursor.take("SET")
        cursor.symbol("=")
        skip_value(cursor)
        return True
    return skip_named_option(cursor, _OPTIONS)


_OPTIONS_WITHOUT_VALUE = (("START", "TRANSACTION"), ("WITH", "SYSTEM", "VERSIONING"), ("WITH", "VALIDATION"))
_OPTIONS_OF_TWO_WORDS = (("PLACEMENT", "POLICY"), ("DATA", "DIRECTORY"), ("INDEX", "DIRECTORY"))


def skip_named_option(cursor: TokenCursor, names: AbstractSet[str]) -> bool:
    """Skip an option with one of these names, or any name before an equals sign, and return whether it comes next.

    Storage engines of MariaDB define options of their own, which always have the equals sign. SHOW CREATE TABLE quotes them.
    """
    is_name = cursor.peek().kind in {TokenKind.WORD, TokenKind.QUOTED}
    if cursor.word() not in names and not (is_name and cursor.sees_symbol("=", 1)):
        return False
    cursor.next()
    cursor.symbol("=")
    skip_value(cursor)
    return True


def skip_charset(cursor: TokenCursor) -> bool:
    """Skip a character set if it comes next, and return whether it does."""
    if not (cursor.take("CHARACTER", "SET") or cursor.take("CHAR", "SET") or cursor.take("CHARSET")):
        return False
    cursor.symbol("=")
    skip_value(cursor)
    return True


def skip_value(cursor: TokenCursor) -> None:
    """Skip the value of an option: one token, which may have a minus sign, or a group in parentheses.

    Raises:
        SqlSyntaxError: no value comes next.
    """
    if cursor.sees_symbol("("):
        cursor.skip_group()
        return
    cursor.symbol("-")
    if cursor.peek().kind not in _VALUE_KINDS:
        raise SqlSyntaxError(f"{cursor.peek().text!r} is not a value")
    cursor.next()


def skip_algorithm_and_lock(cursor: TokenCursor) -> None:
    """Skip ALGORITHM and LOCK, which say how an index is made or dropped."""
    while cursor.take_any("ALGORITHM", "LOCK"):
        cursor.symbol("=")
        skip_value(cursor)
