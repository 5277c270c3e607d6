"""Texts that are to be one JSON object each: parsed in one go, and whole."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from types import MappingProxyType

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType

from cdc_assets.expressions import in_jvm, once
from cdc_assets.tables import schema
from cdc_assets.tables.quarantine import Reason

# What the fields of a message are to be; NULL may be anywhere but among the texts of an array.
TEXT = "text"
ANY = "any"  # a text, or the JSON text of what else it is
JSON = "json"  # the JSON text of what it is, which is no text
TEXTS = "texts"  # the JSON text of an object of texts, in the order of its names
INTS = "ints"  # the JSON text of an object of INTs
BIGINT = "bigint"
BOOLEAN = "boolean"
_OTHERS: Mapping[str, DataType] = MappingProxyType({BIGINT: schema.BIGINT, BOOLEAN: schema.BOOLEAN})

Wanted = str | list["Wanted"] | Mapping[str, "Wanted"]


def reader(spark: SparkSession, message: Mapping[str, Wanted]) -> Callable[[Column], Column]:
    """What reads a BINARY value, UTF-8, as one JSON object with these fields.

    Out: STRUCT of `m`, the message (of TEXTS and INTS a value that is neither an object nor a text as it came), and `wrong`
    STRING, the reason where there is none: it is no JSON, or one of the fields is of another type. JSON texts are without
    blanks, and else as they came.
    """
    returns = schema.struct(m=_kind(message), wrong=schema.STRING)
    return in_jvm(spark, "JsonMessage", returns, json.dumps(message))


def _kind(wanted: Wanted) -> DataType:
    if isinstance(wanted, str):
        return _OTHERS.get(wanted, schema.STRING)
    if isinstance(wanted, list):
        return ArrayType(_kind(wanted[0]))
    return schema.struct(**{name: _kind(each) for name, each in wanted.items()})


_OPTIONS = {"columnNameOfCorruptRecord": "_corrupt", "allowSingleQuotes": "false"}


def parse(text: Column, message: str) -> Column:
    """Parse a STRING as the struct type `message`.

    Out: STRUCT of `m`, the message, and what `unparsed` asks for.
    """
    readable = F.when(~_half_a_character(text), text)
    return F.from_json(_closed(readable), f"m {message}, closed INT, _corrupt STRING", _OPTIONS)


def unparsed(parsed: str) -> Column:
    """Whether the text of the column `parsed` (from `parse`) is not one whole object of that type. BOOLEAN, never NULL."""
    return F.col(f"{parsed}.m").isNull() | F.col(f"{parsed}.closed").isNull() | F.col(f"{parsed}._corrupt").isNotNull()


def why_unparsed(text: Column) -> Column:
    """STRING: the reason code of a text that is `unparsed`: no JSON, or JSON of other types."""
    whole = F.try_variant_get(F.try_parse_json(_closed(text)), "$.closed", "int")
    return F.when(whole.isNull() | _half_a_character(text), str(Reason.MALFORMED_JSON)).otherwise(
        str(Reason.WRONG_TYPE)
    )


# What a text looks like that may have been another value.
_NO_TEXT = r"^(?:true|false|-?[0-9][0-9.eE+-]*|[\[{].*)\z"
# An escape in a name hides the name from a pattern.
_ESCAPE = r"\u00"
_HIDDEN = r'\\u00[0-9a-fA-F]{2}\w*+"\s*+:'


def misread(text: Column, doubts: Sequence[Column], wanted: Mapping[str, str]) -> Column:
    """Whether a field came as another JSON type than it was read as. BOOLEAN, never NULL.

    Into STRING, `from_json` reads a value of any type without a word: a number as a text, and a text as what an object was
    to be. Only where the looks of a message leave that open, its fields' types are asked.

    Args:
        text: of the message.
        doubts: whether a field may have come as another type. A pattern in the message is looked for by itself, and begins
            with a text: Java finds that without trying every place. But first Java makes a text of its own of the whole
            message, so what is told in another way is asked before. (Measured: six such patterns took a third of the
            decoding of Canal-JSON.)
        wanted: JSON path -> a pattern of how the type begins as `schema_of_variant` writes it.
    """
    hidden = text.contains(_ESCAPE) & text.rlike(_HIDDEN)
    doubtful = reduce(or_, (F.coalesce(each, F.lit(False)) for each in [*doubts, hidden]))
    return doubtful & ~once(F.try_parse_json(text), lambda message: _typed(message, wanted))


def maybe_no_text(value: Column) -> Column:
    """Whether what was read as a STRING may have been something else. BOOLEAN, NULL for NULL."""
    return value.rlike(_NO_TEXT)


def maybe_object_in_text(text: Column, patterns: Sequence[str], *others: Column) -> Column:
    """Whether what was to be an object may have come as a text. BOOLEAN, NULL for NULL.

    Args:
        text: of the message.
        patterns: what it looks like. They are looked for only where a text in the message begins as an object does, be it
            with an escape, or one of `others` says so.
        others: BOOLEAN.
    """
    begins = text.contains('"{') | text.contains('"\\')
    return reduce(or_, others, begins) & reduce(or_, (text.rlike(pattern) for pattern in patterns))


def _typed(message: Column, wanted: Mapping[str, str]) -> Column:
    """Whether the fields of a VARIANT have these types, as far as they are there. BOOLEAN, never NULL."""
    told = {path: F.schema_of_variant(F.try_variant_get(message, path, "variant")) for path in wanted}
    fine = [F.coalesce(told[p].rlike(f"^(?:{kind})|^VOID"), F.lit(True)) for p, kind in wanted.items()]
    return reduce(and_, fine, message.isNotNull())


# Two halves of one character, or a backslash that is no escape's first.
_WHOLE = r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"


def _half_a_character(text: Column) -> Column:
    r"""Whether an escape (`\ud800`) is one half of a character without the other. BOOLEAN, NULL for NULL."""
    may_be = text.contains(r"\ud") | text.contains(r"\uD")
    return may_be & F.regexp_replace(text, _WHOLE, "").rlike(r"\\u[dD][89a-fA-F]")


def _closed(text: Column) -> Column:
    # Alone, Spark reads a text up to the end of its first object, whatever follows. Inside another object nothing may
    # follow but what is put there.
    return F.concat(F.lit('{"m":'), text, F.lit(',"closed":1}'))
