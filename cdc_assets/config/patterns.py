"""Table patterns of the feeds file: `database.table` with the wildcards * and ?."""

import re
from collections.abc import Mapping
from functools import cache


def split_pattern(pattern: str) -> tuple[str, str]:
    """Return the database part and the table part of a table pattern.

    The pattern is split at its first dot, because a table's name may contain dots.
    """
    database, _, table = pattern.partition(".")
    return database, table


@cache
def _wildcard_regex(part: str) -> re.Pattern[str]:
    # fnmatch would treat [ as a wildcard, but it is a plain character in a table's name.
    return re.compile("".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in part), re.DOTALL)


def matches_pattern(pattern: str, database: str, table: str) -> bool:
    """Return whether a table pattern matches a table."""
    database_part, table_part = split_pattern(pattern)
    return bool(_wildcard_regex(database_part).fullmatch(database) and _wildcard_regex(table_part).fullmatch(table))


def choice_for_table(choices: str | Mapping[str, str], database: str, table: str, default: str) -> str:
    """Return the value of a setting for one table.

    Args:
        choices: one value for all tables, or a mapping of table patterns to values: the first matching pattern counts.
        database: the table's database.
        table: the table's name.
        default: the value if no pattern matches.
    """
    if isinstance(choices, str):
        return choices
    return next((choice for pattern, choice in choices.items() if matches_pattern(pattern, database, table)), default)
