"""Small tools for building Spark expressions."""

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F


def once(value: Column, use: Callable[[Column], Column]) -> Column:
    """`use(value)`, with the value computed once, and once in the plan, however often it is used: a lambda's argument."""
    return F.get(F.transform(F.array(value), use), F.lit(0))


def first_true(*cases: tuple[Column, Column | int]) -> Column:
    """The value beside the first condition that holds, else NULL: one CASE, which is as flat with a thousand of them."""
    (condition, value), *others = cases
    return reduce(lambda chain, case: chain.when(*case), others, F.when(condition, value))
