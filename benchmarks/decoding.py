"""The same events in each protocol, decoded: what an event costs, beside Canal-JSON; in Avro, beside JSON."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import debezium, generate, open_protocol, simple
from benchmarks.form import Bench
from benchmarks.measuring import Ratio, Section, Timing, median, timed
from benchmarks.stages import CANAL_JSON, Place, prepare
from cdc_assets.stages import DECODE, INGEST
from cdc_assets.stages.decode import DecodeReport
from cdc_assets_tests.registry import running_registry

_ALLOWED, _ALLOWED_IN_AVRO = 1.3, 1.5
_CANAL = "Canal-JSON"
_Translation = Callable[[Iterable[str], int], Iterator[str]]
_Form = tuple[_Translation, dict[str, Any]]
# The generated Canal-JSON lines, from an offset on, in other protocols; and the feed's settings for each.
_OTHERS: dict[str, _Form] = {
    "Open Protocol": (open_protocol.translate, {"protocol": "open-protocol"}),
    "Simple, JSON": (simple.json_lines, {"protocol": "simple"}),
    "Simple, Avro": (simple.avro_lines, {"protocol": "simple", "encoding": "avro"}),
    "Debezium": (debezium.translate, {"protocol": "debezium"}),
}
_BARE, _AVRO = "Debezium, no schemas", "Debezium, Avro"


def measure(bench: Bench) -> Section:
    """Ingest the records once, and decode them several times, the protocols in turn."""
    with running_registry(debezium.REGISTRY) as registry:
        in_avro = {"protocol": "debezium", "encoding": "avro", "schema_registry": {"url": registry.url}}
        others = dict(_OTHERS)
        others[_BARE] = debezium.bare_lines, {"protocol": "debezium"}
        others[_AVRO] = debezium.avro_lines, in_avro
        return _measure(bench, others)


def _measure(bench: Bench, others: dict[str, _Form]) -> Section:
    bench.say(f"{bench.form.decoding:,} events in each protocol, decoded ...")
    recorded = bench.folder / "decoding.jsonl"
    generate.write(recorded, bench.form.decoding)
    places = {_CANAL: _taken_in(bench, _CANAL, recorded, None, dict(CANAL_JSON))}
    for name, (translate, settings) in others.items():
        places[name] = _taken_in(bench, name, recorded, translate, dict(settings))
    timings: dict[str, list[Timing]] = {name: [] for name in places}
    events: dict[str, int] = {}
    for number in range(bench.form.rounds + 1):  # the first warms up
        for name, place in places.items():
            timing, events[name] = _decode(bench, name, place)
            if number:
                timings[name].append(timing)
    medians = {name: median(each) for name, each in timings.items()}
    cost = {name: t.seconds / events[name] for name, t in medians.items()}
    cost_list = ", ".join(f"{name} {1e9 * each:,.0f}" for name, each in cost.items())
    return Section(
        "decoding",
        "Decoding, by protocol",
        f"The stage change_events alone over {bench.form.decoding:,} events, the same in each protocol (16 in a record of "
        f"Open Protocol). Nanoseconds an event: {cost_list}.",
        list(medians.values()),
        [
            *[Ratio(f"decoding an event of {n} / of {_CANAL}", cost[n] / cost[_CANAL], _ALLOWED) for n in _OTHERS],
            Ratio(f"decoding an event of {_AVRO} / of {_BARE}", cost[_AVRO] / cost[_BARE], _ALLOWED_IN_AVRO),
        ],
    )


def _taken_in(
    bench: Bench, name: str, recorded: Path, translate: _Translation | None, settings: dict[str, object]
) -> Place:
    """Return a feed of the protocol, with the events as its raw records."""
    place = prepare(bench.again(f"decoding {name}"), None, **settings)
    with recorded.open() as lines, (place.snapshots / "events.jsonl").open("w") as out:
        translated = (
            translate((line.rstrip("\n") for line in lines), 0) if translate else (x.rstrip("\n") for x in lines)
        )
        out.writelines(line + "\n" for line in translated)
    INGEST.run(place.lake(bench.spark), place.feed())
    return place


def _decode(bench: Bench, name: str, place: Place) -> tuple[Timing, int]:
    """Decode all raw records into a new table; return the number of events.

    Raises:
        RuntimeError: a record could not be decoded.
    """
    lake, feed = place.lake(bench.spark), place.feed()
    shutil.rmtree(lake.change_events.path, ignore_errors=True)
    reports: list[DecodeReport] = []
    timing = timed(name, lambda: reports.append(DECODE.run(lake, feed)), bench.spark)
    if reports[0].undecodable:
        raise RuntimeError(f"{name}: {reports[0].undecodable} records could not be decoded")
    events = sum(reports[0].events.values())
    bench.say(f"  {name}: {timing.seconds:.2f} s, {events:,} events of {reports[0].records:,} records")
    return timing, events
