"""DDL statements at the gate: which tables each may change, and whether it waits for a person to decide about it."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cdc_assets.feeds import Feed
from cdc_assets.gate.base import Name
from cdc_assets.mysql_types.ddl import named_tables, read_or_none
from cdc_assets.mysql_types.ddl_statements import Action, AddKey, DropKey, MoveRows, RenameKey, RenameTable
from cdc_assets.mysql_types.tokens import Kind, SqlSyntaxError, tokenize
from cdc_assets.tables.decisions import Decision, statement_id

# Statements that end rows, or bring some, whatever the columns are.
_OF_ROWS = ("drop_table", "truncate_table", "rename_table", "recover_table", "drop_database")
_SHAPE = ("columns", "primary_key", "key_columns")
_NAME = (Kind.WORD, Kind.QUOTED)


@dataclass(frozen=True)
class Statement:
    """A DDL event.

    Attributes:
        row: of change_events.
        id: the same however often it comes.
        decision: what was decided about it; None: nothing.
    """

    row: dict[str, Any]
    id: str
    decision: Decision | None

    @property
    def text(self) -> str:
        """Its SQL."""
        return str(self.row["ddl_statement"])

    @property
    def database(self) -> str:
        """Of names without one."""
        return self.row["database"] or ""

    @cached_property
    def readable(self) -> bool:
        """Whether it can be read."""
        return read_or_none(self.text, self.database) is not None

    def tables(self, known: Callable[[], AbstractSet[Name]]) -> set[Name]:
        """The tables that it may change, or another in whose place it stands; `known`: those that there are."""
        texts = [self.text, *([self.decision.read_as] if self.decision and self.decision.read_as else [])]
        found: set[Name] = set()
        for text in texts:
            names, dropped = named_tables(text, self.database, self.row["table"])
            found |= names
            if dropped is not None:
                found |= {name for name in known() if name[0] == dropped}
            if read_or_none(text, self.database) is None:
                found |= mentioned(text, self.database, known())
        return found


def statement_of(row: dict[str, Any], decided: Mapping[str, Decision]) -> Statement:
    """A DDL event of change_events with what was decided about it."""
    key = statement_id(row["commit_ts"], row["database"], row["ddl_statement"])
    return Statement(row, key, decided.get(key))


def mentioned(text: str, default_database: str, known: AbstractSet[Name]) -> set[Name]:
    """The tables among `known` whose names stand in a statement that cannot be read, in any letter case."""
    try:
        tokens = tokenize(text)
    except SqlSyntaxError:
        return set()
    alike: dict[Name, list[Name]] = {}
    for database, table in known:
        alike.setdefault((database.lower(), table.lower()), []).append((database, table))
    found: set[Name] = set()
    for n, token in enumerate(tokens):
        if token.kind in _NAME:
            qualified = n >= 2 and tokens[n - 1].text == "." and tokens[n - 2].kind in _NAME
            database = tokens[n - 2].text if qualified else default_database
            found.update(alike.get((database.lower(), token.text.lower()), ()))
    return found


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
    mine = [r for r in shapes if _id(r) == statement.id]
    if statement.decision is not None:
        return None
    if not statement.readable and not any(r["columns"] is not None for r in mine):
        return "the statement could not be read, and may change the table" if tables else None
    for name in sorted(tables):
        if feed.stops_at_ddl(*name) and seen(name) and _changes(statement, name, shapes, mine):
            return f"schema_changes is stop for {'.'.join(name)}"
    return None


def _id(row: Mapping[str, Any]) -> str:
    return statement_id(row["commit_ts"], row["default_database"], row["ddl_statement"])


def _changes(
    statement: Statement, name: Name, shapes: Sequence[Mapping[str, Any]], mine: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether a statement changes the columns, the key or the rows of a table, as far as can be told."""
    read = read_or_none(statement.text, statement.database)
    if read is None or read.kind in _OF_ROWS:
        return True
    actions = [a for named, each in read.changes if (named.database, named.table) == name for a in each]
    if any(isinstance(a, MoveRows | RenameTable) for a in actions):
        return True
    after = [r for r in mine if (r["database"], r["table"]) == name and r["columns"] is not None]
    earlier = [
        r
        for r in shapes
        if (r["database"], r["table"]) == name
        and r["columns"] is not None
        and r["commit_ts"] < statement.row["commit_ts"]
    ]
    if after and earlier:
        before = max(earlier, key=lambda r: r["commit_ts"])
        return any(before[c] != after[-1][c] for c in _SHAPE)
    return any(not _of_index(action) for action in actions)


def _of_index(action: Action) -> bool:
    """Whether an action is about an index that is no key."""
    plain = isinstance(action, AddKey) and action.kind == "index"
    return plain or isinstance(action, RenameKey) or (isinstance(action, DropKey) and action.name.lower() != "primary")
