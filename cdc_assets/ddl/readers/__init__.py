"""Read SQL text into a `Statement`: what a DDL statement does. A statement is read to its last token, or not at all.

`read_statement` passes a statement to the function of its first word, which is in `alter` or `tables`; `other` skips
statements that change no table. `columns`, `keys`, `partitions` and `options` read the parts that several statements have,
and `tokens` the words between them.

The grammar is that of the chapters on data definition in the reference manuals of MySQL 8.4, MariaDB and TiDB. The readers
skip what changes neither a column nor a key nor a table's name: options, PARTITION BY, comments, checks. They
return names as written, with an empty database where none is written; `ddl.resolve` finds the table that a name means.

Each reader takes tokens, because the parser of sqlglot 30.30 (dialect `mysql`) fails on statements that real sources send.
For a statement that it cannot parse, the parser raises an error or returns the unparsed text as a `Command`. Some statements
it parses to a wrong result. By statement or part of one:

- `create`: a `Command` for PARTITION BY HASH, WITH SYSTEM VERSIONING, PLACEMENT POLICY, UNION, CREATE FULLTEXT INDEX and
  CREATE INDEX ... ALGORITHM; an error for a partition with an ENGINE (as SHOW CREATE TABLE prints it), TTL and
  CREATE INDEX i USING BTREE ON.
- `alter`: a `Command` for ADD COLUMN (...), CONVERT TO CHARACTER SET, MODIFY COLUMN IF EXISTS, ALTER ONLINE TABLE, WAIT,
  ENABLE KEYS, DISCARD TABLESPACE, SET TIFLASH REPLICA and ADD CONSTRAINT ... CHECK ... NOT ENFORCED.
- `drop`: an error for WAIT and for DROP INDEX ... ALGORITHM or LOCK; a `Command` for DROP TABLES. A wrong result for
  DROP /*!40005 TEMPORARY */ TABLE: the executable comment becomes a plain one, so another table is dropped.
- `rename`: a `Command` for every RENAME TABLE.
- `truncate`: a `Command` for WAIT, as for words that no server accepts.
- `recover`: an error for RECOVER TABLE and FLASHBACK TABLE.
- `columns`: an error for FLOAT UNSIGNED, POINT, CHAR BYTE, LONG VARCHAR, SRID, COMPRESSED, STORAGE, AUTO_RANDOM and
  CHECK ... NOT ENFORCED. A wrong result for INT8, which becomes TINYINT, and REAL, which becomes FLOAT.
- `keys`: an error for CLUSTERED.
- `partitions`: a `Command` for TRUNCATE, EXCHANGE and REORGANIZE PARTITION, PARTITION BY and REMOVE PARTITIONING; an error
  for DROP PARTITION and ADD PARTITION.
- `options`: a `Command` for the whole CREATE TABLE that has one of the options above; a wrong result for START TRANSACTION,
  which becomes the START WITH of a sequence.
- `other`: a `Command` for most of these statements (CREATE TRIGGER, GRANT, SET STATEMENT ... FOR), which looks the same as
  the `Command` of a statement that does change a table.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from cdc_assets.ddl.actions import Statement
from cdc_assets.ddl.readers.alter import read_alter
from cdc_assets.ddl.readers.other import OTHER_STATEMENTS, read_other
from cdc_assets.ddl.readers.tables import read_create, read_drop, read_recover, read_rename, read_truncate
from cdc_assets.ddl.readers.tokens import expect_end
from cdc_assets.mysql_types.tokens import SqlSyntaxError, TokenCursor, executed_texts, tokens_of


@lru_cache(maxsize=4096)
def read_statement(sql: str) -> Statement:
    """Return what one DDL statement does; kind `other` if it needs no schema action.

    Raises:
        SqlSyntaxError: a part of the text is not understood.
    """
    first, *others = (_read_text(text) for text in executed_texts(sql))
    if any(other != first for other in others):
        raise SqlSyntaxError(
            "some servers execute a comment /*!NNNNN ... */ or /*M! ... */ of the statement, others do not"
        )
    return first


def _read_text(sql: str) -> Statement:
    """Return what a statement without executable comments does."""
    cursor = TokenCursor(tokens_of(sql))
    if cursor.take("SET", "STATEMENT"):  # MariaDB's variables for one statement
        while not cursor.take("FOR"):
            if cursor.done:
                raise SqlSyntaxError("the statement ends too early")
            cursor.next()
    first_word = cursor.take_any(*_READERS)
    if not first_word:
        if not cursor.done and cursor.word() not in OTHER_STATEMENTS:
            raise SqlSyntaxError(f"no statement that begins with {cursor.peek().text!r} is known")
        return read_other(cursor)
    statement = _READERS[first_word](cursor)
    expect_end(cursor)
    return statement


# The reader of each first word. A reader takes the tokens after that word.
_READERS: Mapping[str, Callable[[TokenCursor], Statement]] = MappingProxyType(
    {
        "CREATE": read_create,
        "ALTER": read_alter,
        "DROP": read_drop,
        "RENAME": read_rename,
        "TRUNCATE": read_truncate,
        "RECOVER": read_recover,
        "FLASHBACK": read_recover,
    }
)
