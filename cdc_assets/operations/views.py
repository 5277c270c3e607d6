"""Histories in Spark's catalog: external tables, views of their current rows, and functions of their rows at a position."""

import hashlib
import re
from collections.abc import Iterable, Sequence

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from cdc_assets.lakehouse.history import covers, source_columns
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.schema import literal, quoted

_UNCHANGED_NAME = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")


def register_histories(lake: Lakehouse, schema: str, tables: Iterable[tuple[str, str]] | None = None) -> list[str]:
    """Register histories of a feed in Spark's catalog.

    Each gets the view `<table>__current` of its current rows, and the function `<table>__as_of(commit_ts)` of its rows at a
    position. Both have the source's columns and are replaced when those change. The tables are external: when the catalog
    drops one, its history stays.

    Args:
        lake: the feed's tables.
        schema: a schema of the session's catalog; it is created if it does not exist.
        tables: the (database, table) pairs; default: all that have a history.

    Returns:
        The names of the tables, each with the schema.
    """
    spark, comment = lake.spark.newSession(), literal(f"Histories of the feed {lake.feed}")
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)} COMMENT {comment}")
    names = []
    for database, table in lake.histories() if tables is None else tables:
        history, name = lake.history(database, table), build_catalog_name(database, table)
        fields = history.schema()
        if fields is not None:
            columns = [fields[column] for column in source_columns(fields.names)]
            _register_history(spark, (schema, name), history.path, columns, f"{database}.{table}")
            names.append(f"{schema}.{name}")
    return names


def build_catalog_name(database: str, table: str) -> str:
    """Return a table's name in the catalog: lower-case letters, digits and `_`, as Hive requires, and no two names alike."""
    if _UNCHANGED_NAME.fullmatch(database) and _UNCHANGED_NAME.fullmatch(table):
        return f"{database}__{table}"
    digest = hashlib.sha256(f"{database}\0{table}".encode()).hexdigest()[:8]
    return re.sub("[^a-z0-9_]", "_", f"{database}__{table}__{digest}".lower())


def _register_history(
    spark: SparkSession, name: tuple[str, str], path: str, columns: Sequence[StructField], source: str
) -> None:
    """Register a history, its view and its function, unless the view has these columns already."""
    schema, table = name
    external, view, function = (f"{quoted(schema)}.{quoted(table + end)}" for end in ("", "__current", "__as_of"))
    if spark.catalog.tableExists(view) and _list_view_columns(spark, view) == [_describe_column(c) for c in columns]:
        return
    select = f"SELECT {', '.join(quoted(column.name) for column in columns)} FROM delta.{quoted(path)} WHERE"
    spark.sql(f"CREATE TABLE IF NOT EXISTS {external} USING delta LOCATION {literal(path)}")
    returned = ", ".join(f"{quoted(c.name)} {c.dataType.simpleString()}{_comment_clause(c)}" for c in columns)
    comment = literal(f"The rows that {source} held as of a commit_ts.")
    # The source's table may have a column commit_ts, so qualify the parameter by the function.
    position = f"{quoted(table + '__as_of')}.commit_ts"
    spark.sql(
        f"CREATE OR REPLACE FUNCTION {function}(commit_ts BIGINT) RETURNS TABLE ({returned}) COMMENT {comment} "
        f"RETURN {select} {covers(position)}"
    )
    # The view comes last, as the next call takes its columns for a sign that all is registered.
    named = ", ".join(f"{quoted(column.name)}{_comment_clause(column)}" for column in columns)
    comment = literal(f"The rows that {source} holds.")
    spark.sql(f"CREATE OR REPLACE VIEW {view} ({named}) COMMENT {comment} AS {select} _cdc_is_current")


def _list_view_columns(spark: SparkSession, view: str) -> list[tuple[str, str, str | None]]:
    """Return name, type and comment of a view's columns in the catalog."""
    return [(column.name, column.dataType, column.description) for column in spark.catalog.listColumns(view)]


def _describe_column(column: StructField) -> tuple[str, str, str | None]:
    """Return the same of a history's column."""
    return column.name, column.dataType.simpleString(), column.metadata.get("comment")


def _comment_clause(column: StructField) -> str:
    comment = column.metadata.get("comment")
    return f" COMMENT {literal(comment)}" if comment else ""
