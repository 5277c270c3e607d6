"""Small tools for building Spark expressions."""

from collections.abc import Callable
from functools import reduce, wraps
from typing import ParamSpec, TypeVar

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F

_P = ParamSpec("_P")
_T = TypeVar("_T")


def once(value: Column, use: Callable[[Column], Column]) -> Column:
    """`use(value)`, with the value computed once, and once in the plan, however often it is used: a lambda's argument."""
    return F.get(F.transform(F.array(value), use), F.lit(0))


def first_true(*cases: tuple[Column, Column | int]) -> Column:
    """The value beside the first condition that holds, else NULL: one CASE, which is as flat with a thousand of them."""
    (condition, value), *others = cases
    return reduce(lambda chain, case: chain.when(*case), others, F.when(condition, value))


def built_once(build: Callable[_P, _T]) -> Callable[_P, _T]:
    """Build expressions once a process, not once a run: each call that builds one is a round trip to the JVM.

    For functions of hashable arguments whose columns are named, not taken from a frame.
    """
    built: dict[object, _T] = {}

    @wraps(build)
    def building(*args: _P.args, **named: _P.kwargs) -> _T:
        # An expression belongs to the JVM in which it was built.
        key = (id(SparkContext._active_spark_context), args, tuple(sorted(named.items())))  # noqa: SLF001
        if key not in built:
            built[key] = build(*args, **named)
        return built[key]

    return building
