"""The two mapping checks of a feed: the MySQL types that its messages name, and the codes beside them."""

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.checks import connect_types, jdbc_codes, open_codes, simple_types
from cdc_assets.checks.observations import Rules, judge, mysql_type_schema
from cdc_assets.checks.verdict import Verdict
from cdc_assets.feeds import Feed
from cdc_assets.gate.window import waiting_since, waiting_tables
from cdc_assets.lakehouse import Lakehouse
from cdc_assets.protocols import numbers_schemas


class TypeVerdicts(NamedTuple):
    """The outcomes over the same observations."""

    observations: int
    mysql_types: Verdict
    codes: Verdict


def rules_of(feed: Feed, known: DataFrame | None = None) -> Rules:
    """What the feed's protocol prescribes; `known`: its table_schemas, where its messages carry some."""
    if numbers_schemas(feed):
        return simple_types.rules(known)
    if feed.protocol == "open-protocol":
        return open_codes.RULES
    if feed.protocol == "debezium":
        return connect_types.rules(known)
    return jdbc_codes.rules(jdbc_codes.sources_of(feed))


def unjudged(lake: Lakehouse) -> DataFrame:
    """The events that the gate has not taken yet, and those that wait there: what has not been checked, or stopped.

    What a failing check has stopped is checked again by the next run; and what waits for a schema can only be checked now
    if the schema has come.
    """
    cursor = lake.released_changes.cursor() or {"batch": 0, "watermarks": {}, "waiting": []}
    new, held = F.col("batch") > cursor["batch"], waiting_tables(cursor)
    if held:
        new |= (F.col("commit_ts") >= min(held.values())) & (F.col("commit_ts") >= waiting_since(held))
    return lake.change_events.read().where(new)


def check_types(events: DataFrame, feed: Feed, known: DataFrame | None = None) -> TypeVerdicts:
    """Check rows of change_events; `known` are the rows of table_schemas, for schemas that came with earlier events."""
    rules = rules_of(feed, known)
    observed = rules.observe(events)
    mysql_types = judge(observed, mysql_type_schema(), rules, "mysqlType")
    return TypeVerdicts(len(observed), mysql_types, judge(observed, rules.codes, rules, rules.called))
