"""The two mapping checks of a feed: the MySQL types that its messages name, and the codes beside them."""

from typing import NamedTuple

from pyspark.sql import DataFrame

from cdc_assets.checks import connect_types, jdbc_codes, open_codes
from cdc_assets.checks.observations import Rules, judge, mysql_type_schema
from cdc_assets.checks.verdict import Verdict
from cdc_assets.feeds import Feed


class TypeVerdicts(NamedTuple):
    """The outcomes over the same observations."""

    observations: int
    mysql_types: Verdict
    codes: Verdict


def rules_of(feed: Feed) -> Rules:
    """What the feed's protocol prescribes."""
    if feed.protocol == "open-protocol":
        return open_codes.RULES
    if feed.protocol == "debezium":
        return connect_types.RULES
    return jdbc_codes.rules(jdbc_codes.sources_of(feed))


def check_types(events: DataFrame, feed: Feed) -> TypeVerdicts:
    """Check rows of change_events."""
    rules = rules_of(feed)
    observed = rules.observe(events)
    mysql_types = judge(observed, mysql_type_schema(), rules, "mysqlType")
    return TypeVerdicts(len(observed), mysql_types, judge(observed, rules.codes, rules, rules.called))
