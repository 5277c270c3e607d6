"""Small tools for building Spark expressions."""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F


def once(value: Column, use: Callable[[Column], Column]) -> Column:
    """`use(value)`, with the value computed once, and once in the plan, however often it is used: a lambda's argument."""
    return F.get(F.transform(F.array(value), use), F.lit(0))
