"""Cursors: how far a stage has come, written in the note of the commit that wrote its rows.

A table never has the rows without the cursor, nor the cursor without the rows. The totals of a cursor count up to the commit
before its own; the metrics of the commit count what the commit itself wrote.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import TypeAdapter, ValidationError

# What a note holds beside the cursor: a name that only its commit has, and Dagster's id of the run that made the commit.
COMMIT, RUN = "commit", "run"

_running: ContextVar[str | None] = ContextVar("running", default=None)


@contextlib.contextmanager
def record_run(run: str) -> Iterator[None]:
    """Write this run id into the notes of all commits that the block makes."""
    token = _running.set(run)
    try:
        yield
    finally:
        _running.reset(token)


class CursorError(RuntimeError):
    """A table's cursor cannot be used; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """What the cursors of all tables have.

    Attributes:
        sequence: the number of the commit among those that wrote rows of the pipeline, from 1, without gaps.
        format: the version of the cursor's fields.
    """

    FORMAT: ClassVar[int] = 1

    sequence: int
    format: int = FORMAT

    def text(self, commit: str) -> str:
        """Return the note of a commit: this cursor, the commit's name and the run's id, as JSON."""
        values = _adapter(type(self)).dump_python(self, mode="json")
        run = _running.get()
        return _TEXT.dump_json({**values, COMMIT: commit} | ({RUN: run} if run else {})).decode()

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """Return the cursor that a note holds.

        Args:
            values: the note, as `read_note` returns it.

        Raises:
            CursorError: another version of this package wrote the cursor, or the cursor is damaged.
        """
        if values.get("format") != cls.FORMAT:
            raise CursorError(
                f"the table was written by another version of cdc-assets (its cursor has format {values.get('format')}, "
                f"this version reads format {cls.FORMAT}): install that version, or give CDC_LAKEHOUSE another place"
            )
        try:
            cursor: Self = _adapter(cls).validate_python(values)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise CursorError(f"the cursor is damaged ({wrong}): run the job rebuild") from None
        return cursor


def read_note(text: str) -> dict[str, Any] | None:
    """Return the fields of a commit's note; None if the pipeline did not write the note."""
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
