"""Small tools for building Spark expressions."""

import zlib
from collections.abc import Callable
from functools import partial, reduce, wraps
from typing import Any, ParamSpec, TypeVar

from pyspark import SparkContext
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

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


def in_jvm(spark: SparkSession, function: str, returns: DataType, *told: object) -> Callable[..., Column]:
    """A function of this package's own in the JVM, for plans of this session.

    Args:
        spark: the session.
        function: the name of its class.
        returns: what it gives back.
        told: what the class is made with.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 -- there is no other way to it
    made, kind = (
        getattr(jvm.cdc_assets, function)(*told),
        jvm.org.apache.spark.sql.types.DataType.fromJson(returns.json()),
    )
    # One plan may have several of one class.
    name = f"cdc_{function}_{zlib.crc32(repr(told).encode()):08x}"
    spark._jsparkSession.udf().register(name, made, kind)  # noqa: SLF001
    return partial(F.call_function, name)
