"""One text for a value, whoever has it: the source, in SQL, or a history table, in Arrow.

One table, `_FORMS`, says per family of types which. NULL has none. What no Spark type holds (zero and invalid dates) is
NULL in a history, and so it is here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from cdc_assets.mysql_types.reference import TYPES, Family
from cdc_assets.mysql_types.types import parsed

_DOUBLES = "DECIMAL(65,30)"  # what doubles are compared in: 35 digits before the point, 30 after it
_SMALLEST, _LARGEST = Decimal("1e-30"), Decimal("9" * 35 + "." + "9" * 30)
_DIGITS = Context(prec=400, rounding=ROUND_HALF_UP)


@dataclass(frozen=True)
class Form:
    """How values of a family become texts.

    Attributes:
        sql: the expression of the source, `{}` stands for the column: of bytes the bytes themselves, else a text in UTF-8.
        held: whether an Arrow type can have such values.
        text: of a column, the same as bytes, in UTF-8.
        long: whether values may be so long that only their digests go into a row's.
    """

    sql: str
    held: Callable[[pa.DataType], bool]
    text: Callable[[pa.ChunkedArray], list[bytes | None]]
    long: bool = False


def _each(one: Callable[[Any], str | bytes]) -> Callable[[pa.ChunkedArray], list[bytes | None]]:
    def text(column: pa.ChunkedArray) -> list[bytes | None]:
        return [None if v is None else _bytes(one(v)) for v in column.to_pylist()]

    return text


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _number(value: Decimal | int | str) -> str:
    """Without the zeros that only the column's type gives it."""
    text = value if isinstance(value, str) else str(value) if isinstance(value, int) else f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _double(value: float) -> str:
    """The shortest decimal number that no other double is nearer to, as servers make it; rounded as they do."""
    exact = Decimal(repr(value)).quantize(_SMALLEST, context=_DIGITS)
    return _number(abs(bounded) if not (bounded := max(-_LARGEST, min(_LARGEST, exact))) else bounded)


def _time(value: str) -> str:
    whole, _, fraction = value.partition(".")
    return f"{whole}.{fraction:0<6}"


def _as_date(column: pa.ChunkedArray) -> list[bytes | None]:
    return _each(str)(column.cast(pa.string()))


def _as_instant(column: pa.ChunkedArray) -> list[bytes | None]:
    """To the microsecond; instants in UTC."""
    return _each(str)(column.cast(pa.timestamp("us")).cast(pa.string()))


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
_INTEGER = Form("CAST({0} + 0 AS CHAR)", _exact, _each(_number))
_TEXT = Form("CONVERT({0} USING utf8mb4)", pa.types.is_string, _each(str), long=True)
_MOMENT = Form(_valid("%Y-%m-%d %H:%i:%s.%f"), pa.types.is_timestamp, _as_instant)

_FORMS: Mapping[Family, Form] = MappingProxyType(
    {
        Family.INTEGER: _INTEGER,
        Family.YEAR: _INTEGER,
        Family.BIT: _INTEGER,
        Family.DECIMAL: Form(_without_zeros("CAST({0} AS CHAR)"), _exact, _each(_number)),
        Family.FLOAT: Form(
            _without_zeros(f"CAST(CAST({{0}} + 0E0 AS {_DOUBLES}) AS CHAR)"), pa.types.is_floating, _each(_double)
        ),
        Family.TEXT: _TEXT,
        Family.ENUM: _TEXT,
        Family.SET: _TEXT,
        Family.BINARY: Form("{0}", pa.types.is_binary, _each(bytes), long=True),
        Family.DATE: Form(_valid("%Y-%m-%d"), pa.types.is_date, _as_date),
        Family.DATETIME: _MOMENT,
        Family.TIMESTAMP: _MOMENT,
        Family.TIME: Form("CAST(CAST({0} AS TIME(6)) AS CHAR)", pa.types.is_string, _each(_time)),
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
