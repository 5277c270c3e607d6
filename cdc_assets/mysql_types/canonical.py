"""One text for a value, whoever has it: the source, in SQL, or a history table, in Arrow.

One table, `_FORMS`, says per family of types which. NULL has none. What no Spark type holds (zero and invalid dates) is
NULL in a history, and so it is here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.mysql_types.reference import TYPES, Family
from cdc_assets.mysql_types.types import parsed

_DOUBLES = "DECIMAL(65,30)"  # what doubles are compared in: 35 digits before the point, 30 after it
_SMALLEST, _LARGEST = Decimal("1e-30"), Decimal("9" * 35 + "." + "9" * 30)
_DIGITS = Context(prec=400, rounding=ROUND_HALF_UP)
_POINT = pa.scalar(".", pa.large_string())


@dataclass(frozen=True)
class Form:
    """How values of a family become texts.

    Attributes:
        sql: the expression of the source, `{}` stands for the column: of bytes the bytes themselves, else a text in UTF-8.
        held: whether an Arrow type can have such values.
        text: of values of that type, the same as LARGE_BINARY, in UTF-8.
        long: whether values may be so long that only their digests go into a row's.
    """

    sql: str
    held: Callable[[pa.DataType], bool]
    text: Callable[[pa.Array], pa.Array]
    long: bool = False


def _bytes(values: pa.Array) -> pa.Array:
    return values.cast(pa.large_binary())


def _text(values: pa.Array) -> pa.Array:
    return _bytes(values.cast(pa.large_string()))


def _numbers(values: pa.Array) -> pa.Array:
    """Without exponent, and without the zeros that only the column's type gives them."""
    if pa.types.is_float32(values.type):
        values = values.cast(pa.float64())  # as servers calculate with them
    texts = values.cast(pa.large_string())
    odd = pc.match_substring_regex(texts, "[eE]|^-0$")
    if pc.any(odd).as_py():
        exact = pa.array([_digits(v) for v in values.filter(odd).to_pylist()], pa.large_string())
        texts = pc.replace_with_mask(texts, odd, exact)
    trimmed = pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")
    return _bytes(pc.if_else(pc.match_substring(texts, "."), trimmed, texts))


def _digits(value: Decimal | float) -> str:
    """All digits of a number; of a double those that servers keep, and of -0 no sign."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    exact = Decimal(repr(value)).quantize(_SMALLEST, context=_DIGITS)
    # Not `-_LARGEST`, which is rounded to the 28 digits of the default context.
    bounded = max(_LARGEST.copy_negate(), min(_LARGEST, exact))
    return f"{bounded or abs(bounded):f}"


def _times(values: pa.Array) -> pa.Array:
    parts = pc.extract_regex(values.cast(pa.large_string()), r"^(?P<whole>[^.]*)\.?(?P<fraction>.*)$")
    fraction = pc.ascii_rpad(pc.struct_field(parts, "fraction"), 6, "0")
    return _bytes(pc.binary_join_element_wise(pc.struct_field(parts, "whole"), fraction, _POINT))


def _moments(values: pa.Array) -> pa.Array:
    """To the microsecond; instants in UTC."""
    return _text(values.cast(pa.timestamp("us")))


def _exact(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_string(kind))


def _without_zeros(number: str) -> str:
    """A number's text in SQL without the zeros at the end of its fraction."""
    trimmed = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {number}))"
    return f"IF(LOCATE('.', {number}) > 0, {trimmed}, {number})"


def _valid(date_format: str) -> str:
    """A date's text in SQL; NULL where its month has no such day."""
    valid = "DAYOFMONTH({0}) > 0 AND LAST_DAY({0}) >= DATE({0})"
    return f"IF({valid}, DATE_FORMAT({{0}}, '{date_format}'), NULL)"


# `+ 0` takes the zeros that ZEROFILL shows, and makes numbers of bits and years.
_INTEGER = Form("CAST({0} + 0 AS CHAR)", _exact, _numbers)
_TEXT = Form("CONVERT({0} USING utf8mb4)", pa.types.is_string, _text, long=True)
_MOMENT = Form(_valid("%Y-%m-%d %H:%i:%s.%f"), pa.types.is_timestamp, _moments)

_FORMS: Mapping[Family, Form] = MappingProxyType(
    {
        Family.INTEGER: _INTEGER,
        Family.YEAR: _INTEGER,
        Family.BIT: _INTEGER,
        Family.DECIMAL: Form(_without_zeros("CAST({0} AS CHAR)"), _exact, _numbers),
        Family.FLOAT: Form(
            _without_zeros(f"CAST(CAST({{0}} + 0E0 AS {_DOUBLES}) AS CHAR)"), pa.types.is_floating, _numbers
        ),
        Family.TEXT: _TEXT,
        Family.ENUM: _TEXT,
        Family.SET: _TEXT,
        Family.BINARY: Form("{0}", pa.types.is_binary, _bytes, long=True),
        Family.DATE: Form(_valid("%Y-%m-%d"), pa.types.is_date, _text),
        Family.DATETIME: _MOMENT,
        Family.TIMESTAMP: _MOMENT,
        Family.TIME: Form("CAST(CAST({0} AS TIME(6)) AS CHAR)", pa.types.is_string, _times),
    }
)
_NONE: Mapping[Family, str] = MappingProxyType(
    {
        Family.JSON: "each server and protocol writes JSON in its own way: blanks, numbers, the order of names",
        Family.SPATIAL: "servers give coordinates in the order of their reference system, histories as they are stored",
    }
)


def form_of(mysql_type: str, history: pa.DataType) -> Form | str:
    """How values of a column become texts; or why they don't.

    Args:
        mysql_type: the text of the source column's type.
        history: the Arrow type that the history has for it.
    """
    kind = parsed(mysql_type)
    if kind is None:
        return f"{mysql_type} is no MySQL type that is known"
    family = TYPES[kind.base].family
    form = _FORMS.get(family)
    if form is None:
        return _NONE[family]
    return form if form.held(history) else f"the source has it as {kind}, the history as {history}"
