"""The schema of a history table after a part of a run, and the ALTER TABLE statements that change the table to it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.types import StructField, StructType, TimestampNTZType

from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.lakehouse.history import CDC_COLUMNS, COPY
from cdc_assets.lakehouse.schema import literal, quoted, set_properties

# Delta takes these characters in a column's name only where column mapping is on.
_NEEDS_MAPPING = set(" ,;{}()\n\t=")
# The comment of a column whose type in the source is unknown.
_UNKNOWN_TYPE = "of a type that MySQL does not have"


# A SQL statement on the history table, and ids of columns -> their names after the statement.
Alteration = tuple[str, Mapping[str, str]]


@dataclass(frozen=True)
class Shape:
    """The schema of a history table after a part.

    Attributes:
        columns: all columns of the table, the pipeline's own ones first.
        properties: Delta properties that a new table needs beside those of every history table.
        alterations: the statements that change an existing table to this schema, in order.
        naming: ids of columns -> their names after the part.
        messages: for the log, why the table is no longer plain.
    """

    columns: StructType
    properties: dict[str, str]
    alterations: list[Alteration]
    naming: Mapping[str, str]
    messages: list[str]


def plan_shape(plan: TablePlan, columns: list[SourceColumn]) -> Shape:
    """Return the table's schema after a part: columns are added, widened and renamed, and none is removed."""
    own = own_fields(columns)
    naming = _final_names(plan) | {c.id: c.column for c in columns}
    ours = [COPY] if plan.keyless else []
    if plan.present is None:
        properties, messages = _needed_properties(plan, own, [], has_renames=False)
        return Shape(StructType([*CDC_COLUMNS, *ours, *own]), properties, [], naming, messages)
    renames = _plan_renames(plan)
    renamed = [StructField(_name_after(renames, f.name), f.dataType, metadata=f.metadata) for f in plan.present]
    present = {f.name.lower(): f for f in renamed}
    added = [f for f in [*ours, *own] if f.name.lower() not in present]
    existing = {f.name.lower(): f for f in own if f.name.lower() in present}
    widened = [f for lower, f in existing.items() if present[lower].dataType != f.dataType]
    properties, messages = _needed_properties(plan, added, widened, has_renames=bool(renames))
    if not plan.rewrites_all_open and plan.properties.get("delta.enableDeletionVectors") != "true":
        # Without deletion vectors Delta writes a file again for each row that is deleted from it.
        properties["delta.enableDeletionVectors"] = "true"
        messages.append("Delta's deletion vectors are on from now on, because the table is large")
    # A run that was killed after Spark created the table has not yet set the properties that name the source.
    properties |= {k: v for k, v in plan.table.definition.properties.items() if plan.properties.get(k) != v}
    # Comments state the columns' types in the source, which statements change.
    old_comments = {lower: f.metadata.get("comment") for lower, f in present.items()}
    changed = [f for lower, f in existing.items() if old_comments[lower] != f.metadata["comment"]]
    commented = changed if plan.evolves else []
    table = f"delta.{quoted(plan.table.path)}"
    alterations: list[Alteration] = []
    if properties:
        alterations.append((set_properties(plan.table.path, properties), plan.naming))
    alterations += [
        (f"ALTER TABLE {table} RENAME COLUMN {quoted(before)} TO {quoted(after)}", names)
        for before, after, names in renames
    ]
    alterations += [(f"ALTER TABLE {table} {change}", naming) for change in _list_changes(added, widened, commented)]
    kept = [StructField(f.name, existing.get(lower, f).dataType, metadata=f.metadata) for lower, f in present.items()]
    return Shape(StructType([*kept, *added]), {}, alterations, naming, messages)


def _list_changes(
    added: Sequence[StructField], widened: Iterable[StructField], commented: Iterable[StructField]
) -> list[str]:
    """Return the clauses that add and widen columns, and set comments, in this order."""
    columns = [f"{quoted(f.name)} {f.dataType.simpleString()} COMMENT {literal(f.metadata['comment'])}" for f in added]
    return [
        *([f"ADD COLUMNS ({', '.join(columns)})"] if added else []),
        *(f"ALTER COLUMN {quoted(f.name)} TYPE {f.dataType.simpleString()}" for f in widened),
        *(f"ALTER COLUMN {quoted(f.name)} COMMENT {literal(f.metadata['comment'])}" for f in commented),
    ]


def own_fields(columns: Iterable[SourceColumn]) -> list[StructField]:
    """Return the source's columns as columns of a history table."""
    return [StructField(c.column, c.target, metadata={"comment": str(c.type or _UNKNOWN_TYPE)}) for c in columns]


def unusual_names(fields: Iterable[StructField]) -> list[str]:
    """Return the names that Delta takes only where column mapping is on."""
    return [f.name for f in fields if _NEEDS_MAPPING.intersection(f.name)]


def _final_names(plan: TablePlan) -> dict[str, str]:
    """Return ids of columns -> their names after the part. A change of letter case alone renames no column."""
    columns = {s.id: s.column for s in plan.evolution.slots}
    return {
        key: columns[key] if key in columns and columns[key].lower() != name.lower() else name
        for key, name in plan.naming.items()
    }


def _plan_renames(plan: TablePlan) -> list[tuple[str, str, dict[str, str]]]:
    """Return the renames in order: a column's name before and after, and the names of all columns after that rename.

    Where columns swap their names, one of them first gets a temporary name.
    """
    names, final = dict(plan.naming), _final_names(plan)
    renames: list[tuple[str, str, dict[str, str]]] = []

    def rename(key: str, name: str) -> None:
        before, names[key] = names[key], name
        renames.append((before, name, dict(names)))

    while waiting := [key for key in names if names[key] != final[key]]:
        taken = {name.lower() for name in names.values()}
        free = [key for key in waiting if final[key].lower() not in taken]
        if free:
            rename(free[0], final[free[0]])
        else:
            rename(waiting[0], f"{names[waiting[0]]}__renaming")
    return renames


def _name_after(renames: Iterable[tuple[str, str, object]], name: str) -> str:
    """Return the name of a column after all renames."""
    for before, after, _ in renames:
        if name == before:
            name = after
    return name


def _needed_properties(
    plan: TablePlan, added: list[StructField], widened: list[StructField], *, has_renames: bool
) -> tuple[dict[str, str], list[str]]:
    """Return the Delta properties that the table needs and lacks, and for the log why it is no longer plain."""
    needed, messages = {}, []
    unusual = unusual_names(added)
    if (unusual or has_renames) and plan.properties.get("delta.columnMapping.mode", "none") == "none":
        needed["delta.columnMapping.mode"] = "name"
        why = f"no column can be called {', '.join(unusual)}" if unusual else "no column can be renamed"
        messages.append(f"Delta's column mapping is on from now on, because without it {why}")
    if widened and plan.properties.get("delta.enableTypeWidening") != "true":
        needed["delta.enableTypeWidening"] = "true"
        messages.append(f"Delta's type widening is on from now on, first for {', '.join(f.name for f in widened)}")
    if plan.present is not None and _has_local_times(added) and not _has_local_times(plan.present):
        needed["delta.feature.timestampNtz"] = "supported"
    return needed, messages


def _has_local_times(fields: Iterable[StructField]) -> bool:
    """Return whether a column is a TIMESTAMP_NTZ, which Delta takes only in tables with a feature of that name."""
    return any(f.dataType == TimestampNTZType() for f in fields)
