"""Apply DDL to table schemas: recorded streams against the recorded truth, and MySQL's rules for other statements."""

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.ddl.apply import DdlEffect, apply_ddl
from cdc_assets.ddl.readers import read_statement
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.mysql_types.descriptors import INTEGERS
from cdc_assets.mysql_types.types import MySQLType, parse_type

pytestmark = pytest.mark.fast

RECORDED = Path(__file__).parent.parent / "recorded"


def lines(name: str) -> Iterator[dict[str, Any]]:
    path = RECORDED / name
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return map(json.loads, text.strip().split("\n"))


def recorded_ddl(name: str) -> Iterator[dict[str, Any]]:
    """The DDL events in order; TiCDC's repeats after a restart, which have the same commitTs, once."""
    seen = set()
    for record in lines(name):
        event = json.loads(base64.b64decode(record["value"]))
        commit_ts = event.get("_tidb", {}).get("commitTs")
        if event["isDdl"] and (commit_ts is None or commit_ts not in seen):
            seen.add(commit_ts)
            yield event


def run(*statements: str, tables: Mapping[tuple[str, str], TableSchema] | None = None) -> DdlEffect:
    effect = DdlEffect("other", (), tables or {})
    for statement in statements:
        effect = apply_ddl(effect.tables, statement, "shop")
        assert effect.error is None, statement
    return effect


def names(effect: DdlEffect, table: str = "t") -> list[str]:
    return [column.name for column in effect.tables["shop", table].columns]


def types(effect: DdlEffect, table: str = "t") -> dict[str, str]:
    return {column.name: column.type for column in effect.tables["shop", table].columns}


@pytest.mark.parametrize("scenario", ["ddl.jsonl.gz", "types.jsonl.gz", "nopk.jsonl"])
def test_ticdc_statements_lead_to_the_recorded_tables(scenario: str) -> None:
    truth = {
        (line["since_commit_ts"], line["schema"], line["table"]): line
        for line in lines(f"ticdc/truth/{scenario.split('.', 1)[0]}.tables.jsonl")
    }
    tables: Mapping[tuple[str, str], TableSchema] = {}
    compared = set()
    for event in recorded_ddl(f"ticdc/canal-json_ext/{scenario}"):
        name = (event["database"], event["table"])
        effect = apply_ddl(tables, event["sql"], event["database"])
        assert effect.error is None
        if event["table"]:
            assert name in effect.affected
        tables = effect.tables
        expected = truth.get((event["_tidb"]["commitTs"], *name))
        if expected is None or event["type"] == "ERASE":
            continue
        compared.add((event["_tidb"]["commitTs"], *name))
        schema = tables[name]
        assert [(column.name, column.type, not column.nullable, column.virtual) for column in schema.columns] == [
            (column["name"], column["type"], column["not_null"], column["virtual_generated"])
            for column in expected["columns"]
        ]
        # The truth keeps the default of the time when the column was added.
        if "SET DEFAULT" not in event["sql"]:
            assert [column.default for column in schema.columns] == [
                column["default"] for column in expected["columns"]
            ]
        assert list(schema.key_columns) == expected["key"]
    erased = {
        (event["_tidb"]["commitTs"], event["database"], event["table"])
        for event in recorded_ddl(f"ticdc/canal-json_ext/{scenario}")
        if event["type"] == "ERASE"
    }
    assert compared | erased >= set(truth)


def without_widths(text: str) -> MySQLType:
    """MariaDB's SHOW CREATE TABLE adds display widths to integers that the statement does not have."""
    parsed = parse_type(text)
    return MySQLType(parsed.base, unsigned=parsed.unsigned) if parsed.base in INTEGERS else parsed


def test_canal_statements_lead_to_the_tables_of_the_server() -> None:
    seeds = [event["sql"] for event in lines("mysql/truth/ddl.events.jsonl") if event["op"] == "ddl"]
    tables: Mapping[tuple[str, str], TableSchema] = {}
    for sql in seeds[:2]:
        tables = apply_ddl(tables, sql, "dbz_evolve").tables
    for event in recorded_ddl("mysql/canal117-flat/ddl.jsonl"):
        effect = apply_ddl(tables, event["sql"], event["database"])
        assert effect.error is None
        assert (event["database"], event["table"]) in effect.affected
        tables = effect.tables
    expected = json.loads((RECORDED / "mysql/truth/ddl.schema.json").read_text())
    assert {table for _, table in tables} == set(expected)
    for table, schema in expected.items():
        applied = tables["dbz_evolve", table]
        assert [(column.name, without_widths(column.type)) for column in applied.columns] == [
            (column["name"], without_widths(column["column_type"])) for column in schema["columns"]
        ]
        assert list(applied.primary_key) == schema["pk"]


@pytest.mark.parametrize("file", ["ddl.schema.json", "types.schema.json"])
def test_create_statements_of_a_server_list_the_columns_of_its_information_schema(file: str) -> None:
    for table, schema in json.loads((RECORDED / "mysql/truth" / file).read_text()).items():
        created = run(schema["create"]).tables["shop", table]
        assert [(column.name, column.type) for column in created.columns] == [
            (column["name"], str(parse_type(column["column_type"]))) for column in schema["columns"]
        ]
        assert list(created.primary_key) == schema["pk"]


def test_create_table_with_all_kinds_of_keys_and_columns() -> None:
    effect = run(
        """create table t (
            id serial, a int(10) unsigned not null comment 'a, (b)' primary key,
            b varchar(10) character set utf8 collate utf8_bin not null default _utf8mb4'x''y' unique,
            c timestamp(3) not null default current_timestamp(3) on update current_timestamp(3),
            d int generated always as (a + length('),(')) stored, e int as (a+1) virtual not null,
            f int references other (x) on delete set null on update cascade,
            g bit(4) not null default b'0101', h binary(2) not null default 0x00ff, i point,
            unique key u2 (b(3) desc, a) using btree, constraint u3 unique (f), key plain (c),
            fulltext index ft (b), constraint fk foreign key (f) references other (x), check (a > 0),
            unique key functional ((lower(b)))
        ) engine=InnoDB default charset=utf8mb4 partition by hash(a) (partition p0, partition p1)"""
    )
    table = effect.tables["shop", "t"]
    assert effect.kind == "create_table"
    assert {column.name: (column.type, column.nullable, column.default) for column in table.columns} == {
        "id": ("bigint unsigned", False, None),
        "a": ("int(10) unsigned", False, None),
        "b": ("varchar(10)", False, "x'y"),
        "c": ("timestamp(3)", False, None),
        "d": ("int", True, None),
        "e": ("int", False, None),
        "f": ("int", True, None),
        "g": ("bit(4)", False, "5"),
        "h": ("binary(2)", False, "\x00\xff"),
        "i": ("point", True, None),
    }
    assert {column.name: column.virtual for column in table.columns if column.generated} == {"d": False, "e": True}
    assert table.primary_key == ("a",)
    assert table.unique_keys == (("id",), ("b",), ("b", "a"), ("f",))
    assert table.unique_names == ("id", "b", "u2", "u3")


@pytest.mark.parametrize(
    ("definition", "fill"),
    [
        ("int", None),
        ("int not null", "0"),
        ("int not null default 7", "7"),
        ("int default -7", "-7"),
        ("decimal(4,2) not null", "0"),
        ("varchar(4) not null", ""),
        ("blob not null", ""),
        ("date not null", None),
        ("timestamp not null", None),
        ("time not null", "00:00:00"),
        ("year not null", "0000"),
        ("enum('x','y') not null", "x"),
        ("set('x','y') not null", ""),
        ("enum('x','y') not null default 'y'", "y"),
        ("json not null", "null"),
        ("bool not null default true", "1"),
        ("bit(8) not null default b'11'", "3"),
        ("varbinary(9) default 'é'", "Ã©"),
        ("varchar(9) default x'c3a9'", None),
        ("datetime not null default now()", None),
        ("varchar(40) not null default (uuid())", None),
        ("int not null auto_increment unique", None),
        ("int as (1) not null", None),
        ("int default null", None),
    ],
)
def test_what_existing_rows_get(definition: str, fill: str | None) -> None:
    effect = run("create table t (a int)", f"alter table t add column b {definition}")
    assert effect.tables["shop", "t"].columns[1].fill == fill


BASE = "create table t (a int primary key, b int not null, c int, unique key ub (b), unique key ubc (b, c), key kc (c))"


@pytest.mark.parametrize(
    ("alteration", "columns"),
    [
        ("add d int", "a b c d"),
        ("add column d int first, add column e int after a", "d a e b c"),
        ("add column (d int, e decimal(3,1) default 1.5)", "a b c d e"),
        ("add column if not exists b bigint", "a b c"),
        ("drop b", "a c"),
        ("drop column if exists nope", "a b c"),
        ("modify a bigint after c", "b c a"),
        ("modify column c bigint first", "c a b"),
        ("change B b2 bigint", "a b2 c"),
        ("change column c c bigint", "a b c"),
        ("rename column b to `b 2`", "a b 2 c"),
        ("convert to character set utf8mb4", "a b c"),
        ("engine=InnoDB, algorithm=inplace, lock=none", "a b c"),
        ("comment 'add column x int', add d int", "a b c d"),
        (
            "partition by range (a) (partition p0 values less than (10), partition p1 values less than maxvalue)",
            "a b c",
        ),
        ("drop partition p0, p1", "a b c"),
        ("alter index kc invisible", "a b c"),
        ("add d int after z, change b z int", "a z d c"),
        ("change a z int after y, rename column b to y", "y z c"),
        ("add b int first, drop b", "b a c"),
        ("order by b, c", "a b c"),
        ("/*!50000 add d int */", "a b c d"),
        ("/* add d int */ engine=x", "a b c"),
        ("order by b, c, add d int", "a b c d"),
        ("set tiflash replica 1 location labels 'x', 'y'", "a b c"),
        ("shard_row_id_bits = 4", "a b c"),
        ("ttl = `a` + interval 1 day", "a b c"),
        ("remove partitioning", "a b c"),
        ("rebuild partition p0, p1", "a b c"),
        ("default charset = utf8mb4 collate = utf8mb4_bin, auto_increment 7", "a b c"),
    ],
)
def test_alter_table_columns(alteration: str, columns: str) -> None:
    effect = run(BASE, f"alter table t {alteration}")
    assert effect.kind == "alter_table"
    assert " ".join(names(effect)) == columns


@pytest.mark.parametrize("alteration", ["renumber a", "add d int, renumber a", "drop index ub, renumber a", "a"])
def test_an_unknown_alteration_is_an_error(alteration: str) -> None:
    before = run(BASE).tables
    effect = apply_ddl(before, f"alter table t {alteration}", "shop")
    assert effect.error
    assert effect.error.startswith("ALTER TABLE ... ")
    assert effect.tables == before


@pytest.mark.parametrize(
    ("alteration", "how"),
    [
        ("drop partition p0, p1", "DROP PARTITION"),
        ("truncate partition all", "TRUNCATE PARTITION"),
        ("discard tablespace", "DISCARD TABLESPACE"),
        ("import partition p0 tablespace", "IMPORT TABLESPACE"),
        ("first partition less than (10)", "FIRST PARTITION"),
        ("comment 'x' engine = blackhole", "ENGINE = BLACKHOLE"),
        ("engine InnoDB, comment 'BLACKHOLE'", None),
        ("reorganize partition p into (partition a values less than (5))", None),
        ("coalesce partition 4", None),
        ("convert to character set utf8mb4", None),
    ],
)
def test_alterations_that_move_rows_without_row_events(alteration: str, how: str | None) -> None:
    read = read_statement(f"alter table t {alteration}")
    assert [a.how for _, actions in read.changes for a in actions] == ([how] if how else [])


@pytest.mark.parametrize(
    ("alteration", "how"),
    [
        ("exchange partition p with table s.u without validation", "EXCHANGE PARTITION"),
        ("convert table s.u to partition p values less than (10)", "CONVERT PARTITION"),
        ("convert partition p to table s.u", "CONVERT PARTITION"),
    ],
)
def test_exchanges_of_rows_concern_both_tables(alteration: str, how: str) -> None:
    read = read_statement(f"alter table t {alteration}")
    assert read.names == (("", "t"), ("s", "u"))
    assert [[a.how for a in actions] for _, actions in read.changes] == [[how], [how]]


@pytest.mark.parametrize(
    ("alteration", "primary", "unique"),
    [
        ("drop primary key", (), {"ub": ("b",), "ubc": ("b", "c")}),
        ("drop primary key, add primary key (c, b)", ("c", "b"), {"ub": ("b",), "ubc": ("b", "c")}),
        ("add primary key (c, b), drop primary key", ("c", "b"), {"ub": ("b",), "ubc": ("b", "c")}),
        ("add unique ub (c), drop index ub", ("a",), {"ub": ("c",), "ubc": ("b", "c")}),
        ("drop index UB", ("a",), {"ubc": ("b", "c")}),
        ("drop constraint ub, drop key kc", ("a",), {"ubc": ("b", "c")}),
        ("rename index ub to x", ("a",), {"x": ("b",), "ubc": ("b", "c")}),
        ("rename column b to z", ("a",), {"ub": ("z",), "ubc": ("z", "c")}),
        ("change a a2 bigint", ("a2",), {"ub": ("b",), "ubc": ("b", "c")}),
        ("drop column b", ("a",), {"ubc": ("c",)}),
        ("add unique (b)", ("a",), {"ub": ("b",), "ubc": ("b", "c"), "b": ("b",)}),
        ("add index (c), add unique (c)", ("a",), {"ub": ("b",), "ubc": ("b", "c"), "c_2": ("c",)}),
        ("add constraint u unique index (c), add d int unique key", ("a",),
         {"ub": ("b",), "ubc": ("b", "c"), "u": ("c",), "d": ("d",)}),
        ("modify c int not null unique", ("a",), {"ub": ("b",), "ubc": ("b", "c"), "c": ("c",)}),
    ],
)  # fmt: skip
def test_alter_table_keys(alteration: str, primary: tuple[str, ...], unique: dict[str, tuple[str, ...]]) -> None:
    table = run(BASE, f"alter table t {alteration}").tables["shop", "t"]
    assert table.primary_key == primary
    assert dict(zip(table.unique_names, table.unique_keys, strict=True)) == unique


@pytest.mark.parametrize(
    "key",
    [
        "create unique index k on t (b) where c > 10 and d in (1, 2) algorithm = inplace lock = none",
        "create unique index k on t (b) comment 'x' where d is not null",
        "alter table t add unique k (b) where c between 1 and 2, add e int",
        "create unique index k on t ((b + 1))",
        "create unique index k on t (b, (cast(c as char(3))))",
    ],
)
def test_a_unique_index_with_a_condition_or_an_expression_is_no_key(key: str) -> None:
    """TiDB: IndexOption includes WHERE, so rows that do not fulfil the condition may have equal values."""
    table = run("create table t (b int not null, c int, d int)", key).tables["shop", "t"]
    assert (table.key_columns, table.unique_keys, table.index_names) == ((), (), ("k",))
    assert (
        run("create table t (b int not null, d int, unique key k (b) where d = 'x,)', key (d) where b != 1)")
        .tables["shop", "t"]
        .unique_keys
        == ()
    )


def test_key_columns() -> None:
    assert run("create table t (b int, a int, primary key (a, b))").tables["shop", "t"].key_columns == ("a", "b")
    # TiCDC's handle key: of the unique keys without nullable and virtual columns the first one with the fewest columns.
    without = run(
        "create table t (a int, b int not null, c int not null, v int as (b) virtual not null, unique (a), unique (c, b), "
        "unique (v), unique (c), unique (b))"
    )
    assert without.tables["shop", "t"].key_columns == ("c",)
    only_virtual = run("create table t (b int not null, v int as (b) virtual not null, unique (v), unique (b, v))")
    assert only_virtual.tables["shop", "t"].key_columns == ()
    assert run("create table t (a int unique)").tables["shop", "t"].key_columns == ()
    # Columns of a primary key are NOT NULL, also without these words.
    assert not run("create table t (a int, primary key (a))").tables["shop", "t"].columns[0].nullable


def test_defaults_set_and_dropped() -> None:
    effect = run(
        "create table t (a int default 1, b bit(4))", "alter table t alter a set default 5, alter b set default b'11'"
    )
    assert [column.default for column in effect.tables["shop", "t"].columns] == ["5", "3"]
    effect = run("alter table t alter column a drop default", tables=effect.tables)
    assert [column.default for column in effect.tables["shop", "t"].columns] == [None, "3"]


def test_tables_renamed_one_after_the_other() -> None:
    effect = run("create table a (x int)", "create table b (y int)", "rename table a to tmp, b to a, tmp to other.b")
    assert effect.kind == "rename_table"
    assert {name: table.columns[0].name for name, table in effect.tables.items()} == {
        ("shop", "a"): "y",
        ("other", "b"): "x",
    }
    assert effect.affected == (("shop", "a"), ("shop", "b"), ("shop", "tmp"), ("other", "b"))
    effect = run("alter table a rename as c", tables=effect.tables)
    assert (effect.kind, set(effect.tables)) == ("rename_table", {("shop", "c"), ("other", "b")})
    assert effect.affected == (("shop", "a"), ("shop", "c"))


def test_dropping() -> None:
    tables = run("create table a (x int)", "create table b (x int)", "create table other.c (x int)").tables
    effect = run("DROP TABLE IF EXISTS `a`, other.c, nope /* generated by server */", tables=tables)
    assert (effect.kind, set(effect.tables)) == ("drop_table", {("shop", "b")})
    assert effect.affected == (("shop", "a"), ("other", "c"), ("shop", "nope"))
    effect = run("drop database shop", tables=tables)
    assert (effect.kind, set(effect.tables)) == ("drop_database", {("other", "c")})
    assert effect.affected == (("shop", "a"), ("shop", "b"))
    # The binlog has this at the end of a session; the permanent table of that name stays.
    assert set(run("DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `a`", tables=tables).tables) == set(tables)


def test_other_statements() -> None:
    tables = run(BASE).tables
    for statement, kind in {
        "truncate t": "truncate_table",
        "TRUNCATE TABLE `shop`.`t`;": "truncate_table",
        "create index i on t (c)": "create_index",
        "drop index kc on t": "drop_index",
        "create database if not exists x": "create_database",
        "create view v as select 1": "other",
        "create temporary table t (z int)": "other",
        "drop view t": "other",
        "flush tables": "other",
        "": "other",
        "insert into t values (1)": "other",
        "create table if not exists t (z int)": "create_table",
    }.items():
        effect = run(statement, tables=tables)
        assert effect.kind == kind
        assert names(effect) == ["a", "b", "c"]
    unique = run("create unique index uc on t (c(10) desc)", tables=tables).tables["shop", "t"]
    assert unique.unique_keys[-1] == ("c",)
    assert run("drop index `PRIMARY` on t", tables=tables).tables["shop", "t"].primary_key == ()
    like = run("create table copy like T", tables=tables)
    assert names(like, "copy") == ["a", "b", "c"]
    assert like.tables["shop", "copy"].primary_key == ("a",)
    # Of a table like one whose CREATE was not seen no column is known, also if an earlier table had the name.
    assert set(run("create table t like unseen", tables=tables).tables) == set()
    assert run("create table if not exists t like unseen", tables=tables).tables == tables


@pytest.mark.parametrize(
    "name", ["a.b", "a``b", "日本 語", "../../x", "select", "a'b", 'a"b', "--", "/*", "😀", "(", "x;y"]
)
def test_names_survive(name: str) -> None:
    plain = name.replace("``", "`")
    effect = run(f"create table `{name}`.`{name}` (`{name}` int, primary key (`{name}`))")
    ((key, table),) = effect.tables.items()
    assert key == (plain, plain)
    assert (table.columns[0].name, table.primary_key) == (plain, (plain,))
    effect = run(f"rename table `{name}`.`{name}` to `z`", tables=effect.tables)
    assert set(effect.tables) == {("shop", "z")}


@pytest.mark.parametrize(
    "statement",
    [
        "create table t",
        "create table t (a int",
        "create table x select 1 as a",
        "alter table t modify nope int",
        "alter table t add column",
        "alter table t add x int )",
        "drop table",
        "rename table t",
        "alter table t rename column nope to z",
        "drop table `t",
        "alter table t add x int after nope",
    ],
)
def test_bad_sql_is_an_error_and_changes_nothing(statement: str) -> None:
    tables = run(BASE).tables
    effect = apply_ddl(tables, statement, "shop")
    assert effect.error is not None
    assert effect.tables == tables


def test_a_change_of_an_unknown_table_is_reported() -> None:
    effect = run("alter table unseen add c int not null default 3, rename to seen")
    assert effect.affected == (("shop", "unseen"), ("shop", "seen"))
    assert effect.tables == {}


def test_table_names_in_another_case() -> None:
    tables = run("create table Orders (a int)").tables
    assert names(run("alter table ORDERS add b int", tables=tables), "Orders") == ["a", "b"]


@given(st.text(max_size=60))
def test_no_text_raises(text: str) -> None:
    for statement in (text, f"alter table t {text}", f"create table t (a int {text})", f"drop table {text}"):
        apply_ddl({}, statement, "shop")
