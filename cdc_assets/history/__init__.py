"""Released changes -> SCD type 2 history: columns, versions, MERGE."""
