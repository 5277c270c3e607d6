"""What the values of a field in Debezium's messages may be, for the type checks."""

from collections.abc import Mapping

from cdc_assets.mysql_types.descriptors import INTEGERS, TYPES, Family
from cdc_assets.mysql_types.types import MySQLType, value_range
from cdc_assets.protocols.debezium import semantics
from cdc_assets.protocols.debezium.semantics import Field, assumed_field, deciding_setting
from cdc_assets.protocols.debezium.texts import fixed_size
from cdc_assets.type_checks.values import (
    ANYTHING,
    BASE64,
    SECOND_PARTS,
    Limits,
    TextForm,
    Unit,
    integer_limits,
    limits_of,
)

WIRES: Mapping[str, tuple[str, ...]] = (
    dict.fromkeys(["int8", "int16", "int32", "int64"], ("number",))
    # JSON has no number for infinity, so the converter writes it as text.
    | dict.fromkeys(["float", "double"], ("number", "string"))
    | {"string": ("string",), "boolean": ("boolean",), "bytes": ("string",), "struct": ("object",)}
)
_OF_LABELS = frozenset({"io.debezium.data.Enum", "io.debezium.data.EnumSet"})
_BITS_BY_INTEGER = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_FIRST_DAY, _LAST_DAY = -719_528, 2_932_896  # days since 1970 of the years 0 to 9999
_SECONDS_A_DAY, _LONGEST_TIME = 86_400, 3_020_399  # seconds; 838:59:59


def limits_of_field(field: Field, mysql_type: MySQLType | None, settings: Mapping[str, str]) -> Limits:
    """Return what the values of a field may be, as Connect's JSON converter writes them."""
    wires = WIRES.get(field.connect)
    if field.semantic == semantics.DECIMAL:
        wires = ("string", "number")  # decimal.format=NUMERIC
    setting = deciding_setting(field, mysql_type)
    family = TYPES[mysql_type.base].family if mysql_type else None
    # Every setting writes a TIMESTAMP in the same way.
    has_one_form = setting is not None or (field.semantic == semantics.UNSTATED and family is Family.TIMESTAMP)
    if mysql_type is None or not has_one_form:
        return _limits_of_values(field, mysql_type)._replace(wires=wires)
    limits = _limits_of_assumed(assumed_field(field, mysql_type, settings), mysql_type)._replace(wires=wires)
    if setting == semantics.TIME_MODE and setting not in settings and family is not Family.DATE:
        # A DATETIME in nanoseconds is outside the range of the assumed unit, unless it is within eight years of 1970.
        readings = [r for r in SECOND_PARTS if r != "nanoseconds" or family is Family.TIME]
        units = tuple(_make_unit(reading, mysql_type, SECOND_PARTS[reading]) for reading in readings)
        usual = next(unit.reading for unit in units if limits.ranges and unit.high == limits.ranges[1])
        limits = limits._replace(usual=usual, units=units)
    return limits


def _limits_of_assumed(field: Field, mysql_type: MySQLType) -> Limits:
    """Return what the values of a column may be whose form the message does not state; `field`: as `assumed_field`."""
    length = limits_of(mysql_type).length
    if field.semantic == semantics.HEX_BYTES:
        return Limits(TextForm.HEX, length=length)
    if field.semantic == semantics.BASE64_BYTES:
        return Limits(TextForm.BASE64_OR_URL, length=length)
    if field.semantic == semantics.UNSTATED_DECIMAL:
        size = _largest_size(semantics.DECIMAL, mysql_type)
        return Limits(TextForm.UNSCALED_OR_DIGITS, length=size, usual=BASE64)
    if field.semantic == semantics.UNSTATED_BYTES or TYPES[mysql_type.base].family is Family.BINARY:
        return Limits(TextForm.HEX_OR_BASE64, length=fixed_size(mysql_type), usual=BASE64)
    return Limits(TextForm.DOUBLE) if field.semantic == "double" else _limits_of_values(field, mysql_type)


def _make_unit(reading: str, mysql_type: MySQLType, parts: int) -> Unit:
    """Return a unit in which a TIME or DATETIME may be; `parts`: the number of them in a second."""
    is_time = TYPES[mysql_type.base].family is Family.TIME
    low, high = _time_range(parts) if is_time else _datetime_range(parts)
    return Unit(reading, low, high, max(1, parts // 10 ** (mysql_type.length or 0)))


def _limits_of_values(field: Field, mysql_type: MySQLType | None) -> Limits:
    """Return what the values of a field may be, on whatever JSON type."""
    semantic = field.semantic
    if semantic == "io.debezium.data.Json" or (mysql_type and mysql_type.base == "json"):
        return Limits(TextForm.JSON)
    if semantic in _BITS_BY_INTEGER:
        return _integer_limits(_BITS_BY_INTEGER[semantic], mysql_type)
    if semantic in {"float", "double"}:
        return Limits(TextForm.ANY if mysql_type and mysql_type.base == "decimal" else TextForm.DOUBLE)
    if semantic in {semantics.BITS, semantics.DECIMAL, "bytes"}:
        form = TextForm.UNSCALED if semantic == semantics.DECIMAL else TextForm.BASE64
        return Limits(form, length=_largest_size(semantic, mysql_type))
    labels = mysql_type.labels if mysql_type and semantic in _OF_LABELS else None
    # A message separates labels by commas, so labels that contain a comma are ambiguous.
    if labels and not any("," in label for label in labels):
        return Limits(TextForm.LABELS, labels=labels)
    return limits_of(mysql_type) if semantic == "string" else _limits_of_time(semantic.rpartition(".")[2])


def _integer_limits(bits: int, mysql_type: MySQLType | None) -> Limits:
    """Return what an integer of this many bits may be, within the range of its MySQL type.

    The type's range does not count if it exceeds the integer's: Debezium writes BIGINT UNSIGNED above an int64 as negative.
    """
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    limits = value_range(mysql_type) if mysql_type and mysql_type.base in INTEGERS else None
    return (
        integer_limits(low, high)
        if limits is None or limits.high > high
        else integer_limits(max(low, limits.low), limits.high)
    )


def _limits_of_time(name: str) -> Limits:
    """Return the limits of a semantic type of days, times or years; other types have none.

    Args:
        name: the last part of the semantic type's name.
    """
    of_names = {
        "Date": integer_limits(_FIRST_DAY, _LAST_DAY),
        "Year": integer_limits(1900, 2155),  # Debezium writes the YEAR 0 as 1900
        "ZonedTimestamp": Limits(TextForm.ZONED),
        "IsoDate": Limits(TextForm.ISO_DATE),
        "IsoTime": Limits(TextForm.ISO_TIME),
        "IsoTimestamp": Limits(TextForm.ISO_DATETIME),
    }
    for size, parts in zip(("", "Micro", "Nano"), SECOND_PARTS.values(), strict=True):
        of_names[f"{size}Timestamp"] = integer_limits(*_datetime_range(parts))
        of_names[f"{size}Time"] = integer_limits(*_time_range(parts))
    return of_names.get(name, ANYTHING)


def _datetime_range(parts: int) -> tuple[int, int]:
    """Return the lowest and the highest DATETIME, with so many parts in a second."""
    return _FIRST_DAY * _SECONDS_A_DAY * parts, (_LAST_DAY + 1) * _SECONDS_A_DAY * parts - 1


def _time_range(parts: int) -> tuple[int, int]:
    """Return the lowest and the highest TIME, with so many parts in a second."""
    return -_LONGEST_TIME * parts, _LONGEST_TIME * parts


def _largest_size(semantic: str, mysql_type: MySQLType | None) -> int | None:
    """Return the largest number of bytes of a value; None if it is unknown."""
    if mysql_type is None:
        return None
    if semantic == semantics.BITS:
        return ((mysql_type.length or 64) + 7) // 8
    if semantic == semantics.DECIMAL:
        digits = mysql_type.length or 65 if mysql_type.base == "decimal" else 20
        return len(f"{10**digits:x}") // 2 + 1
    return limits_of(mysql_type).length
