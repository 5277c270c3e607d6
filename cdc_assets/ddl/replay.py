"""The statements of a feed, one after the other: what each does to which tables, and the tables after it.

Which tables names mean, whether IF [NOT] EXISTS did anything, and in which order renames of one moment happened, is sent by
what statements before and rows have shown of the tables.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice
from typing import Any

from cdc_assets.ddl.actions import (
    Action,
    AddColumn,
    AddKey,
    DropColumn,
    ModifyColumn,
    RenameColumn,
    RenameTable,
    Statement,
)
from cdc_assets.ddl.readers import read_statement
from cdc_assets.ddl.renames import Rename, UnorderedError, in_order
from cdc_assets.ddl.resolve import KnownTables, Name, UnresolvedNameError, mentioned, resolve
from cdc_assets.ddl.shapes import TableSchema, apply_statement
from cdc_assets.mysql_types.tokens import SqlSyntaxError
from cdc_assets.mysql_types.types import INTEGERS, parsed


@dataclass(frozen=True)
class TableRows:
    """What rows show of a table.

    Attributes:
        first: the lowest commit_ts of one.
        columns: of the first of them, in lower case -> its MySQL type as the message has it; None: it has none.
        key: the columns of the first one's key.
    """

    first: int
    columns: Mapping[str, str | None] = field(default_factory=dict)
    key: frozenset[str] = frozenset()


def in_effect_order(statements: Iterable[Mapping[str, Any]], *, exact: bool) -> list[dict[str, Any]]:
    """Return statements in the order in which they took effect, with the `position` at which each did.

    A clock may go back: within a partition only offsets tell the order, so that a statement takes effect no earlier than the
    one before it. Between partitions the place in the binlog tells it, where there is one.

    Args:
        statements: with commit_ts, topic, partition, offset and source (`file`, `position`; None: not sent).
        exact: whether the commit_ts is the source's own order: then it tells all.
    """
    placed = sorted(statements, key=lambda s: (s["topic"], s["partition"], s["offset"]))
    latest: dict[tuple[str, int], tuple[int, str, int]] = {}
    found = []
    for s in placed:
        source = s.get("source") or {}
        place = s["commit_ts"], source.get("file") or "", source.get("position") or 0
        if not exact:
            partition = s["topic"], s["partition"]
            place = latest[partition] = max(place, latest.get(partition, place))
        found.append((place, {**s, "position": place[0]}))
    found.sort(key=lambda each: (each[0], each[1]["topic"], each[1]["partition"], each[1]["offset"]))
    return [s for _, s in found]


@dataclass(frozen=True)
class Outcome:
    """What came of one statement.

    Attributes:
        statement: what it does, on the tables that it means; None: it is not understood.
        affected: the tables that it changes, or may change.
        shapes: of these those that are known after it.
        error: why it is not understood, or what contradicts it.
    """

    statement: Statement | None
    affected: tuple[Name, ...]
    shapes: Mapping[Name, TableSchema]
    error: str | None = None


@dataclass(frozen=True)
class SentStatement:
    """A statement as it is to be read.

    Attributes:
        position: at which it takes effect.
        database: that its message tells.
        table: that its message names.
        text: what it is taken for; None: it is ignored.
        original: its own text, where it is taken for another.
        carried: the tables that its message carries, given those after the statement.
    """

    position: int
    database: str
    table: str | None
    text: str | None
    original: str | None = None
    carried: Callable[[Mapping[Name, TableSchema]], Mapping[Name, TableSchema]] = lambda _: {}


class SourceTables:
    """The tables of a feed as its statements are applied to them, in order.

    Attributes:
        schemas: the columns and keys of those whose CREATE TABLE was seen, or that a message has carried.
        asks_rows: whether rows would have sent which table a statement means, or what it did.
    """

    def __init__(self, rows: Mapping[Name, TableRows], *, ignores_case: bool) -> None:
        self.schemas: dict[Name, TableSchema] = {}
        self.asks_rows = False
        self._rows = rows
        self._unmet = sorted(rows, key=lambda name: rows[name].first, reverse=True)
        self._known = KnownTables(rows=rows, ignores_case=ignores_case)

    def apply(self, sent: SentStatement, following: Iterable[SentStatement]) -> Outcome:
        """Apply a statement; `following`: those after it, in order."""
        while self._unmet and self._rows[self._unmet[-1]].first < sent.position:
            self._known.add(self._unmet.pop())
        outcome = self._applied(sent, following)
        before = {name: self.schemas.get(name) for name in outcome.affected}
        carried = sent.carried(self.schemas) if sent.text is not None else {}
        for name, schema in carried.items():
            self.schemas[name] = schema
            self._known.add(name)
        error = outcome.error
        if carried:
            # Where the message says what came of it, it does not matter that the statement cannot be read.
            differences = [_difference(before.get(name), schema) for name, schema in carried.items()]
            error = "; ".join(filter(None, differences)) if outcome.statement else None
        affected = dict.fromkeys([*outcome.affected, *carried, *self._named_otherwise(sent)])
        shapes = {name: self.schemas[name] for name in affected if name in self.schemas}
        return Outcome(outcome.statement, tuple(affected), shapes, error or None)

    def renamed_in_order(self, group: Sequence[SentStatement], *, exact: bool) -> list[SentStatement]:
        """Return statements of one position, those that rename one table each in the order in which they happened.

        Raises:
            UnorderedError: that order is not sent.
        """
        renames: dict[int, Rename] = {}
        for n, sent in enumerate(group):
            statement = self._read_rename(sent)
            if statement is not None:
                renames[n] = statement.names[0], statement.new_names[0]
        if len(renames) < 2:
            return list(group)
        places = list(renames)
        order = in_order(list(renames.values()), self._known.present.__contains__, together=exact)
        moved = dict(zip(places, (group[places[n]] for n in order), strict=True))
        return [moved.get(n, sent) for n, sent in enumerate(group)]

    def unordered(self, sent: SentStatement, error: str) -> Outcome:
        """Return the outcome of a statement whose place in the order is not known."""
        affected = self._maybe(sent)
        return Outcome(None, affected, {n: self.schemas[n] for n in affected if n in self.schemas}, error)

    def _applied(self, sent: SentStatement, following: Iterable[SentStatement]) -> Outcome:
        if sent.text is None:
            return Outcome(None, (), {})
        try:
            statement = self._happened(self._read(sent.text, sent.database), following)
        except (SqlSyntaxError, UnresolvedNameError) as error:
            return Outcome(None, self._maybe(sent), {}, f"{error}, in: {sent.text}")
        effect = apply_statement(self.schemas, statement)
        if effect.error is not None:
            return Outcome(None, effect.affected, {}, f"{effect.error}, in: {sent.text}")
        self._go_on(statement, dict(effect.tables))
        return Outcome(statement, effect.affected, {})

    def _read(self, text: str, database: str) -> Statement:
        statement = resolve(read_statement(text), database, self._known)
        named = [*statement.names, *([statement.like] if statement.like else [])]
        if statement.kind != "create_table" or statement.tolerant:
            self.asks_rows |= any(name not in self.schemas for name in named)
        return statement

    def _read_rename(self, sent: SentStatement) -> Statement | None:
        """Read a statement that renames one table; None for all others."""
        try:
            statement = resolve(read_statement(sent.text or ""), sent.database, self._known)
        except (SqlSyntaxError, UnresolvedNameError):
            return None
        return statement if statement.kind == "rename_table" and len(statement.new_names) == 1 else None

    def _maybe(self, sent: SentStatement) -> tuple[Name, ...]:
        """The tables that a statement may change that is not understood."""
        self.asks_rows = True
        texts = filter(None, (sent.text, sent.original))
        found = {name for text in texts for name in mentioned(text, sent.database, self._all())}
        if sent.table:
            own = sent.database, sent.table
            found.add(self._known.alike(own) or own)
        return tuple(sorted(found))

    def _all(self) -> set[Name]:
        return {*self._known.present, *self._known.rows}

    def _named_otherwise(self, sent: SentStatement) -> tuple[Name, ...]:
        """The tables of a statement that is taken for another, or ignored."""
        if sent.original is None:
            return ()
        try:
            statement = resolve(read_statement(sent.original), sent.database, self._known)
        except (SqlSyntaxError, UnresolvedNameError):
            return self._maybe(sent)
        if statement.kind == "drop_database":
            return tuple(name for name in self._all() if name[0] == statement.database)
        return statement.names + statement.new_names

    def _go_on(self, statement: Statement, schemas: dict[Name, TableSchema]) -> None:
        """Take the tables after a statement."""
        if statement.kind == "drop_database":
            for name in [n for n in self._known.present if n[0] == statement.database]:
                self._known.remove(name)
        for name, actions in statement.changes:
            if statement.kind == "drop_table":
                self._known.remove(name)
            elif statement.kind in ("create_table", "recover_table"):
                self._known.add(name)
            for action in actions:
                if isinstance(action, RenameTable):
                    self._known.remove(name)
                    self._known.add(action.new_name)
        self.schemas = schemas

    def _happened(self, statement: Statement, following: Iterable[SentStatement]) -> Statement:
        """Return the statement without what IF [NOT] EXISTS has left undone."""
        if statement.kind == "create_table":
            if not statement.tolerant or statement.replaces:
                return statement
            name = statement.names[0]
            came = self._rows.get(name)
            there = name in self.schemas or name in self._known.present
            if there or (came is not None and self._contradicts(statement, came, following)):
                self._known.add(name)
                # Listed without an action: the statement is about the table, and leaves it as it is.
                return Statement("other", ((name, ()),))
            return statement if came is None else replace(statement, tolerant=False)
        if statement.kind == "rename_table" and statement.tolerant:
            there_now = [each for each in statement.changes if each[0] in self._known.present]
            return replace(statement, changes=tuple(there_now))
        changes = tuple(
            (name, _effective(self.schemas[name], actions) if name in self.schemas else actions)
            for name, actions in statement.changes
        )
        return replace(statement, changes=changes)

    def _contradicts(self, statement: Statement, came: TableRows, following: Iterable[SentStatement]) -> bool:
        """Whether the first row of a table shows that CREATE TABLE IF NOT EXISTS has not made it."""
        ((name, _),) = statement.changes
        for each in following:
            if each.position > came.first:
                break
            if name[1].lower() in (each.text or "").lower():
                return False  # which has changed the table before the row
        made = apply_statement({k: v for k, v in self.schemas.items() if k == statement.like}, statement)
        table = made.tables.get(name)
        if table is None or not came.columns:
            return False
        stated = {c.name.lower(): c.type for c in table.columns if not c.virtual}
        if stated.keys() != came.columns.keys() or (came.key and came.key != {c.lower() for c in table.key_columns}):
            return True
        return any(_is_other_type(stated[column], wire) for column, wire in came.columns.items())


def replay(
    statements: Sequence[SentStatement], rows: Mapping[Name, TableRows], *, exact: bool, ignores_case: bool
) -> tuple[list[tuple[int, Outcome]], bool]:
    """Apply statements in the order in which they took effect.

    Args:
        statements: by position.
        rows: what is known of tables by their rows.
        exact: whether statements of one position are parts of one.
        ignores_case: whether the server takes names of tables in any case.

    Returns:
        The place of each in `statements`, with what came of it, in that order; and whether more rows might tell more.
    """
    tables = SourceTables(rows, ignores_case=ignores_case)
    places = {id(sent): n for n, sent in enumerate(statements)}
    found: list[tuple[int, Outcome]] = []
    for _, each in groupby(statements, key=lambda sent: sent.position):
        group = list(each)
        begin = len(found)
        try:
            group = tables.renamed_in_order(group, exact=exact) if len(group) > 1 else group
        except UnorderedError as error:
            found += [(places[id(sent)], tables.unordered(sent, str(error))) for sent in group]
            continue
        for n, sent in enumerate(group):
            following = chain(group[n + 1 :], islice(statements, begin + len(group), None))
            found.append((places[id(sent)], tables.apply(sent, following)))
    return found, tables.asks_rows


def _effective(table: TableSchema, actions: Sequence[Action]) -> tuple[Action, ...]:
    """Return the actions without those that IF [NOT] EXISTS has left undone, as the table's schema tells.

    Raises:
        SqlSyntaxError: the statement itself drops what it adds IF NOT EXISTS.
    """
    columns = {c.name.lower() for c in table.columns}
    dropped = {a.name.lower() for a in actions if isinstance(a, DropColumn)}
    both = [a.column.name for a in actions if isinstance(a, AddColumn) and a.only_if_missing]
    if again := [name for name in both if name.lower() in dropped]:
        raise SqlSyntaxError(f"whether {again[0]} is added IF NOT EXISTS is not known, as it is dropped, too")
    done: list[Action] = []
    for action in actions:
        match action:
            case AddColumn(column, only_if_missing=True):
                done += [replace(action, only_if_missing=False)] if column.name.lower() not in columns else []
            case ModifyColumn(name, if_exists=True) | RenameColumn(name, if_exists=True) | DropColumn(name, True):
                done += [replace(action, if_exists=False)] if name.lower() in columns else []
            case AddKey(only_if_missing=True):
                done += [] if _has_key(table, action) else [replace(action, only_if_missing=False)]
            case _:
                done.append(action)
    return tuple(done)


def _has_key(table: TableSchema, key: AddKey) -> bool:
    if key.kind == "primary":
        return bool(table.primary_key)
    return key.name.lower() in {name.lower() for name in (*table.unique_names, *table.index_names)}


def _difference(stated: TableSchema | None, carried: TableSchema) -> str | None:
    """Return what a table is by its statement and by its message, where the two differ; None where they agree."""
    if stated is None:
        return None
    by_statement = {c.name.lower(): c.type for c in stated.columns}
    by_message = {c.name.lower(): c.type for c in carried.columns}
    other = [c for c in by_message if c in by_statement and _is_other_type(by_statement[c], by_message[c])]
    if by_statement.keys() == by_message.keys() and not other:
        return None
    left, right = (
        ", ".join(f"{c} {types[c]}" for c in types if c not in elsewhere or c in other)
        for types, elsewhere in ((by_statement, by_message), (by_message, by_statement))
    )
    return (
        f"{stated.database}.{stated.table}: by the statement it has {left or 'no other column'}, "
        f"by its message {right or 'no other column'}"
    )


def _is_other_type(one: str, other: str | None) -> bool:
    """Whether two types are different for sure, whatever parameters they leave out."""
    first, second = parsed(one), parsed(other)
    if first is None or second is None:
        return False
    if _KIND.get(first.base, first.base) != _KIND.get(second.base, second.base):
        return True
    # TiCDC leaves `unsigned` of other numbers out.
    return first.base in INTEGERS and first.unsigned != second.unsigned


# A server makes one of the other as the length, or the character set, asks for it.
_KIND = {
    "double": "float",
    **dict.fromkeys(("char", "varchar", "binary", "varbinary", "json"), "text"),
    **{f"{size}{kind}": "text" for size in ("tiny", "", "medium", "long") for kind in ("text", "blob")},
}
