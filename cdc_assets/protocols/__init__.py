"""Bytes -> change events: one module a protocol, one event schema for all."""

from collections.abc import Callable

from pyspark.sql import DataFrame

from cdc_assets.feeds import Feed
from cdc_assets.protocols import canal_json

Decoder = Callable[[DataFrame, Feed], DataFrame]

# A new protocol is one module beside this one, and one line here. A decoder turns raw records into rows of
# `events.SCHEMA`, at least one for every record.
DECODERS: dict[str, Decoder] = {"canal-json": canal_json.decode}
