"""DDL statements at the gate: which tables each may change, and whether it waits for a person to decide about it."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cdc_assets.config import Feed
from cdc_assets.ddl.actions import (
    Action,
    AddKey,
    DropKey,
    MoveRows,
    RenameKey,
    RenameTable,
    decode_statement,
)
from cdc_assets.ddl.actions import Statement as Read
from cdc_assets.lakehouse.decisions import Decision, statement_id
from cdc_assets.release.base import Name

# Statements that end rows, or bring some, whatever the columns are.
_OF_ROWS = ("drop_table", "truncate_table", "rename_table", "recover_table", "drop_database")
_SHAPE = ("columns", "primary_key", "key_columns")


@dataclass(frozen=True)
class Statement:
    """A DDL event.

    Attributes:
        row: of change_events.
        id: the same however often it comes.
        learnt: its rows of table_schemas.
        decision: what was decided about it; None: nothing.
    """

    row: dict[str, Any]
    id: str
    learnt: Sequence[Mapping[str, Any]]
    decision: Decision | None

    @property
    def text(self) -> str:
        """Its SQL."""
        return str(self.row["ddl_statement"])

    @cached_property
    def does(self) -> Read | None:
        """What it does; None: it is not understood, or ignored."""
        return next((decode_statement(r["actions"]) for r in self.learnt if r["actions"] is not None), None)

    @property
    def tables(self) -> set[Name]:
        """The tables that it may change, or another in whose place it stands."""
        return {(r["database"], r["table"]) for r in self.learnt if r["table"] is not None}

    @property
    def why_doubted(self) -> str | None:
        """Why it is not understood, or what contradicts it; None: nothing does."""
        error = next((r["error"] for r in self.learnt if r["error"]), None)
        if error is not None and self.does is None:
            return f"the statement could not be read, and may change the table: {error}"
        return error


def statements_of(
    rows: Sequence[dict[str, Any]], shapes: Sequence[Mapping[str, Any]], decided: Mapping[str, Decision]
) -> list[Statement]:
    """DDL events of change_events with what is learnt, and what was decided, about each.

    Args:
        rows: of change_events.
        shapes: rows of table_schemas, of statements.
        decided: what people have decided about statements, by id.
    """
    learnt: dict[str, list[Mapping[str, Any]]] = {}
    for r in shapes:
        learnt.setdefault(_id(r), []).append(r)
    keys = [statement_id(row["commit_ts"], row["database"], row["ddl_statement"]) for row in rows]
    return [Statement(row, key, learnt.get(key, []), decided.get(key)) for row, key in zip(rows, keys, strict=True)]


def why_held(
    statement: Statement,
    tables: AbstractSet[Name],
    feed: Feed,
    shapes: Sequence[Mapping[str, Any]],
    seen: Callable[[Name], bool],
) -> str | None:
    """Why a statement waits for a decision; None when it does not.

    Args:
        statement: the statement.
        tables: that the feed takes, and the statement may change.
        feed: the feed.
        shapes: rows of table_schemas, of statements.
        seen: whether there was anything of a table before the statement.
    """
    if statement.decision is not None:
        return None
    if statement.why_doubted is not None:
        return statement.why_doubted if tables else None
    for name in sorted(tables):
        if feed.stops_at_ddl(*name) and seen(name) and _changes(statement, name, shapes):
            return f"schema_changes is stop for {'.'.join(name)}"
    return None


def _id(row: Mapping[str, Any]) -> str:
    return statement_id(row["commit_ts"], row["default_database"], row["ddl_statement"])


def _changes(statement: Statement, name: Name, shapes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a statement changes the columns, the key or the rows of a table, as far as can be told."""
    does = statement.does
    if does is None or does.replaces or does.kind in _OF_ROWS:
        return True
    actions = [a for named, each in does.changes if named == name for a in each]
    if any(isinstance(a, MoveRows | RenameTable) for a in actions):
        return True
    after = [r for r in statement.learnt if (r["database"], r["table"]) == name and r["columns"] is not None]
    earlier = [
        r
        for r in shapes
        if (r["database"], r["table"]) == name
        and r["columns"] is not None
        and after
        and r["sequence"] < after[0]["sequence"]
    ]
    if after and earlier:
        before = max(earlier, key=lambda r: r["sequence"])
        return any(before[c] != after[-1][c] for c in _SHAPE)
    return any(not _of_index(action) for action in actions)


def _of_index(action: Action) -> bool:
    """Whether an action is about an index that is no key."""
    plain = isinstance(action, AddKey) and action.kind == "index"
    return plain or isinstance(action, RenameKey) or (isinstance(action, DropKey) and action.name.lower() != "primary")
