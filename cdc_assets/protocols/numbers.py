"""JSON numbers with more digits than a double has: made into JSON texts before a parser rounds them.

Spark reads every number with a decimal point as a double. Integers keep their digits, and so do numbers that were doubles.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType

_DOUBLE_DIGITS = 17  # Any double is printed with at most 17 digits; the first 15 of a number are always kept.
# A number with a point and sixteen digits or more.
_LONG = r"(?=[0-9.]{17})[0-9]++[.][0-9]++(?:[eE][+-]?[0-9]++)?"
# A JSON text is skipped as a unit, because it may contain what looks like a number. The quantifiers are possessive, so that
# Java's matcher does not recurse.
_OTHERS = rf'(?:[^"0-9-]++|"(?:[^"\\]++|\\.)*+"|(?!-?{_LONG})[0-9.eE+-]++)*+'
_NEXT = rf"(?s)\G({_OTHERS})(-?{_LONG})"
_AFTER_NAME = rf":\s*+-?({_LONG})"
_EXACT = DecimalType(38, 19)


def exact_numbers(text: Column, may_hold: Column) -> Column:
    """Return the text of a JSON object with its long numbers as JSON texts, if one of them is not a double.

    Args:
        text: STRING, the text of a JSON object.
        may_hold: BOOLEAN, whether the text may have numbers that are not doubles; evaluated only for long numbers.
    """
    long_numbers = F.regexp_extract_all(text, F.lit(_AFTER_NAME), F.lit(1))
    # Most texts have no long number, and the native function finds that out much faster than the pattern.
    has_long = F.call_function("cdc_json_long_number", text) & text.rlike(_AFTER_NAME)
    # A text that is not UTF-8 must stay unchanged, so that the parser reports it.
    has_decimals = F.when(has_long & F.is_valid_utf8(text) & may_hold, F.exists(long_numbers, _is_no_double))
    return F.when(has_decimals, F.regexp_replace(text, _NEXT, '$1"$2"')).otherwise(text)


def _is_no_double(number: Column) -> Column:
    """Return whether a number, STRING, loses digits as a double. BOOLEAN, never NULL."""
    digits = F.regexp_replace(number, "^[0.]+|[.]|[eE].*$", "")
    is_same = number.try_cast(_EXACT) == number.try_cast("double").cast("string").try_cast(_EXACT)
    return (F.length(digits) > _DOUBLE_DIGITS) | ~F.coalesce(is_same, F.lit(False))
