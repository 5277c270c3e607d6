"""A watermark that is too far ahead of its record's Kafka time is quarantined, in every protocol."""

from collections.abc import Callable
from typing import Any

import pytest

from cdc_assets.lakehouse.quarantine import MESSAGES, Reason
from cdc_assets.operations.replay_quarantine import replay_quarantine
from cdc_assets_tests.protocols import simple_encoder
from cdc_assets_tests.protocols.avro_encoder import message_bytes
from cdc_assets_tests.protocols.debezium_encoder import envelope, source, text
from cdc_assets_tests.protocols.open_encoder import message, resolved
from cdc_assets_tests.support import Chain, record, tso, watermark

HOUR = 3_600_000  # milliseconds
SENT = 1_700_000_000_000  # the instant that `tso` counts from


def as_debezium(ts: int) -> dict[str, Any]:
    return {"value": text(envelope("m", None, None, source(connector="TiCDC", commit_ts=ts, db="", table="")))}


def as_open_protocol(ts: int) -> dict[str, Any]:
    key, _ = message(resolved(ts))
    return {"value": None, "key": key}


def as_avro(ts: int) -> dict[str, Any]:
    return {"value": message_bytes({"type": 0, "payload": [0, {"version": 1, "commitTs": ts, "buildTs": 0}]})}


PROTOCOLS: dict[str, tuple[dict[str, Any], Callable[[int], dict[str, Any]]]] = {
    "canal-json": ({"protocol": "canal-json", "tidb_extension": True}, lambda ts: {"value": watermark(ts)}),
    "open-protocol": ({"protocol": "open-protocol"}, as_open_protocol),
    "simple": ({"protocol": "simple"}, lambda ts: {"value": text(simple_encoder.watermark(ts))}),
    "simple in Avro": ({"protocol": "simple", "encoding": "avro"}, as_avro),
    "debezium": ({"protocol": "debezium"}, as_debezium),
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_only_watermarks_ahead_of_a_stated_time_are_quarantined(name: str, chain: Callable[..., Chain]) -> None:
    settings, sent = PROTOCOLS[name]
    made = chain(**settings, max_watermark_lead="36h")
    # partition -> (milliseconds after `SENT`, the record's Kafka time)
    watermarks = {
        0: (36 * HOUR, SENT),
        1: (36 * HOUR + 1, SENT),
        2: (-1000 * 24 * HOUR, SENT),
        3: (10**6 * HOUR, -1),
        4: (10**6 * HOUR, 0),
    }
    made.add(
        record(partition=number, **sent(tso(ahead))) | {"timestamp": time}
        for number, (ahead, time) in watermarks.items()
    )
    shown = made.run().release.partition_watermarks
    watermarks_shown = {int(number): ts for each in shown.values() for number, ts in each.items() if ts}
    assert watermarks_shown == {n: tso(ahead) for n, (ahead, _) in watermarks.items() if n != 1}
    (refused,) = made.quarantine()
    assert (refused["partition"], refused["reason"]) == (1, "watermark_ahead")
    assert refused["message"] == (
        f"{MESSAGES[Reason.WATERMARK_AHEAD]} "
        "(the watermark is of 2023-11-16 10:13:20, its record of 2023-11-14 22:13:20)"
    )


def test_a_quarantined_watermark_can_be_replayed(chain: Callable[..., Chain]) -> None:
    made = chain()
    made.add([record(watermark(tso(48 * HOUR)))])
    assert made.run().release.watermarks == {}
    raised = Chain(made.lake.spark, made.folder, max_watermark_lead="3d")
    assert replay_quarantine(raised.lake, raised.feed).replayed == 1
    assert list(raised.run().release.watermarks.values()) == [tso(48 * HOUR)]
