"""Apply the statements of a feed in the order in which they took effect, and return what each did to which tables.

Earlier statements and rows show which tables the names of a statement mean, what IF [NOT] EXISTS left undone, and in which
order RENAMEs of one position took effect.
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
from cdc_assets.ddl.apply import apply_statement
from cdc_assets.ddl.readers import read_statement
from cdc_assets.ddl.renames import NameChange, Rename, UnorderedError, is_possible_order, order_renames
from cdc_assets.ddl.resolve import Name, TableNames, UnresolvedNameError, follow_spelling, resolve, select_dropped
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.ddl.stated_schemas import (
    describe_difference,
    describe_other_defaults,
    is_other_type,
    take_stated_defaults,
)
from cdc_assets.mysql_types.tokens import SqlSyntaxError


@dataclass(frozen=True)
class TableRows:
    """What the row events of a table show.

    Attributes:
        first: the lowest commit_ts of a row event.
        columns: the columns of that event, in lower case, with the MySQL type that its message states; None: no type.
        key: the key columns of that event.
    """

    first: int
    columns: Mapping[str, str | None] = field(default_factory=dict)
    key: frozenset[str] = frozenset()


def order_by_effect(statements: Iterable[Mapping[str, Any]], *, exact: bool) -> list[dict[str, Any]]:
    """Return statements in the order in which they took effect, each with the `position` at which it did.

    Source clocks go back, so within a partition only offsets give the order: a statement takes effect no earlier than the
    one before it. Between partitions the binlog position gives the order, where messages have it.

    Args:
        statements: with commit_ts, topic, partition, offset and source (`file`, `position`; None: no binlog position).
        exact: whether the commit_ts gives the source's order of all statements.
    """
    by_offset = sorted(statements, key=lambda s: (s["topic"], s["partition"], s["offset"]))
    latest: dict[tuple[str, int], tuple[int, str, int]] = {}
    placed = []
    for s in by_offset:
        source = s.get("source") or {}
        place = s["commit_ts"], source.get("file") or "", source.get("position") or 0
        if not exact:
            partition = s["topic"], s["partition"]
            place = latest[partition] = max(place, latest.get(partition, place))
        placed.append((place, {**s, "position": place[0]}))
    placed.sort(key=lambda each: (each[0], each[1]["topic"], each[1]["partition"], each[1]["offset"]))
    return [s for _, s in placed]


@dataclass(frozen=True)
class Outcome:
    """What one statement did.

    Attributes:
        statement: its schema actions on resolved tables; None: it is not understood, or is ignored.
        affected: the tables that it changes or may change.
        shapes: the schemas after it of those affected tables whose schema is known.
        error: why it is not understood, or what contradicts it.
    """

    statement: Statement | None
    affected: tuple[Name, ...]
    shapes: Mapping[Name, TableSchema]
    error: str | None = None


@dataclass(frozen=True)
class SentStatement:
    """A statement, and what its message states.

    Attributes:
        position: the position at which it takes effect.
        database: the database that its message states.
        table: the table that its message names.
        text: the SQL to apply, which a person's decision may have replaced; None: the statement is ignored.
        original: the SQL that the message has, if a person decided about the statement.
        read_stated: returns the schemas that the message states after the statement; its argument is the schemas that follow
            from the statement.
    """

    position: int
    database: str
    table: str | None
    text: str | None
    original: str | None = None
    read_stated: Callable[[Mapping[Name, TableSchema]], Mapping[Name, TableSchema]] = lambda _: {}


class SourceTables:
    """The tables of a feed while its statements are applied in order.

    Attributes:
        schemas: the schemas of the tables whose CREATE TABLE came, or that a message stated.
        asks_rows: whether row events would have shown which table a statement means, or what it did.
    """

    def __init__(self, rows: Mapping[Name, TableRows], *, of_tidb: bool) -> None:
        self.schemas: dict[Name, TableSchema] = {}
        self.asks_rows = False
        self._rows = rows
        # Tables whose first row event is not reached yet, the next one last.
        self._later_rows = sorted(rows, key=lambda name: rows[name].first, reverse=True)
        self._of_tidb = of_tidb
        self._names = TableNames(with_rows=rows, ignores_case=of_tidb)

    def apply(self, sent: SentStatement, following: Iterable[SentStatement]) -> Outcome:
        """Apply a statement and return what it did.

        Args:
            sent: the statement.
            following: the statements after it, in order.
        """
        while self._later_rows and self._rows[self._later_rows[-1]].first < sent.position:
            self._names.add(self._later_rows.pop())
        statement, affected, error = self._apply_text(sent, following)
        before = {name: self.schemas.get(name) for name in affected}
        stated = sent.read_stated(self.schemas) if sent.text is not None else {}
        for name, schema in stated.items():
            self.schemas[name] = schema
            self._names.add(name)
        if stated:
            # The message states the result, so a statement that cannot be read is no error.
            differences = [describe_difference(before.get(name), schema) for name, schema in stated.items()]
            differences += describe_other_defaults(statement, stated) if statement else ()
            error = "; ".join(filter(None, differences)) if statement else None
            statement = statement and take_stated_defaults(statement, stated)
        return self._build_outcome(statement, [*affected, *stated, *self._find_tables_of_original(sent)], error or None)

    def order_group(self, group: Sequence[SentStatement], *, exact: bool) -> list[SentStatement]:
        """Return statements of one position with the RENAMEs of one table each in the order in which they took effect.

        Args:
            group: the statements, in the order of their messages.
            exact: whether statements of one position are parts of one statement.

        Raises:
            UnorderedError: the order of the RENAMEs does not follow from their names.
        """
        renames: dict[int, Rename] = {}
        steps: list[NameChange] = []
        for n, sent in enumerate(group):
            statement = self._read_names(sent.text or "", sent.database)
            if statement is None:
                continue
            if statement.kind == "rename_table" and len(statement.new_names) == 1:
                renames[n] = statement.names[0], statement.new_names[0]
                steps.append(renames[n])
            elif statement.kind in ("create_table", "drop_table"):
                is_created = statement.kind == "create_table"
                steps += [(None, name) if is_created else (name, None) for name in statement.names]
        exists = self._names.existing.__contains__
        if len(renames) < 2 or (not exact and is_possible_order(steps, exists)):
            return list(group)
        order = order_renames(list(renames.values()), exists, from_one_statement=exact)
        places = list(renames)
        moved = dict(zip(places, (group[places[n]] for n in order), strict=True))
        return [moved.get(n, sent) for n, sent in enumerate(group)]

    def reject(self, sent: SentStatement, error: str) -> Outcome:
        """Return the outcome of a statement that is not applied because of `error`."""
        return self._build_outcome(None, self._find_possible_tables(sent), error)

    def _build_outcome(self, statement: Statement | None, affected: Iterable[Name], error: str | None) -> Outcome:
        """Return an outcome with the schemas that the affected tables have now."""
        names = tuple(dict.fromkeys(affected))
        return Outcome(statement, names, {name: self.schemas[name] for name in names if name in self.schemas}, error)

    def _apply_text(
        self, sent: SentStatement, following: Iterable[SentStatement]
    ) -> tuple[Statement | None, Sequence[Name], str | None]:
        """Apply the text of a statement, and return the first, second and last field of its `Outcome`."""
        if sent.text is None:
            return None, (), None
        try:
            statement = self._read(sent.text, sent.database)
            if self._of_tidb and sent.original in {None, sent.text}:
                statement = select_dropped(statement, sent.database, sent.table)
                statement = follow_spelling(statement, sent.database, sent.table)
            statement = self._drop_undone_parts(statement, following)
        except (SqlSyntaxError, UnresolvedNameError) as error:
            return None, self._find_possible_tables(sent), f"{error}, in: {sent.text}"
        effect = apply_statement(self.schemas, statement)
        if effect.error is not None:
            return None, effect.affected, f"{effect.error}, in: {sent.text}"
        self._update_names(statement)
        self.schemas = dict(effect.tables)
        return statement, effect.affected, None

    def _read(self, text: str, database: str) -> Statement:
        """Read a statement, and resolve its names."""
        statement = resolve(read_statement(text), database, self._names)
        tables = [*statement.names, *([statement.like] if statement.like else [])]
        if statement.kind != "create_table" or statement.tolerant:
            self.asks_rows |= any(name not in self.schemas for name in tables)
        return statement

    def _read_names(self, text: str, database: str) -> Statement | None:
        """Read a statement; None if it is not understood."""
        try:
            return resolve(read_statement(text), database, self._names)
        except (SqlSyntaxError, UnresolvedNameError):
            return None

    def _find_possible_tables(self, sent: SentStatement) -> tuple[Name, ...]:
        """Return the tables that a statement may change that is not understood."""
        self.asks_rows = True
        texts = [text for text in (sent.text, sent.original) if text]
        possible = {name for text in texts for name in self._names.find_mentioned(text, sent.database)}
        if not possible and not sent.table:
            # FLASHBACK DATABASE names no table, and changes all tables of the database.
            possible = {name for text in texts for name in self._names.find_in_databases(text)}
        if sent.table:
            stated_name = sent.database, sent.table
            possible.add(self._names.find(stated_name) or stated_name)
        return tuple(sorted(possible))

    def _find_tables_of_original(self, sent: SentStatement) -> tuple[Name, ...]:
        """Return the tables that a statement changed at the source which a person has replaced or ignored."""
        if sent.original is None:
            return ()
        statement = self._read_names(sent.original, sent.database)
        if statement is None:
            return self._find_possible_tables(sent)
        if statement.kind == "drop_database":
            return tuple(name for name in self._names.all_names() if name[0] == statement.database)
        return statement.names + statement.new_names

    def _update_names(self, statement: Statement) -> None:
        """Note which tables exist after a statement."""
        if statement.kind == "drop_database":
            for name in [n for n in self._names.existing if n[0] == statement.database]:
                self._names.remove(name)
        for name, actions in statement.changes:
            if statement.kind == "drop_table":
                self._names.remove(name)
            elif statement.kind in ("create_table", "recover_table"):
                self._names.add(name)
            for action in actions:
                if isinstance(action, RenameTable):
                    self._names.remove(name)
                    self._names.add(action.new_name)

    def _drop_undone_parts(self, statement: Statement, following: Iterable[SentStatement]) -> Statement:
        """Return the statement without the parts that IF [NOT] EXISTS left undone."""
        if statement.kind == "create_table":
            return self._check_creation(statement, following)
        if statement.kind == "rename_table" and statement.tolerant:
            renamed = [each for each in statement.changes if each[0] in self._names.existing]
            return replace(statement, changes=tuple(renamed))
        changes = tuple(
            (name, _select_effective(self.schemas[name], actions) if name in self.schemas else actions)
            for name, actions in statement.changes
        )
        return replace(statement, changes=changes)

    def _check_creation(self, statement: Statement, following: Iterable[SentStatement]) -> Statement:
        """Return a CREATE TABLE as it took effect: one with IF NOT EXISTS may have changed nothing."""
        if not statement.tolerant or statement.replaces:
            return statement
        name = statement.names[0]
        rows = self._rows.get(name)
        existed = name in self.schemas or name in self._names.existing
        if existed or (rows is not None and self._contradicts(statement, rows, following)):
            self._names.add(name)
            # The table without an action: the statement concerns the table, and does not change it.
            return Statement("other", ((name, ()),))
        return statement if rows is None else replace(statement, tolerant=False)

    def _contradicts(self, statement: Statement, rows: TableRows, following: Iterable[SentStatement]) -> bool:
        """Return whether the first row event of a table shows that CREATE TABLE IF NOT EXISTS did not create it."""
        ((name, _),) = statement.changes
        for each in following:
            if each.position > rows.first:
                break
            if name[1].lower() in (each.text or "").lower():
                return False  # This statement may have changed the table before the row event.
        created = apply_statement({k: v for k, v in self.schemas.items() if k == statement.like}, statement)
        table = created.tables.get(name)
        if table is None or not rows.columns:
            return False
        types = {c.name.lower(): c.type for c in table.columns if not c.virtual}
        if types.keys() != rows.columns.keys() or (rows.key and rows.key != {c.lower() for c in table.key_columns}):
            return True
        return any(is_other_type(types[column], wire_type) for column, wire_type in rows.columns.items())


def replay(
    statements: Sequence[SentStatement], rows: Mapping[Name, TableRows], *, exact: bool, of_tidb: bool
) -> tuple[list[tuple[int, Outcome]], bool]:
    """Apply statements in the order in which they took effect.

    Args:
        statements: by position.
        rows: what the row events of tables show.
        exact: whether statements of one position are parts of one statement.
        of_tidb: whether the source is TiDB, which ignores the letter case of table names.

    Returns:
        The outcomes in that order, each with the index of its statement; and whether more row events might show more.
    """
    tables = SourceTables(rows, of_tidb=of_tidb)
    places = {id(sent): n for n, sent in enumerate(statements)}
    outcomes: list[tuple[int, Outcome]] = []
    for _, each in groupby(statements, key=lambda sent: sent.position):
        group = list(each)
        group_start = len(outcomes)
        try:
            group = tables.order_group(group, exact=exact) if len(group) > 1 else group
        except UnorderedError as error:
            outcomes += [(places[id(sent)], tables.reject(sent, str(error))) for sent in group]
            continue
        for n, sent in enumerate(group):
            following = chain(group[n + 1 :], islice(statements, group_start + len(group), None))
            outcomes.append((places[id(sent)], tables.apply(sent, following)))
    return outcomes, tables.asks_rows


def _select_effective(table: TableSchema, actions: Sequence[Action]) -> tuple[Action, ...]:
    """Return the actions without those that IF [NOT] EXISTS left undone, because of the schema that the table had.

    Raises:
        SqlSyntaxError: the statement drops a column and adds it IF NOT EXISTS.
    """
    columns = {c.name.lower() for c in table.columns}
    dropped = {a.name.lower() for a in actions if isinstance(a, DropColumn)}
    added = [a.column.name for a in actions if isinstance(a, AddColumn) and a.only_if_missing]
    if both := [name for name in added if name.lower() in dropped]:
        raise SqlSyntaxError(
            f"the statement drops column {both[0]} and adds it IF NOT EXISTS: it is not known whether it exists afterwards"
        )
    effective: list[Action] = []
    for action in actions:
        match action:
            case AddColumn(column, only_if_missing=True):
                effective += [replace(action, only_if_missing=False)] if column.name.lower() not in columns else []
            case ModifyColumn(name, if_exists=True) | RenameColumn(name, if_exists=True) | DropColumn(name, True):
                effective += [replace(action, if_exists=False)] if name.lower() in columns else []
            case AddKey(only_if_missing=True):
                effective += [] if _has_key(table, action) else [replace(action, only_if_missing=False)]
            case _:
                effective.append(action)
    return tuple(effective)


def _has_key(table: TableSchema, key: AddKey) -> bool:
    """Return whether a table has a primary key, or another key of this name."""
    if key.kind == "primary":
        return bool(table.primary_key)
    return key.name.lower() in {name.lower() for name in (*table.unique_names, *table.index_names)}
