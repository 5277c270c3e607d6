"""Compare each table after a statement with a real server, by SHOW CREATE TABLE and by the statement itself."""

import pytest

from cdc_assets.ddl.apply import apply_ddl
from cdc_assets.ddl.replay import SentStatement, SourceTables
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.mysql_types.descriptors import INTEGERS
from cdc_assets.mysql_types.types import MySQLType, parsed
from cdc_assets_tests.mariadb import MariaDB

pytestmark = pytest.mark.extended

BEGIN = (
    "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, a INT DEFAULT 5, b VARCHAR(20) NOT NULL, c INT, UNIQUE KEY ub (b), "
    "KEY kc (c))"
)
# `test_readers` has the forms that MariaDB does not have, by the manuals of MySQL and TiDB.
STATEMENTS = (
    "ALTER TABLE t WAIT 3 ADD COLUMN d INT NOT NULL DEFAULT 7",
    "ALTER TABLE t NOWAIT CHANGE a title VARCHAR(20)",
    "SET STATEMENT lock_wait_timeout=5 FOR ALTER TABLE t DROP COLUMN a",
    "SET STATEMENT max_statement_time=0, lock_wait_timeout=5 FOR TRUNCATE TABLE t WAIT 3",
    "CREATE OR REPLACE TABLE t (x INT NOT NULL, y DECIMAL(5,1) UNSIGNED, PRIMARY KEY (x)) COMMENT='x'",
    "CREATE OR REPLACE UNIQUE INDEX ub ON t (c, b(3)) COMMENT 'x' LOCK = DEFAULT",
    "CREATE TABLE IF NOT EXISTS t (other INT)",
    "CREATE TABLE u LIKE t",
    "CREATE TABLE u (LIKE t)",
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS a BIGINT, ADD COLUMN IF NOT EXISTS d BIGINT",
    "ALTER TABLE t DROP COLUMN IF EXISTS nope, DROP COLUMN IF EXISTS a",
    "ALTER TABLE t MODIFY COLUMN IF EXISTS nope INT, MODIFY COLUMN IF EXISTS c BIGINT FIRST",
    "ALTER TABLE t CHANGE COLUMN IF EXISTS c d BIGINT NOT NULL DEFAULT 3 AFTER id",
    "ALTER TABLE t RENAME COLUMN a TO c, RENAME COLUMN c TO a",
    "ALTER TABLE t ADD INDEX IF NOT EXISTS kc (a), ADD UNIQUE INDEX IF NOT EXISTS ua (a)",
    "ALTER TABLE t DROP INDEX IF EXISTS nope, DROP KEY kc, DROP CONSTRAINT ub",
    "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b, id) USING BTREE",
    "ALTER ONLINE IGNORE TABLE IF EXISTS t ADD d INT",
    "ALTER TABLE t ADD (d INT, e VARCHAR(3) CHARACTER SET latin1 COLLATE latin1_bin COMMENT 'a, (b)', KEY (d))",
    "ALTER TABLE t ADD d INT AS (a + 1) PERSISTENT, ADD e INT GENERATED ALWAYS AS (a) VIRTUAL, ADD f INT INVISIBLE",
    "ALTER TABLE t ADD d TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)",
    "ALTER TABLE t ADD d INT CHECK (d > 0), ADD CONSTRAINT k CHECK (a > 0), ADD e TEXT COMPRESSED",
    "ALTER TABLE t ADD d SERIAL, ADD e BOOL DEFAULT TRUE, ADD f BIT(3) DEFAULT b'101', ADD g SET('x','y') DEFAULT 'x'",
    "ALTER TABLE t ADD FULLTEXT INDEX f (b), ALTER INDEX kc IGNORED, COMMENT = 'a;b', ENGINE = InnoDB",
    "ALTER TABLE t ALTER COLUMN a SET DEFAULT 9, ALTER c SET DEFAULT (1 + 1), ALTER COLUMN b DROP DEFAULT",
    "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, AUTO_INCREMENT = 7, ROW_FORMAT = DYNAMIC",
    "ALTER TABLE t FORCE, ALGORITHM = COPY, ORDER BY c, b DESC",
    "ALTER TABLE t DROP INDEX ub PARTITION BY HASH (id) PARTITIONS 4",
    "ALTER TABLE t ADD SYSTEM VERSIONING",
    "RENAME TABLE t WAIT 3 TO v",
    "RENAME TABLE IF EXISTS nope TO v, t TO u",
    "ALTER TABLE t RENAME AS v, ADD d INT",
    "DROP INDEX IF EXISTS nope ON t WAIT 3",
    "DROP TABLE IF EXISTS nope, t NOWAIT",
)


def in_server(server: MariaDB) -> dict[str, TableSchema]:
    """Return the schemas of the server's tables, read from SHOW CREATE TABLE."""
    tables = {}
    for (name,) in server.run("SHOW TABLES"):
        ((_, created),) = server.run(f"SHOW CREATE TABLE `{name}`")
        effect = apply_ddl({}, created, "d")
        assert effect.error is None
        tables[name] = effect.tables["d", name]
    return tables


def without_width(text: str) -> MySQLType | None:
    """Return a type without the display width of integers, which the server adds."""
    mysql_type = parsed(text)
    if mysql_type and mysql_type.base in INTEGERS:
        return MySQLType(mysql_type.base, unsigned=mysql_type.unsigned)
    return mysql_type


def comparable(table: TableSchema) -> tuple[object, ...]:
    columns = [
        (c.name, without_width(c.type), c.nullable, c.default, c.generated, c.virtual, c.computed_default)
        for c in table.columns
    ]
    unique = sorted(zip(table.unique_names, table.unique_keys, strict=True))
    return columns, table.primary_key, unique, sorted(table.index_names)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_table_after_a_statement(statement: str, mariadb_server: MariaDB) -> None:
    mariadb_server.run("DROP DATABASE IF EXISTS d", "CREATE DATABASE d", "USE d", BEGIN, statement)
    sent = [SentStatement(at, "d", None, text) for at, text in enumerate((BEGIN, statement))]
    tables = SourceTables({}, of_tidb=False)
    assert [tables.apply(each, ()).error for each in sent] == [None, None]
    own_tables = {name: comparable(table) for (_, name), table in tables.schemas.items()}
    assert own_tables == {name: comparable(table) for name, table in in_server(mariadb_server).items()}
