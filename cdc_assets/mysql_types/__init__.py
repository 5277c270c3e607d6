"""MySQL's types: their text, their JDBC codes, their Spark types, and the table structure that DDL statements tell."""
