"""JSON numbers that have more digits than a double holds: kept by making them texts before anything parses them.

Spark reads every number with a point as a double. Whole numbers keep their digits, and so do those that were doubles.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType

_DOUBLE_DIGITS = 17  # of what any double is printed with; the first 15 of a number are always kept
# A number with a point and sixteen digits or more.
_LONG = r"(?=[0-9.]{17})[0-9]++[.][0-9]++(?:[eE][+-]?[0-9]++)?"
# Texts are passed over whole, as what is in them may look like a number. (Possessive, so that Java does not recurse.)
_OTHERS = rf'(?:[^"0-9-]++|"(?:[^"\\]++|\\.)*+"|(?!-?{_LONG})[0-9.eE+-]++)*+'
_NEXT = rf"(?s)\G({_OTHERS})(-?{_LONG})"
_AFTER_NAME = rf":\s*+-?({_LONG})"
_EXACT = DecimalType(38, 19)


def exact_numbers(text: Column, may_hold: Column) -> Column:
    """The text of JSON objects with its long numbers as texts, where one of them is no double.

    In: STRING; BOOLEAN, whether there may be any but doubles, asked only where there are long numbers. Out: STRING.
    """
    found = F.regexp_extract_all(text, F.lit(_AFTER_NAME), F.lit(1))
    # Most texts have none: to find that out by the pattern alone took a fifth of the time of decoding them.
    long = F.call_function("cdc_json_long_number", text) & text.rlike(_AFTER_NAME)
    # What is no UTF-8 must stay so, to be told of.
    decimals = F.when(long & F.is_valid_utf8(text) & may_hold, F.exists(found, _is_no_double))
    return F.when(decimals, F.regexp_replace(text, _NEXT, '$1"$2"')).otherwise(text)


def _is_no_double(number: Column) -> Column:
    """BOOLEAN, never NULL."""
    digits = F.regexp_replace(number, "^[0.]+|[.]|[eE].*$", "")
    same = number.try_cast(_EXACT) == number.try_cast("double").cast("string").try_cast(_EXACT)
    return (F.length(digits) > _DOUBLE_DIGITS) | ~F.coalesce(same, F.lit(False))
