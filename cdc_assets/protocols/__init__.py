"""Bytes -> change events: one module a protocol, one event schema for all."""

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.protocols.base import Protocol
from cdc_assets.protocols.canal_json import CanalJson
from cdc_assets.protocols.debezium import Debezium
from cdc_assets.protocols.open_protocol import OpenProtocol
from cdc_assets.protocols.simple import Simple

_PROTOCOLS: dict[str, Protocol] = {p.name: p for p in (CanalJson(), OpenProtocol(), Simple(), Debezium())}


def protocol_of(feed: Feed) -> Protocol:
    """The protocol that a feed's messages are in."""
    return _PROTOCOLS[feed.protocol]


def fitting_settings(feed: Feed) -> Column:
    """Return the settings that a record looks as if it were written under, STRING; NULL: the feed's own, or not known.

    In: key BINARY, value BINARY of a record.
    """
    looks = [each for protocol in _PROTOCOLS.values() for each in protocol.looks.items()]
    settings = reduce(
        lambda rest, each: F.when(each[1], F.lit(each[0])).otherwise(rest), looks, F.lit(None).cast("string")
    )
    return F.when(settings != f"protocol: {feed.protocol}", F.nullif(settings, F.lit(_own_settings(feed))))


def _own_settings(feed: Feed) -> str:
    """Return the feed's settings as `Protocol.looks` names those of a protocol with several encodings."""
    return f"protocol: {feed.protocol}, encoding: {feed.encoding}"
