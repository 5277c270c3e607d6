"""The columns of a part of a run: their names and types in the part's rows, and their types in the history table."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import DataType, StringType

from cdc_assets.config import Feed
from cdc_assets.history.columns import Reading, SourceColumn, collect_readings, needs_scale, target_type, wire_names
from cdc_assets.history.evolution import Convert, Fill, Slot
from cdc_assets.history.progress import Name
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.mysql_types.casting import spark_type, widen
from cdc_assets.protocols import protocol_of


@dataclass(frozen=True)
class PlannedColumns:
    """The columns of a part before their types in the history table are decided.

    Attributes:
        readings: by column, in the table's order: its readings; none for a column that no row of the part has.
        names: by column, its name in messages, as the newest ones spell it.
        unknown_scale: the decimals of which only the values show the scale.
    """

    readings: dict[Slot, tuple[Reading, ...]]
    names: dict[Slot, str]
    unknown_scale: list[Slot]


def plan_columns(feed: Feed, plan: TablePlan) -> PlannedColumns:
    """Return the source's columns in a part, in the table's order."""
    readings = collect_readings(protocol_of(feed), plan.layouts, type_overrides(feed, plan.name))
    spelled = wire_names(readings.values())
    names = {slot: spelled[each[-1].column.name] for slot, each in readings.items()}
    order = {name: n for n, name in enumerate(plan.layouts[-1].declared)} if plan.layouts else {}
    slots = sorted(readings, key=lambda slot: order.get(names[slot].lower(), len(order)))
    if plan.evolves or not plan.layouts:
        slots += [s for s in _list_columns_without_rows(plan) if s not in readings]
    unknown = [s for s in readings if needs_scale(readings[s][-1].type) and s.id not in plan.naming]
    return PlannedColumns({slot: readings.get(slot, ()) for slot in slots}, names, unknown)


def type_overrides(feed: Feed, name: Name) -> dict[str, str]:
    """Return the types that the feeds file gives to columns of a table, by column."""
    prefix = f"{'.'.join(name)}."
    return {path.removeprefix(prefix): text for path, text in feed.columns.items() if path.startswith(prefix)}


def _list_columns_without_rows(plan: TablePlan) -> list[Slot]:
    """Return the columns that open versions have or get by a statement, and those that an ALTER TABLE adds."""
    eras = range(plan.base, plan.eras[1] + 1)
    live = [slot for era in eras for slot in plan.evolution.live(era).values()]
    in_history = {s for s in live if s.id in plan.naming}
    added = {slot for slot in live if slot.added}
    filled = {op.slot for step in plan.steps for op in step.ops if isinstance(op, Fill | Convert)}
    moved = [slot for _, op in plan.arrivals for slot in op.columns]
    needed = in_history | added | filled | set(moved)
    return [s for s in dict.fromkeys([*live, *moved]) if s in needed and not s.virtual]


def resolve_columns(plan: TablePlan, planned: PlannedColumns, scales: Mapping[str, int]) -> list[SourceColumn]:
    """Return the source's columns, each with its type in the history table after the part.

    Args:
        plan: the part.
        planned: `plan_columns`.
        scales: ids of the decimals of unknown scale -> the scale that their values show.
    """
    present = {f.name: f.dataType for f in plan.present or ()}
    columns = []
    for slot, readings in planned.readings.items():
        current_name = plan.naming.get(slot.id)
        current_type = present.get(current_name) if current_name else None
        target = target_type(readings, scales.get(slot.id), current_type)
        if not readings or plan.evolves:
            target = _widen_to_declared(slot, target if readings or current_type else None)
        mysql_type = readings[-1].type if readings else slot.type
        own = slot.column if current_name is None or current_name.lower() != slot.column.lower() else current_name
        columns.append(SourceColumn(slot.id, planned.names.get(slot, slot.name), own, readings, target, mysql_type))
    return columns


def _widen_to_declared(slot: Slot, target: DataType | None) -> DataType:
    """Return the target type, widened so that it holds the type that statements declare, if there is a common type."""
    if slot.type is None or needs_scale(slot.type):
        return target or StringType()
    declared = spark_type(slot.type)
    return declared if target is None else (widen(target, declared) or target)
