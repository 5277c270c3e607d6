"""What the columns of the tables mean, for the column list on each asset's page."""

# A feed's tables but the history: one meaning a name, in whichever table it stands.
COLUMNS = {
    # the Kafka record, and the place in it
    "topic": "The Kafka record's topic.",
    "partition": "The Kafka record's partition.",
    "offset": "The Kafka record's offset.",
    "index": "The event's place in its message, from 0.",
    "timestamp": "Kafka's time of the record.",
    "record_timestamp": "Kafka's time of the record.",
    "headers": "The Kafka record's headers.",
    # the run
    "batch": "Number of the commit to raw_records that brought the record; of a row of stage history, the release.",
    "release": "Number of the commit that released the change.",
    "stage": "Which stage put the row here: ingest, decode or history.",
    # the event
    "kind": "row, ddl, watermark, bootstrap, or undecodable (the record is in quarantine).",
    "op": "insert, update, delete or snapshot.",
    "database": "The source's database.",
    "table": "The source's table.",
    "column": "The source's column.",
    "commit_ts": "Position in the source: a TiDB TSO (milliseconds << 18 | logical).",
    "source_ms": "Milliseconds of the source's clock.",
    "key_columns": "Names of the key's columns.",
    "before": "The row before the change, a JSON object.",
    "after": "The row after the change, a JSON object.",
    "mysql_types": "Column -> MySQL type, as the message has it (Open Protocol: type code and flags).",
    "jdbc_types": "Column -> java.sql.Types code, as the message has it.",
    "wire_types": "Column -> branch of the union that its value came in (Simple in Avro).",
    "key_changed_to": "The key that the row has from this event on, as Debezium's header tells it.",
    "key_changed_from": "The key that the row had until this event, as Debezium's header tells it.",
    "transaction": "The source's transaction, and the event's place in it, from feeds with Debezium's markers.",
    "ddl_type": "The kind of statement, as the message has it.",
    "ddl_statement": "The statement's text.",
    "schema_version": "The schema's number, from protocols that have one.",
    "table_id": "The table's number, from protocols that have one.",
    "table_schemas": "The table schemas that the message carries (Simple: the one that holds from then on first).",
    "source": "Place in the MySQL binlog, from protocols that tell it.",
    "reason": "Why it could not be used: a code.",
    "detail": "What is to be said of this one, such as the byte where it breaks.",
    # released_changes
    "key": "The key's values, a JSON array; the whole row where the table has no key.",
    "events": "How many row events the change stands for: 2 for a delete and an insert at one commit_ts.",
    "ordinal": "Order of the changes of one key at one commit_ts.",
    "repeats": "How many copies of them were dropped.",
    # quarantine
    "message": "Why it could not be used, and what to do about it.",
    "file": "Snapshot file of a line that is no record.",
    "line": "Number of that line.",
    # table_schemas
    "default_database": "The session's database when the statement ran.",
    "columns": "The table's columns from that commit_ts on; null: the table is gone, or the statement is unreadable.",
    "primary_key": "The primary key's columns.",
    "error": "Why the statement could not be read.",
}

# raw_records and quarantine: the record itself.
RECORD = COLUMNS | {
    "key": "The Kafka record's key, byte for byte.",
    "value": "The Kafka record's value, byte for byte; of a line that is no record, the line.",
}

# A history table's own: the source's columns may have any other name.
HISTORY = {
    "_cdc_key": "The key's values, or the whole row where the table has no key.",
    "_cdc_from_ts": "commit_ts of the change that opened the version; included.",
    "_cdc_to_ts": "commit_ts of the change that closed it; excluded; null while open.",
    "_cdc_valid_from": "The time of _cdc_from_ts.",
    "_cdc_valid_to": "The time of _cdc_to_ts.",
    "_cdc_is_current": "Whether the version is open.",
    "_cdc_op": "What opened it: insert, update, snapshot, ddl.",
    "_cdc_closed_by": "What closed it: update, delete, truncate, drop, rename, ddl; null while open.",
    "_cdc_topic": "Topic of the Kafka record that opened it.",
    "_cdc_partition": "Its partition.",
    "_cdc_offset": "Its offset.",
    "_cdc_copy": "Which of several equal rows, from 1; only in tables without a key.",
}
