"""Plan the columns of a part of a run: their names and types in its rows, and their types in the history table."""

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StringType

from cdc_assets.config import Feed
from cdc_assets.history.columns import (
    SourceColumn,
    collect_readings,
    measure_scales,
    needs_scale,
    parse_images,
    target_type,
    wire_names,
)
from cdc_assets.history.evolution import Convert, Fill, Slot
from cdc_assets.history.progress import Name
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.mysql_types.casting import spark_type, widen
from cdc_assets.protocols import protocol_of


def plan_columns(feed: Feed, plan: TablePlan, changes: DataFrame) -> list[SourceColumn]:
    """Return the source's columns in a part, in the table's order, each with its type in the history table after the part.

    Runs a query if only the values show the scale of a DECIMAL.

    Args:
        feed: the feed.
        plan: the part.
        changes: the part's changes.
    """
    readings = collect_readings(protocol_of(feed), plan.layouts, type_overrides(feed, plan.name))
    spelled = wire_names(readings.values())
    names = {slot: spelled[each[-1].column.name] for slot, each in readings.items()}
    order = {name: n for n, name in enumerate(plan.layouts[-1].declared)} if plan.layouts else {}
    slots = sorted(readings, key=lambda slot: order.get(names[slot].lower(), len(order)))
    if plan.evolves or not plan.layouts:
        slots += [s for s in _list_columns_without_rows(plan) if s not in readings]
    unknown = {s.id: names[s] for s in readings if needs_scale(readings[s][-1].type) and s.id not in plan.naming}
    scales = measure_scales(parse_images(changes, {n: n for n in unknown.values()}), unknown) if unknown else {}
    present = {f.name: f.dataType for f in plan.present or ()}
    columns = []
    for slot in slots:
        current_name, of_slot = plan.naming.get(slot.id), readings.get(slot, ())
        current_type = present.get(current_name) if current_name else None
        target = target_type(of_slot, scales.get(slot.id), current_type)
        if not of_slot or plan.evolves:
            target = _widen_to_declared(slot, target if of_slot or current_type else None)
        mysql_type = of_slot[-1].type if of_slot else slot.type
        own = slot.column if current_name is None or current_name.lower() != slot.column.lower() else current_name
        columns.append(SourceColumn(slot.id, names.get(slot, slot.name), own, of_slot, target, mysql_type))
    return columns


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


def _widen_to_declared(slot: Slot, target: DataType | None) -> DataType:
    """Return the target type, widened so that it holds the type that statements declare, if there is a common type."""
    if slot.type is None or needs_scale(slot.type):
        return target or StringType()
    declared = spark_type(slot.type)
    return declared if target is None else (widen(target, declared) or target)
