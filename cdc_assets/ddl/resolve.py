"""Find the tables that the names in a statement mean.

A name means the table of exactly this name, if rows or earlier statements have shown one; else the only one whose name
differs in letter case; else the name as written. A name without a database is in the session's database. The message states
that database, with two exceptions: for a RENAME, Canal and Debezium state the database of the first new name, and Canal
states none for a statement that it cannot read.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cdc_assets.ddl.actions import Action, AddForeignKey, RenameTable, Statement, TableName
from cdc_assets.mysql_types.tokens import SqlSyntaxError, TokenKind, tokenize

Name = tuple[str, str]  # database and table
# Kinds of statements after which a table and its rows exist under the name that the message states.
_KEEPING_THE_NAME = ("alter_table", "create_index", "drop_index")
_NAME_KINDS = (TokenKind.WORD, TokenKind.QUOTED)


class UnresolvedNameError(Exception):
    """A name may mean several tables."""


class TableNames:
    """The names that a statement may mean, while statements are read one after the other.

    Attributes:
        existing: tables that exist before the next statement, as earlier statements and earlier rows show.
        with_rows: tables of which any rows came, earlier or later.
        ignores_case: whether the server ignores the letter case of names. An earlier statement that named a table in another
            case than its rows shows that it does.
    """

    def __init__(
        self, existing: Iterable[Name] = (), with_rows: Iterable[Name] = (), *, ignores_case: bool = False
    ) -> None:
        self.existing: set[Name] = set()
        self.with_rows = frozenset(with_rows)
        self.ignores_case = ignores_case
        self._by_lower_name: dict[Name, set[Name]] = {}
        self._by_lower_table: dict[str, set[Name]] = {}
        self._has_only_lower_rows = bool(self.with_rows) and all(name == _lower(name) for name in self.with_rows)
        for name in self.with_rows:
            self._index(name)
        for name in existing:
            self.add(name)

    def add(self, name: Name) -> None:
        """Note that a table exists from now on."""
        self.existing.add(name)
        self._index(name)

    def _index(self, name: Name) -> None:
        """Make a name findable in any letter case."""
        self._by_lower_name.setdefault(_lower(name), set()).add(name)
        self._by_lower_table.setdefault(name[1].lower(), set()).add(name)

    def remove(self, name: Name) -> None:
        """Note that a table no longer exists. Its name stays findable if rows have it."""
        self.existing.discard(name)
        if name not in self.with_rows:
            self._by_lower_name.get(_lower(name), set()).discard(name)
            self._by_lower_table.get(name[1].lower(), set()).discard(name)

    @property
    def are_lower_case(self) -> bool:
        """Whether the server keeps all names in lower case, as far as rows show."""
        return self.ignores_case and self._has_only_lower_rows

    def find(self, name: Name) -> Name | None:
        """Return the table that a name means; None: no table, or one of several."""
        if name in self.existing:
            return name
        matches = self._by_lower_name.get(_lower(name), set())
        # Rows of one table may have its name in several spellings, one after the other.
        existing = matches & self.existing
        if self.ignores_case and len(existing) == 1:
            return next(iter(existing))
        if name in self.with_rows:
            return name
        return next(iter(matches)) if len(matches) == 1 else None

    def find_databases(self, table: str) -> set[str]:
        """Return the databases that have a table of this name in any letter case."""
        return {database for database, _ in self._find_tables(table)}

    def _find_tables(self, table: str) -> set[Name]:
        """Return the tables of this name in any letter case, in any database."""
        return self._by_lower_table.get(table.lower(), set())

    def all_names(self) -> set[Name]:
        """Return the names of existing tables and of tables with rows."""
        return {*self.existing, *self.with_rows}

    def find_mentioned(self, text: str, database: str) -> set[Name]:
        """Return the tables whose names stand, in any letter case, in a statement that cannot be read.

        Args:
            text: the statement.
            database: the database of names without one; empty: any.
        """
        mentioned: set[Name] = set()
        for qualifier, table, _ in _list_names(text):
            name = qualifier or database, table
            mentioned |= self._by_lower_name.get(_lower(name), set()) if name[0] else self._find_tables(table)
        return mentioned

    def find_in_databases(self, text: str) -> set[Name]:
        """Return the tables of the databases that stand, in any letter case, in a statement that cannot be read.

        A database before a point does not count: the name after it is that of a table.
        """
        mentioned = {name.lower() for _, name, is_qualifier in _list_names(text) if not is_qualifier}
        return {name for name in self.all_names() if name[0].lower() in mentioned}


def _list_names(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield each word or quoted name of a statement: the name before its point, the name, whether a point follows it.

    A text without tokens has none.
    """
    try:
        tokens = tokenize(text)
    except SqlSyntaxError:
        return
    for n, token in enumerate(tokens):
        if token.kind in _NAME_KINDS:
            is_qualified = n >= 2 and tokens[n - 1].text == "." and tokens[n - 2].kind in _NAME_KINDS
            is_qualifier = n + 1 < len(tokens) and tokens[n + 1].text == "."
            yield tokens[n - 2].text if is_qualified else "", token.text, is_qualifier


def _lower(name: Name) -> Name:
    """Return a name in lower case."""
    return name[0].lower(), name[1].lower()


def resolve(statement: Statement, database: str, names: TableNames) -> Statement:
    """Return a statement with each name replaced by the name of the table that it means.

    Args:
        statement: as it was read.
        database: the database that its message states; empty: none.
        names: the names that the statement may mean. Its `ignores_case` is set if the statement shows it.

    Raises:
        UnresolvedNameError: a name may mean several tables.
    """
    session = _find_session_database(statement, database, names)

    def qualified(name: TableName) -> TableName:
        return name if name.database else TableName(session, name.table)

    like = None if statement.like is None else _find_existing(qualified(statement.like), names, tolerant=False)
    if statement.kind == "create_table":
        ((name, actions),) = statement.changes
        created = _find_created(qualified(name), names, statement)
        resolved_keys = tuple(_resolve_parent(action, created.database, names) for action in actions)
        return replace(statement, changes=((created, resolved_keys),), like=like)
    if statement.kind == "drop_database" and statement.database is not None:
        return _resolve_dropped_database(statement, statement.database, names)
    resolved: dict[TableName, TableName] = {}
    new_names: dict[TableName, TableName] = {}  # by lower case: names that an earlier RENAME of the statement has given

    def table_of(name: TableName) -> TableName:
        full_name = qualified(name)
        lower_name = TableName(*_lower(full_name))
        if lower_name in new_names:
            return new_names[lower_name]
        if full_name not in resolved:
            resolved[full_name] = _find_existing(full_name, names, tolerant=statement.tolerant)
        return resolved[full_name]

    changes: list[tuple[TableName, tuple[Action, ...]]] = []
    for name, actions in statement.changes:
        table = table_of(name)
        resolved_actions: list[Action] = []
        for action in actions:
            if isinstance(action, RenameTable):
                new_name = _choose_new_name(qualified(action.new_name), names, database)
                new_names[TableName(*_lower(new_name))] = new_name
                resolved_actions.append(RenameTable(new_name))
            else:
                resolved_actions.append(_resolve_parent(action, table.database, names))
        changes.append((table, tuple(resolved_actions)))
    return replace(statement, changes=tuple(changes))


def select_dropped(statement: Statement, database: str, table: str | None) -> Statement:
    """Return a statement of TiDB; of a DROP TABLE of several tables only the part about the table that its message names.

    TiDB drops the tables one after the other, and TiCDC before version 6 sends the text of the statement with each of them.
    """
    if statement.kind != "drop_table" or not table:
        return statement
    own = tuple(each for each in statement.changes if _lower(each[0]) == _lower((database, table)))
    return replace(statement, changes=own or statement.changes)


def follow_spelling(statement: Statement, database: str, table: str | None) -> Statement:
    """Return a statement of TiDB. Where its message states a table in another letter case, it also renames the table.

    TiCDC writes a database in lower case from a RENAME TABLE until the table's next statement, and then as it was created.

    Args:
        statement: its names are resolved.
        database: the database that its message states.
        table: the table that its message names.
    """
    if statement.kind not in _KEEPING_THE_NAME or not table:
        return statement
    stated = TableName(database, table)
    changes = [
        (name, (*actions, RenameTable(stated)))
        if name != stated and _lower(name) == _lower(stated)
        else (name, actions)
        for name, actions in statement.changes
    ]
    return replace(statement, changes=tuple(changes))


def _resolve_parent(action: Action, database: str, names: TableNames) -> Action:
    """Return an action with the full name of the parent table if it adds a foreign key.

    Args:
        action: any action.
        database: the database of the child table, which is that of a parent without one.
        names: the names that the statement may mean.
    """
    if not isinstance(action, AddForeignKey):
        return action
    parent = TableName(action.key.parent.database or database, action.key.parent.table)
    match = names.find(parent)
    resolved = _choose_new_name(parent, names) if match is None else TableName(*match)
    return replace(action, key=replace(action.key, parent=resolved))


def _find_existing(name: TableName, names: TableNames, *, tolerant: bool) -> TableName:
    """Return the table that a statement changes. It exists, unless the statement is `tolerant` (IF EXISTS).

    Raises:
        UnresolvedNameError: IF EXISTS names a table in another letter case than its own.
    """
    match = names.find(name)
    if match is None or match == name:
        return name
    if tolerant and not names.ignores_case:
        raise UnresolvedNameError(
            f"IF EXISTS names {'.'.join(name)}, and the table is {'.'.join(match)}: "
            "it is not known whether the server ignores letter case"
        )
    names.ignores_case = True
    return TableName(*match)


def _find_created(name: TableName, names: TableNames, statement: Statement) -> TableName:
    """Return the name of the table that CREATE TABLE makes.

    The server has executed the statement, so an existing table whose name differs in letter case alone is another table,
    unless the statement has IF NOT EXISTS or OR REPLACE.
    """
    match = names.find(name)
    if match is None:
        return _choose_new_name(name, names)
    if match == name or (match in names.existing and not (statement.tolerant or statement.replaces)):
        return name
    names.ignores_case = True
    return TableName(*match)


def _choose_new_name(name: TableName, names: TableNames, database: str = "") -> TableName:
    """Return the name that a table gets, in the letter case of its rows. Some servers keep all names in lower case.

    Args:
        name: the name that the statement gives.
        names: the names that the statement may mean.
        database: the database that its message states, in the letter case in which TiCDC writes it in the rows after it.
    """
    if names.ignores_case and name.database.lower() == database.lower():
        name = TableName(database, name.table)
    match = names.find(name)
    if match is not None and (match not in names.existing or match == name):
        return TableName(*match)
    return TableName(*_lower(name)) if names.are_lower_case else name


def _resolve_dropped_database(statement: Statement, database: str, names: TableNames) -> Statement:
    """Return a DROP DATABASE of the database that its name means: exactly, else the only one that differs in letter case.

    TiCDC writes a database in lower case after a RENAME TABLE, so one database may have several spellings. Then the
    statement becomes the DROP TABLE of all its tables.
    """
    databases = {each for each, _ in names.all_names()}
    spellings = sorted(each for each in databases if each.lower() == database.lower())
    if names.ignores_case and len(spellings) > 1:
        tables = sorted(name for name in names.existing if name[0] in spellings)
        return Statement("drop_table", tuple((TableName(*name), ()) for name in tables))
    return replace(statement, database=spellings[0] if database not in databases and len(spellings) == 1 else database)


def _find_session_database(statement: Statement, database: str, names: TableNames) -> str:
    """Return the database of the names in a statement that have none.

    Raises:
        UnresolvedNameError: the message does not state it, and several databases have tables of these names.
    """
    first_name = (statement.new_names or statement.names)[:1]
    if database and first_name and first_name[0].database.lower() != database.lower():
        return database
    # No table gets the name that it has, and none is made like itself.
    others = [(name, a.new_name) for name, actions in statement.changes for a in actions if isinstance(a, RenameTable)]
    others += [(statement.like, name) for name in statement.names if statement.like is not None]
    impossible: dict[str, set[str]] = {}
    for name in [*statement.names, *([statement.like] if statement.like is not None else [])]:
        if not name.database:
            taken = {_lower(new)[0] for old, new in others if old == name and new.table.lower() == name.table.lower()}
            impossible.setdefault(name.table, set()).update(taken)
    if not impossible:
        return database
    databases = [
        {each for each in names.find_databases(table) if each.lower() not in taken}
        for table, taken in sorted(impossible.items())
    ]
    common_databases = set.intersection(*databases)
    if len(common_databases) == 1:
        return common_databases.pop()
    if not any(databases) and not (statement.new_names and database.lower() in set.union(*impossible.values())):
        return database
    candidates = ", ".join(sorted(set.union(*databases)))
    raise UnresolvedNameError(
        f"the database of {', '.join(sorted(impossible))} is not certain: the message states "
        f"{database or 'no database'}, and tables of these names are in {candidates or 'no other one'}"
    )
