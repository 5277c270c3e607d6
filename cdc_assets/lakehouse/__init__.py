"""The Delta tables of a feed: one module a table, with its columns and its cursor; and how tables are read and written."""
