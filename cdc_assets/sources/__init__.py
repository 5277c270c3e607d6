"""Kafka records in: recorded snapshots, verbatim and each record once."""
