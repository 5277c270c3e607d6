"""Schema changes: a DDL statement is read once, into actions on tables whose names are resolved."""
