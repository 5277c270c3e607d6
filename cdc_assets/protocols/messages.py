"""Texts that are to be one JSON object each: parsed in one go, and whole."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.tables.quarantine import Reason

_OPTIONS = {"columnNameOfCorruptRecord": "_corrupt", "allowSingleQuotes": "false"}


def parse(text: Column, message: str) -> Column:
    """Parse a STRING as the struct type `message`.

    Out: STRUCT of `m`, the message, and what `unparsed` asks for.
    """
    return F.from_json(_closed(text), f"m {message}, closed INT, _corrupt STRING", _OPTIONS)


def unparsed(parsed: str) -> Column:
    """Whether the text of the column `parsed` (from `parse`) is not one whole object of that type. BOOLEAN, never NULL."""
    return F.col(f"{parsed}.m").isNull() | F.col(f"{parsed}.closed").isNull() | F.col(f"{parsed}._corrupt").isNotNull()


def why_unparsed(text: Column) -> Column:
    """STRING: the reason code of a text that is `unparsed`: no JSON, or JSON of other types."""
    whole = F.try_variant_get(F.try_parse_json(_closed(text)), "$.closed", "int")
    return F.when(whole.isNull(), str(Reason.MALFORMED_JSON)).otherwise(str(Reason.WRONG_TYPE))


def _closed(text: Column) -> Column:
    # Alone, Spark reads a text up to the end of its first object, whatever follows. Inside another object nothing may
    # follow but what is put there.
    return F.concat(F.lit('{"m":'), text, F.lit(',"closed":1}'))
