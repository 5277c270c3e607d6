"""The columns of a part of a run: under which names and types its rows have them, and which types the history is to have."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import DataType, StringType

from cdc_assets.config import Feed
from cdc_assets.history.columns import Reading, SourceColumn, needs_scale, readings_of, target_type, wire_names
from cdc_assets.history.evolution import Convert, Fill, Slot
from cdc_assets.history.progress import Name
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.mysql_types.casting import spark_type, widen
from cdc_assets.protocols import protocol_of


@dataclass(frozen=True)
class Readable:
    """The columns of a run before their types are settled."""

    readings: dict[Slot, tuple[Reading, ...]]
    names: dict[Slot, str]  # in messages, as the newest spell them
    unknown_scale: list[Slot]  # decimals of which only the values tell the digits


def readable(feed: Feed, work: TablePlan) -> Readable:
    """The source's columns in this part, in the table's order."""
    readings = readings_of(protocol_of(feed), work.layouts, overrides(feed, work.name))
    spelled = wire_names(readings.values())
    names = {slot: spelled[each[-1].column.name] for slot, each in readings.items()}
    order = {name: n for n, name in enumerate(work.layouts[-1].declared)} if work.layouts else {}
    slots = sorted(readings, key=lambda slot: order.get(names[slot].lower(), len(order)))
    if work.evolves or not work.layouts:
        slots += [s for s in _columns_without_rows(work) if s not in readings]
    unknown = [s for s in readings if needs_scale(readings[s][-1].type) and s.id not in work.naming]
    return Readable({slot: readings.get(slot, ()) for slot in slots}, names, unknown)


def overrides(feed: Feed, name: Name) -> dict[str, str]:
    """The types of a table's columns that the feeds file gives."""
    place = f"{'.'.join(name)}."
    return {path.removeprefix(place): told for path, told in feed.columns.items() if path.startswith(place)}


def _columns_without_rows(work: TablePlan) -> list[Slot]:
    """The columns that rows of before have, or get by a statement; and those that an ALTER TABLE adds."""
    eras = range(work.base, work.eras[1] + 1)
    live = [slot for era in eras for slot in work.evolution.live(era).values()]
    added = {slot for slot in live if slot.added}
    made = {op.slot for step in work.steps for op in step.ops if isinstance(op, Fill | Convert)}
    come = [slot for _, op in work.arrivals for slot in op.columns]
    wanted = {s for s in live if s.id in work.naming} | added | made | set(come)
    return [s for s in dict.fromkeys([*live, *come]) if s in wanted and not s.virtual]


def columns_of(work: TablePlan, read: Readable, scales: Mapping[str, int]) -> list[SourceColumn]:
    """The source's columns, each with the type that its history column is to have."""
    present = {f.name: f.dataType for f in work.present or ()}
    columns = []
    for slot, readings in read.readings.items():
        there = work.naming.get(slot.id)
        held = present.get(there) if there else None
        target = target_type(readings, scales.get(slot.id), held)
        if not readings or work.evolves:
            target = _declared(slot, target if readings or held else None)
        mysql_type = readings[-1].type if readings else slot.type
        own = slot.column if there is None or there.lower() != slot.column.lower() else there
        columns.append(SourceColumn(slot.id, read.names.get(slot, slot.name), own, readings, target, mysql_type))
    return columns


def _declared(slot: Slot, target: DataType | None) -> DataType:
    """What statements say of the type widens it, too."""
    if slot.type is None or needs_scale(slot.type):
        return target or StringType()
    wanted = spark_type(slot.type)
    return wanted if target is None else (widen(target, wanted) or target)
