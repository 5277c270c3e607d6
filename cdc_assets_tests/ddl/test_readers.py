"""Every form of statement is understood to its last token, or not at all."""

import pytest

from cdc_assets.ddl.actions import (
    AddColumn,
    AddKey,
    Column,
    DropColumn,
    DropForeignKey,
    DropKey,
    ModifyColumn,
    MoveRows,
    RenameTable,
    Statement,
    TableName,
    decode_statement,
    encode_statement,
)
from cdc_assets.ddl.readers import read_statement
from cdc_assets.mysql_types.tokens import SqlSyntaxError

pytestmark = pytest.mark.fast

T = TableName("", "t")
INT = Column("c", "int")


def altered(*actions: object) -> Statement:
    return Statement("alter_table", ((T, actions),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("ALTER TABLE t WAIT 30 ADD COLUMN c INT", altered(AddColumn(INT))),
        ("ALTER TABLE t NOWAIT DROP COLUMN IF EXISTS c", altered(DropColumn("c", if_exists=True))),
        ("SET STATEMENT max_statement_time=0, lock_wait_timeout=1 FOR ALTER TABLE t ADD c INT", altered(AddColumn(INT))),
        ("SET STATEMENT sql_mode='ANSI' FOR TRUNCATE t", Statement("truncate_table", ((T, ()),))),
        ("TRUNCATE TABLE t WAIT 5", Statement("truncate_table", ((T, ()),))),
        ("DROP TABLE IF EXISTS t NOWAIT CASCADE", Statement("drop_table", ((T, ()),), tolerant=True)),
        ("DROP TABLE d.t, t RESTRICT", Statement("drop_table", ((TableName("d", "t"), ()), (T, ())))),
        ("CREATE OR REPLACE TABLE t (c INT)", Statement("create_table", ((T, (AddColumn(INT),)),), replaces=True)),
        ("CREATE TABLE t (c INT) START TRANSACTION", Statement("create_table", ((T, (AddColumn(INT),)),))),
        ("CREATE OR REPLACE DATABASE d", Statement("drop_database", database="d")),
        ("RENAME TABLE IF EXISTS t WAIT 3 TO d.u",
         Statement("rename_table", ((T, (RenameTable(TableName("d", "u")),)),), tolerant=True)),
        ("CREATE OR REPLACE UNIQUE INDEX i ON t (c) LOCK = NONE",
         Statement("create_index", ((T, (DropKey("i", if_exists=True), AddKey("unique", ("c",), "i"))),))),
        ("CREATE INDEX i ON t (c) NOWAIT COMMENT 'x'", Statement("create_index", ((T, (AddKey("index", ("c",), "i"),)),))),
        ("ALTER TABLE t ADD COLUMN t.c INT, MODIFY `t`.`c` INT, CHANGE d.t.b t.c INT, DROP COLUMN `t`.`b`",
         altered(AddColumn(INT), ModifyColumn("c", INT), ModifyColumn("b", INT), DropColumn("b"))),
        ("ALTER TABLE t DROP FOREIGN KEY `t`.`fk`", altered(DropForeignKey("fk"))),
        ("ALTER TABLE t ADD SYSTEM VERSIONING", altered()),
        ("ALTER TABLE t /*!50000 ADD c INT */", altered(AddColumn(INT))),
        ("ALTER TABLE t ADD c INT /*!80023 INVISIBLE */ /*M!100600 COMMENT 'x' */ /*T![x] y */", altered(AddColumn(INT))),
        ("ALTER TABLE t DROP SYSTEM VERSIONING", altered()),
        ("ALTER TABLE t MODIFY COLUMN IF EXISTS c INT", altered(ModifyColumn("c", INT, if_exists=True))),
        ("ALTER TABLE t ADD c VECTOR(3)", altered(AddColumn(Column("c", "vector(3)")))),
        ("ALTER TABLE t ADD c UUID NOT NULL DEFAULT UUID()",
         altered(AddColumn(Column("c", "uuid", nullable=False, computed_default=True)))),
    ],
)  # fmt: skip
def test_what_a_statement_does(text: str, statement: Statement) -> None:
    assert read_statement(text) == statement
    assert decode_statement(encode_statement(statement)) == statement


@pytest.mark.parametrize(
    "text",
    [
        "alter table t add period for system_time(a,b), add column a timestamp(6) generated always as row start invisible",
        (
            "create table t (s timestamp(6) generated always as row start, e timestamp(6) generated always as row end, "
            "period for system_time (s,e)) with system versioning "
            "partition by system_time interval 1 month (partition p0 history, partition pc current)"
        ),
        "create table t (id int, v vector(3) not null, primary key(id), vector index (v) m=8 distance=cosine)",
        "create table t (a int, foreign key (a) references x (b) match full on delete cascade on update set null)",
        "alter table t engine=innodb remove partitioning",
        "alter table t add column a int after b partition by hash(a) partitions 4",
        "alter table t convert to character set utf8mb4 collate utf8mb4_bin, default charset utf8mb4",
        "alter table t add constraint c check (a > 0) not enforced, alter check c enforced, drop check d",
        "alter table t drop foreign key if exists fk, drop index if exists i, drop primary key",
        "alter table t set tiflash replica 2 location labels 'a','b'",
        "alter table t ttl = `a` + interval 3 month ttl_enable = 'OFF'",
        "alter table t remove ttl",
        "alter table t add unique key uk (a) using hash comment 'x', add fulltext index f (b) with parser ngram",
        "alter table t add index i ((lower(a))) invisible, alter index j visible, lock=none",
        "alter table t modify a varchar(10) character set utf8 collate utf8_bin not null default 'x' comment 'c' after b",
        (
            "create table t (a int check (a>0), e timestamp default current_timestamp() on update current_timestamp(), "
            "g geometry srid 4326 not null) row_format=compressed key_block_size=8 comment='x' union=(a,b)"
        ),
        "create table t (a int `x`=1, key k (a) `y`='2') engine=InnoDB `PAGE_COMPRESSED`='ON' `ENCRYPTED`=YES",
        "create table t (like u)",
        "create table t (a varchar(20) compressed, b text compressed=zlib, c int without system versioning)",
        "create table t (a enum('x') storage disk column_format dynamic engine_attribute='{}')",
        "create table t (a int) /*!50100 PARTITION BY RANGE (`a`) (PARTITION p0 VALUES LESS THAN (10) ENGINE = InnoDB) */",
        (
            "create table t (a int) partition by range (a) interval (100) first partition less than (0) "
            "last partition less than (500)"
        ),
        "create definer=`root`@`%` procedure p() begin select 1; drop table t; end",
        "alter table t add c bigint default next value for s",
        "alter online ignore table if exists t add c int",
        "drop view v; ",
    ],
)
def test_all_is_read(text: str) -> None:
    read_statement(text)


@pytest.mark.parametrize(
    "text",
    [
        "alter table t add c int; drop table t",
        "drop table t; drop table u",
        "create view v as select 1; drop table t",
        "truncate t u",
        "truncate table t partition p",
        "rename table a to b c",
        "rename frob a to b",
        "drop table t frob",
        "drop database d frob",
        "drop index i on t frob",
        "create table t (a int) frob",
        "create table t (a int frob)",
        "create table t (a int) select 1 as b",
        "create table t (a int,)",
        "create frob t",
        "create index i on t (a) frob",
        "alter table t wait add c int",
        "alter table t add c int frob",
        "alter table t add c int,",
        "alter table t engine=x add c int",
        "alter table t alter column a frob",
        "alter table t add primary key (a, p without overlaps)",
        "set statement x=1 alter table t add c int",
        "frob table t",
        "alter table t /*!80000 add c int */",
        "drop /*M!100100 temporary */ table t",
        "flashback cluster to timestamp '2020-01-01'",
    ],
)
def test_what_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(SqlSyntaxError):
        read_statement(text)


@pytest.mark.parametrize(
    "text", ["alter ignore table t add unique u (a)", "alter ignore table t add b int, add primary key (b)"]
)
def test_alter_ignore_with_a_unique_key_deletes_rows(text: str) -> None:
    """MariaDB: "If IGNORE is specified, only the first row is used of rows with duplicates on a unique key"."""
    ((_, actions),) = read_statement(text).changes
    assert MoveRows("ALTER IGNORE with a unique key") in actions


@pytest.mark.parametrize("text", ["alter table t add unique u (a)", "alter ignore table t add b int, add index i (b)"])
def test_other_alterations_delete_no_row(text: str) -> None:
    ((_, actions),) = read_statement(text).changes
    assert not [action for action in actions if isinstance(action, MoveRows)]
