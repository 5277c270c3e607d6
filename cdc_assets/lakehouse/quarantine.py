"""quarantine: input that could not be read, decoded or typed, with its coordinates, a reason, and what to do about it."""

from dataclasses import dataclass, field
from enum import StrEnum

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, BINARY, INT, STRING, column
from cdc_assets.lakehouse.table import Definition


class Reason(StrEnum):
    """Why input is in quarantine: the closed list of codes."""

    NOT_A_RECORD = "not_a_record"
    OFFSET_TAKEN = "offset_taken"
    DATA_LOSS = "data_loss"
    NULL_VALUE = "null_value"
    EMPTY_VALUE = "empty_value"
    INVALID_UTF8 = "invalid_utf8"
    BAD_FRAMING = "bad_framing"
    MALFORMED_JSON = "malformed_json"
    MALFORMED_AVRO = "malformed_avro"
    UNKNOWN_SCHEMA = "unknown_schema"
    UNUSABLE_SCHEMA = "unusable_schema"
    WRONG_TYPE = "wrong_type"
    MISSING_FIELD = "missing_field"
    MISSING_TIDB_EXTENSION = "missing_tidb_extension"
    UNKNOWN_TYPE = "unknown_type"
    WATERMARK_AHEAD = "watermark_ahead"
    IMAGES_DISAGREE = "images_disagree"
    BAD_KEY = "bad_key"
    HANDLE_KEY_ONLY = "handle_key_only"
    CLAIM_CHECK = "claim_check"
    BAD_COMPRESSION = "bad_compression"
    UNSUPPORTED_TYPE = "unsupported_type"
    UNKNOWN_COLUMN_TYPE = "unknown_column_type"
    BAD_VALUE = "bad_value"
    ZERO_DATE = "zero_date"
    UNCLEAR_TIME = "unclear_time"


MESSAGES = {
    Reason.NOT_A_RECORD: "The line is not a recorded Kafka record (one JSON object with topic, partition, offset, "
    "timestamp, and key and value in base64 or null): record the snapshot again, or remove the line.",
    Reason.OFFSET_TAKEN: "Another record with the same topic, partition and offset, but another key or value, was ingested "
    "before, and counts: the files are of two topics of one name (a topic that was created again, or two clusters), or "
    "somebody has changed a file. Record the other topic for another feed.",
    Reason.DATA_LOSS: "Records were deleted on the broker before the feed read them, and on_data_loss: skip let the feed go "
    "on: the history lacks their changes. Set the topic's retention to more than the feed may pause.",
    Reason.NULL_VALUE: "The record has a null value, which the protocol never sends: look for another producer, or a "
    "compacted topic.",
    Reason.EMPTY_VALUE: "The value has no bytes: look for another producer on this topic.",
    Reason.INVALID_UTF8: "The message is not UTF-8: the topic carries another protocol, or compressed values.",
    Reason.BAD_FRAMING: "The lengths in the record do not fit together, so its events cannot be separated: the record was "
    "cut, or the topic carries another protocol than the feed says.",
    Reason.MALFORMED_JSON: "The message is not one complete JSON object: the record was cut, or the topic carries another "
    "protocol than the feed says.",
    Reason.MALFORMED_AVRO: "The value is not one complete Avro message, of the Simple Protocol or of the schema that the "
    "record names: the record was cut, or the sender has another protocol or encoding than the feed says.",
    Reason.UNKNOWN_SCHEMA: "The schema registry has no schema with the record's schema id: compare url and "
    "apicurio.registry.use-id of schema_registry in the feeds file with the connector's converter, or bring the schema back "
    "into the registry; then run the job replay_quarantine.",
    Reason.UNUSABLE_SCHEMA: "The schema that the registry has under the record's schema id is not the Avro schema of a "
    "Debezium message: look for another producer on this topic, or for a transformation of the connector such as "
    "ExtractNewRecordState.",
    Reason.WRONG_TYPE: "A field of the message has another JSON type than the protocol prescribes, or a value that no "
    "TiDB can have sent (a negative commitTs, a name of more than 64 characters): compare the value with the "
    "specification, and the producer's version.",
    Reason.MISSING_FIELD: "The message lacks a field that its type needs (Canal-JSON: database, table, data, old, "
    "mysqlType, sql or commitTs; Open Protocol: ts, t, scm, tbl, u or d, q, or a column's t or v; Simple: version, type, "
    "database, table, tableID, schemaVersion, data, old, sql, commitTs, or a part of tableSchema; Debezium: before, after, "
    "ts_ms, or source's db, table, file or pos): compare the value with the specification, and the producer's version.",
    Reason.MISSING_TIDB_EXTENSION: "The message has no _tidb, but the feed says tidb_extension: true: set "
    "enable-tidb-extension=true in the changefeed's sink URI, or tidb_extension: false in the feeds file.",
    Reason.HANDLE_KEY_ONLY: "The row was too large for Kafka, and the message holds its key columns only: the history lacks "
    "this change. Raise max-message-bytes in the changefeed, or use large-message-handle-option=claim-check, and send the "
    "row again.",
    Reason.CLAIM_CHECK: "The row was too large for Kafka and lies in external storage, where it was not found: name the "
    "folder in claim_check: in the feeds file, and see that the file is there.",
    Reason.BAD_COMPRESSION: "The value looks LZ4- or Snappy-compressed, but cannot be decompressed: the record was cut.",
    Reason.UNSUPPORTED_TYPE: "The row has a column of type 255, geometry, which the Open Protocol does not support: leave "
    "the table out of the changefeed, or the column out of the table.",
    Reason.WATERMARK_AHEAD: "The watermark is further ahead of its record's Kafka time than the feed's max_watermark_lead, "
    "and would make all later events late. Look for another producer on this topic, and check the clocks of TiDB's PD and "
    "of the broker. If the watermark is right, raise max_watermark_lead, and run the job replay_quarantine.",
    Reason.UNKNOWN_TYPE: "The protocol has no message of this type: compare the type with the specification, and the "
    "producer's version.",
    Reason.IMAGES_DISAGREE: "The row images do not fit the operation (Debezium: c and r have no before, d has no after; "
    "Simple: INSERT has no old, DELETE has no data): a transformation of the connector has changed the message, or another "
    "producer writes to this topic.",
    Reason.BAD_KEY: "The record's key, or the key in its header __debezium.newkey or oldkey, is not a JSON object (with "
    "encoding avro, the record's key is not one complete datum of its schema), so its row cannot be identified: set the "
    "connector's header.converter to org.apache.kafka.connect.json.JsonConverter, and key.converter to the same or, with "
    "encoding avro, to the converter of the values.",
    Reason.UNKNOWN_COLUMN_TYPE: "The column's type is not a MySQL type, or no history table can hold it: give the column a "
    "type under columns: in the feeds file.",
    Reason.BAD_VALUE: "The value does not fit the column's type; the column is NULL in the history: correct the type "
    "under columns: in the feeds file if it is wrong.",
    Reason.UNCLEAR_TIME: "The TIMESTAMP is printed as a local time that occurs twice, or not at all, in the source's time "
    "zone, because the clocks change. So it does not say which instant it is; the column is NULL in the history. Let the "
    "source print in UTC, and set time_zone: UTC in the feeds file; or correct time_zone, if the source prints in another "
    "zone.",
    Reason.ZERO_DATE: "MySQL allows this date, no calendar does; the column is NULL in the history.",
}


@dataclass(frozen=True, kw_only=True)
class QuarantineCursor(Cursor):
    """How many rows are in quarantine.

    Attributes:
        rows: how many rows, after this commit.
        reasons: reason -> how many rows have it.
    """

    rows: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


QUARANTINE = Definition(
    columns=StructType(
        [
            column("stage", STRING, "The stage that wrote the row: ingest, decode or history."),
            column("batch", BIGINT, "The raw batch; for stage history, the release."),
            column("reason", STRING, f"Why the input could not be used: {', '.join(Reason)}."),
            column("message", STRING, "Why the input could not be used, and what to do about it."),
            column("topic", STRING, "The Kafka record's topic."),
            column("partition", INT, "The Kafka record's partition."),
            column("offset", BIGINT, "The Kafka record's offset."),
            column("index", INT, "The event's place in its record, from 0."),
            column("file", STRING, "The recorded file of a line that is not a record."),
            column("line", BIGINT, "Number of that line."),
            column("database", STRING, "The source's database."),
            column("table", STRING, "The source's table."),
            column("column", STRING, "The source's column."),
            column("key", BINARY, "The Kafka record's key, byte for byte."),
            column(
                "value",
                BINARY,
                "The Kafka record's value, byte for byte; the line if it is not a record; a column value's text.",
            ),
        ]
    ),
    cursor=QuarantineCursor,
    statistics=("stage", "batch", "reason"),
)
