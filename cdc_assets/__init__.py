"""MySQL and TiDB change events from Kafka to SCD2 history tables in Delta Lake."""
