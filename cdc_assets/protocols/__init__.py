"""Bytes -> change events: one module a protocol, one event schema for all."""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame

from cdc_assets.feeds import Feed
from cdc_assets.protocols import canal_json, debezium, open_protocol, simple

Decoder = Callable[[DataFrame, Feed], DataFrame]

# A new protocol is one module beside this one, and one line here. A decoder turns raw records into rows of
# `events.SCHEMA`, at least one for every record.
DECODERS: dict[str, Decoder] = {
    "canal-json": canal_json.decode,
    "open-protocol": open_protocol.decode,
    "simple": simple.decode,
    "debezium": debezium.decode,
}


def gated(feed: Feed) -> bool:
    """Whether the feed has watermarks, and so a gate that holds back what may not be complete, whatever its messages."""
    return feed.tidb_extension or feed.protocol in {"open-protocol", "simple"}


def events_a_record(feed: Feed) -> int:
    """About how many events a record holds: in Open Protocol as many as TiCDC's max-batch-size is by default."""
    return 16 if feed.protocol == "open-protocol" else 1


def numbers_schemas(feed: Feed) -> bool:
    """Whether a row names its table's schema by number only, and waits until another message has brought that schema."""
    return feed.protocol == "simple"


def carries_schemas(feed: Feed) -> bool:
    """Whether messages carry the schemas of tables: what rows are checked against may have come with an earlier one."""
    return feed.protocol in {"simple", "debezium"}


def may_have_watermarks(feed: Feed) -> bool:
    """Whether the feed has watermarks, or its messages tell: Debezium's have some when TiCDC writes them."""
    return gated(feed) or feed.protocol == "debezium"


def has_watermarks(feed: Feed, seen: Mapping[str, Mapping[str, int | None]]) -> bool:
    """Whether the feed has watermarks, as known from those seen (topic -> partition -> watermark or None)."""
    shown = any(mark is not None for partitions in seen.values() for mark in partitions.values())
    return gated(feed) or (may_have_watermarks(feed) and shown)
