"""Register the histories of a feed in Spark's catalog, under names that every metastore takes, with views of them."""

import hashlib
import re
from collections.abc import Iterable

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from cdc_assets.lakehouse.history import covers, source_columns
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.schema import literal, quoted

_PLAIN = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")


def register(lake: Lakehouse, schema: str, tables: Iterable[tuple[str, str]] | None = None) -> list[str]:
    """Register histories of a feed, each with a view of its current rows and a function of those as of a position.

    The view `<table>__current` and the function `<table>__as_of(commit_ts)` have the source's columns, and are made anew
    when these are others; a table whose name is there already stays as it is registered. Tables are external: dropped in
    the catalog, they stay in the lakehouse.

    Args:
        lake: the feed's tables.
        schema: of the session's catalog; it is made, if it is not there.
        tables: the (database, table) pairs; default: all that have a history.

    Returns:
        The names of the tables, with the schema's.
    """
    spark, said = lake.spark.newSession(), literal(f"Histories of the feed {lake.feed}")
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)} COMMENT {said}")
    names = []
    for database, table in lake.histories() if tables is None else tables:
        history, name = lake.history(database, table), catalog_name(database, table)
        columns = history.schema()
        if columns is not None:
            own = [columns[c] for c in source_columns(columns.names)]
            _register(spark, (schema, name), history.path, own, f"{database}.{table}")
            names.append(f"{schema}.{name}")
    return names


def catalog_name(database: str, table: str) -> str:
    """What a table is called in the catalog: of small letters, digits and `_` only, as Hive takes, and no two alike."""
    if _PLAIN.fullmatch(database) and _PLAIN.fullmatch(table):
        return f"{database}__{table}"
    digest = hashlib.sha256(f"{database}\0{table}".encode()).hexdigest()[:8]
    return re.sub("[^a-z0-9_]", "_", f"{database}__{table}__{digest}".lower())


def _register(spark: SparkSession, name: tuple[str, str], path: str, own: list[StructField], source: str) -> None:
    schema, table = name
    there, view, function = (f"{quoted(schema)}.{quoted(table + end)}" for end in ("", "__current", "__as_of"))
    if spark.catalog.tableExists(view) and _columns_of(spark, view) == [_told(f) for f in own]:
        return
    rows = f"SELECT {', '.join(quoted(f.name) for f in own)} FROM delta.{quoted(path)} WHERE"
    spark.sql(f"CREATE TABLE IF NOT EXISTS {there} USING delta LOCATION {literal(path)}")
    typed = ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}{_comment(f)}" for f in own)
    said = literal(f"The rows that {source} held as of a commit_ts.")
    # By its function's name, as the table may have a column that is called so.
    position = f"{quoted(table + '__as_of')}.commit_ts"
    spark.sql(
        f"CREATE OR REPLACE FUNCTION {function}(commit_ts BIGINT) RETURNS TABLE ({typed}) COMMENT {said} "
        f"RETURN {rows} {covers(position)}"
    )
    # Last, as by its columns the next run sees whether anything is left to do.
    named = ", ".join(f"{quoted(f.name)}{_comment(f)}" for f in own)
    said = literal(f"The rows that {source} holds.")
    spark.sql(f"CREATE OR REPLACE VIEW {view} ({named}) COMMENT {said} AS {rows} _cdc_is_current")


def _columns_of(spark: SparkSession, view: str) -> list[tuple[str, str, str | None]]:
    """A view's columns as the catalog has them: name, type, comment."""
    return [(c.name, c.dataType, c.description) for c in spark.catalog.listColumns(view)]


def _told(field: StructField) -> tuple[str, str, str | None]:
    return field.name, field.dataType.simpleString(), field.metadata.get("comment")


def _comment(field: StructField) -> str:
    meaning = field.metadata.get("comment")
    return f" COMMENT {literal(meaning)}" if meaning else ""
