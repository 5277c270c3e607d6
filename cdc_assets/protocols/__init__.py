"""Protocols: how records become change events, and what the pipeline must know of each protocol."""

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
    """Return the protocol of a feed's messages."""
    return _PROTOCOLS[feed.protocol].for_feed(feed)


def recognize_settings(feed: Feed) -> Column:
    """Return the settings under which a record seems to be written, as text of the feeds file. STRING.

    NULL if these are the feed's own settings, or no protocol recognises the record. In: key and value of a record, BINARY.
    """
    signatures = [entry for protocol in _PROTOCOLS.values() for entry in protocol.signatures.items()]
    settings = reduce(
        lambda rest, entry: F.when(entry[1], F.lit(entry[0])).otherwise(rest), signatures, F.lit(None).cast("string")
    )
    return F.when(settings != f"protocol: {feed.protocol}", F.nullif(settings, F.lit(_own_settings(feed))))


def _own_settings(feed: Feed) -> str:
    """Return the feed's settings in the form that `Protocol.signatures` has for a protocol with several encodings."""
    return f"protocol: {feed.protocol}, encoding: {feed.encoding}"
