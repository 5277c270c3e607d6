"""How the rows of messages with a schema of their own (Debezium's) are read: by the schema that each of them came with.

A column may be sent in one form before an ALTER TABLE and in another after it, and both may be in one run. Where messages
come without their schema, the columns' types at the row's commit_ts tell the form.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructField, StructType

from cdc_assets.mysql_types.debezium import DECIMAL, UNTOLD, Field, default_field, layout, mysql_text
from cdc_assets.mysql_types.types import MySQLType, parse_type

# The text of a value whose type nobody tells is all that is known of it.
_ANY = parse_type("longtext")


@dataclass(frozen=True)
class Layout:
    """What rows are read by: the `mysql_types` of their messages, and the columns' types from a commit_ts on."""

    text: str
    since: int
    declared: Mapping[str, str]  # column, in lower case -> type


@dataclass(frozen=True)
class Reading:
    """What one column is in the rows of some layouts (`layouts`: their numbers)."""

    field: Field
    type: MySQLType | None
    layouts: tuple[int, ...]
    guessed: bool  # the message has no schema


Readings = dict[str, list[Reading]]  # column -> its readings, that of the newest rows last


def readings(layouts: Sequence[Layout], known: Callable[[str, str | None], MySQLType | None]) -> Readings:
    """Read every column of a table.

    Args:
        layouts: those of its changes, the newest last.
        known: a column and its declared type -> its type; None where nothing tells it.

    Returns:
        The columns in the order of the newest layout; then those that only older ones have.
    """
    found: dict[str, dict[tuple[Field, MySQLType | None], list[int]]] = {}
    for number, each_layout in enumerate(layouts):
        for field in layout(each_layout.text):
            declared = known(field.name, each_layout.declared.get(field.name.lower()))
            told = default_field(field.name, declared) if field.semantic == UNTOLD else field
            mysql_type = _ANY if told.semantic == UNTOLD else told.resolve(declared)
            key = (told, mysql_type)
            each = found.setdefault(field.name, {})
            numbers = each.pop(key, [])
            each[key] = [*numbers, number]
    newest = {field.name: place for place, field in enumerate(layout(layouts[-1].text))} if layouts else {}
    ordered = sorted(found, key=lambda name: newest.get(name, len(newest)))
    untold = [all(field.semantic == UNTOLD for field in layout(each.text)) for each in layouts]
    return {
        name: [
            Reading(field, mysql_type, tuple(numbers), any(untold[n] for n in numbers))
            for (field, mysql_type), numbers in found[name].items()
        ]
        for name in ordered
    }


def as_mysql_text(parsed: DataFrame, layouts: Sequence[Layout], columns: Readings) -> DataFrame:
    """Bring `wire` (of `columns.parse_images`) into MySQL's text, each row by its own layout.

    In: `wire` STRUCT<column: STRING, ...>, `after`, `mysql_types` and `commit_ts`. Out: the same columns.
    """
    several = any(len(each) > 1 for each in columns.values())
    if several:
        number = F.lit(None).cast("int")
        for n, each in enumerate(layouts):
            here = (F.col("mysql_types") == each.text) & (F.col("commit_ts") >= each.since)
            number = F.when(here, F.lit(n)).otherwise(number)
        parsed = parsed.withColumn("layout", number)
    numbers = [n for n, each in columns.items() if any(r.guessed and r.field.semantic == DECIMAL for r in each)]
    if numbers:
        # Without a schema only the JSON type tells decimal.handling.mode=double from the others.
        shape = StructType([StructField(n, DoubleType()) for n in numbers])
        parsed = parsed.withColumn("numbers", F.from_json("after", shape))
    wire = F.struct(*[_text(F.col("wire").getField(n), n, each, numbers).alias(n) for n, each in columns.items()])
    return parsed.withColumn("wire", wire).drop("layout", "numbers")


def _text(value: Column, name: str, each: list[Reading], numbers: list[str]) -> Column:
    def read(reading: Reading) -> Column:
        text = mysql_text(value, reading.field, reading.type)
        if not reading.guessed or name not in numbers or reading.field.semantic != DECIMAL:
            return text
        number = mysql_text(value, Field(name, "double", "double"), reading.type)
        plain = value.rlike(r"^-?[0-9]+[.][0-9]+\z")
        return F.when(F.col("numbers").getField(name).isNotNull(), number).when(plain, value).otherwise(text)

    *older, newest = each
    text = read(newest)
    for reading in older:
        text = F.when(F.col("layout").isin(*reading.layouts), read(reading)).otherwise(text)
    return text
