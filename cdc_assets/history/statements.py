"""The DDL statements that have been released, read into what each does to the tables of a feed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_assets.history.progress import Name
from cdc_assets.mysql_types.ddl import Column, DdlKind, read_or_none
from cdc_assets.mysql_types.ddl_statements import Action, RenameTable
from cdc_assets.tables.decisions import Decision, statement_id


@dataclass(frozen=True)
class Spot:
    """Where in the stream a statement stands.

    Attributes:
        commit_ts: its position in the source.
        topic: of its record.
        partition: of its record.
        offset: of its record.
        place: file and position in the binlog, where the source tells them.
    """

    commit_ts: int
    topic: str = ""
    partition: int = 0
    offset: int = 0
    place: tuple[str, int] | None = None

    @property
    def order(self) -> tuple[Any, ...]:
        """What statements are ordered by."""
        return self.commit_ts, self.place or ("", 0), self.topic, self.partition, self.offset


@dataclass(frozen=True)
class Ddl:
    """One statement.

    Attributes:
        id: the same however often the statement comes.
        spot: where it stands, by its first record.
        text: its SQL.
        kind: what it is; None: it could not be read.
        changes: the tables it names, each with what happens to it.
        moved: of tables that it renames: the new name -> the name before the statement.
        database: that it drops.
        shapes: the columns of tables after it, where they are known.
        keys: the columns that tell the rows of these tables apart; none: the table has no key.
        told: the table that the message of a statement that cannot be read names.
    """

    id: str
    spot: Spot
    text: str
    kind: DdlKind | None
    changes: tuple[tuple[Name, tuple[Action, ...]], ...] = ()
    moved: Mapping[Name, Name] = field(default_factory=dict)
    database: str | None = None
    shapes: Mapping[Name, tuple[Column, ...]] = field(default_factory=dict)
    keys: Mapping[Name, tuple[str, ...]] = field(default_factory=dict)
    told: Name | None = None

    @property
    def tables(self) -> set[Name]:
        """The tables that it names, before and after it."""
        return {
            *(name for name, _ in self.changes),
            *self.moved,
            *self.moved.values(),
            *self.shapes,
            *filter(None, [self.told]),
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
        known: rows of table_schemas, for what messages carry of the tables after a statement.
        decided: what people have decided about statements, by id.
    """
    shapes: dict[str, dict[Name, Mapping[str, Any]]] = {}
    for r in known:
        if r["ddl_statement"] is not None and r["columns"] is not None:
            of = shapes.setdefault(statement_id(r["commit_ts"], r["default_database"], r["ddl_statement"]), {})
            of[r["database"], r["table"]] = r
    found: dict[str, Ddl] = {}
    for r in rows:
        database = r.get("default_database", r["database"]) or ""
        text, source = r["ddl_statement"], r.get("source") or {}
        key = statement_id(r["commit_ts"], database, text)
        if key in decided:
            text = decided[key].text(text)
        if text is None:
            continue
        place = (source["file"], source["position"]) if source.get("file") and source.get("position") else None
        spot = Spot(r["commit_ts"], r["topic"], r["partition"], r["offset"], place)
        if key in found and found[key].spot.order <= spot.order:
            continue
        told = (database, r["table"]) if r["table"] else None
        found[key] = _ddl(key, spot, text, database, shapes.get(key, {}), told)
    return sorted(found.values(), key=lambda d: d.spot.order)


def _ddl(
    key: str, spot: Spot, text: str, database: str, known: Mapping[Name, Mapping[str, Any]], told: Name | None
) -> Ddl:
    shapes = {
        name: tuple(Column(c["name"], c["type"], c["nullable"], c["default"], c["generated"]) for c in r["columns"])
        for name, r in known.items()
    }
    keys = {name: tuple(r["key_columns"] or ()) for name, r in known.items()}
    read = read_or_none(text, database)
    if read is None:
        return Ddl(key, spot, text, None, shapes=shapes, keys=keys, told=told)
    changes = tuple((_cased((name[0], name[1]), shapes), actions) for name, actions in read.changes)
    dropped = read.database if read.kind == "drop_database" else None
    return Ddl(key, spot, text, read.kind, changes, _moved(changes), dropped, shapes, keys)


def _cased(name: Name, shapes: Mapping[Name, object]) -> Name:
    """The name as what is known of the tables spells it: a statement may name a table in any case."""
    alike = [known for known in shapes if (known[0].lower(), known[1].lower()) == (name[0].lower(), name[1].lower())]
    return alike[0] if len(alike) == 1 else name


def _moved(changes: Sequence[tuple[Name, tuple[Action, ...]]]) -> dict[Name, Name]:
    """Where each table that the statement renames was before it: names may pass from one to the other within it."""
    origins: dict[Name, Name] = {}
    for name, actions in changes:
        for action in actions:
            if isinstance(action, RenameTable):
                origins[action.new_name.database, action.new_name.table] = origins.pop(name, name)
    return {new: old for new, old in origins.items() if new != old}
