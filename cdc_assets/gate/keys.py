"""The key of each row event, wherever it is known: from the message, the table's DDL, or the schema that the row names."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.feeds import Feed
from cdc_assets.gate.changes import number_copies, pieces
from cdc_assets.lakehouse import Lakehouse
from cdc_assets.protocols import numbers_schemas
from cdc_assets.protocols.events import Kind
from cdc_assets.table_schemas import numbered_schemas, schema_of


def with_schemas(events: DataFrame, lake: Lakehouse) -> DataFrame:
    """Give row events the `key_columns` and `mysql_types` of their numbered schema; add `missing`: it is not known."""
    row = F.col("kind") == str(Kind.ROW)
    schemas = F.broadcast(numbered_schemas(lake))
    joined = events.join(schemas, on=["database", "table", "schema_version"], how="left")
    found = joined.withColumn("schema", F.when(row, schema_of(F.col("schemas"), F.col("table_id"))))
    given = {c: F.col("schema").getField(c) for c in ("key_columns", "mysql_types")}
    return found.withColumns(given | {"missing": row & F.col("schema").isNull()}).drop("schemas", "schema")


def _resolve_keys(rows: DataFrame, lake: Lakehouse) -> DataFrame:
    """Fill in `key_columns` where the message names no primary key and the table's DDL tells of a not-null unique key."""
    unique = F.size("key_columns") > 0
    schemas = lake.table_schemas.read().where((F.size("primary_key") == 0) & F.col("columns").isNotNull())
    shapes = schemas.select("database", "table", "commit_ts", "key_columns").where(unique).collect()
    if not shapes:
        return rows
    # As of the event: the latest shape below it. Few tables are like that, so the shapes stand in the plan as literals.
    known = F.lit(None).cast("array<string>")
    for shape in sorted(shapes, key=lambda s: s["commit_ts"]):
        here = (F.col("database") == shape["database"]) & (F.col("table") == shape["table"])
        names = F.array(*[F.lit(c) for c in shape["key_columns"]])
        known = F.when(here & (F.col("commit_ts") > shape["commit_ts"]), names).otherwise(known)
    return rows.withColumn(
        "key_columns",
        F.when(F.size("key_columns") == 0, F.coalesce(known, "key_columns")).otherwise(F.col("key_columns")),
    )


def _with_short_fractions(key: Column, mysql_types: Column) -> Column:
    """A key with the fractions of its TIMESTAMPs in one form: Debezium 3.5 pads those of the binlog, not of a snapshot."""
    padded = r'("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:(\.[0-9]*[1-9])0+|\.0+)Z"'
    may_be = mysql_types.contains("ZonedTimestamp") | mysql_types.startswith('["')  # names alone: no schema
    return F.when(key.contains('Z"') & may_be, F.regexp_replace(key, padded, '$1$2Z"')).otherwise(key)


def keyed(rows: DataFrame, lake: Lakehouse, feed: Feed) -> DataFrame:
    """Row events with `key_columns` wherever their table is known to have a key."""
    return with_schemas(rows, lake) if numbers_schemas(feed) else _resolve_keys(rows, lake)


def keyed_pieces(rows: DataFrame, lake: Lakehouse, feed: Feed, *, unkeyed: bool, numbered: bool) -> DataFrame:
    """Row events as `changes.pieces` with `copy`; only where there may be tables without a key are copies counted."""
    split = pieces(rows if numbers_schemas(feed) or not unkeyed else _resolve_keys(rows, lake))
    if feed.protocol == "debezium":
        split = split.withColumn("key", _with_short_fractions(F.col("key"), F.col("mysql_types")))
    if not unkeyed:
        return split.withColumn("copy", F.lit(0))
    if not numbered:
        return split.withColumn("copy", F.lit(0))
    whole_rows = F.size("key_columns") == 0
    return split.where(~whole_rows).withColumn("copy", F.lit(0)).unionByName(number_copies(split.where(whole_rows)))
