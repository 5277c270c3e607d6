"""Bytes -> change events: one module a protocol, one event schema for all."""

from cdc_assets.feeds import Feed
from cdc_assets.protocols.base import Protocol
from cdc_assets.protocols.canal_json import CanalJson
from cdc_assets.protocols.debezium import Debezium
from cdc_assets.protocols.open_protocol import OpenProtocol
from cdc_assets.protocols.simple import Simple

_PROTOCOLS: dict[str, Protocol] = {p.name: p for p in (CanalJson(), OpenProtocol(), Simple(), Debezium())}


def protocol_of(feed: Feed) -> Protocol:
    """The protocol that a feed's messages are in."""
    return _PROTOCOLS[feed.protocol]
