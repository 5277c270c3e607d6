"""change_events: the decoded events, in one schema for all protocols."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, INT, STRING, TIMESTAMP, array, column, struct
from cdc_assets.lakehouse.table import Definition


class Kind(StrEnum):
    """The kind of an event."""

    ROW = "row"
    DDL = "ddl"
    WATERMARK = "watermark"
    BOOTSTRAP = "bootstrap"  # a table schema without a position of its own (Simple)
    STATEMENT = "statement"  # the text of a DML statement, sent beside its row events: only counted
    CONTROL = "control"  # a message of Canal about its source, such as the end of an XA transaction: only counted
    # From here on Debezium's.
    TRANSACTION = "transaction"  # a marker of a transaction's beginning or end
    TOMBSTONE = "tombstone"  # only counted, as are the next two
    HEARTBEAT = "heartbeat"
    MESSAGE = "message"
    NOTIFICATION = "notification"  # the progress of a snapshot that the connector takes
    UNDECODABLE = "undecodable"  # stands for a record that is in quarantine; `reason` says why


class Op(StrEnum):
    """The operation of a row event."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    SNAPSHOT = "snapshot"


# The `detail` of an event whose message contradicts a setting of the feed, which `Protocol.denied_setting` names.
CONTRADICTS_SETTINGS = "contradicts the feed's settings"
# The `detail` of a row event that TiCDC marked as corrupted, because its checksum was wrong.
CORRUPTED = "corrupted"
# The `detail` of a row event that asks the connector for a snapshot of some rows only.
PARTIAL_SNAPSHOT = "partial snapshot requested"


@dataclass(frozen=True, kw_only=True)
class EventsCursor(Cursor):
    """How far records are decoded.

    Attributes:
        batch: the newest raw batch that is decoded.
        protocol: the protocol of the decoded events; "" as long as no row event, statement or watermark is decoded.
        trimmed: the batch up to which maintenance has deleted events.
        trimmed_rows: how many row events maintenance has deleted.
        trimmed_newest: the newest Kafka time of the deleted events, in milliseconds; 0 if none was deleted.
        contradicting: how many events so far contradict the feed's settings.
        contradiction: topic, partition and offset of the first record of these events; None without one.
    """

    batch: int = 0
    protocol: str = ""
    trimmed: int = 0
    trimmed_rows: int = 0
    trimmed_newest: int = 0
    contradicting: int = 0
    contradiction: dict[str, Any] | None = None


# What a message states about itself and its source, beside the change. Only people read it.
SOURCE_DETAILS = struct(message_id=STRING, source_version=STRING, source_name=STRING, thread=BIGINT, query=STRING)

# Row images and column layouts stay JSON texts, and are parsed once, with the table's columns. As maps they would be slower
# to write, and looking up n columns in a map of n entries takes quadratic time.
CHANGE_EVENTS = Definition(
    columns=StructType(
        [
            column("kind", STRING, f"The kind of event: {', '.join(Kind)}."),
            column("topic", STRING, "The Kafka record's topic."),
            column("partition", INT, "The Kafka record's partition."),
            column("offset", BIGINT, "The Kafka record's offset."),
            column("index", INT, "The event's place in its record, from 0."),
            column("batch", BIGINT, "Number of the commit to raw_records that has the record."),
            column("record_bytes", INT, "Bytes of the record's value; only on the first event of each record."),
            column("record_timestamp", TIMESTAMP, "Kafka's time of the record."),
            column("op", STRING, f"The operation of a row event: {', '.join(Op)}."),
            column("database", STRING, "The source's database."),
            column("table", STRING, "The source's table."),
            column(
                "commit_ts",
                BIGINT,
                "Position in the source: a TiDB TSO (milliseconds << 18 | logical). A watermark's: the topic's source has "
                "sent everything below it.",
            ),
            column("source_ms", BIGINT, "Milliseconds of the source's clock."),
            column("sent_ms", BIGINT, "When the sender wrote the message, in milliseconds of its own clock."),
            column(
                "key_columns",
                array(STRING),
                "Names of the key's columns; null if the message does not name them; empty if it states that the table has "
                "no primary key.",
            ),
            column("key", STRING, "The key's values, a JSON array; null if the message alone does not state the key."),
            column("key_before", STRING, "The key before an update that changed it."),
            column("before", STRING, "The row before an update or a delete, a JSON object."),
            column("after", STRING, "The row after an insert, an update or a snapshot's read, a JSON object."),
            column("key_changed_to", STRING, "The row's key from this event on, from Debezium's header."),
            column("key_changed_from", STRING, "The row's key until this event, from Debezium's header."),
            column("layout_id", BIGINT, "A hash of `layout`."),
            column(
                "layout", STRING, "The columns and types that the message states for its row, in its protocol's form."
            ),
            column("jdbc_types", STRING, "Column -> java.sql.Types code of this row (Canal-JSON)."),
            column("wire_types", STRING, "Column -> branch of the Avro union of its value (Simple in Avro)."),
            column("ddl_type", STRING, "The kind of statement, as the message states it."),
            column("ddl_statement", STRING, "The statement's text."),
            column("schema_version", BIGINT, "The schema's number, from protocols that have one."),
            column("table_id", BIGINT, "The table's number, from protocols that have one."),
            column(
                "table_schemas",
                STRING,
                "The table schemas of a ddl or bootstrap event, a JSON array: Simple's, the new schema first; Debezium's "
                "`tableChanges`.",
            ),
            column(
                "source",
                struct(server_id=BIGINT, file=STRING, position=BIGINT, row=INT, gtid=STRING),
                "Position in the MySQL binlog, from protocols that state it.",
            ),
            column(
                "transaction",
                struct(id=STRING, total_order=BIGINT, collections=STRING),
                "Debezium's transaction metadata: a row's transaction and its number in it; an end marker's number of "
                "events in each table, a JSON text.",
            ),
            column(
                "source_details",
                SOURCE_DETAILS,
                "What the message states about itself and its source: its number in Canal-JSON; Debezium's version, "
                "connector name (`topic.prefix`), and the MySQL thread and statement that made the change. Null if the "
                "message states none of it; a part of another type than prescribed is null.",
            ),
            column("reason", STRING, "Why the record could not be decoded: a code of the quarantine."),
            column(
                "detail",
                STRING,
                "A remark on this event, such as the byte at which decoding failed; "
                f"`{CONTRADICTS_SETTINGS}` if the message contradicts a setting of the feed; `{CORRUPTED}` for a row whose "
                "checksum is wrong (Simple); for a snapshot's read the value of Debezium's `source.snapshot`; "
                f"`{PARTIAL_SNAPSHOT}` for a signal that asks for a snapshot of some rows; for a notification its content, "
                "a JSON object.",
            ),
        ]
    ),
    cursor=EventsCursor,
    # The log then has the counts by kind, and watermarks, statements and undecodable records are read without the rows.
    partition_by=("kind",),
    # Of `detail` the number of NULLs shows without reading rows whether events contradict the settings.
    statistics=("batch", "commit_ts", "record_timestamp", "record_bytes", "detail"),
)
