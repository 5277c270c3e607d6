"""How far a stage has come: a small value in the commit that wrote its rows, so that one is never there without the other.

A cursor holds what is known before its commit: totals up to the commit before it. What the commit itself wrote, its own
metrics say.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import TypeAdapter, ValidationError

# The name of its commit, and the run that made it, in the note beside what a cursor holds.
COMMIT, RUN = "commit", "run"

_running: ContextVar[str | None] = ContextVar("running", default=None)


@contextlib.contextmanager
def running(run: str) -> Iterator[None]:
    """What is committed meanwhile has this run on record."""
    token = _running.set(run)
    try:
        yield
    finally:
        _running.reset(token)


class CursorError(RuntimeError):
    """A table's cursor cannot be used; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """What the cursors of all tables have: `sequence` numbers the commits that carry rows of ours, from 1, without gaps."""

    FORMAT: ClassVar[int] = 1

    sequence: int
    format: int = FORMAT

    def text(self, commit: str) -> str:
        """The note of a commit of this name."""
        values = _adapter(type(self)).dump_python(self, mode="json")
        run = _running.get()
        return _TEXT.dump_json({**values, COMMIT: commit} | ({RUN: run} if run else {})).decode()

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """A cursor out of its note.

        Raises:
            CursorError: another version of this package wrote it, or it is damaged.
        """
        if values.get("format") != cls.FORMAT:
            raise CursorError(
                f"the table was written by another version of cdc-assets (its format: {values.get('format')}, known: "
                f"{cls.FORMAT}): install that version, or give CDC_LAKEHOUSE another place"
            )
        try:
            found: Self = _adapter(cls).validate_python(values)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise CursorError(f"the cursor is damaged ({wrong}): run the job rebuild") from None
        return found


def notes(text: str) -> dict[str, Any] | None:
    """What a commit's note holds; None where it is none of ours."""
    if not text.startswith('{"sequence"') and '"sequence":' not in text:
        return None
    try:
        values = _TEXT.validate_json(text)
    except ValidationError:
        return None
    return values if isinstance(values, dict) and "sequence" in values else None


_TEXT: TypeAdapter[Any] = TypeAdapter(Any)


_ADAPTERS: dict[type[Cursor], TypeAdapter[Any]] = {}


def _adapter(cursor: type[Cursor]) -> TypeAdapter[Any]:
    if cursor not in _ADAPTERS:
        _ADAPTERS[cursor] = TypeAdapter(cursor)
    return _ADAPTERS[cursor]
