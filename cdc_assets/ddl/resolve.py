"""Which tables the names in a statement mean.

A name means the table that rows and earlier statements know: exactly, else by letter case if only one matches, else as it is
written. The database that a message tells is the session's, of names without one, unless it is that of the name that the
message is about: Canal and Debezium tell the database of a RENAME's first new name, and where Canal cannot read a statement,
none.
"""

from collections.abc import Iterable
from dataclasses import replace

from cdc_assets.ddl.actions import Action, RenameTable, Statement, TableName
from cdc_assets.mysql_types.tokens import SqlSyntaxError, TokenKind, tokenize

Name = tuple[str, str]
_NAME = (TokenKind.WORD, TokenKind.QUOTED)


class UnresolvedNameError(Exception):
    """A name may mean one of several tables, or none."""


class KnownTables:
    """The tables that a name may mean as statements are read one after the other.

    Attributes:
        present: those that statements have left, and those of which rows came before.
        rows: those of which any rows came.
        ignores_case: whether the server takes names in any case: a statement before has named a table in another case than
            its rows do.
    """

    def __init__(self, present: Iterable[Name] = (), rows: Iterable[Name] = (), *, ignores_case: bool = False) -> None:
        self.present: set[Name] = set()
        self.rows = frozenset(rows)
        self.ignores_case = ignores_case
        self._alike: dict[Name, set[Name]] = {}
        self._by_table: dict[str, set[Name]] = {}
        self._rows_are_lower = bool(self.rows) and all(name == _folded(name) for name in self.rows)
        for name in self.rows:
            self._list(name)
        for name in present:
            self.add(name)

    def add(self, name: Name) -> None:
        """A table comes to be."""
        self.present.add(name)
        self._list(name)

    def _list(self, name: Name) -> None:
        self._alike.setdefault(_folded(name), set()).add(name)
        self._by_table.setdefault(name[1].lower(), set()).add(name)

    def remove(self, name: Name) -> None:
        """A table is gone."""
        self.present.discard(name)
        if name not in self.rows:
            self._alike.get(_folded(name), set()).discard(name)
            self._by_table.get(name[1].lower(), set()).discard(name)

    @property
    def keeps_lower_case(self) -> bool:
        """Whether the server, as far as it can be told, keeps all names in lower case."""
        return self.ignores_case and self._rows_are_lower

    def alike(self, name: Name) -> Name | None:
        """The table that a name means; None: no table, or several."""
        if name in self.present or name in self.rows:
            return name
        found = self._alike.get(_folded(name), set())
        return next(iter(found)) if len(found) == 1 else None

    def databases(self, table: str) -> set[str]:
        """The databases that have a table of that name, in any case."""
        return {database for database, _ in self._by_table.get(table.lower(), ())}


def _folded(name: Name) -> Name:
    return name[0].lower(), name[1].lower()


def resolve(statement: Statement, database: str, known: KnownTables) -> Statement:
    """Return the statement with the names of the tables that it means.

    Args:
        statement: as it was read.
        database: that its message tells; empty: none.
        known: what is known of tables; `ignores_case` is noted there.

    Raises:
        UnresolvedNameError: a name may mean several tables.
    """
    session = _session(statement, database, known)

    def completed(name: TableName) -> TableName:
        return name if name.database else TableName(session, name.table)

    like = None if statement.like is None else _existing(completed(statement.like), known, tolerant=False)
    if statement.kind == "create_table":
        ((name, actions),) = statement.changes
        return replace(statement, changes=((_created(completed(name), known, statement), actions),), like=like)
    if statement.kind == "drop_database" and statement.database is not None:
        return replace(statement, database=_database(statement.database, known))
    meant: dict[TableName, TableName] = {}
    given: dict[TableName, TableName] = {}  # names that the statement itself has given

    def named(name: TableName) -> TableName:
        whole = completed(name)
        folded = TableName(*_folded(whole))
        if folded in given:
            return given[folded]
        if whole not in meant:
            meant[whole] = _existing(whole, known, tolerant=statement.tolerant)
        return meant[whole]

    changes: list[tuple[TableName, tuple[Action, ...]]] = []
    for name, actions in statement.changes:
        mine = named(name)
        done: list[Action] = []
        for action in actions:
            if isinstance(action, RenameTable):
                new = _new(completed(action.new_name), known)
                given[TableName(*_folded(new))] = new
                done.append(RenameTable(new))
            else:
                done.append(action)
        changes.append((mine, tuple(done)))
    return replace(statement, changes=tuple(changes))


def _existing(name: TableName, known: KnownTables, *, tolerant: bool) -> TableName:
    """The table that a statement names, which is there unless it says IF EXISTS."""
    found = known.alike(name)
    if found is None or found == name:
        return name
    if tolerant and not known.ignores_case:
        raise UnresolvedNameError(
            f"IF EXISTS names {'.'.join(name)}, and {'.'.join(found)} is there: whether the server takes them for one table "
            "is not known"
        )
    known.ignores_case = True
    return TableName(*found)


def _created(name: TableName, known: KnownTables, statement: Statement) -> TableName:
    """The table that CREATE TABLE makes. A table of a name alike that is there already is another one, if it runs at all."""
    found = known.alike(name)
    if found is None:
        return _new(name, known)
    if found == name or (found in known.present and not (statement.tolerant or statement.replaces)):
        return name
    known.ignores_case = True
    return TableName(*found)


def _new(name: TableName, known: KnownTables) -> TableName:
    """A name that a table gets: as its rows have it. A server that ignores case may keep names in lower case alone."""
    found = known.alike(name)
    if found is not None and (found not in known.present or found == name):
        return TableName(*found)
    lower = TableName(*_folded(name))
    return lower if known.keeps_lower_case else name


def _database(name: str, known: KnownTables) -> str:
    databases = {database for database, _ in {*known.present, *known.rows}}
    found = [each for each in databases if each.lower() == name.lower()]
    return found[0] if name not in databases and len(found) == 1 else name


def _session(statement: Statement, database: str, known: KnownTables) -> str:
    """The database of names without one."""
    about = (statement.new_names or statement.names)[:1]
    if database and about and about[0].database.lower() != database.lower():
        return database
    needed = {name.table for name in statement.names if not name.database}
    needed |= {statement.like.table} if statement.like is not None and not statement.like.database else set()
    if not needed:
        return database
    have = [known.databases(table) for table in sorted(needed)]
    possible = set.intersection(*have)
    if len(possible) == 1:
        return possible.pop()
    if not any(have):
        return database
    several = ", ".join(sorted(set.union(*have)))
    raise UnresolvedNameError(
        f"the database of {', '.join(sorted(needed))} is not told: the message names "
        f"{database or 'none'}, and tables of these names are in {several}"
    )


def mentioned(text: str, database: str, known: Iterable[Name]) -> set[Name]:
    """Return the tables among `known` whose names stand in a statement that cannot be read, in any letter case.

    Args:
        text: the statement.
        database: of names without one; empty: any.
        known: tables.
    """
    try:
        tokens = tokenize(text)
    except SqlSyntaxError:
        return set()
    alike: dict[Name, list[Name]] = {}
    of_name: dict[str, list[Name]] = {}
    for name in known:
        alike.setdefault(_folded(name), []).append(name)
        of_name.setdefault(name[1].lower(), []).append(name)
    found: set[Name] = set()
    for n, token in enumerate(tokens):
        if token.kind in _NAME:
            qualified = n >= 2 and tokens[n - 1].text == "." and tokens[n - 2].kind in _NAME
            own = tokens[n - 2].text if qualified else database
            found.update(
                alike.get((own.lower(), token.text.lower()), ()) if own else of_name.get(token.text.lower(), ())
            )
    return found
