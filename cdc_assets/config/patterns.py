"""Patterns of tables, `database.table` with * and ? as wildcards, as the feeds file has them."""

import re
from collections.abc import Mapping
from functools import cache


def split_pattern(pattern: str) -> tuple[str, str]:
    """The database part and the table part of a table pattern, split at its first dot (table names may have dots)."""
    database, _, table = pattern.partition(".")
    return database, table


@cache
def _glob(part: str) -> re.Pattern[str]:
    # Not fnmatch: [ is a wildcard there, and a plain character in a table's name.
    return re.compile("".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in part), re.DOTALL)


def matches(pattern: str, database: str, table: str) -> bool:
    """Whether a table is one of those that a pattern stands for."""
    database_part, table_part = split_pattern(pattern)
    return bool(_glob(database_part).fullmatch(database) and _glob(table_part).fullmatch(table))


def chosen(choices: str | Mapping[str, str], database: str, table: str, default: str) -> str:
    """What holds for a table: of patterns the first that matches counts, and without any the default."""
    if isinstance(choices, str):
        return choices
    return next((choice for pattern, choice in choices.items() if matches(pattern, database, table)), default)
