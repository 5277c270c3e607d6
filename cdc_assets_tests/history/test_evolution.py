"""Apply statements to tables, without rows: when one table replaces another, versions of equal rows go on."""

import pytest

from cdc_assets.history.evolution import Arrive, Evolution, Fill, Flag, Rekey, SeenColumns
from cdc_assets.history.progress import Name
from cdc_assets.history.schema_evolution import evolve_tables
from cdc_assets.history.statements import read_statements
from cdc_assets.mysql_types.types import parsed
from cdc_assets.protocols.base import Protocol
from cdc_assets.protocols.canal_json import CanalJson
from cdc_assets.protocols.debezium import Debezium
from cdc_assets.stages.schemas import apply_statements

pytestmark = pytest.mark.fast

GHOST = "RENAME TABLE t TO _t_del, _t_gho TO t"
CREATED = [
    (1, "CREATE TABLE t (id INT PRIMARY KEY, v INT, was INT)"),
    (2, "CREATE TABLE _t_gho (id BIGINT PRIMARY KEY, v VARCHAR(9), new INT)"),
]


def evolve(
    statements: list[tuple[int, str]],
    *,
    taken: bool = True,
    protocol: Protocol | None = None,
    of_tidb: bool = False,
    seen: dict[Name, list[SeenColumns]] | None = None,
) -> dict[Name, Evolution]:
    """Return the effects of statements, each at its own position, on each table; `seen`: what rows show."""
    protocol = protocol or CanalJson()
    sent = [
        {
            "commit_ts": at,
            "default_database": "shop",
            "message_table": None,
            "topic": "t",
            "partition": 0,
            "offset": offset,
            "ddl_statement": text,
            "ddl_type": None,
            "table_schemas": None,
        }
        for offset, (at, text) in enumerate(statements)
    ]
    applied, _ = apply_statements(protocol, sent, {})
    return evolve_tables(
        read_statements(applied, applied, {}),
        seen or {},
        taken=lambda name: taken or name[1] == "t",
        changes_key_text=protocol.changes_key_text,
        of_tidb=of_tidb,
    )


def arrivals(statements: list[tuple[int, str]], *, taken: bool = True) -> dict[str, Arrive]:
    """Return the last arrival of rows in each table."""
    return {
        name: op
        for (_, name), table in evolve(statements, taken=taken).items()
        for step in table.steps
        for op in step.ops
        if isinstance(op, Arrive)
    }


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        pytest.param([(9, GHOST)], "rename", id="one RENAME of two tables: gh-ost, pt-online-schema-change"),
        pytest.param(
            [(9, "ALTER TABLE t RENAME _t_del"), (9, "ALTER TABLE _t_gho RENAME t")],
            "rename",
            id="two statements at one position: gh-ost's two-step cut-over, TiCDC",
        ),
        pytest.param(
            [(9, "DROP TABLE t"), (9, "RENAME TABLE _t_gho TO t")],
            "drop",
            id="DROP and RENAME at one position: pt-online-schema-change with drop_swap",
        ),
    ],
)
def test_a_table_that_replaces_another(statements: list[tuple[int, str]], reason: str) -> None:
    replaced = arrivals([*CREATED, *statements])["t"].replaced
    assert replaced is not None
    assert (replaced.commit_ts, replaced.reason) == (9, reason)
    # v is another column, as after a MODIFY.
    assert {slot.column for slot in replaced.columns} == {"id"}


@pytest.mark.parametrize(
    ("statements", "taken"),
    [
        pytest.param([(8, "RENAME TABLE t TO _t_del"), (9, "RENAME TABLE _t_gho TO t")], True, id="time between"),
        pytest.param([(8, "DROP TABLE t"), (9, "RENAME TABLE _t_gho TO t")], True, id="time between DROP and RENAME"),
        pytest.param([(9, GHOST)], False, id="a table that the feed does not take"),
        pytest.param([(8, "RENAME TABLE t TO s"), (9, "RENAME TABLE s TO t")], True, id="away and back"),
    ],
)
def test_a_table_that_replaces_none(statements: list[tuple[int, str]], taken: bool) -> None:
    assert arrivals([*CREATED, *statements], taken=taken)["t"].replaced is None


def test_moved_rows_come_from_a_table_whose_versions_go_on() -> None:
    arrived = arrivals([*CREATED, (9, GHOST)])
    assert {name: arrive.origin_is_replaced for name, arrive in arrived.items()} == {"_t_del": True, "t": False}
    swap = "RENAME TABLE t TO tmp, _t_gho TO t, tmp TO _t_gho"
    swapped = arrivals([*CREATED, (9, swap)])
    assert {name: arrive.origin_is_replaced for name, arrive in swapped.items()} == {"_t_gho": True, "t": True}


def test_a_column_that_comes_back_is_not_the_one_that_was_dropped() -> None:
    """A version that goes on has a value of the dropped column."""
    again = [
        (9, GHOST),
        (10, "CREATE TABLE _t_gho (id BIGINT PRIMARY KEY, was INT)"),
        (11, "RENAME TABLE t TO _t_del2, _t_gho TO t"),
    ]
    arrive = arrivals([*CREATED, *again])["t"]
    assert {slot.column for slot in arrive.columns} == {"id", "was"}
    assert arrive.replaced is not None
    assert {slot.column for slot in arrive.replaced.columns} == {"id"}


@pytest.mark.parametrize("change", ["DROP COLUMN C", "RENAME COLUMN c TO d", "MODIFY c BIGINT", "ADD x INT, DROP c"])
def test_a_table_had_the_column_that_a_statement_changes(change: str) -> None:
    """The CREATE TABLE was not seen, and rows from before the statement have the column."""
    table = evolve([(5, "ALTER TABLE t ADD COLUMN n INT"), (9, f"ALTER TABLE t {change}")])["shop", "t"]
    assert table.live(1).keys() == {"n", "c"}
    assert table.find_slot(0, "c") is table.live(1)["c"]


@pytest.mark.parametrize("mysql_type", ["BIGINT", "POINT"])
@pytest.mark.parametrize("at", [8, None])
def test_rows_show_a_column_that_moved_rows_had_and_lost(mysql_type: str, at: int | None) -> None:
    """The table is made anew without a CREATE TABLE, and its rows have a column of the dropped column's name."""
    statements = [
        *CREATED[:1],
        (3, "ALTER TABLE t DROP COLUMN was"),
        (4, "RENAME TABLE t TO u"),
        (5, "DROP TABLE u"),
        (6, "RENAME TABLE other.hidden TO u"),
    ]
    shown = [SeenColumns(at, [("id", parsed("INT")), ("was", parsed(mysql_type))])]
    table = evolve(statements, seen={("shop", "u"): shown})["shop", "u"]
    slot = table.find_slot(3, "was")
    assert slot is not None
    assert (slot.column, slot.type) == ("was", parsed(mysql_type))


@pytest.mark.parametrize(
    ("old", "new", "protocol", "changes"),
    [
        ("INT", "BIGINT", CanalJson(), False),
        ("INT", "BIGINT UNSIGNED", CanalJson(), False),
        ("INT", "BIGINT UNSIGNED", Debezium(), True),
        ("VARCHAR(9)", "VARCHAR(20)", CanalJson(), False),
        ("VARCHAR(9)", "CHAR(9)", CanalJson(), False),
        ("ENUM('a')", "ENUM('a','b')", CanalJson(), False),
        ("VARBINARY(4)", "VARBINARY(9)", CanalJson(), False),
        ("DECIMAL(9,2)", "DECIMAL(12,4)", CanalJson(), True),
        ("DATETIME", "DATETIME(3)", CanalJson(), True),
        ("INT(5) ZEROFILL", "INT(7) ZEROFILL", CanalJson(), True),
        ("FLOAT", "DOUBLE", CanalJson(), True),
        ("INT", "VARCHAR(9)", CanalJson(), True),
        ("BINARY(4)", "BINARY(8)", CanalJson(), True),
    ],
)
def test_a_new_type_that_changes_the_text_of_keys_asks_for_a_reload(
    old: str, new: str, protocol: Protocol, changes: bool
) -> None:
    statements = [(1, f"CREATE TABLE t (id {old} PRIMARY KEY, v INT)"), (2, f"ALTER TABLE t MODIFY id {new} NOT NULL")]
    steps = evolve(statements, protocol=protocol)["shop", "t"].steps
    flags = [op for step in steps for op in step.ops if isinstance(op, Flag)]
    assert [flag.reload and flag.why.startswith("open rows keep their old key") for flag in flags] == [True] * changes


@pytest.mark.parametrize(
    ("definition", "of_tidb", "is_filled"),
    [
        ("TIMESTAMP", False, True),
        ("TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)", False, True),
        ("TIMESTAMP", True, False),
        ("TIMESTAMP NULL", False, False),
        ("TIMESTAMP DEFAULT NULL", False, False),
        ("DATETIME", False, False),
    ],
)
def test_a_timestamp_for_which_the_server_may_choose_a_default(definition: str, of_tidb: bool, is_filled: bool) -> None:
    statements = [CREATED[0], (2, f"ALTER TABLE t ADD at {definition}")]
    step = evolve(statements, of_tidb=of_tidb)["shop", "t"].steps[-1]
    assert [(op.slot.name, op.text) for op in step.ops if isinstance(op, Fill)] == [("at", None)] * is_filled


@pytest.mark.parametrize(
    ("definition", "is_recomputed"),
    [
        ("MODIFY g INT AS (a * 2) STORED", True),
        ("CHANGE g h INT GENERATED ALWAYS AS (a * 2) VIRTUAL", True),
        ("MODIFY g BIGINT AS (a + 1) STORED", True),
        ("MODIFY a INT AS (id + 1) STORED", True),
        ("MODIFY g INT AS (`A`+1) STORED COMMENT 'x' FIRST", False),
        ("MODIFY g INT", False),
    ],
)
def test_values_that_the_server_computes_again(definition: str, is_recomputed: bool) -> None:
    created = (1, "CREATE TABLE t (id INT PRIMARY KEY, a INT, g INT AS (a + 1) STORED)")
    table = evolve([created, (9, f"ALTER TABLE t {definition}")])["shop", "t"]
    filled = [op for step in table.steps for op in step.ops if isinstance(op, Fill)]
    assert [op.text for op in filled] == [None] * is_recomputed
    assert sum(slot.column.endswith("__until_9") for slot in table.slots) == is_recomputed


@pytest.mark.parametrize(
    ("alteration", "computed"),
    [
        ("MODIFY a DECIMAL(10,1)", ["g"]),
        ("MODIFY A VARCHAR(20)", ["g"]),
        ("CHANGE a a DECIMAL(10,4) AS (id + 1) STORED", ["g"]),
        ("MODIFY a DECIMAL(12,2)", []),
        ("MODIFY n SMALLINT", []),
        ("MODIFY b DATE", []),
        ("MODIFY a DECIMAL(10,2) NOT NULL", []),
    ],
)
def test_a_column_computed_from_one_whose_values_change_asks_for_a_reload(alteration: str, computed: list[str]) -> None:
    """MySQL computes stored generated columns again, and writes no row event; a number of another size stays the same."""
    created = (
        "CREATE TABLE t (id INT PRIMARY KEY, a DECIMAL(10,2), b DATETIME, n INT, g DECIMAL(12,2) AS (`a` * 2) STORED, "
        "h INT AS (n + 1) STORED, v INT AS (a + 1) VIRTUAL, w CHAR(9) AS (concat(n, 'a ')) STORED)"
    )
    table = evolve([(1, created), (9, f"ALTER TABLE t {alteration}")])["shop", "t"]
    flags = [op for step in table.steps for op in step.ops if isinstance(op, Flag)]
    assert [flag.why.split(":")[0] for flag in flags if flag.reload] == computed


@pytest.mark.parametrize(
    ("alteration", "key"),
    [
        ("DROP INDEX k ON t", ()),
        ("ALTER TABLE t DROP INDEX k", ()),
        ("CREATE UNIQUE INDEX i ON t (id)", ("id",)),
        ("CREATE UNIQUE INDEX i ON t (n)", None),
    ],
)
def test_an_index_that_changes_the_key(alteration: str, key: tuple[str, ...] | None) -> None:
    created = (1, "CREATE TABLE t (id INT NOT NULL, b INT NOT NULL, n INT, UNIQUE KEY k (id, b))")
    table = evolve([created, (9, alteration)])["shop", "t"]
    keys = [tuple(s.name for s in op.columns) for step in table.steps for op in step.ops if isinstance(op, Rekey)]
    assert keys == ([] if key is None else [key])


@pytest.mark.parametrize(
    ("alteration", "changes"),
    [
        ("ADD COLUMN n INT DEFAULT 5", True),
        ("ADD COLUMN n INT NOT NULL", True),
        ("DROP COLUMN v", True),
        ("RENAME COLUMN v TO w", True),
        ("CHANGE v w VARCHAR(9)", True),
        ("MODIFY d DECIMAL(12,4)", True),
        ("MODIFY a VARCHAR(9)", True),
        ("ADD COLUMN n INT, MODIFY a BIGINT, MODIFY v VARCHAR(20) NOT NULL", False),
        ("ADD COLUMN g INT AS (a + 1) VIRTUAL", False),
        ("ADD INDEX i (a), COMMENT 'x'", False),
    ],
)
def test_a_statement_that_changes_the_texts_of_rows_without_a_key(alteration: str, changes: bool) -> None:
    created = (1, "CREATE TABLE t (a INT, v VARCHAR(9), d DECIMAL(9,2))")
    table = evolve([created, (2, f"ALTER TABLE t {alteration}"), (3, "ALTER TABLE t ADD m INT DEFAULT 1")])["shop", "t"]
    rekeyed = [step.spot.commit_ts for step in table.steps for op in step.ops if op == Rekey((), by_row=True)]
    assert rekeyed == [2] * changes + [3]
    assert table.by_row(len(table.steps))
