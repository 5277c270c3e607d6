"""Private interfaces of Spark, Py4J, Delta, deltalake, Dagster and Hadoop: docs/internals.md lists each one that is used."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.fast

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "cdc_assets"
PAGE = PROJECT / "docs/internals.md"
LIBRARIES = {"confluent_kafka", "dagster", "delta", "deltalake", "hdfs_native", "py4j", "pyspark"}
# The modules of PySpark and Py4J that their documentation has. In the other libraries an underscore marks what is private.
DOCUMENTED = {
    "py4j.protocol",
    "pyspark",
    "pyspark.errors",
    "pyspark.sql",
    "pyspark.sql.avro.functions",
    "pyspark.sql.functions",
    "pyspark.sql.types",
}
ATTRIBUTES = {"_gateway", "_jdf", "_jsc", "_jsparkSession", "_jvm", "_sc"}
NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
# Packages of the JVM whose classes may change with any version.
PACKAGES = (
    "com.google.cloud.hadoop.repackaged",
    "io.delta.storage.internal",
    "org.apache.hadoop.fs.azurebfs",
    "org.apache.spark.executor",
    "org.apache.spark.memory",
    "org.apache.spark.scheduler",
    "org.apache.spark.sql.catalyst",
    "org.apache.spark.sql.classic",
    "org.apache.spark.sql.delta",
    "org.apache.spark.sql.execution",
    "org.apache.spark.unsafe",
    "org.apache.spark.util",
    "py4j",
)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def interfaces_of_module(tree: ast.Module) -> Iterator[str]:
    """Yield the private attributes that a module asks other objects for, and the undocumented modules that it imports."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=receiver, attr=name) if is_private(name):
                is_own = isinstance(receiver, ast.Name) and receiver.id in {"self", "cls"}
                is_own |= isinstance(receiver, ast.Call) and ast.unparse(receiver) == "super()"
                # librdkafka's own error codes have names such as _UNKNOWN_TOPIC.
                if not (is_own or name in NAMED_TUPLES or name.isupper()):
                    yield name
            case ast.Constant(value=str(name)) if name in ATTRIBUTES:  # getattr(session, "_jvm")
                yield name
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] in LIBRARIES:
                parts = [*module.split("."), *(each.name for each in names)]
                is_undocumented = parts[0] in {"py4j", "pyspark"} and module not in DOCUMENTED
                if is_undocumented or any(map(is_private, parts)):
                    yield module


def used_interfaces() -> set[tuple[str, str]]:
    """Return (file, interface) of all private interfaces; Scala files by their name alone."""
    used = set()
    for path in PACKAGE.rglob("*.py"):
        file = path.relative_to(PACKAGE).as_posix()
        used |= {(file, each) for each in interfaces_of_module(ast.parse(path.read_text("utf-8")))}
    for path in PACKAGE.rglob("*.scala"):
        text = path.read_text("utf-8")
        used |= {(path.name, each) for each in PACKAGES if re.search(rf"\b{re.escape(each)}\b", text)}
    return used


def listed_interfaces() -> list[tuple[str, str]]:
    """Return (file, interface) of each row of the page."""
    return re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)


def test_every_private_interface_is_listed() -> None:
    assert used_interfaces() - set(listed_interfaces()) == set(), "use public ones, or say in docs/internals.md why not"


def test_nothing_else_is_listed() -> None:
    listed = listed_interfaces()
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) - used_interfaces() == set(), "gone from the code: remove the line from docs/internals.md"


def test_what_is_private() -> None:
    text = """
from pyspark.sql import functions as F, types
from pyspark.sql.pandas.types import to_arrow_schema
from dagster._core.definitions import X
from deltalake import DeltaTable
def f(self, session, row):
    self._own(session._jvm, row._replace(a=1), KafkaError._UNKNOWN_TOPIC, session.__class__)
    return getattr(session, "_jsparkSession"), table._table, super()._own
"""
    actual = sorted(interfaces_of_module(ast.parse(text)))
    expected = ["_jsparkSession", "_jvm", "_table", "dagster._core.definitions", "pyspark.sql.pandas.types"]
    assert actual == expected
