"""Helpers that build Spark expressions."""

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F


def compute_once(value: Column, use: Callable[[Column], Column]) -> Column:
    """Return `use(value)`, with `value` computed once however often `use` refers to it.

    `use` receives a lambda variable: Spark would otherwise repeat the expression of `value` at each reference.
    """
    return F.get(F.transform(F.array(value), use), F.lit(0))


def first_true(*cases: tuple[Column, Column | int]) -> Column:
    """Return the value beside the first condition that is true, else NULL.

    All cases form one CASE expression, so the expression tree stays flat for any number of cases.
    """
    (condition, value), *others = cases
    return reduce(lambda chain, case: chain.when(*case), others, F.when(condition, value))
