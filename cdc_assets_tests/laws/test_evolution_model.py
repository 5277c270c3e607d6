"""Compare random lives of tables, with DML and DDL, in every protocol and cut into random runs, with the model.

The examples are small, and the same in every run of the tests; `EVOLUTION_EXAMPLES=50` draws more, and others each
time.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, Phase, assume, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cdc_assets_tests.laws.binlog_encoders import BINLOG
from cdc_assets_tests.laws.encoders import TICDC, Encoder
from cdc_assets_tests.laws.evolution import names_of, problems, released_below
from cdc_assets_tests.laws.mysql_model import (
    BIGINT,
    DATE,
    DATETIME,
    DOUBLE,
    ID,
    INT,
    INTEGER_BYTES,
    TEXT,
    TIMESTAMP,
    TINYINT,
    Action,
    Add,
    AddIndex,
    Change,
    Column,
    Default,
    Drop,
    Model,
    Modify,
    Rename,
    RowChange,
    Statement,
    TableState,
    Type,
    Unknown,
    Verbatim,
    Watermark,
    char,
    convert,
    datetime_,
    decimal,
    enum,
    not_null,
    set_,
    stored,
    varbinary,
    varchar,
)
from cdc_assets_tests.support import Chain, Record

pytestmark = pytest.mark.soak

ENCODERS = TICDC | BINLOG
EXAMPLES = int(os.environ.get("EVOLUTION_EXAMPLES", "0"))

TYPES = [
    INT,
    BIGINT,
    TINYINT,
    Type("int", unsigned=True),
    decimal(8, 2),
    varchar(20),
    char(20),
    TEXT,
    varbinary(20),
    DATE,
    DATETIME,
    datetime_(3),
    TIMESTAMP,
    DOUBLE,
    enum("1", "2", "3"),
    set_("1", "2", "3"),
]
NAMES = ["a", "b", "c", "d"]  # of columns
TABLES = ["t", "u", "w"]


class Numbers:
    """Values that differ from each other, so that a value in a wrong place is noticed."""

    def __init__(self) -> None:
        self.last = 0

    def value(self, of: Type) -> str:
        """Return the next value of a type; texts are numbers, which every type can be changed to."""
        self.last = (self.last + 1) % 100
        n = self.last
        if of.base == "date":
            return f"2024-{1 + n // 28:02}-{1 + n % 28:02}"
        if of.base in {"datetime", "timestamp"}:
            return str(stored(f"2024-02-{1 + n % 28:02} 01:02:{n % 60:02}.{n:03}", of))
        if of.base == "enum":
            return of.labels[n % len(of.labels)]
        if of.base == "set":
            return ",".join(label for bit, label in enumerate(of.labels) if n >> bit & 1)
        if of.base == "varbinary":
            return f"{n}"
        if of.base == "decimal":
            return f"{n}.{n:02}"
        return f"{n}.5" if of.base == "double" else f"{n}"


def targets(of: Type) -> list[Type]:
    """Return the types that a column of a type may get, as far as MySQL's conversion is certain."""
    if of.is_integer:
        wider = [t for t in INTEGER_BYTES if INTEGER_BYTES[t] > INTEGER_BYTES[of.base] and t != "mediumint"]
        return [*(Type(t, unsigned=of.unsigned) for t in wider), varchar(30), decimal(22, 2), DOUBLE]
    if of.base == "varchar":
        return [varchar(of.size[0] + 10), TEXT, BIGINT]
    if of.base == "decimal":
        return [decimal(of.size[0] + 4, of.scale), varchar(30)]
    if of.base == "enum":
        return [enum("9", *reversed(of.labels)) if "9" not in of.labels else varchar(9)]
    if of.base == "set":
        return [set_("9", *reversed(of.labels))] if "9" not in of.labels else []
    return {"char": [varchar(40)], "date": [DATETIME, datetime_(3)], "text": []}.get(of.base, [])


@dataclass(frozen=True)
class Life:
    """What happened, and how its records arrive.

    Attributes:
        model: what happened.
        shares: for each run but the last, how many hundredths of each lane's records have come in after it.
        again: from which to which event of the log everything is sent a second time, as after a restart.
    """

    model: Model
    shares: list[list[int]]
    again: tuple[int, int] | None


@st.composite
def lives(draw: st.DrawFn, *, with_ddl: bool, steps: int = 16) -> Life:
    """Draw a life of up to three tables."""
    model, numbers = Model(), Numbers()
    _create(draw, model, numbers)
    for _ in range(draw(st.integers(steps // 2, steps))):
        state = _now(model)
        roll = draw(st.integers(0, 9))
        if roll == 0:
            model.watermark()
        elif with_ddl and roll >= 5:
            draw(st.sampled_from(_DDL))(draw, model, numbers)
        elif state:
            _dml(draw, model, numbers)
    # The last rows of each table are sent once more, so that events after the last DDL are compared, too.
    for name in sorted(model.tables):
        _insert(draw, model, numbers, name[1])
    if draw(st.booleans()):
        model.watermark()
        _dml(draw, model, numbers)
    model.watermark()
    # Hypothesis begins with the smallest example, which shows little for the time that a run takes.
    assume(_eventful(model, with_ddl=with_ddl))
    marks = [n for n, e in enumerate(model.log) if isinstance(e, Watermark)]
    again = None
    if draw(st.booleans()):
        end = draw(st.sampled_from(marks))
        begin = draw(st.sampled_from([0, *(m for m in marks if m < end)]))
        again = begin, end + 1
    runs = draw(st.integers(0, 2))
    lane = st.lists(st.integers(0, 100), min_size=runs, max_size=runs).map(sorted)
    lanes = draw(st.lists(lane, min_size=3, max_size=3))
    return Life(model, [[lane[run] for lane in lanes] for run in range(runs)], again)


def _eventful(model: Model, *, with_ddl: bool) -> bool:
    kinds = Counter(e.kind for e in model.log if isinstance(e, Statement))
    changes = sum(isinstance(e, RowChange) for e in model.log)
    return changes >= 9 and (not with_ddl or (len(kinds) >= 5 and sum(kinds.values()) >= 7))


def _now(model: Model) -> dict[str, TableState]:
    state = model.states[-1][1] if model.states else {}
    return {name[1]: it for name, it in state.items()}


# --- DML


def _values(draw: st.DrawFn, numbers: Numbers, columns: Sequence[Column]) -> dict[str, str | None]:
    values: dict[str, str | None] = {}
    for column in columns:
        if column.nullable and draw(st.integers(0, 5)) == 0:
            values[column.name] = None
        else:
            values[column.name] = numbers.value(column.type)
    return values


def _insert(draw: st.DrawFn, model: Model, numbers: Numbers, table: str) -> None:
    state = _now(model)[table]
    key = state.shape[state.shape.key[0]]
    taken = {row[key.uid] for row in state.rows}
    free = [n for n in range(1, 9) if str(n) not in taken]
    if free:
        others = [c for c in state.shape.columns if c.name != key.name]
        model.insert(table, **{key.name: draw(st.sampled_from(free))}, **_values(draw, numbers, others))


def _dml(draw: st.DrawFn, model: Model, numbers: Numbers) -> None:
    tables = _now(model)
    if not tables:
        return
    table = draw(st.sampled_from(sorted(tables)))
    state = tables[table]
    roll = draw(st.integers(0, 6))
    if not state.rows or roll <= 1:
        _insert(draw, model, numbers, table)
        return
    shape = state.shape
    key = shape[shape.key[0]]
    old = draw(st.sampled_from([row[key.uid] for row in state.rows]))
    if roll == 2:
        model.delete(table, old)
    elif roll == 3:
        free = [n for n in range(1, 9) if str(n) not in {row[key.uid] for row in state.rows}]
        assume(free)
        model.update(table, old, **{key.name: draw(st.sampled_from(free))})
    elif roll == 4 and len(tables) > 1:
        with model.transaction():
            model.delete(table, old)
            other = draw(st.sampled_from(sorted(set(tables) - {table})))
            if tables[other].rows:
                it = tables[other].shape
                first = tables[other].rows[0][it[it.key[0]].uid]
                changed = [c for c in it.columns if c.name not in it.key][:1]
                model.update(other, first, **_values(draw, numbers, changed))
    else:
        others = [c for c in shape.columns if c.name not in shape.key]
        some = draw(st.lists(st.sampled_from(others), unique=True, min_size=1, max_size=2)) if others else []
        model.update(table, old, **_values(draw, numbers, some))


# --- DDL


def _column(draw: st.DrawFn, numbers: Numbers, name: str) -> Column:
    of = draw(st.sampled_from(TYPES))
    kind = draw(st.integers(0, 3))
    # A text or a binary column has no default; a zero date is NULL in the history, and in quarantine.
    plain = of.base not in {"text", "varbinary", "date", "datetime", "timestamp"}
    if kind == 0 and plain:
        return not_null(name, of, numbers.value(of))
    if kind == 1 and plain:
        return not_null(name, of)
    if kind == 2 and of.base in {"datetime", "timestamp"}:
        return Column(name, of, now=True)
    return Column(name, of, default=numbers.value(of) if kind == 3 and plain else None)


def _create(draw: st.DrawFn, model: Model, numbers: Numbers) -> None:
    free = [t for t in TABLES if t not in _now(model)]
    if free:
        table = draw(st.sampled_from(free))
        names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=3))
        model.create(table, [ID, *(_column(draw, numbers, n) for n in names)])
        for _ in range(draw(st.integers(0, 2))):
            _insert(draw, model, numbers, table)


def _some_table(draw: st.DrawFn, model: Model) -> tuple[str, TableState] | None:
    tables = _now(model)
    table = draw(st.sampled_from(sorted(tables))) if tables else None
    return (table, tables[table]) if table else None


def _alter(
    actions: Callable[[st.DrawFn, TableState, Numbers], Sequence[Action]],
) -> Callable[[st.DrawFn, Model, Numbers], None]:
    def change(draw: st.DrawFn, model: Model, numbers: Numbers) -> None:
        chosen = _some_table(draw, model)
        done = actions(draw, chosen[1], numbers) if chosen else ()
        if chosen and done:
            model.alter(chosen[0], *done)
            if (
                any(isinstance(a, Modify) for a in done)
                and draw(st.integers(0, 3)) == 0
                and _has_no_unknown_value(model, chosen[0])
            ):
                model.resend(chosen[0])

    return change


def _has_no_unknown_value(model: Model, table: str) -> bool:
    """Return whether the log states every value of a table.

    Rows that are sent again would state the others, and change the history.
    """
    return not any(isinstance(v, Unknown) for row in _now(model)[table].rows for v in row.values())


def _others(state: TableState) -> list[Column]:
    return [c for c in state.shape.columns if c.name not in state.shape.key]


def _add(draw: st.DrawFn, state: TableState, numbers: Numbers) -> list[Action]:
    taken = {c.name.casefold() for c in state.shape.columns}
    free = [n for n in NAMES if n not in taken]
    names = draw(st.lists(st.sampled_from(free), unique=True, min_size=1, max_size=2)) if free else []
    first, after = draw(st.sampled_from([(False, None), (True, None), (False, "id")]))
    return [Add(_column(draw, numbers, n), first, after) for n in names]


def _drop(draw: st.DrawFn, state: TableState, _: Numbers) -> list[Action]:
    columns = _others(state)
    return [Drop(draw(st.sampled_from(columns)).name)] if columns else []


def _rename(draw: st.DrawFn, state: TableState, _: Numbers) -> list[Action]:
    columns = _others(state)
    if not columns:
        return []
    column = draw(st.sampled_from(columns))
    if len(columns) > 1 and draw(st.integers(0, 3)) == 0:
        other = next(c for c in columns if c != column)
        pair = (column, other.name), (other, column.name)
        return [Change(c.name, Column(new, c.type, c.nullable, c.default, c.now)) for c, new in pair]
    taken = {c.name.casefold() for c in state.shape.columns} - {column.name.casefold()}
    free = [n for n in (*NAMES, column.name.swapcase()) if n.casefold() not in taken and n != column.name]
    return [Rename(column.name, draw(st.sampled_from(free)))]


def _modify(draw: st.DrawFn, state: TableState, _: Numbers) -> list[Action]:
    modifications = []
    for column in _others(state):
        for of in targets(column.type):
            try:
                for row in state.rows:
                    convert(row[column.uid], column.type, of)
            except ValueError:
                continue
            if not any(isinstance(row[column.uid], Unknown) for row in state.rows):
                modifications.append(Modify(Column(column.name, of, column.nullable)))
    return [draw(st.sampled_from(modifications))] if modifications else []


def _several(draw: st.DrawFn, state: TableState, numbers: Numbers) -> list[Action]:
    """Draw a column that is replaced by another of its name, or one that changes while another is dropped."""
    columns = _others(state)
    if not columns:
        return []
    dropped, *rest = draw(st.permutations(columns))
    if not rest or draw(st.booleans()):
        return [Drop(dropped.name), Add(_column(draw, numbers, dropped.name))]
    left = replace(state, shape=replace(state.shape, columns=(*(c for c in state.shape.columns if c != dropped),)))
    return [Drop(dropped.name), *_modify(draw, left, numbers)]


def _without_effect(draw: st.DrawFn, state: TableState, _: Numbers) -> list[Action]:
    name = state.shape.key[0]
    plain = [c.name for c in _others(state) if c.type == INT]
    defaults: list[Action] = [
        AddIndex(f"i{len(state.rows)}_{draw(st.integers(0, 999))}", (name,)),
        Verbatim("COMMENT = 'x'"),
    ]
    return [draw(st.sampled_from([*defaults, *(Default(p, "77") for p in plain)]))]


def _rename_table(draw: st.DrawFn, model: Model, _: Numbers) -> None:
    tables, free = sorted(_now(model)), [t for t in TABLES if t not in _now(model)]
    if not tables:
        return
    one = draw(st.sampled_from(tables))
    if len(tables) == 1 or (free and draw(st.booleans())):
        model.rename((one, draw(st.sampled_from(free))))
        return
    other = draw(st.sampled_from([t for t in tables if t != one]))
    swap = (one, "tmp"), (other, one), ("tmp", other)
    if draw(st.booleans()):
        model.rename(*swap)
    else:
        for pair in swap:
            model.rename(pair)


def _truncate(draw: st.DrawFn, model: Model, _: Numbers) -> None:
    chosen = _some_table(draw, model)
    if chosen:
        model.truncate(chosen[0])


def _drop_table(draw: st.DrawFn, model: Model, numbers: Numbers) -> None:
    chosen = _some_table(draw, model)
    if chosen:
        model.drop(chosen[0])
        if draw(st.booleans()):
            _create(draw, model, numbers)


def _create_like(draw: st.DrawFn, model: Model, _: Numbers) -> None:
    chosen, free = _some_table(draw, model), [t for t in TABLES if t not in _now(model)]
    if chosen and free:
        model.create_like(draw(st.sampled_from(free)), chosen[0])


_DDL = [
    _create,
    _alter(_add),
    _alter(_add),
    _alter(_drop),
    _alter(_rename),
    _alter(_rename),
    _alter(_modify),
    _alter(_modify),
    _alter(_modify),
    _alter(_several),
    _alter(_without_effect),
    _rename_table,
    _rename_table,
    _truncate,
    _drop_table,
    _create_like,
]


# --- how the records arrive


def sent(life: Life, encoder: Encoder) -> list[Record]:
    """Return all records, some of them sent twice."""
    log = life.model.log
    if life.again is None or not encoder.gated:
        return encoder.encode(log)
    begin, end = life.again
    return [*encoder.encode(log[:end]), *encoder.encode(log[begin:end]), *encoder.encode(log[end:])]


def cut(records: Sequence[Record], shares: Sequence[Sequence[int]], *, apart: bool = True) -> Iterator[list[Record]]:
    """Return the records of each run: partitions and topics arrive apart (`apart`), each in its own order."""
    lanes: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        lanes.setdefault((record["topic"], record["partition"]) if apart else ("", 0), []).append(record)
    come = Counter[tuple[str, int]]()
    for share in [*shares, [100] * 3]:
        now = {lane: len(rs) * share[n % 3] // 100 for n, (lane, rs) in enumerate(lanes.items())}
        yield [r for lane, rs in lanes.items() for r in rs[come[lane] : now[lane]]]
        come.update({lane: now[lane] - come[lane] for lane in lanes})


def lived(life: Life, encoder: Encoder, chain: Chain) -> list[str]:
    """Run a life, and return what is wrong with the histories in the end."""
    for event in life.model.log:
        if isinstance(event, Statement):
            note(event.mysql_sql)
    for records in cut(sent(life, encoder), life.shares, apart=encoder.lanes_apart):
        chain.add(records)
        chain.run()
    names = {n for n in names_of(life.model) if n[1] != "tmp"}
    return problems(life.model, chain, names, released_below(life.model, gated=encoder.gated))


_SETTINGS = settings(
    max_examples=EXAMPLES or 2,
    deadline=None,
    derandomize=not EXAMPLES,
    database=None,
    print_blob=False,
    # Shrinking a life takes minutes, because each try runs Spark.
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("protocol", ENCODERS)
def test_rows_alone(protocol: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The lives have no DDL but CREATE TABLE."""

    @_SETTINGS
    @given(life=lives(with_ddl=False, steps=25))
    def check(life: Life) -> None:
        encoder = ENCODERS[protocol]()
        chain = Chain(spark, tmp_path_factory.mktemp(protocol), **encoder.settings)
        assert lived(life, encoder, chain) == []

    check()


@pytest.mark.parametrize("protocol", ENCODERS)
def test_rows_and_statements(protocol: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The lives have any DDL between the row events."""

    @_SETTINGS
    @given(life=lives(with_ddl=True))
    def check(life: Life) -> None:
        encoder = ENCODERS[protocol]()
        chain = Chain(spark, tmp_path_factory.mktemp(protocol), **encoder.settings)
        assert lived(life, encoder, chain) == []

    check()
