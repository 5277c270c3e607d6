"""The DDL statements that have been released, and what each does to the tables of a feed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_assets.ddl.actions import Action, Column, DdlKind, RenameTable, decode_statement
from cdc_assets.history.progress import Name
from cdc_assets.lakehouse.decisions import Decision, statement_id


@dataclass(frozen=True)
class Spot:
    """Where in the stream a statement stands.

    Attributes:
        commit_ts: the position at which it takes effect.
        topic: of its record.
        partition: of its record.
        offset: of its record.
        place: file and position in the binlog, where the source tells them.
        sequence: its number in the order in which the feed's statements take effect.
    """

    commit_ts: int
    topic: str = ""
    partition: int = 0
    offset: int = 0
    place: tuple[str, int] | None = None
    sequence: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """What statements are ordered by."""
        return self.commit_ts, self.sequence


@dataclass(frozen=True)
class Ddl:
    """One statement.

    Attributes:
        id: the same however often the statement comes.
        spot: where it stands, by its first record.
        text: its SQL.
        kind: what it is; None: it could not be read.
        replaces: whether it drops a table first that is there already.
        changes: the tables it names, each with what happens to it.
        moved: of tables that it renames: the new name -> the name before the statement.
        database: that it drops.
        shapes: the columns of tables after it, where they are known.
        keys: the columns that tell the rows of these tables apart; none: the table has no key.
        maybe: the tables that a statement which cannot be read may change.
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
    maybe: frozenset[Name] = frozenset()

    @property
    def tables(self) -> set[Name]:
        """The tables that it names, before and after it."""
        return {
            *(name for name, _ in self.changes),
            *self.moved,
            *self.moved.values(),
            *self.shapes,
            *self.maybe,
        }

    def touches(self, name: Name) -> bool:
        """Whether it may change that table."""
        return name in self.tables or (self.database is not None and name[0] == self.database)


def ddls(
    rows: Iterable[Mapping[str, Any]], known: Sequence[Mapping[str, Any]], decided: Mapping[str, Decision]
) -> list[Ddl]:
    """Statements in the order in which they took effect, each once; none that are ignored.

    Args:
        rows: of released_changes of kind ddl, or of table_schemas.
        known: rows of table_schemas: what each statement does, and what the tables are after it.
        decided: what people have decided about statements, by id.
    """
    learnt: dict[str, list[Mapping[str, Any]]] = {}
    for r in known:
        if r["ddl_statement"] is not None:
            learnt.setdefault(statement_id(r["commit_ts"], r["default_database"], r["ddl_statement"]), []).append(r)
    wanted = {
        statement_id(r["commit_ts"], r.get("default_database", r["database"]), r["ddl_statement"]): r["ddl_statement"]
        for r in rows
    }
    texts = {key: decided[key].text(text) if key in decided else text for key, text in wanted.items()}
    found = [_ddl(key, text, learnt[key]) for key, text in texts.items() if text is not None]
    return sorted(found, key=lambda d: d.spot.order)


def _ddl(key: str, text: str, known: Sequence[Mapping[str, Any]]) -> Ddl:
    first = known[0]
    place = first["source"]
    spot = Spot(
        first["position"],
        first["topic"],
        first["partition"],
        first["offset"],
        (place["file"], place["position"]) if place else None,
        first["sequence"],
    )
    shapes: dict[Name, tuple[Column, ...]] = {
        (r["database"], r["table"]): tuple(
            Column(c["name"], c["type"], c["nullable"], c["default"], c["generated"]) for c in r["columns"]
        )
        for r in known
        if r["columns"] is not None
    }
    keys = {(r["database"], r["table"]): tuple(r["key_columns"] or ()) for r in known if r["columns"] is not None}
    if first["actions"] is None:
        maybe = frozenset((r["database"], r["table"]) for r in known if r["table"] is not None)
        return Ddl(key, spot, text, None, shapes=shapes, keys=keys, maybe=maybe)
    does = decode_statement(first["actions"])
    changes = tuple(((name.database, name.table), actions) for name, actions in does.changes)
    dropped = does.database if does.kind == "drop_database" else None
    return Ddl(key, spot, text, does.kind, does.replaces, changes, _moved(changes), dropped, shapes, keys)


def _moved(changes: Sequence[tuple[Name, tuple[Action, ...]]]) -> dict[Name, Name]:
    """Where each table that the statement renames was before it: names may pass from one to the other within it."""
    origins: dict[Name, Name] = {}
    for name, actions in changes:
        for action in actions:
            if isinstance(action, RenameTable):
                origins[action.new_name.database, action.new_name.table] = origins.pop(name, name)
    return {new: old for new, old in origins.items() if new != old}
