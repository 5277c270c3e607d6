"""Bytes -> change events: one module a protocol, one event schema for all."""

from collections.abc import Callable

from pyspark.sql import DataFrame

from cdc_assets.feeds import Feed, FeedsError
from cdc_assets.protocols import canal_json, open_protocol, simple

Decoder = Callable[[DataFrame, Feed], DataFrame]

# A new protocol is one module beside this one, and one line here. A decoder turns raw records into rows of
# `events.SCHEMA`, at least one for every record.
DECODERS: dict[str, Decoder] = {
    "canal-json": canal_json.decode,
    "open-protocol": open_protocol.decode,
    "simple": simple.decode,
}


def gated(feed: Feed) -> bool:
    """Whether the feed has watermarks, and so a gate that holds back what may not be complete."""
    return feed.tidb_extension or feed.protocol in {"open-protocol", "simple"}


def numbers_schemas(feed: Feed) -> bool:
    """Whether a row names its table's schema by number only, and waits until another message has brought that schema."""
    return feed.protocol == "simple"


def require_supported(name: str, feed: Feed) -> None:
    """Stop, in one line, at a feed that the feeds file may describe but this version cannot run.

    Raises:
        FeedsError: the protocol is not implemented.
    """
    if feed.protocol not in DECODERS:
        raise FeedsError(
            f"feeds.{name}.protocol: {feed.protocol} is not supported yet; supported: {', '.join(DECODERS)}"
        )
