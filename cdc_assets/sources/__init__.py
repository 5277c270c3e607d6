"""Sources of records: Kafka topics and recorded snapshots; and the source database, for comparison."""
