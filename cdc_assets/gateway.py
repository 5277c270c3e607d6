"""PySpark's way to the JVM, in fewer calls: each is a message to another process, and its answer.

A small run sent 1,970 messages, 600 of them to fill lists one element after the other, and 680 to say that an object is no
longer needed; it sends 810 now. Before that it looked up the same few classes and methods 3,150 times.
"""

import contextlib
import time
from collections.abc import Iterable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JavaObject
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

# The classes of the JVM whose static methods are called often, under the names by which they are asked for: those by which
# PySpark builds expressions, and one of this package.
HERE = "cdc_assets_here"
_CLASSES = {
    HERE: "org.apache.spark.sql.cdc_assets.Here",
    "functions": "org.apache.spark.sql.functions",
    "org.apache.spark.sql.functions": "org.apache.spark.sql.functions",
    "PythonUtils": "org.apache.spark.api.python.PythonUtils",
    "PythonSQLUtils": "org.apache.spark.sql.api.python.PythonSQLUtils",
}
# Between texts that go in one; of it no text has any.
_BETWEEN = "\0"
# So long objects wait for others, to be forgotten together, in seconds.
_TOGETHER = 0.2
_MOST_AT_ONCE = 1000


def call_less(session: SparkSession) -> None:
    """Let the process of a session do with fewer calls; done before, it is left at that."""
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 -- there is no other way to it
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001
    client = gateway._gateway_client  # noqa: SLF001
    if isinstance(vars(jvm).get("functions"), _Known):
        return
    for name, full in _CLASSES.items():
        setattr(jvm, name, _Known(full, client))
    calls, known = _Known("cdc_assets.Calls", client), gateway.java_gateway_server.getGateway()
    client.converters = [_Arguments(calls, known, client.converters)]
    client.garbage_collect_object = _Forgetting(client, calls, known).add


class _Known(JavaClass):  # type: ignore[misc]
    """A class of the JVM whose methods are looked up once.

    PySpark would ask the JVM at each call for the class, and then for its method; and a name without its package is looked
    for in every jar, one package after the other.
    """

    def __getattr__(self, name: str) -> object:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            setattr(self, name, found)
        return found


class _Arguments:
    """Makes of a call's arguments what the JVM takes: a list of texts, or of objects of the JVM, in one call.

    Py4J's own way is a call for each element; and it asks each of its converters about each text and number.
    """

    def __init__(self, calls: Any, gateway: JavaObject, others: Sequence[Any]) -> None:  # noqa: ANN401 -- of the JVM
        self._calls, self._gateway, self._others = calls, gateway, others

    def can_convert(self, value: object) -> bool:
        """Whether the JVM is given something else for it."""
        if value is None or isinstance(value, str | int | float):
            return False
        return isinstance(value, list | tuple) or any(each.can_convert(value) for each in self._others)

    def convert(self, value: Any, client: object) -> JavaObject:  # noqa: ANN401
        """That, in the JVM."""
        if value and isinstance(value, list | tuple):
            if _are_texts(value):
                return self._calls.texts(_BETWEEN.join(value), _BETWEEN)
            if _are_objects(value):
                return self._calls.list(self._gateway, " ".join(each._target_id for each in value))  # noqa: SLF001
        return next(each for each in self._others if each.can_convert(value)).convert(value, client)


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(each, str) and _BETWEEN not in each for each in values)


def _are_objects(values: Iterable[object]) -> bool:
    return all(isinstance(each, JavaObject) for each in values)


class _Forgetting:
    """Tells the JVM of objects that Python no longer has, many at a time."""

    def __init__(self, client: Any, calls: Any, gateway: JavaObject) -> None:  # noqa: ANN401 -- the latter of the JVM
        self._client, self._calls, self._gateway = client, calls, gateway
        self._names: SimpleQueue[str] = SimpleQueue()
        Thread(target=self._run, name="forgets objects of the JVM", daemon=True).start()

    def add(self, name: str, *_: object) -> None:
        """One that is no longer there. Called from wherever Python frees it, so it only takes note."""
        self._names.put(name)

    def _run(self) -> None:
        while True:
            names = [self._names.get()]
            time.sleep(_TOGETHER)
            while len(names) < _MOST_AT_ONCE:
                try:
                    names.append(self._names.get_nowait())
                except Empty:
                    break
            # A JVM that has ended knows of no object, and what the run makes of that is not this thread's to tell.
            with contextlib.suppress(Py4JError):
                if self._client.is_connected:
                    self._calls.forget(self._gateway, " ".join(names))
