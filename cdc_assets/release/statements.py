"""DDL events at the gate: the tables that each may change, and whether it waits for a person's decision."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cdc_assets.config import Feed
from cdc_assets.ddl.actions import (
    Action,
    AddForeignKey,
    AddKey,
    DropForeignKey,
    DropKey,
    MoveRows,
    RenameKey,
    RenameTable,
    Statement,
    decode_statement,
)
from cdc_assets.lakehouse.decisions import Decision, identify_statement
from cdc_assets.lakehouse.released_changes import ReleasedKind
from cdc_assets.release.base import QualifiedName, RowEnds

# Statements that change rows, whether or not they change columns.
_ROW_STATEMENTS = ("drop_table", "truncate_table", "rename_table", "recover_table", "drop_database")
_SHAPE = ("columns", "primary_key", "key_columns")


@dataclass(frozen=True)
class DdlEvent:
    """A DDL event with what earlier stages and people have stated about it.

    Attributes:
        row: its row of change_events.
        id: the statement's id, the same for each of its records.
        schema_rows: its rows of table_schemas.
        decision: a person's decision about it; None: there is none.
    """

    row: dict[str, Any]
    id: str
    schema_rows: Sequence[Mapping[str, Any]]
    decision: Decision | None

    @property
    def text(self) -> str:
        """The statement's SQL."""
        return str(self.row["ddl_statement"])

    @cached_property
    def statement(self) -> Statement | None:
        """The statement's schema actions; None if it is not understood or ignored."""
        return next((decode_statement(r["actions"]) for r in self.schema_rows if r["actions"] is not None), None)

    @property
    def tables(self) -> set[QualifiedName]:
        """The tables that the statement, or the one that replaces it by a decision, may change."""
        return {(r["database"], r["table"]) for r in self.schema_rows if r["table"] is not None}

    @property
    def error(self) -> str | None:
        """Why the statement is not understood, or what contradicts it; None: it is understood."""
        error = next((r["error"] for r in self.schema_rows if r["error"]), None)
        if error is not None and self.statement is None:
            return f"the statement could not be read, and may change the table: {error}"
        return error


def build_ddl_events(
    rows: Sequence[dict[str, Any]], schema_rows: Sequence[Mapping[str, Any]], decisions: Mapping[str, Decision]
) -> list[DdlEvent]:
    """Return DDL events with their rows of table_schemas and the decisions about them.

    Args:
        rows: the DDL events of change_events.
        schema_rows: the rows of table_schemas that come from statements.
        decisions: statement id -> a person's decision.
    """
    by_id: dict[str, list[Mapping[str, Any]]] = {}
    for r in schema_rows:
        by_id.setdefault(identify_statement(r), []).append(r)
    ids = [identify_statement(row) for row in rows]
    return [DdlEvent(row, key, by_id.get(key, []), decisions.get(key)) for row, key in zip(rows, ids, strict=True)]


def explain_hold(
    event: DdlEvent,
    tables: AbstractSet[QualifiedName],
    feed: Feed,
    schema_rows: Sequence[Mapping[str, Any]],
    existed: Callable[[QualifiedName], bool],
) -> str | None:
    """Return why a statement waits for a decision; None: it does not wait.

    Args:
        event: the DDL event.
        tables: the tables that the statement may change and the feed takes.
        feed: the feed.
        schema_rows: the rows of table_schemas that come from statements.
        existed: whether a table had rows or statements before the statement.
    """
    if event.decision is not None:
        return None
    if event.error is not None:
        return event.error if tables else None
    for name in sorted(tables):
        if feed.stops_at_ddl(*name) and existed(name) and _changes_table(event, name, schema_rows):
            return f"schema_changes is stop for {'.'.join(name)}"
    return None


def keep_first_records(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row of released_changes, of kind `ddl`, for each statement, with the coordinates of its first record.

    A statement may come several times and in several partitions.
    """
    ordered = sorted(rows, key=lambda s: (s["topic"], s["partition"], s["offset"], s["index"]), reverse=True)
    first = {(identify_statement(s), s["table"]): s for s in ordered}
    return [{k: v for k, v in s.items() if k != "batch"} | {"kind": str(ReleasedKind.DDL)} for s in first.values()]


def list_row_ends(
    schema_rows: Sequence[Mapping[str, Any]], records: Iterable[Mapping[str, Any]], tables: AbstractSet[QualifiedName]
) -> RowEnds:
    """Return the statements that ended all rows of a table without row events, and those that gave it other columns.

    TRUNCATE, DROP, and RENAME to another name end rows. A table that another one replaces by RENAME keeps its rows, because
    these often come back with the other table.

    Args:
        schema_rows: the rows of table_schemas that come from statements.
        records: the DDL events of the run, repeated ones among them.
        tables: the tables.
    """
    last: dict[tuple[str, str, int], int] = {}
    for record in records:
        place = identify_statement(record), record["topic"], record["partition"]
        last[place] = max(last.get(place, -1), record["offset"])
    rows = [r for r in schema_rows if (r["database"], r["table"]) in tables]
    ids = {identify_statement(r) for r in rows}
    statements = {
        key: decode_statement(r["actions"])
        for r in schema_rows
        if r["actions"] is not None and (key := identify_statement(r)) in ids
    }
    ends: dict[QualifiedName, list[tuple[str, int, int, int, bool]]] = {}
    columns: dict[QualifiedName, list[str]] = {}
    for r in sorted(rows, key=lambda r: r["sequence"]):
        name = r["database"], r["table"]
        names = None if r["columns"] is None else sorted(c["name"] for c in r["columns"])
        has_other_columns = names is not None and columns.get(name, names) != names
        if names is not None:
            columns[name] = names
        key, topic, partition, offset = identify_statement(r), r["topic"], r["partition"], r["offset"]
        statement = statements.get(key)
        if statement is None or r["error"] is not None:
            continue
        ends_rows = r["columns"] is None or statement.replaces or statement.kind == "truncate_table"
        if ends_rows or has_other_columns:
            repeated = max(offset, last.get((key, topic, partition), offset))
            ends.setdefault(name, []).append((topic, partition, offset, repeated, ends_rows))
    return ends


def _changes_table(event: DdlEvent, name: QualifiedName, schema_rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a statement may change the columns, the key or the rows of a table."""
    statement = event.statement
    if statement is None or statement.replaces or statement.kind in _ROW_STATEMENTS:
        return True
    actions = [a for table, of_table in statement.changes if table == name for a in of_table]
    if any(isinstance(a, MoveRows | RenameTable) for a in actions):
        return True
    shapes = [r for r in schema_rows if (r["database"], r["table"]) == name and r["columns"] is not None]
    after = [r for r in event.schema_rows if (r["database"], r["table"]) == name and r["columns"] is not None]
    earlier = [r for r in shapes if after and r["sequence"] < after[0]["sequence"]]
    if earlier:
        before = max(earlier, key=lambda r: r["sequence"])
        return any(before[c] != after[-1][c] for c in _SHAPE)
    return any(not _is_index_action(action) for action in actions)


def _is_index_action(action: Action) -> bool:
    """Return whether an action changes only a foreign key, or an index that is not a key."""
    is_plain_index = isinstance(action, AddKey) and action.kind == "index"
    is_secondary = isinstance(action, DropKey) and action.name.lower() != "primary"
    return is_plain_index or is_secondary or isinstance(action, RenameKey | AddForeignKey | DropForeignKey)
