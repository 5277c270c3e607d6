"""The DDL statements that have been released, and what each of them does to the tables of a feed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column as Expression
from pyspark.sql import functions as F

from cdc_assets.binlog import BinlogPlace, read_place
from cdc_assets.ddl.actions import Action, Column, DdlKind, RenameTable, decode_statement
from cdc_assets.history.progress import Name
from cdc_assets.lakehouse.decisions import Decision, identify_statement


@dataclass(frozen=True)
class Spot:
    """The position of a statement in the stream.

    Attributes:
        commit_ts: the position at which the statement takes effect.
        topic: topic of its record.
        partition: partition of its record.
        offset: offset of its record.
        sent_ms: when the sender wrote the message, in milliseconds of its own clock; None if the message does not state it.
        place: the statement's place in the binlog; None where the source does not state it.
        sequence: the statement's number in the order in which the feed's statements take effect.
    """

    commit_ts: int
    topic: str = ""
    partition: int = 0
    offset: int = 0
    sent_ms: int | None = None
    place: BinlogPlace | None = None
    sequence: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """The sort key of statements."""
        return self.commit_ts, self.sequence


def is_in_partition(spot: Spot) -> Expression:
    """Return whether a row is in the partition of a statement. BOOLEAN; the columns are topic and partition."""
    return (F.col("topic") == spot.topic) & (F.col("partition") == spot.partition)


@dataclass(frozen=True)
class Ddl:
    """One DDL statement.

    Attributes:
        id: identifies the statement, however often it is sent.
        spot: the position of the statement's first record.
        text: the SQL.
        kind: the kind of statement; None if it could not be read.
        replaces: whether the statement first drops an existing table of that name (CREATE OR REPLACE).
        changes: the tables that the statement names, each with its schema actions.
        moved: for the tables that the statement renames: the new name -> the name before the statement.
        database: the database that the statement drops.
        shapes: the columns of tables after the statement, where they are known.
        keys: the key columns of these tables; no columns if the table has no key.
        possible_tables: the tables that a statement which could not be read may change.
    """

    id: str
    spot: Spot
    text: str
    kind: DdlKind | None
    replaces: bool = False
    changes: tuple[tuple[Name, tuple[Action, ...]], ...] = ()
    moved: Mapping[Name, Name] = field(default_factory=dict)
    database: str | None = None
    shapes: Mapping[Name, tuple[Column, ...]] = field(default_factory=dict)
    keys: Mapping[Name, tuple[str, ...]] = field(default_factory=dict)
    possible_tables: frozenset[Name] = frozenset()

    @property
    def tables(self) -> set[Name]:
        """The tables that the statement names, by their names before and after it."""
        return {
            *(name for name, _ in self.changes),
            *self.moved,
            *self.moved.values(),
            *self.shapes,
            *self.possible_tables,
        }

    def may_change(self, name: Name) -> bool:
        """Return whether the statement may change a table."""
        return name in self.tables or (self.database is not None and name[0] == self.database)


def read_statements(
    rows: Iterable[Mapping[str, Any]], schema_rows: Sequence[Mapping[str, Any]], decided: Mapping[str, Decision]
) -> list[Ddl]:
    """Return the statements of `rows`, each once, in the order in which they took effect, without the ignored ones.

    Args:
        rows: rows of released_changes of kind ddl, or rows of table_schemas.
        schema_rows: rows of table_schemas: what each statement does, and the tables' schemas after it.
        decided: people's decisions about statements, by statement id.
    """
    rows_of_statement: dict[str, list[Mapping[str, Any]]] = {}
    for r in schema_rows:
        if r["ddl_statement"] is not None:
            rows_of_statement.setdefault(identify_statement(r), []).append(r)
    sent_texts = {identify_statement(r): r["ddl_statement"] for r in rows}
    texts = {key: decided[key].text(text) if key in decided else text for key, text in sent_texts.items()}
    statements = [_make_ddl(key, text, rows_of_statement[key]) for key, text in texts.items() if text is not None]
    return sorted(statements, key=lambda d: d.spot.order)


def _make_ddl(key: str, text: str, schema_rows: Sequence[Mapping[str, Any]]) -> Ddl:
    """Return a statement from its rows of table_schemas."""
    first = schema_rows[0]
    place = read_place(first["source"])
    record = first["topic"], first["partition"], first["offset"]
    spot = Spot(first["position"], *record, first["sent_ms"], place, first["sequence"])
    with_columns = [r for r in schema_rows if r["columns"] is not None]
    shapes: dict[Name, tuple[Column, ...]] = {
        (r["database"], r["table"]): tuple(Column(**c) for c in r["columns"]) for r in with_columns
    }
    keys = {(r["database"], r["table"]): tuple(r["key_columns"] or ()) for r in with_columns}
    if first["actions"] is None:
        possible = frozenset((r["database"], r["table"]) for r in schema_rows if r["table"] is not None)
        return Ddl(key, spot, text, None, shapes=shapes, keys=keys, possible_tables=possible)
    statement = decode_statement(first["actions"])
    changes = tuple(((name.database, name.table), actions) for name, actions in statement.changes)
    dropped = statement.database if statement.kind == "drop_database" else None
    return Ddl(
        key, spot, text, statement.kind, statement.replaces, changes, _find_moved(changes), dropped, shapes, keys
    )


def _find_moved(changes: Sequence[tuple[Name, tuple[Action, ...]]]) -> dict[Name, Name]:
    """Return the new names of renamed tables -> their names before the statement.

    One statement may pass a name from one table to another, so follow each table through all of its actions.
    """
    origins: dict[Name, Name] = {}
    for name, actions in changes:
        for action in actions:
            if isinstance(action, RenameTable):
                origins[action.new_name.database, action.new_name.table] = origins.pop(name, name)
    return {new: old for new, old in origins.items() if new != old}
