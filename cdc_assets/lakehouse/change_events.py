"""change_events: one event a change, in one schema for all protocols."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, INT, STRING, TIMESTAMP, array, column, struct
from cdc_assets.lakehouse.table import Definition


class Kind(StrEnum):
    """What an event is."""

    ROW = "row"
    DDL = "ddl"
    WATERMARK = "watermark"
    BOOTSTRAP = "bootstrap"  # the schema of a table, without a position of its own (Simple)
    STATEMENT = "statement"  # the text of a DML statement, beside its row events: counted, and of no further use
    CONTROL = "control"  # a message of Canal about its source, such as the end of an XA transaction: counted alone
    # Debezium's: counted, and of no further use, but for the markers of transactions
    TRANSACTION = "transaction"
    TOMBSTONE = "tombstone"
    HEARTBEAT = "heartbeat"
    MESSAGE = "message"
    NOTIFICATION = "notification"  # what a connector tells of its own snapshots
    UNDECODABLE = "undecodable"  # holds the record's place; `reason` says why, and the record is in quarantine


class Op(StrEnum):
    """What a row event did."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    SNAPSHOT = "snapshot"


# The `detail` of an event whose message says what the feed's settings deny: `Protocol.denied_setting` names the setting.
CONTRADICTS_SETTINGS = "contradicts the feed's settings"
# The `detail` of a row event whose checksum TiCDC found wrong.
CORRUPTED = "corrupted"
# That of one which asks the connector for a snapshot that may leave rows out.
PARTIAL_WANTED = "partial snapshot wanted"


@dataclass(frozen=True, kw_only=True)
class EventsCursor(Cursor):
    """Up to which raw batch the records are decoded.

    Attributes:
        batch: the newest raw batch that is decoded.
        trimmed: the batch up to which maintenance has deleted the events.
        trimmed_rows: how many row events these were.
        trimmed_newest: the newest Kafka time of these events, in milliseconds; 0: none was deleted.
        contradicting: how many events so far have messages that contradict the feed's settings.
        contradiction: topic, partition and offset of the first of these records; None: there is none.
    """

    batch: int = 0
    trimmed: int = 0
    trimmed_rows: int = 0
    trimmed_newest: int = 0
    contradicting: int = 0
    contradiction: dict[str, Any] | None = None


# What a protocol says of its message beside the change itself. No other stage uses it.
SOURCE_DETAILS = struct(
    message_id=STRING, sent_ms=BIGINT, source_version=STRING, source_name=STRING, thread=BIGINT, query=STRING
)

# Row images and layouts are JSON texts: kept as they came, and read once, with a struct schema, when the table is
# known.
# (Measured on 200,000 events of 12 columns: as maps the append took 3.1 s, as text 2.1 s; and looking up n columns in an
# n-entry map is quadratic.)
CHANGE_EVENTS = Definition(
    columns=StructType(
        [
            column("kind", STRING, f"What the event is: {', '.join(Kind)}."),
            column("topic", STRING, "The Kafka record's topic."),
            column("partition", INT, "The Kafka record's partition."),
            column("offset", BIGINT, "The Kafka record's offset."),
            column("index", INT, "The event's place in its record, from 0."),
            column("batch", BIGINT, "Number of the commit to raw_records that brought the record."),
            column("record_bytes", INT, "Bytes of the record's value; only on the first event of each record."),
            column("record_timestamp", TIMESTAMP, "Kafka's time of the record."),
            column("op", STRING, f"What a row event did: {', '.join(Op)}."),
            column("database", STRING, "The source's database."),
            column("table", STRING, "The source's table."),
            column(
                "commit_ts",
                BIGINT,
                "Position in the source: a TiDB TSO (milliseconds << 18 | logical). Of a watermark: all below it was sent.",
            ),
            column("source_ms", BIGINT, "Milliseconds of the source's clock."),
            column(
                "key_columns",
                array(STRING),
                "Names of the key's columns; null: the message does not say; empty: it says that there is no primary key.",
            ),
            column(
                "key", STRING, "The key's values, a JSON array; null where the message alone does not tell the key."
            ),
            column("key_before", STRING, "The key until then, where an update changed it."),
            column("before", STRING, "The row before an update or a delete, a JSON object."),
            column("after", STRING, "The row after an insert, an update or a snapshot's read, a JSON object."),
            column(
                "key_changed_to", STRING, "The key that the row has from this event on, as Debezium's header tells it."
            ),
            column(
                "key_changed_from", STRING, "The key that the row had until this event, as Debezium's header tells it."
            ),
            column("layout_id", BIGINT, "A hash of `layout`."),
            column("layout", STRING, "What the message says of the row's columns, in the form of the feed's protocol."),
            column("jdbc_types", STRING, "Column -> java.sql.Types code of this row (Canal-JSON)."),
            column("wire_types", STRING, "Column -> branch of the union that its value came in (Simple in Avro)."),
            column("ddl_type", STRING, "The kind of statement, as the message has it."),
            column("ddl_statement", STRING, "The statement's text."),
            column("schema_version", BIGINT, "The schema's number, from protocols that have one."),
            column("table_id", BIGINT, "The table's number, from protocols that have one."),
            column(
                "table_schemas",
                STRING,
                "The table schemas that a ddl or bootstrap event carries, a JSON array: Simple's, the one that holds from "
                "then on first; Debezium's `tableChanges`.",
            ),
            column(
                "source",
                struct(server_id=BIGINT, file=STRING, position=BIGINT, row=INT, gtid=STRING),
                "Place in the MySQL binlog, from protocols that tell it.",
            ),
            column(
                "transaction",
                struct(id=STRING, total_order=BIGINT, collections=STRING),
                "Debezium's transaction metadata: of a row its transaction and place in it; of a marker of the end, how "
                "many events there are in each table (JSON, as it came).",
            ),
            column(
                "source_details",
                SOURCE_DETAILS,
                "What the message says of itself and its source: its number in Canal-JSON; when its sender wrote it, in "
                "milliseconds; Debezium's version, connector name (`topic.prefix`), and the thread and statement of MySQL "
                "that made the change. Null where it says none of it; a part of another type than prescribed is null.",
            ),
            column("reason", STRING, "Why it could not be decoded: a code of the quarantine."),
            column(
                "detail",
                STRING,
                f"What is to be said of this one, such as the byte where it breaks; `{CONTRADICTS_SETTINGS}` where its "
                f"message says what the feed's settings deny; of a row `{CORRUPTED}`, as its checksum "
                "(Simple) says; of a snapshot's read which of the snapshot it is (Debezium's `source.snapshot`); of a "
                f"signal for a snapshot of some rows `{PARTIAL_WANTED}`; of a notification what it says, a JSON object.",
            ),
        ]
    ),
    cursor=EventsCursor,
    # So that counts by kind are in the log, and watermarks, statements and what is undecodable are read without the rows.
    partition_by=("kind",),
    # Of `detail` the number of NULLs: whether messages contradict the settings costs no look at the rows.
    statistics=("batch", "commit_ts", "record_timestamp", "record_bytes", "detail"),
)
