"""The schemas that messages state after a DDL statement, beside those that follow from the statement."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation

from cdc_assets.ddl.actions import Action, AddColumn, Column, Statement
from cdc_assets.ddl.literal_values import round_half_up
from cdc_assets.ddl.resolve import Name
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.mysql_types.descriptors import INTEGERS, TYPES, Family
from cdc_assets.mysql_types.types import parsed

# No time zone of MySQL is further from UTC.
_LARGEST_OFFSET = timedelta(hours=14)


def take_stated_defaults(statement: Statement, stated: Mapping[Name, TableSchema]) -> Statement:
    """Return a statement whose new TIMESTAMP columns have the defaults in UTC that its message states.

    The literal in the statement is a time in the session's zone, which no message states.
    """

    def take(name: Name, action: Action) -> Action:
        other = _find_stated(name, action, stated)
        if not isinstance(action, AddColumn) or other is None or not _is_in_utc(other):
            return action
        return replace(action, column=replace(action.column, default=other.default, computed_default=False))

    changes = tuple((name, tuple(take(name, each) for each in actions)) for name, actions in statement.changes)
    return replace(statement, changes=changes)


def describe_other_defaults(statement: Statement, stated: Mapping[Name, TableSchema]) -> Iterator[str]:
    """Yield a sentence for each column that ALTER TABLE adds with another default than its message states."""
    for name, actions in statement.changes if statement.kind == "alter_table" else ():
        for action in actions:
            other = _find_stated(name, action, stated)
            if isinstance(action, AddColumn) and other is not None and _is_other_default(action.column, other):
                yield (
                    f"{'.'.join(name)}: by the statement the default of {other.name} is {action.column.default}, by its "
                    f"message {other.default}"
                )


def _find_stated(name: Name, action: Action, stated: Mapping[Name, TableSchema]) -> Column | None:
    """Return the column that an action adds as a message states it; None: it states none."""
    if not isinstance(action, AddColumn) or name not in stated:
        return None
    return next((c for c in stated[name].columns if c.name.lower() == action.column.name.lower()), None)


def _is_in_utc(column: Column) -> bool:
    return column.default is not None and column.default.endswith("Z") and _family(column) is Family.TIMESTAMP


def _is_other_default(one: Column, other: Column) -> bool:
    """Return whether two defaults of a column, both numbers or both TIMESTAMPs, cannot be the same value."""
    family, mysql_type = _family(other), parsed(other.type)
    if one.default is None or other.default is None or mysql_type is None or family is not _family(one):
        return False
    if family is Family.TIMESTAMP and _is_in_utc(other):
        first, second = (datetime.fromisoformat(text.removesuffix("Z")) for text in (one.default, other.default))
        return abs(first - second) > _LARGEST_OFFSET
    if family not in {Family.INTEGER, Family.DECIMAL}:
        return False
    try:
        # TiDB may state the literal before it rounds it.
        numbers = [round_half_up(Decimal(text), mysql_type.scale or 0) for text in (one.default, other.default)]
    except InvalidOperation:
        return False
    return numbers[0] != numbers[1]


def _family(column: Column) -> Family | None:
    """Return the family of a column's type; None if MySQL has no such type."""
    mysql_type = parsed(column.type)
    return None if mysql_type is None else TYPES[mysql_type.base].family


def describe_difference(applied: TableSchema | None, stated: TableSchema) -> str | None:
    """Describe how the schema that a message states differs from the one that follows from the statement.

    Returns:
        A sentence; None if the schemas have the same columns, or the statement's is not known.
    """
    if applied is None:
        return None
    by_statement = {c.name.lower(): c.type for c in applied.columns}
    by_message = {c.name.lower(): c.type for c in stated.columns}
    other = [c for c in by_message if c in by_statement and is_other_type(by_statement[c], by_message[c])]
    if by_statement.keys() == by_message.keys() and not other:
        return None
    left, right = (
        ", ".join(f"{c} {types[c]}" for c in types if c not in elsewhere or c in other)
        for types, elsewhere in ((by_statement, by_message), (by_message, by_statement))
    )
    return (
        f"{applied.database}.{applied.table}: by the statement it has {left or 'no other column'}, "
        f"by its message {right or 'no other column'}"
    )


def is_other_type(one: str, other: str | None) -> bool:
    """Return whether two types differ, whatever lengths and attributes they leave out."""
    first, second = parsed(one), parsed(other)
    if first is None or second is None:
        return False
    families = {TYPES[first.base].family, TYPES[second.base].family}
    # A server may replace these by each other, because of their length or character set.
    may_be_replaced = families == {Family.FLOAT} or families <= {Family.TEXT, Family.BINARY, Family.JSON}
    if first.base != second.base and not may_be_replaced:
        return True
    # For other numbers TiCDC leaves `unsigned` out.
    return first.base in INTEGERS and first.unsigned != second.unsigned
