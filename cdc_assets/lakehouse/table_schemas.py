"""table_schemas: what is known of each source table, from DDL statements and from schemas that messages carry.

Two kinds of rows. The DDL log and its outcome: one row for every statement and table that it touches, with the table's
whole shape from that commit_ts on; where the message carries the table's schema, that is its shape, else what the SQL
says. And, for protocols whose rows name their schema by number (Simple), the *numbered schemas*: each (database, table,
table_id, schema_version) that any message carried, once, whichever message that was.
"""

from dataclasses import dataclass

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, BOOLEAN, INT, STRING, array, column, struct
from cdc_assets.lakehouse.table import Definition


@dataclass(frozen=True, kw_only=True)
class SchemasCursor(Cursor):
    """What is learnt: statements and schemas up to a raw batch, so many decisions about statements, and the tables of dumps.

    `loads`: the sequence of initial_load.
    """

    batch: int = 0
    decisions: int = 0
    loads: int = 0


TABLE_SCHEMAS = Definition(
    columns=StructType(
        [
            column("commit_ts", BIGINT, "Position in the source; of a numbered schema its version, a TSO."),
            column("topic", STRING, "Topic of the first record that brought it."),
            column("partition", INT, "Its partition."),
            column("offset", BIGINT, "Its offset."),
            column("ddl_type", STRING, "The kind of statement, as the message has it."),
            column("ddl_statement", STRING, "The statement's text; null: a numbered schema."),
            column("default_database", STRING, "The session's database when the statement ran."),
            column("database", STRING, "The database of the table that the row is about; null: none."),
            column("table", STRING, "The table that the row is about; null: none."),
            column(
                "columns",
                array(struct(name=STRING, type=STRING, nullable=BOOLEAN, default=STRING, generated=BOOLEAN)),
                "The table's columns from that commit_ts on; null: the table is gone, or the statement is unreadable.",
            ),
            column(
                "character_sets",
                array(struct(column=STRING, charset=STRING, collation=STRING)),
                "Character set and collation of each column, where the message states them (Simple); null: it does not.",
            ),
            column("primary_key", array(STRING), "The primary key's columns."),
            column("key_columns", array(STRING), "The columns that tell rows apart."),
            column("error", STRING, "Why the statement could not be read, or what contradicts it."),
            column("sequence", INT, "Of a statement: its number in the order in which statements take effect."),
            column(
                "position",
                BIGINT,
                "Of a statement: the commit_ts at which it takes effect; later than its own where its partition's statement "
                "before it is later.",
            ),
            column(
                "actions",
                STRING,
                "Of a statement: what it does, a JSON text (`ddl.actions`), on the tables that it means; null: it could not "
                "be read, or is ignored.",
            ),
            column("message_table", STRING, "Of a statement: the table that its message names."),
            column("source", struct(file=STRING, position=BIGINT), "Of a statement: its place in the binlog."),
            column("table_id", BIGINT, "Of a numbered schema: the table's number."),
            column("schema_version", BIGINT, "Of a numbered schema: its number."),
            column("table_schemas", STRING, "Of a statement: the schemas that its message carries, as they came."),
        ]
    ),
    cursor=SchemasCursor,
)
