"""table_schemas: the schemas of the source tables, from DDL statements and from messages that carry schemas.

The table has two kinds of rows:

- One row for every DDL statement and table that it changes, with the table's complete schema from that commit_ts on. If the
  message carries the table's schema, it is that one; else it follows from the statement.
- For protocols whose rows name their schema by number (Simple), the *numbered schemas*: one row for each (database, table,
  table_id, schema_version) that any message has carried.
"""

from dataclasses import dataclass

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, BOOLEAN, INT, STRING, array, column, struct
from cdc_assets.lakehouse.table import Definition


@dataclass(frozen=True, kw_only=True)
class SchemasCursor(Cursor):
    """How far statements and schemas are read.

    Attributes:
        batch: the newest raw batch whose statements and schemas are in the table.
        decisions: how many decisions about statements are applied.
        loads: the sequence of initial_load whose dumped tables are in the table.
    """

    batch: int = 0
    decisions: int = 0
    loads: int = 0


TABLE_SCHEMAS = Definition(
    columns=StructType(
        [
            column("commit_ts", BIGINT, "Position in the source; of a numbered schema its version, a TSO."),
            column("topic", STRING, "Topic of the first record that has the statement or schema."),
            column("partition", INT, "Partition of that record."),
            column("offset", BIGINT, "Offset of that record."),
            column("ddl_type", STRING, "The kind of statement, as the message states it."),
            column("ddl_statement", STRING, "The statement's text; null for a numbered schema."),
            column("default_database", STRING, "The session's database when the statement ran."),
            column("database", STRING, "Database of the table that changes; null if the statement changes none."),
            column("table", STRING, "The table that changes; null if the statement changes none."),
            column(
                "columns",
                array(
                    struct(
                        name=STRING,
                        type=STRING,
                        nullable=BOOLEAN,
                        default=STRING,
                        generated=BOOLEAN,
                        computed_default=BOOLEAN,
                    )
                ),
                "The table's columns from that commit_ts on; null if the table was dropped or the statement cannot be read. "
                "`computed_default`: only the server knows the default.",
            ),
            column(
                "character_sets",
                array(struct(column=STRING, charset=STRING, collation=STRING)),
                "Character set and collation of each column (Simple); null if the message does not state them.",
            ),
            column("primary_key", array(STRING), "The primary key's columns."),
            column("key_columns", array(STRING), "The columns that identify a row."),
            column(
                "foreign_keys",
                array(
                    struct(
                        name=STRING,
                        columns=array(STRING),
                        database=STRING,
                        table=STRING,
                        parent_columns=array(STRING),
                        on_delete=STRING,
                        on_update=STRING,
                    )
                ),
                "The foreign keys by which the source changes rows of the table without row events, when rows of the parent "
                "(`database`, `table`) change; empty `parent_columns`: the parent's primary key. Null if there are none, or "
                "`columns` is null. A later RENAME of the parent writes no row for this table.",
            ),
            column("error", STRING, "Why the statement could not be read, or what contradicts it."),
            column("sequence", INT, "Of a statement: its number in the order in which statements take effect."),
            column(
                "position",
                BIGINT,
                "Of a statement: the commit_ts at which it takes effect; later than its own if the statement before it in "
                "its partition is later.",
            ),
            column(
                "actions",
                STRING,
                "Of a statement: its schema actions on resolved tables, a JSON text (`ddl.actions`); null if it could not "
                "be read or is ignored.",
            ),
            column("message_table", STRING, "Of a statement: the table that its message names."),
            column(
                "sent_ms",
                BIGINT,
                "Of a statement: when the sender wrote the message, in milliseconds of its own clock.",
            ),
            column(
                "source",
                struct(server_id=BIGINT, file=STRING, position=BIGINT, gtid=STRING),
                "Of a statement: its place in the binlog.",
            ),
            column("table_id", BIGINT, "Of a numbered schema: the table's number."),
            column("schema_version", BIGINT, "Of a numbered schema: its number."),
            column("table_schemas", STRING, "Of a statement: the schemas in its message, unchanged."),
        ]
    ),
    cursor=SchemasCursor,
)
