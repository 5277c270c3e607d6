"""Foreign keys: read from every form of statement, and kept through later statements.

The expected values come from the manuals of MySQL ("FOREIGN KEY Constraints", "ALTER TABLE Statement") and MariaDB ("Foreign
Keys").
"""

import json
from collections.abc import Sequence

import pytest

from cdc_assets.ddl.actions import (
    AddForeignKey,
    DropColumn,
    DropForeignKey,
    DropKey,
    ForeignKey,
    TableName,
    decode_statement,
    encode_statement,
)
from cdc_assets.ddl.apply import apply_ddl
from cdc_assets.ddl.readers import read_statement
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.protocols.canal_json import CanalJson
from cdc_assets.protocols.debezium import Debezium
from cdc_assets.stages.schemas import apply_statements

pytestmark = pytest.mark.fast

P = TableName("", "p")
PARENT = "CREATE TABLE p (id INT PRIMARY KEY, code INT UNIQUE)"
CHILD = (
    "CREATE TABLE c (id INT PRIMARY KEY, a INT, b INT, "
    "CONSTRAINT fk FOREIGN KEY (a) REFERENCES p (id) ON DELETE CASCADE)"
)


def key(
    columns: str = "a",
    parent: TableName = P,
    parent_columns: str = "id",
    name: str = "",
    on_delete: str | None = None,
    on_update: str | None = None,
    index_name: str = "",
) -> ForeignKey:
    return ForeignKey(name, (*columns,), parent, (parent_columns,), on_delete, on_update, index_name)


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("FOREIGN KEY (a) REFERENCES p (id)", key()),
        ("FOREIGN KEY (a) REFERENCES p (id) ON DELETE RESTRICT ON UPDATE NO ACTION", key()),
        ("FOREIGN KEY (a) REFERENCES p (id) ON DELETE CASCADE", key(on_delete="CASCADE")),
        ("FOREIGN KEY (a) REFERENCES p (id) on update set null", key(on_update="SET NULL")),
        ("FOREIGN KEY (a) REFERENCES p (id) ON UPDATE CASCADE ON DELETE SET DEFAULT",
         key(on_delete="SET DEFAULT", on_update="CASCADE")),
        ("FOREIGN KEY (a) REFERENCES p (id) MATCH SIMPLE ON DELETE SET NULL", key(on_delete="SET NULL")),
        ("CONSTRAINT fk FOREIGN KEY (a) REFERENCES `s`.`p` (id)", key(parent=TableName("s", "p"), name="fk")),
        ("CONSTRAINT FOREIGN KEY (a) REFERENCES p (id)", key()),
        ("CONSTRAINT fk FOREIGN KEY i (a) REFERENCES p (id)", key(name="fk", index_name="i")),
        ("FOREIGN KEY IF NOT EXISTS i (a) REFERENCES p (id)", key(index_name="i")),
    ],
)  # fmt: skip
def test_a_foreign_key_is_read(clause: str, expected: ForeignKey) -> None:
    action = AddForeignKey(expected, only_if_missing="IF NOT EXISTS" in clause)
    created = read_statement(f"CREATE TABLE t (a INT, {clause}, KEY (a))")
    altered = read_statement(f"ALTER TABLE t ADD {clause}, ADD KEY (a)")
    for statement in (created, altered):
        ((_, actions),) = statement.changes
        assert [each for each in actions if isinstance(each, AddForeignKey)] == [action]
        assert decode_statement(encode_statement(statement)) == statement


def test_a_column_that_refers_to_a_table_is_read() -> None:
    """MariaDB 10.5 and MySQL 9.0 make foreign keys of it."""
    ((_, actions),) = read_statement(
        "ALTER TABLE t ADD a INT NOT NULL REFERENCES p (id) ON DELETE CASCADE COMMENT 'x'"
    ).changes
    assert actions[1:] == (AddForeignKey(key(on_delete="CASCADE")),)
    ((_, actions),) = read_statement("CREATE TABLE t (a INT REFERENCES p, b INT)").changes
    assert actions[1] == AddForeignKey(ForeignKey("", ("a",), P))


@pytest.mark.parametrize(
    ("clause", "actions"),
    [
        ("DROP FOREIGN KEY fk", (DropForeignKey("fk"),)),
        ("DROP FOREIGN KEY IF EXISTS fk", (DropForeignKey("fk"),)),
        ("DROP CONSTRAINT fk", (DropKey("fk"), DropForeignKey("fk"))),
        ("DROP FOREIGN KEY fk, DROP COLUMN a", (DropForeignKey("fk"), DropColumn("a"))),
        ("DROP KEY fk", (DropKey("fk"),)),
    ],
)
def test_a_foreign_key_is_dropped(clause: str, actions: Sequence[object]) -> None:
    ((_, read),) = read_statement(f"ALTER TABLE t {clause}").changes
    assert read == actions


def test_a_rename_with_a_foreign_key_is_a_rename() -> None:
    assert read_statement("ALTER TABLE t DROP FOREIGN KEY fk, RENAME TO u").kind == "rename_table"
    assert read_statement("ALTER TABLE t DROP FOREIGN KEY fk").kind == "alter_table"


def keys_after(*statements: str, table: str = "c") -> tuple[ForeignKey, ...]:
    """Return the foreign keys of a table after statements in the database `shop`."""
    tables: dict[tuple[str, str], TableSchema] = {}
    for text in statements:
        effect = apply_ddl(tables, text, "shop")
        assert effect.error is None, effect.error
        tables = dict(effect.tables)
    return tables["shop", table].foreign_keys


SHOP_P = TableName("shop", "p")
FK = key(parent=SHOP_P, name="fk", on_delete="CASCADE")


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ([], [FK]),
        (["ALTER TABLE c ADD x INT, MODIFY a BIGINT"], [FK]),
        (["ALTER TABLE c RENAME COLUMN a TO z"], [key("z", SHOP_P, "id", "fk", "CASCADE")]),
        (["ALTER TABLE c CHANGE A z INT"], [key("z", SHOP_P, "id", "fk", "CASCADE")]),
        (["ALTER TABLE c RENAME COLUMN a TO b, RENAME COLUMN b TO a"], [key("b", SHOP_P, "id", "fk", "CASCADE")]),
        (["ALTER TABLE p RENAME COLUMN ID TO nr"], [key("a", SHOP_P, "nr", "fk", "CASCADE")]),
        (["ALTER TABLE p CHANGE id nr INT"], [key("a", SHOP_P, "nr", "fk", "CASCADE")]),
        (["RENAME TABLE p TO other.q"], [key("a", TableName("other", "q"), "id", "fk", "CASCADE")]),
        (["RENAME TABLE p TO q, q TO r"], [key("a", TableName("shop", "r"), "id", "fk", "CASCADE")]),
        (["ALTER TABLE p RENAME q, RENAME COLUMN id TO nr"], [key("a", TableName("shop", "q"), "nr", "fk", "CASCADE")]),
        (["ALTER TABLE c DROP FOREIGN KEY FK"], []),
        (["ALTER TABLE c DROP CONSTRAINT fk"], []),
        (["ALTER TABLE c DROP KEY fk"], [FK]),
        (["ALTER TABLE c DROP FOREIGN KEY other"], [FK]),
        (["DROP TABLE p"], [FK]),
        (["ALTER TABLE c ADD CONSTRAINT fk FOREIGN KEY (b) REFERENCES p (code) ON DELETE SET NULL, DROP FOREIGN KEY fk"],
         [key("b", SHOP_P, "code", "fk", "SET NULL")]),
        (["ALTER TABLE c ADD FOREIGN KEY IF NOT EXISTS fk (b) REFERENCES p (code)"], [FK]),
        (["ALTER TABLE c ADD FOREIGN KEY (b) REFERENCES p (code)"], [FK, key("b", SHOP_P, "code", "c_ibfk_1")]),
        (["ALTER TABLE c ADD FOREIGN KEY (b) REFERENCES p (code)"] * 2, [FK, key("b", SHOP_P, "code", "c_ibfk_1")]),
        (["ALTER TABLE c ADD FOREIGN KEY (b) REFERENCES p (code)", "ALTER TABLE c DROP FOREIGN KEY c_ibfk_1"], [FK]),
        (["ALTER TABLE c ADD FOREIGN KEY i (b) REFERENCES p (code)", "ALTER TABLE c DROP FOREIGN KEY i"], [FK]),
    ],
)  # fmt: skip
def test_foreign_keys_after_statements(statements: list[str], expected: list[ForeignKey]) -> None:
    assert keys_after(PARENT, CHILD, *statements) == tuple(expected)


def test_a_renamed_table_keeps_its_foreign_keys() -> None:
    """Names that begin with <table>_ibfk_ get the new name of the table."""
    added = "ALTER TABLE c ADD FOREIGN KEY (b) REFERENCES p (code)"
    assert [each.name for each in keys_after(PARENT, CHILD, added, "RENAME TABLE c TO d", table="d")] == [
        "fk",
        "d_ibfk_1",
    ]


def test_a_table_that_refers_to_itself() -> None:
    tree = "CREATE TABLE c (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES c (id) ON DELETE CASCADE)"
    assert keys_after(tree) == (key("a", TableName("shop", "c"), "id", "c_ibfk_1", "CASCADE"),)
    renamed = keys_after(tree, "RENAME TABLE c TO d", table="d")
    assert renamed == (key("a", TableName("shop", "d"), "id", "d_ibfk_1", "CASCADE"),)


def test_create_like_copies_no_foreign_key() -> None:
    assert keys_after(PARENT, CHILD, "CREATE TABLE d LIKE c", table="d") == ()


def test_a_parent_in_another_letter_case() -> None:
    assert keys_after("CREATE TABLE P (id INT PRIMARY KEY)", CHILD)[0].parent == ("shop", "P")


def stored(*statements: str) -> list[object]:
    """Return the column `foreign_keys` of table_schemas after statements in the database `shop`."""
    sent = [
        {"commit_ts": at, "default_database": "shop", "message_table": None, "topic": "t", "partition": 0}
        | {"offset": at, "ddl_statement": text, "ddl_type": None, "table_schemas": None}
        for at, text in enumerate(statements)
    ]
    rows, _ = apply_statements(CanalJson(), sent, {})
    return [row["foreign_keys"] for row in rows]


def test_table_schemas_has_the_foreign_keys_that_change_rows() -> None:
    add = "ALTER TABLE c ADD CONSTRAINT plain FOREIGN KEY (b) REFERENCES p (code) ON DELETE RESTRICT"
    fk: dict[str, object] = {"name": "fk", "columns": ["a"], "database": "shop", "table": "p", "parent_columns": ["id"]}
    fk |= {"on_delete": "CASCADE", "on_update": None}
    drop = "ALTER TABLE c DROP FOREIGN KEY fk"
    assert stored(PARENT, CHILD, add, drop, "DROP TABLE c") == [None, [fk], [fk], None, None]


def test_a_shape_in_a_message_keeps_the_foreign_keys() -> None:
    tables = dict(apply_ddl({}, CHILD, "shop").tables)
    column = {"name": "id", "jdbcType": 4, "typeName": "INT", "typeExpression": "INT", "length": None, "scale": None}
    column |= {"position": 1, "optional": False, "autoIncremented": False, "generated": False, "enumValues": []}
    change = {"type": "ALTER", "id": '"shop"."c"', "table": {"columns": [column], "primaryKeyColumnNames": ["id"]}}
    (shape,) = Debezium().schemas_after({"table_schemas": json.dumps([change])}, tables).values()
    assert [each.name for each in shape.columns] == ["id"]
    assert shape.foreign_keys == (FK,)
