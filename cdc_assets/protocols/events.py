"""The one schema of change events, whatever the protocol they came in."""

from enum import StrEnum

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.schema import BIGINT, INT, STRING, TIMESTAMP, array, struct

# A TSO is physical milliseconds << 18 | a logical counter.
TSO_LOGICAL_BITS = 18


class Kind(StrEnum):
    """What an event is."""

    ROW = "row"
    DDL = "ddl"
    WATERMARK = "watermark"
    BOOTSTRAP = "bootstrap"  # the schema of a table, without a position of its own (Simple)
    STATEMENT = "statement"  # the text of a DML statement, beside its row events: counted, and of no further use
    # Debezium's: counted, and of no further use, but for the markers of transactions
    TRANSACTION = "transaction"
    TOMBSTONE = "tombstone"
    HEARTBEAT = "heartbeat"
    MESSAGE = "message"
    UNDECODABLE = "undecodable"  # holds the record's place; `reason` says why, and the record is in quarantine


class Op(StrEnum):
    """What a row event did."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    SNAPSHOT = "snapshot"


# Row images and types are JSON objects as text, `{"column": value}`: kept as they came, and read once, with a struct
# schema, when the table is known. (Measured on 200,000 events of 12 columns: as maps the append took 3.1 s, as text
# 2.1 s; and looking up n columns in an n-entry map is quadratic.)
SCHEMA = struct(
    # where it came from: the Kafka record, and the event's place in it
    topic=STRING,
    partition=INT,
    offset=BIGINT,
    index=INT,
    batch=BIGINT,
    kind=STRING,
    op=STRING,
    database=STRING,
    table=STRING,
    # row and ddl: TiDB's TSO, or the source's milliseconds << 18; watermark: everything below it has been sent
    commit_ts=BIGINT,
    # milliseconds of the source's clock, and of Kafka's
    source_ms=BIGINT,
    record_timestamp=TIMESTAMP,
    # null: the message does not say; empty: it says that there is no primary key
    key_columns=array(STRING),
    # full row images where they can be known; before of update and delete, after of insert, update and snapshot
    before=STRING,
    after=STRING,
    # Debezium: the key that the row has from this event on, or had until then, as the connector's header tells it
    key_changed_to=STRING,
    key_changed_from=STRING,
    # column -> type as the message has it (Open Protocol: {"t": type code, "f": flags}; Debezium: the fields of the row's
    # schema, or the columns' names where there is none; of a schema change, what it says of the tables); Canal-JSON: column
    # -> code of java.sql.Types; Simple in Avro: column -> branch of the union that its value came in
    mysql_types=STRING,
    jdbc_types=STRING,
    wire_types=STRING,
    ddl_type=STRING,
    ddl_statement=STRING,
    # protocols that number their schemas (Simple), and those that tell the place in the binlog (Debezium; null: TiCDC's)
    schema_version=BIGINT,
    table_id=BIGINT,
    # the table schemas that a ddl or bootstrap event carries, a JSON array: Simple's, the one that holds from then on first;
    # Debezium's `tableChanges`
    table_schemas=STRING,
    source=struct(server_id=BIGINT, file=STRING, position=BIGINT, row=INT, gtid=STRING),
    # Debezium's transaction metadata: of a row its transaction and place in it; of a marker, too, and of the marker of the
    # end, how many events there are in each table (JSON, as it came)
    transaction=struct(id=STRING, total_order=BIGINT, collections=STRING),
    # why an event is undecodable: a code of the quarantine, and what is to be said of this one
    reason=STRING,
    detail=STRING,
)

_LONGEST_NAME = 64


def name_too_long(database: Column, table: Column) -> Column:
    """Whether a name is longer than any of MySQL and TiDB, and maybe too long for a file system. BOOLEAN, never NULL."""
    return F.coalesce((F.length(database) > _LONGEST_NAME) | (F.length(table) > _LONGEST_NAME), F.lit(False))
