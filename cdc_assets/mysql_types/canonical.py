"""Canonical texts of values, by which a source's values (in SQL) and a history's (in Arrow) are compared.

The table `_FORMS` has the form for each family of types. NULL stays NULL. A value that no Spark type holds (a zero or
invalid date) is NULL in a history, so its canonical text is NULL too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.mysql_types.descriptors import TYPES, Family
from cdc_assets.mysql_types.types import parsed

_DOUBLES = "DECIMAL(65,30)"  # the type in which doubles are compared: 35 digits before the point, 30 after it
_SMALLEST, _LARGEST = Decimal("1e-30"), Decimal("9" * 35 + "." + "9" * 30)
_DIGITS = Context(prec=400, rounding=ROUND_HALF_UP)


@dataclass(frozen=True)
class CanonicalForm:
    """How values of a family become canonical texts.

    Attributes:
        sql: the expression in the source's SQL, with `{0}` for the column; bytes stay bytes, others become UTF-8 texts.
        accepts: whether a history column of an Arrow type can have such values.
        text: Arrow values -> the same texts as LARGE_BINARY.
        long: whether values may be so long that a row's digest has their digests in their place.
    """

    sql: str
    accepts: Callable[[pa.DataType], bool]
    text: Callable[[pa.Array], pa.Array]
    long: bool = False


def _bytes(values: pa.Array) -> pa.Array:
    return values.cast(pa.large_binary())


def _text(values: pa.Array) -> pa.Array:
    return _bytes(values.cast(pa.large_string()))


def _numbers(values: pa.Array) -> pa.Array:
    """Return the texts of numbers without exponent, and without the zeros at the end that the column's scale adds."""
    if pa.types.is_float32(values.type):
        values = values.cast(pa.float64())  # Servers compute with FLOAT as DOUBLE.
    texts = values.cast(pa.large_string())
    odd = pc.match_substring_regex(texts, "[eE]|^-0$")
    if pc.any(odd).as_py():
        exact = pa.array([_digits(v) for v in values.filter(odd).to_pylist()], pa.large_string())
        texts = pc.replace_with_mask(texts, odd, exact)
    trimmed = pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")
    return _bytes(pc.if_else(pc.match_substring(texts, "."), trimmed, texts))


def _digits(value: Decimal | float) -> str:
    """Return all digits of a decimal, or the digits of a double that DECIMAL(65,30) holds, without the sign of -0."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    exact = Decimal(repr(value)).quantize(_SMALLEST, context=_DIGITS)
    # Not `-_LARGEST`, which Python would round to the 28 digits of the default context.
    bounded = max(_LARGEST.copy_negate(), min(_LARGEST, exact))
    return f"{bounded or abs(bounded):f}"


def _times(values: pa.Array) -> pa.Array:
    parts = pc.extract_regex(values.cast(pa.large_string()), r"^(?P<integer>[^.]*)\.?(?P<fraction>.*)$")
    fraction = pc.ascii_rpad(pc.struct_field(parts, "fraction"), 6, "0")
    return _bytes(
        pc.binary_join_element_wise(pc.struct_field(parts, "integer"), fraction, pa.scalar(".", pa.large_string()))
    )


def _moments(values: pa.Array) -> pa.Array:
    """Return dates with times, to the microsecond; instants are in UTC."""
    return _text(values.cast(pa.timestamp("us")))


def _exact(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_string(kind))


def _without_zeros(number: str) -> str:
    """Return the SQL expression of a number's text without the zeros at the end of its fraction."""
    trimmed = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {number}))"
    return f"IF(LOCATE('.', {number}) > 0, {trimmed}, {number})"


def _valid(date_format: str) -> str:
    """Return the SQL expression of a date's text; NULL for a date that does not exist."""
    valid = "DAYOFMONTH({0}) > 0 AND LAST_DAY({0}) >= DATE({0})"
    return f"IF({valid}, DATE_FORMAT({{0}}, '{date_format}'), NULL)"


# `+ 0` removes the zeros of ZEROFILL, and makes numbers of BIT and YEAR.
_INTEGER = CanonicalForm("CAST({0} + 0 AS CHAR)", _exact, _numbers)
_TEXT = CanonicalForm("CONVERT({0} USING utf8mb4)", pa.types.is_string, _text, long=True)
_MOMENT = CanonicalForm(_valid("%Y-%m-%d %H:%i:%s.%f"), pa.types.is_timestamp, _moments)

_FORMS: Mapping[Family, CanonicalForm] = MappingProxyType(
    {
        Family.INTEGER: _INTEGER,
        Family.YEAR: _INTEGER,
        Family.BIT: _INTEGER,
        Family.DECIMAL: CanonicalForm(_without_zeros("CAST({0} AS CHAR)"), _exact, _numbers),
        Family.FLOAT: CanonicalForm(
            _without_zeros(f"CAST(CAST({{0}} + 0E0 AS {_DOUBLES}) AS CHAR)"), pa.types.is_floating, _numbers
        ),
        Family.TEXT: _TEXT,
        Family.ENUM: _TEXT,
        Family.SET: _TEXT,
        Family.BINARY: CanonicalForm("{0}", pa.types.is_binary, _bytes, long=True),
        Family.DATE: CanonicalForm(_valid("%Y-%m-%d"), pa.types.is_date, _text),
        Family.DATETIME: _MOMENT,
        Family.TIMESTAMP: _MOMENT,
        Family.TIME: CanonicalForm("CAST(CAST({0} AS TIME(6)) AS CHAR)", pa.types.is_string, _times),
    }
)
_WHY_NO_FORM: Mapping[Family, str] = MappingProxyType(
    {
        Family.JSON: "each server and protocol writes JSON in its own way: blanks, numbers, the order of names",
        Family.SPATIAL: "servers give coordinates in the order of their reference system, histories as they are stored",
    }
)


def canonical_form(mysql_type: str, history: pa.DataType) -> CanonicalForm | str:
    """Return how values of a column become canonical texts, or why they cannot.

    Args:
        mysql_type: the text of the source column's type.
        history: the Arrow type of the history's column.
    """
    kind = parsed(mysql_type)
    if kind is None:
        return f"{mysql_type} is not a MySQL type"
    family = TYPES[kind.base].family
    form = _FORMS.get(family)
    if form is None:
        return _WHY_NO_FORM[family]
    return form if form.accepts(history) else f"the source has it as {kind}, the history as {history}"
