"""Keep a small MySQL in memory: tables, rows, DML and DDL by MySQL's rules, each change at a commit_ts of its own.

The model keeps the state of every table after every change (`Model.states`), the versions that its history must have
(`Model.versions`), and what a replication log would hold (`Model.log`), which `encoders` turns into Kafka records.

Values are the text that the mysql client prints, NULL is None, binary is `0x` and hexadecimal digits. The model
accepts only what strict mode accepts, and raises otherwise.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from enum import StrEnum, auto
from typing import Any

from cdc_assets_tests.support import tso

Row = dict[str, str | None]  # by column name
Name = tuple[str, str]  # database, table


class Unknown(str):
    """A value that no statement and no record states, such as the default CURRENT_TIMESTAMP of an added column."""

    __slots__ = ()


class Dialect(StrEnum):
    """Who writes down a statement: TiDB restores it from its syntax tree, MySQL keeps the user's text."""

    TIDB = auto()
    MYSQL = auto()


# --- types and their values


@dataclass(frozen=True)
class Type:
    """A column type with its parameters."""

    base: str
    size: tuple[int, ...] = ()
    unsigned: bool = False
    labels: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        """Return the type as it stands in a statement, in upper case."""
        inside = ",".join(map(_quoted, self.labels)) if self.labels else ",".join(map(str, self.size))
        return self.base.upper() + (f"({inside})" if inside else "") + (" UNSIGNED" if self.unsigned else "")

    @property
    def scale(self) -> int:
        """Digits behind the point of a DECIMAL."""
        return self.size[1] if len(self.size) > 1 else 0

    @property
    def fraction(self) -> int:
        """Digits of the fraction of a second."""
        return self.size[0] if self.size else 0

    @property
    def is_integer(self) -> bool:
        """Of the int family."""
        return self.base in INTEGER_BYTES

    @property
    def is_text(self) -> bool:
        """Of the char family, without binary ones."""
        return self.base in {"char", "varchar", "text"}


INTEGER_BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
TINYINT, SMALLINT, INT, BIGINT = Type("tinyint"), Type("smallint"), Type("int"), Type("bigint")
INT_UNSIGNED, BIGINT_UNSIGNED = Type("int", unsigned=True), Type("bigint", unsigned=True)
TEXT, DATE, DATETIME, TIMESTAMP, DOUBLE = (
    Type("text"),
    Type("date"),
    Type("datetime"),
    Type("timestamp"),
    Type("double"),
)


def varchar(length: int) -> Type:
    """VARCHAR(length)."""
    return Type("varchar", (length,))


def char(length: int) -> Type:
    """CHAR(length)."""
    return Type("char", (length,))


def varbinary(length: int) -> Type:
    """VARBINARY(length)."""
    return Type("varbinary", (length,))


def decimal(precision: int, scale: int) -> Type:
    """DECIMAL(precision,scale)."""
    return Type("decimal", (precision, scale))


def datetime_(fraction: int) -> Type:
    """DATETIME(fraction)."""
    return Type("datetime", (fraction,))


def timestamp(fraction: int) -> Type:
    """TIMESTAMP(fraction)."""
    return Type("timestamp", (fraction,))


def enum(*labels: str) -> Type:
    """ENUM of these labels."""
    return Type("enum", labels=labels)


def set_(*labels: str) -> Type:
    """SET of these labels."""
    return Type("set", labels=labels)


def stored(text: str | None, into: Type) -> str | None:
    """Return what a column holds after a literal was stored in it, as MySQL's text."""
    return convert(text, TEXT, into)


def convert(text: str | None, old: Type, new: Type) -> str | None:
    """Return what ALTER TABLE makes of a value of type `old` in a column of type `new`.

    Raises:
        ValueError: strict mode does not allow it.
    """
    if text is None or old == new:
        return text
    if new.base in {"enum", "set"}:
        return _labels(text, old, new)
    if new.is_integer:
        integer = int(_number(text, old).quantize(Decimal(1), ROUND_HALF_UP))
        bits = 8 * INTEGER_BYTES[new.base]
        low, high = (0, 2**bits) if new.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        return _allowed(str(integer), low <= integer < high, new)
    if new.base == "decimal":
        number = _number(text, old).quantize(Decimal(1).scaleb(-new.scale), ROUND_HALF_UP)
        return _allowed(f"{number:f}", abs(number) < 10 ** (new.size[0] - new.scale), new)
    if new.base == "double":
        return _plain(float(_number(text, old)))
    if new.base == "varbinary":
        raw = text if old.base == "varbinary" else "0x" + text.encode().hex()
        return _allowed(raw, (len(raw) - 2) // 2 <= new.size[0], new)
    if new.is_text:
        plain = bytes.fromhex(text[2:]).decode() if old.base == "varbinary" else text
        plain = plain.rstrip(" ") if new.base == "char" else plain
        return _allowed(plain, not new.size or len(plain) <= new.size[0], new)
    if new.base == "date":
        return _allowed(text[:10], len(text) >= 10, new)
    return _instant(text, new)


def _number(text: str, old: Type) -> Decimal:
    # In a numeric context an enum is its index.
    if old.base == "enum":
        return Decimal(old.labels.index(text) + 1)
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is no number") from None


def _plain(value: float) -> str:
    text = format(Decimal(repr(value)), "f")
    return text.removesuffix(".0")


def _labels(text: str, old: Type, new: Type) -> str:
    if new.base == "enum" and old.is_integer:
        return new.labels[int(text) - 1]
    named = [text] if new.base == "enum" else [label for label in text.split(",") if label]
    _allowed(text, set(named) <= set(new.labels), new)
    return text if new.base == "enum" else ",".join(label for label in new.labels if label in named)


def _instant(text: str, new: Type) -> str:
    """Return a date and time, rounded to the digits that the type has."""
    if text.startswith("0000"):
        return "0000-00-00 00:00:00" + ("." + "0" * new.fraction if new.fraction else "")
    when = datetime.fromisoformat(text)
    unit = 10 ** (6 - new.fraction)
    when += timedelta(microseconds=(when.microsecond + unit // 2) // unit * unit - when.microsecond)
    seconds_text = when.strftime("%Y-%m-%d %H:%M:%S")
    return seconds_text + (f".{when.microsecond:06}"[: 1 + new.fraction] if new.fraction else "")


def _allowed(text: str, allowed: bool, new: Type) -> str:
    if not allowed:
        raise ValueError(f"{text!r} in {new.sql}")
    return text


def implicit_default(of: Type) -> str:
    """Return the value that existing rows get in a new NOT NULL column without a default."""
    if of.is_integer or of.base in {"decimal", "double"}:
        return str(stored("0", of))
    if of.base == "enum":
        return of.labels[0]
    if of.base == "date":
        return "0000-00-00"
    if of.base in {"datetime", "timestamp"}:
        return _instant("0000", of)
    return "0x" if of.base == "varbinary" else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# --- columns and shapes


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        name: its name now.
        type: its type now.
        nullable: whether it may be NULL.
        default: its default as text; None: no default, or NULL.
        now: whether its default is CURRENT_TIMESTAMP.
        uid: the model's number of it, which renames and changes of type do not change.
        epoch: how often its type has been changed.
    """

    name: str
    type: Type
    nullable: bool = True
    default: str | None = None
    now: bool = False
    uid: int = 0
    epoch: int = 0

    def declared(self, dialect: Dialect) -> str:
        """Return the column's declaration in a statement."""
        parts = [_name(self.name), self.type.sql] + ([] if self.nullable else ["NOT NULL"])
        if self.now:
            fraction = f"({self.type.fraction})" if self.type.fraction else ""
            parts.append("DEFAULT CURRENT_TIMESTAMP" + (fraction or ("()" if dialect is Dialect.TIDB else "")))
        elif self.default is not None:
            parts.append(f"DEFAULT {_literal(self.default, self.type, dialect)}")
        return " ".join(parts)


def _literal(text: str, of: Type, dialect: Dialect) -> str:
    if of.is_integer:
        return text
    return ("_UTF8MB4" if dialect is Dialect.TIDB else "") + _quoted(text)


def not_null(name: str, of: Type, default: str | None = None) -> Column:
    """Return a column that is NOT NULL."""
    return Column(name, of, nullable=False, default=default)


ID = not_null("id", BIGINT)


@dataclass(frozen=True)
class Shape:
    """A table's columns and key at a moment, as an encoder needs them."""

    database: str
    table: str
    table_id: int
    version: int  # commit_ts of the statement that gave it its columns
    columns: tuple[Column, ...]
    key: tuple[str, ...]  # names of the primary key's columns, in its order

    def __getitem__(self, name: str) -> Column:
        return next(c for c in self.columns if c.name.casefold() == name.casefold())


@dataclass(frozen=True)
class TableState:
    """A table's shape and rows (by the `uid` of the columns) at a moment."""

    shape: Shape
    rows: tuple[dict[int, str | None], ...]


# --- what ALTER TABLE does


@dataclass(frozen=True)
class Add:
    """ADD COLUMN."""

    column: Column
    first: bool = False
    after: str | None = None

    def sql(self, dialect: Dialect) -> str:
        return f"ADD COLUMN {self.column.declared(dialect)}{_place(self)}"


@dataclass(frozen=True)
class Drop:
    """DROP COLUMN."""

    name: str

    def sql(self, _: Dialect) -> str:
        return f"DROP COLUMN {_name(self.name)}"


@dataclass(frozen=True)
class Rename:
    """RENAME COLUMN."""

    old: str
    new: str

    def sql(self, _: Dialect) -> str:
        return f"RENAME COLUMN {_name(self.old)} TO {_name(self.new)}"


@dataclass(frozen=True)
class Change:
    """CHANGE COLUMN: a new name, a new declaration, or both."""

    old: str
    column: Column
    first: bool = False
    after: str | None = None

    def sql(self, dialect: Dialect) -> str:
        return f"CHANGE COLUMN {_name(self.old)} {self.column.declared(dialect)}{_place(self)}"


@dataclass(frozen=True)
class Modify:
    """MODIFY COLUMN."""

    column: Column
    first: bool = False
    after: str | None = None

    def sql(self, dialect: Dialect) -> str:
        return f"MODIFY COLUMN {self.column.declared(dialect)}{_place(self)}"


@dataclass(frozen=True)
class Default:
    """ALTER COLUMN ... SET DEFAULT; of None: DROP DEFAULT."""

    name: str
    text: str | None

    def sql(self, dialect: Dialect) -> str:
        # The literal of a default set alone is quoted whatever the type.
        change = "DROP DEFAULT" if self.text is None else f"SET DEFAULT {_literal(self.text, TEXT, dialect)}"
        return f"ALTER COLUMN {_name(self.name)} {change}"


@dataclass(frozen=True)
class AddIndex:
    """ADD INDEX, or ADD UNIQUE INDEX."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False

    def sql(self, dialect: Dialect) -> str:
        inside = ", ".join(map(_name, self.columns))
        blank = "" if dialect is Dialect.TIDB else " "
        return f"ADD {'UNIQUE' if self.unique else 'INDEX'} {_name(self.name)}{blank}({inside})"


@dataclass(frozen=True)
class DropIndex:
    """DROP INDEX."""

    name: str

    def sql(self, _: Dialect) -> str:
        return f"DROP INDEX {_name(self.name)}"


@dataclass(frozen=True)
class Rekey:
    """DROP PRIMARY KEY, ADD PRIMARY KEY."""

    columns: tuple[str, ...]

    def sql(self, dialect: Dialect) -> str:
        blank = "" if dialect is Dialect.TIDB else " "
        return f"DROP PRIMARY KEY, ADD PRIMARY KEY{blank}({', '.join(map(_name, self.columns))})"


@dataclass(frozen=True)
class Verbatim:
    """Anything that changes neither rows nor columns."""

    text: str

    def sql(self, _: Dialect) -> str:
        return self.text


Action = Add | Drop | Rename | Change | Modify | Default | AddIndex | DropIndex | Rekey | Verbatim


def _place(action: Add | Change | Modify) -> str:
    return " FIRST" if action.first else f" AFTER {_name(action.after)}" if action.after else ""


# --- the log


class Ddl(StrEnum):
    """The kinds of statements for which encoders have a name or a code."""

    CREATE = auto()
    DROP = auto()
    TRUNCATE = auto()
    RENAME = auto()
    ADD_COLUMN = auto()
    DROP_COLUMN = auto()
    MODIFY_COLUMN = auto()
    SET_DEFAULT = auto()
    ADD_INDEX = auto()
    DROP_INDEX = auto()
    REKEY = auto()
    SEVERAL = auto()
    OTHER = auto()
    CREATE_DATABASE = auto()
    DROP_DATABASE = auto()


_KINDS: dict[type[Any], Ddl] = {
    Add: Ddl.ADD_COLUMN,
    Drop: Ddl.DROP_COLUMN,
    Rename: Ddl.MODIFY_COLUMN,
    Change: Ddl.MODIFY_COLUMN,
    Modify: Ddl.MODIFY_COLUMN,
    Default: Ddl.SET_DEFAULT,
    AddIndex: Ddl.ADD_INDEX,
    DropIndex: Ddl.DROP_INDEX,
    Rekey: Ddl.REKEY,
    Verbatim: Ddl.OTHER,
}


@dataclass(frozen=True)
class RowChange:
    """A row that is inserted, updated or deleted.

    `resent`: the record states no change, as TiDB sends after some ALTERs.
    """

    ts: int
    shape: Shape
    before: Row | None
    after: Row | None
    resent: bool = False

    @property
    def op(self) -> str:
        """insert, update or delete."""
        return "insert" if self.before is None else "delete" if self.after is None else "update"

    def key(self, image: Row) -> tuple[str | None, ...]:
        """The primary key in an image."""
        return tuple(image[c] for c in self.shape.key)

    @property
    def moves(self) -> bool:
        """Whether the change changes the key."""
        return self.before is not None and self.after is not None and self.key(self.before) != self.key(self.after)


@dataclass(frozen=True)
class TableDdl:
    """What a statement does to one table, with the statement that TiDB writes for this table alone."""

    name: Name
    tidb_sql: str
    before: Shape | None
    after: Shape | None


@dataclass(frozen=True)
class Statement:
    """A DDL statement: the user's text, and its effect on each table."""

    ts: int
    kind: Ddl
    database: str
    mysql_sql: str
    tables: tuple[TableDdl, ...]


@dataclass(frozen=True)
class Watermark:
    """The source has sent all events below `ts`."""

    ts: int


Event = RowChange | Statement | Watermark


@dataclass
class Version:
    """A version that the history must have; an `op` or `closed_by` of None is not compared."""

    name: Name
    from_ts: int
    op: str | None
    to_ts: int | None = None
    closed_by: str | None = None


# --- the model


@dataclass
class _Table:
    table_id: int
    version: int
    columns: list[Column]
    key: tuple[int, ...]  # uids
    rows: list[dict[int, str | None]] = field(default_factory=list)
    versions: dict[int, Version] = field(default_factory=dict)  # open ones, by the row's identity

    def column(self, name: str) -> Column:
        return next(c for c in self.columns if c.name.casefold() == name.casefold())

    def shape(self, name: Name) -> Shape:
        names = {c.uid: c.name for c in self.columns}
        return Shape(*name, self.table_id, self.version, tuple(self.columns), tuple(names[u] for u in self.key))

    def image(self, row: Mapping[int, str | None]) -> Row:
        return {c.name: row[c.uid] for c in self.columns}

    def find(self, *key: Any) -> dict[int, str | None]:
        return next(r for r in self.rows if tuple(r[u] for u in self.key) == tuple(map(str, key)))


class Model:
    """Databases, tables and rows, and everything that happened to them.

    Attributes:
        database: of names without one.
        tick: milliseconds between changes; whole seconds unless told, as binlogs have no finer clock.
    """

    def __init__(self, database: str = "shop", tick: int = 1000) -> None:
        self.database = database
        self.tick = tick
        self.tables: dict[Name, _Table] = {}
        self.log: list[Event] = []
        self.states: list[tuple[int, dict[Name, TableState]]] = []
        self.versions: list[Version] = []
        self._clock = 0
        self._ids = 100
        self._transaction: int | None = None

    # time

    def _tick(self) -> int:
        """Return the next commit_ts; all changes of a transaction have the same."""
        if self._transaction is not None:
            return self._transaction
        self._clock += self.tick
        return tso(self._clock)

    def watermark(self, at: int | None = None) -> int:
        """State that all events until now have been sent, or all below `at`."""
        ts = tso(self._clock + self.tick // 2) if at is None else at
        self.log.append(Watermark(ts))
        return ts

    @contextmanager
    def transaction(self) -> Iterator[int]:
        """Give all changes within the context one commit_ts."""
        self._transaction = self._tick()
        yield self._transaction
        ts, self._transaction = self._transaction, None
        self._done(ts)

    def _done(self, ts: int) -> int:
        if self._transaction is None:
            shown = {n: TableState(t.shape(n), tuple(dict(r) for r in t.rows)) for n, t in self.tables.items()}
            self.states.append((ts, shown))
        return ts

    def _number(self) -> int:
        self._ids += 1
        return self._ids

    def name(self, table: str) -> Name:
        """Return a table's database and name; a name without a database is in the session's database."""
        database, _, name = table.rpartition(".")
        return database or self.database, name

    # rows

    def insert(self, table: str, **values: Any) -> int:
        """INSERT one row; columns without a value get their default."""
        name, ts = self.name(table), self._tick()
        it = self.tables[name]
        given = {it.column(c).uid: v for c, v in values.items()}
        row = {c.uid: self._value(c, given, ts) for c in it.columns}
        if any(all(r[u] == row[u] for u in it.key) for r in it.rows):
            raise ValueError(f"duplicate key in {name}: {values}")
        it.rows.append(row)
        self._open(it, name, row, ts, "insert")
        self.log.append(RowChange(ts, it.shape(name), None, it.image(row)))
        return self._done(ts)

    def _value(self, column: Column, given: Mapping[int, Any], ts: int) -> str | None:
        if column.uid in given:
            value = given[column.uid]
            text = stored(None if value is None else str(value), column.type)
        elif column.now:
            text = stored(_moment(ts), column.type)
        else:
            text = stored(column.default, column.type)
        if text is None and not column.nullable:
            raise ValueError(f"{column.name} cannot be NULL")
        return text

    def update(self, table: str, *key: Any, **values: Any) -> int:
        """UPDATE the row of a key; an update without a change of values is no event."""
        name, ts = self.name(table), self._tick()
        it = self.tables[name]
        row = it.find(*key)
        given = {it.column(c).uid: v for c, v in values.items()}
        new = row | {c.uid: self._value(c, given, ts) for c in it.columns if c.uid in given}
        # The next event of a row states the values that only the source knew.
        new = {u: str(v) if isinstance(v, Unknown) else v for u, v in new.items()}
        if new == row:
            return self._done(ts)
        change = RowChange(ts, it.shape(name), it.image(row), it.image(new))
        moves = change.moves
        if moves and any(all(r[u] == new[u] for u in it.key) for r in it.rows):
            raise ValueError(f"duplicate key in {name}: {values}")
        self._close(it, row, ts, None if moves else "update")
        it.rows[it.rows.index(row)] = new
        self._open(it, name, new, ts, None if moves else "update")
        self.log.append(change)
        return self._done(ts)

    def delete(self, table: str, *key: Any) -> int:
        """DELETE the row of a key."""
        name, ts = self.name(table), self._tick()
        it = self.tables[name]
        row = it.find(*key)
        self._close(it, row, ts, "delete")
        it.rows.remove(row)
        self.log.append(RowChange(ts, it.shape(name), it.image(row), None))
        return self._done(ts)

    def resend(self, table: str) -> int:
        """Send every row again with its values, as TiDB may after an ALTER that rewrites rows."""
        name, ts = self.name(table), self._tick()
        it = self.tables[name]
        for row in it.rows:
            self.log.append(RowChange(ts, it.shape(name), it.image(row), it.image(row), resent=True))
        return self._done(ts)

    def _open(self, it: _Table, name: Name, row: dict[int, str | None], ts: int, op: str | None) -> None:
        it.versions[id(row)] = made = Version(name, ts, op)
        self.versions.append(made)

    def _close(self, it: _Table, row: dict[int, str | None], ts: int, by: str | None) -> None:
        closed = it.versions.pop(id(row))
        closed.to_ts, closed.closed_by = ts, by

    # tables

    def create_database(self, database: str) -> int:
        """CREATE DATABASE."""
        sql = f"CREATE DATABASE {_name(database)}"
        return self._statement(Ddl.CREATE_DATABASE, sql, (TableDdl((database, ""), sql, None, None),), database)

    def drop_database(self, database: str) -> int:
        """DROP DATABASE: its tables are dropped without statements of their own."""
        sql = f"DROP DATABASE {_name(database)}"
        ts = self._statement(Ddl.DROP_DATABASE, sql, (TableDdl((database, ""), sql, None, None),), database, done=False)
        for name in [n for n in self.tables if n[0] == database]:
            self._empty(name, ts, "drop")
            del self.tables[name]
        return self._done(ts)

    def create(self, table: str, columns: Sequence[Column], key: Sequence[str] = ("id",)) -> int:
        """CREATE TABLE."""
        name = self.name(table)
        made = [replace(c, uid=self._number(), epoch=0) for c in columns]
        uids = {c.name: c.uid for c in made}

        def sql(dialect: Dialect) -> str:
            inside = ", ".join(map(_name, key))
            declared = ",".join([*(c.declared(dialect) for c in columns), f"PRIMARY KEY({inside})"])
            return f"CREATE TABLE {self._called(name, dialect)} ({declared})"

        return self._create(name, made, tuple(uids[k] for k in key), sql(Dialect.TIDB), sql(Dialect.MYSQL))

    def create_like(self, table: str, pattern: str) -> int:
        """CREATE TABLE ... LIKE."""
        name, like = self.name(table), self.name(pattern)
        it = self.tables[like]
        uids = {c.uid: self._number() for c in it.columns}
        made = [replace(c, uid=uids[c.uid], epoch=0) for c in it.columns]
        texts = [
            f"CREATE TABLE {self._called(name, d)} LIKE {self._called(like, d)}" for d in (Dialect.TIDB, Dialect.MYSQL)
        ]
        return self._create(name, made, tuple(uids[u] for u in it.key), *texts)

    def _create(self, name: Name, columns: list[Column], key: tuple[int, ...], tidb_sql: str, mysql_sql: str) -> int:
        if name in self.tables:
            raise ValueError(f"{name} exists")
        ts = self._tick()
        self.tables[name] = it = _Table(self._number(), ts, columns, key)
        done = TableDdl(name, tidb_sql, None, it.shape(name))
        return self._statement(Ddl.CREATE, mysql_sql, (done,), name[0], ts)

    def alter(self, table: str, *actions: Action) -> int:
        """ALTER TABLE: all actions take effect at once, so their names are those from before the statement."""
        name, ts = self.name(table), self._tick()
        it = self.tables[name]
        before = it.shape(name)
        columns, targets = list(it.columns), [_target(it, a) for a in actions]
        for action, target in zip(actions, targets, strict=True):
            columns = self._altered(it, columns, action, target, ts)
        if columns != it.columns:
            it.columns, it.version = columns, ts
        for row in it.rows:
            for uid in set(row) - {c.uid for c in columns}:
                del row[uid]
        for action in actions:
            if isinstance(action, Rekey):
                it.key, it.version = tuple(it.column(c).uid for c in action.columns), ts
                for row in it.rows:
                    self._close(it, row, ts, "ddl")
                    self._open(it, name, row, ts, "ddl")

        def sql(dialect: Dialect) -> str:
            return f"ALTER TABLE {self._called(name, dialect)} " + ", ".join(a.sql(dialect) for a in actions)

        kind = _KINDS[type(actions[0])] if len(actions) == 1 else Ddl.SEVERAL
        done = TableDdl(name, sql(Dialect.TIDB), before, it.shape(name))
        return self._statement(kind, sql(Dialect.MYSQL), (done,), name[0], ts)

    def _altered(
        self, it: _Table, columns: list[Column], action: Action, target: Column | None, ts: int
    ) -> list[Column]:
        """Return the columns after one action; change the rows."""
        if isinstance(action, Add):
            made = replace(action.column, uid=self._number(), epoch=0)
            filled = self._filled(made, ts)
            for row in it.rows:
                row[made.uid] = filled
            return _placed(columns, made, action)
        if target is None:
            return columns
        current = next(c for c in columns if c.uid == target.uid)
        if isinstance(action, Drop):
            return [c for c in columns if c.uid != target.uid]
        if isinstance(action, Change | Modify):
            new = replace(action.column, uid=current.uid, epoch=current.epoch + (current.type != action.column.type))
            for row in it.rows:
                text = row[new.uid]
                row[new.uid] = text if isinstance(text, Unknown) else convert(text, current.type, new.type)
                if row[new.uid] is None and not new.nullable:
                    raise ValueError(f"{new.name} holds NULL")
        elif isinstance(action, Rename):
            new = replace(current, name=action.new)
        else:
            assert isinstance(action, Default)
            new = replace(current, default=action.text)
        moved = isinstance(action, Change | Modify) and (action.first or action.after)
        if moved:
            assert isinstance(action, Change | Modify)
            return _placed([c for c in columns if c.uid != new.uid], new, action)
        return [new if c.uid == new.uid else c for c in columns]

    @staticmethod
    def _filled(column: Column, ts: int) -> str | None:
        """Return what existing rows get in a new column."""
        if column.now:
            return Unknown(stored(_moment(ts), column.type))
        if column.default is not None:
            return stored(column.default, column.type)
        return None if column.nullable else implicit_default(column.type)

    def rename(self, *pairs: tuple[str, str]) -> int:
        """RENAME TABLE, of one or several tables in order.

        If a table takes the name of another, the versions of rows that are equal in both tables go on.
        """
        ts = self._tick()
        done, before_it = [], dict(self.tables)
        for old, new in [(self.name(a), self.name(b)) for a, b in pairs]:
            if new in self.tables:
                raise ValueError(f"{new} exists")
            it = self.tables.pop(old)
            before = it.shape(old)
            self.tables[new] = it
            texts = [self._called(n, Dialect.TIDB) for n in (old, new)]
            done.append(TableDdl(new, f"RENAME TABLE {texts[0]} TO {texts[1]}", before, it.shape(new)))
        going_on = {
            id(row): replaced.versions[id(old)]
            for name, it in self.tables.items()
            if (replaced := before_it.get(name)) is not None and replaced is not it
            for row in it.rows
            for old in replaced.rows
            if _goes_on(replaced, old, it, row)
        }
        kept = {id(version) for version in going_on.values()}
        for name, it in self.tables.items():
            for row in it.rows:
                version = it.versions[id(row)]
                if version.name == name:
                    continue
                if id(version) in kept:
                    del it.versions[id(row)]
                else:
                    self._close(it, row, ts, "rename")
                if id(row) in going_on:
                    it.versions[id(row)] = going_on[id(row)]
                else:
                    self._open(it, name, row, ts, "ddl")
        texts = [
            f"{self._called(self.name(a), Dialect.MYSQL)} TO {self._called(self.name(b), Dialect.MYSQL)}"
            for a, b in pairs
        ]
        return self._statement(Ddl.RENAME, f"RENAME TABLE {', '.join(texts)}", tuple(done), self.database, ts)

    def truncate(self, table: str) -> int:
        """TRUNCATE TABLE: TiDB gives the table a new number."""
        name, ts = self.name(table), self._tick()
        it = self.tables[name]
        before = it.shape(name)
        self._empty(name, ts, "truncate")
        it.table_id = self._number()
        tidb, mysql = (f"TRUNCATE TABLE {self._called(name, d)}" for d in (Dialect.TIDB, Dialect.MYSQL))
        return self._statement(Ddl.TRUNCATE, mysql, (TableDdl(name, tidb, before, it.shape(name)),), name[0], ts)

    def drop(self, table: str) -> int:
        """DROP TABLE."""
        name, ts = self.name(table), self._tick()
        self._empty(name, ts, "drop")
        before = self.tables.pop(name).shape(name)
        tidb = f"DROP TABLE {self._called(name, Dialect.TIDB)}"
        mysql = f"DROP TABLE {self._called(name, Dialect.MYSQL)} /* generated by server */"
        return self._statement(Ddl.DROP, mysql, (TableDdl(name, tidb, before, None),), name[0], ts)

    def _empty(self, name: Name, ts: int, by: str) -> None:
        it = self.tables[name]
        for row in it.rows:
            self._close(it, row, ts, by)
        it.rows.clear()

    def _called(self, name: Name, dialect: Dialect) -> str:
        """Return a table's name as the statement has it: TiDB states the database always, a user for other databases."""
        qualified = dialect is Dialect.TIDB or name[0] != self.database
        return (f"{_name(name[0])}." if qualified else "") + _name(name[1])

    def _statement(
        self,
        kind: Ddl,
        sql: str,
        tables: tuple[TableDdl, ...],
        database: str,
        ts: int | None = None,
        *,
        done: bool = True,
    ) -> int:
        ts = self._tick() if ts is None else ts
        # A user's statement is run in the session's database.
        self.log.append(Statement(ts, kind, database if not tables[0].name[1] else self.database, sql, tables))
        return self._done(ts) if done else ts

    # reading

    def state_at(self, position: int) -> dict[Name, TableState]:
        """Return all tables as they were at a position."""
        shown: dict[Name, TableState] = {}
        for ts, state in self.states:
            if ts > position:
                break
            shown = state
        return shown


def _goes_on(old_table: _Table, old: Mapping[int, str | None], it: _Table, new: Mapping[int, str | None]) -> bool:
    """Return whether two rows have the same key, and equal values in the columns that both tables have."""
    if [old[u] for u in old_table.key] != [new[u] for u in it.key]:
        return False
    pairs = [(a, b) for a in old_table.columns for b in it.columns if a.name.casefold() == b.name.casefold()]
    both = [(_seen(old[a.uid], a.type), _seen(new[b.uid], b.type)) for a, b in pairs if _is_kept(a.type, b.type)]
    return bool(both) and all(a == b for a, b in both)


def _seen(text: str | None, of: Type) -> Any:
    """Return a value as a history has it."""
    if text is None or isinstance(text, Unknown) or text.startswith("0000-"):
        return None
    if of.is_integer or of.base in {"decimal", "double"}:
        return Decimal(text)
    return datetime.fromisoformat(text) if of.base in {"date", "datetime", "timestamp"} else text


def _is_kept(old: Type, new: Type) -> bool:
    """Return whether one column of a history holds values of both types.

    The Spark type is the same, or can be widened.
    """
    (kind, size), (other, room) = _spark(old), _spark(new)
    if (kind, other) == ("integer", "decimal"):
        return room[0] >= (20 if size == (3,) else 10)
    return kind == other and all(a <= b for a, b in zip(size, room, strict=True))


def _spark(of: Type) -> tuple[str, tuple[int, ...]]:
    """Return the kind of a Spark type, and how wide it is: a DECIMAL's digits before and after the point."""
    if of.is_integer:
        width = {"tinyint": 0, "smallint": 1, "mediumint": 2, "int": 2, "bigint": 3}[of.base] + of.unsigned
        return ("integer", (width,)) if width <= 3 else ("decimal", (20, 0))
    if of.base == "decimal":
        return "decimal", (of.size[0] - of.scale, of.scale)
    return ("text" if of.is_text or of.base in {"enum", "set"} else of.base), ()


def _moment(ts: int) -> str:
    """Return the UTC wall clock of a commit_ts."""
    when = datetime(1970, 1, 1) + timedelta(milliseconds=ts >> 18)  # noqa: DTZ001
    return when.strftime("%Y-%m-%d %H:%M:%S.%f")


def _target(it: _Table, action: Action) -> Column | None:
    """Return the column that an action concerns, by its name before the statement."""
    if isinstance(action, Drop | Default):
        return it.column(action.name)
    if isinstance(action, Rename | Change):
        return it.column(action.old)
    return it.column(action.column.name) if isinstance(action, Modify) else None


def _placed(columns: list[Column], new: Column, action: Add | Change | Modify) -> list[Column]:
    if action.first:
        return [new, *columns]
    if action.after is None:
        return [*columns, new]
    place = next(n for n, c in enumerate(columns) if c.name.casefold() == action.after.casefold())
    return [*columns[: place + 1], new, *columns[place + 1 :]]
