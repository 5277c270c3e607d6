"""Decide what a column's new type in the source means for its column in the history table and for the values there."""

from collections.abc import Sequence

from pyspark.sql.types import BinaryType, StringType

from cdc_assets.mysql_types.casting import spark_type, widen
from cdc_assets.mysql_types.descriptors import INTEGERS, TYPES, Family
from cdc_assets.mysql_types.types import MySQLType, capacity, value_range

# Types whose values in the history have the text that a message's key has.
KEY_TYPES = INTEGERS | {"char", "varchar"}
# Types with a zero date (0000-00-00), which no history can hold.
ZERO_DATE_TYPES = {"date", "datetime", "timestamp"}
_LABELS = {Family.ENUM, Family.SET}
# MySQL rounds values when a column of these types gets fewer digits after the point.
_FRACTIONS = {Family.DATETIME, Family.TIMESTAMP, Family.TIME}


def fits_history_column(old: MySQLType | None, new: MySQLType | None) -> bool:
    """Return whether the history column of the old type, widened if necessary, can hold values of the new type."""
    if old is None or new is None:
        return True
    if "decimal" in (old.base, new.base) and (old.base, old.length and 1) != (new.base, new.length and 1):
        return old.base == new.base  # only the values show the scale of a decimal without parameters
    before, after = spark_type(old), spark_type(new)
    return before == after or widen(before, after) == after


def keeps_values(old: MySQLType, new: MySQLType) -> bool:
    """Return whether a change of a column's type leaves its values in the history as they are.

    Only for types for which `fits_history_column` is true. `may_exclude` is true if some values do not stay, nevertheless.
    """
    before, after = TYPES[old.base].family, TYPES[new.base].family
    if before is after is Family.SET:
        return _keeps_order(old.labels or (), new.labels or ())
    if before in _LABELS or after in _LABELS:
        return after is Family.TEXT or before is after is Family.ENUM
    if before in _FRACTIONS:
        return before is after and (new.length or 0) >= (old.length or 0)
    is_year_of_number = after is Family.YEAR and before is not after  # 1 becomes 2001
    is_filled_up = new.base == "binary" and (old.base != new.base or (old.length or 0) < (new.length or 0))
    has_as_many_digits = old.base == new.base and old.scale is not None and old.scale <= (new.scale or 0)
    is_rounded = after is Family.FLOAT and new.scale is not None and not has_as_many_digits
    if is_year_of_number or is_filled_up or is_rounded:
        return False
    return before is after or spark_type(old) != spark_type(new) or spark_type(new) not in (StringType(), BinaryType())


def adds_digits(old: MySQLType, new: MySQLType) -> bool:
    """Return whether values get zeros after the point: those of a TIME, which histories have as text.

    Only for types for which `keeps_values` is true.
    """
    return TYPES[new.base].family is Family.TIME and (new.length or 0) > (old.length or 0)


def may_exclude(old: MySQLType, new: MySQLType) -> bool:
    """Return whether the new type cannot hold some values of the old one, or changes some: CHAR removes blanks at the end.

    Only for types for which `keeps_values` is true.
    """
    if old.labels and new.labels:
        return not {label.lower() for label in old.labels} <= {label.lower() for label in new.labels}
    families = {TYPES[each.base].family for each in (old, new)}
    if families <= {Family.TEXT, Family.BINARY}:
        sizes = [capacity(each) for each in (old, new)]
        is_shorter = sizes[1] is not None and (sizes[0] is None or sizes[1] < sizes[0])
        return is_shorter or (new.base == "char" and old.base != "char")
    ranges = [value_range(each) for each in (old, new)]
    if ranges[0] and ranges[1]:
        return ranges[1].low > ranges[0].low or ranges[1].high < ranges[0].high
    return new.unsigned and not old.unsigned


def keeps_key_text(old: MySQLType, new: MySQLType) -> bool:
    """Return whether a change of type leaves the text of values in keys of messages, whatever the protocol."""
    families = [TYPES[each.base].family for each in (old, new)]
    if {old.base, new.base} <= KEY_TYPES:
        return families[0] is families[1] and old.zerofill == new.zerofill and not (new.zerofill and old != new)
    if families[0] is not families[1]:
        return False
    is_same_size = (old.base, old.length, old.scale) == (new.base, new.length, new.scale)
    return families[0] in {Family.TEXT, Family.BINARY, Family.ENUM} or is_same_size


def _keeps_order(old: Sequence[str], new: Sequence[str]) -> bool:
    """Return whether the members of a SET that stay are in the same order as before."""
    places = [new.index(label) for label in old if label in new]
    return places == sorted(places)
