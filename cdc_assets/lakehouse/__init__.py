"""What is kept: one module a Delta table, with its columns and its cursor; and how tables are read and written."""
