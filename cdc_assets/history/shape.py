"""What a history table's columns become in a run, and the statements that bring it there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.types import StructField, StructType, TimestampNTZType

from cdc_assets.history.columns import SourceColumn
from cdc_assets.history.table_plan import TablePlan
from cdc_assets.lakehouse.history import CDC_COLUMNS, COPY
from cdc_assets.lakehouse.schema import literal, quoted, set_properties

# What Delta takes in a column's name only when its columns are mapped.
_NEEDS_MAPPING = set(" ,;{}()\n\t=")


@dataclass(frozen=True)
class Alteration:
    """A statement on the history table.

    Attributes:
        naming: ids of columns -> their names after the statement.
        statement: the SQL text.
    """

    naming: Mapping[str, str]
    statement: str


@dataclass(frozen=True)
class Shape:
    """What a history table becomes.

    Attributes:
        columns: all of its columns, ours first.
        properties: of Delta's, that it needs beyond those of every history table.
        alterations: what brings a table that is there to that, in order.
        naming: ids of columns -> their names then.
        told: for the log, why the table is no longer plain.
    """

    columns: StructType
    properties: dict[str, str]
    alterations: list[Alteration]
    naming: Mapping[str, str]
    told: list[str]


def shape_of(work: TablePlan, columns: list[SourceColumn]) -> Shape:
    """The table's shape after this part: columns are added, widened and renamed, and none goes."""
    own = own_fields(columns)
    naming = _final(work) | {c.id: c.column for c in columns}
    if work.present is None:
        copy = [COPY] if work.keyless else []
        properties, told = _properties(work, own, [], renamed=False)
        return Shape(StructType([*CDC_COLUMNS, *copy, *own]), properties, [], naming, told)
    renames = _renames(work)
    present = {_through(renames, f.name).lower(): f for f in work.present}
    copy = [COPY] if work.keyless else []
    added = [f for f in [*copy, *own] if f.name.lower() not in present]
    changed = [f for f in own if f.name.lower() in present]
    widened = [f for f in changed if present[f.name.lower()].dataType != f.dataType]
    table = f"delta.{quoted(work.table.path)}"
    properties, told = _properties(work, added, widened, renamed=bool(renames))
    if not work.rewrites_all_open and work.properties.get("delta.enableDeletionVectors") != "true":
        # Else Delta writes a file anew for each row that goes from it.
        properties["delta.enableDeletionVectors"] = "true"
        told.append("rows are marked as deleted in their files from now on (deletion vectors), as the table is large")
    # A run that stopped while it created the table by Spark has not stated the source.
    properties |= {k: v for k, v in work.table.definition.properties.items() if work.properties.get(k) != v}
    done = []
    if properties:
        done.append(Alteration(work.naming, set_properties(work.table.path, properties)))
    done += [
        Alteration(so_far, f"ALTER TABLE {table} RENAME COLUMN {quoted(before)} TO {quoted(after)}")
        for before, after, so_far in renames
    ]
    if added:
        listed = ", ".join(
            f"{quoted(f.name)} {f.dataType.simpleString()} COMMENT {literal(f.metadata['comment'])}" for f in added
        )
        done.append(Alteration(naming, f"ALTER TABLE {table} ADD COLUMNS ({listed})"))
    done += [
        Alteration(naming, f"ALTER TABLE {table} ALTER COLUMN {quoted(f.name)} TYPE {f.dataType.simpleString()}")
        for f in widened
    ]
    if work.evolves:
        done += [
            Alteration(
                naming, f"ALTER TABLE {table} ALTER COLUMN {quoted(f.name)} COMMENT {literal(f.metadata['comment'])}"
            )
            for f in changed
            if present[f.name.lower()].metadata.get("comment") != f.metadata["comment"]
        ]
    wider = {f.name.lower(): f.dataType for f in widened}
    kept = [
        StructField(name, wider.get(name.lower(), f.dataType), metadata=f.metadata)
        for f in work.present
        for name in (_through(renames, f.name),)
    ]
    return Shape(StructType([*kept, *added]), {}, done, naming, told)


def own_fields(columns: Iterable[SourceColumn]) -> list[StructField]:
    """The source's columns as columns of a history table."""
    return [StructField(c.column, c.target, metadata={"comment": _meaning(c)}) for c in columns]


def unusual_names(fields: Iterable[StructField]) -> list[str]:
    """The names that Delta takes only where columns are mapped."""
    return [f.name for f in fields if _NEEDS_MAPPING.intersection(f.name)]


def _final(work: TablePlan) -> dict[str, str]:
    """How columns are called in the end; letter case alone is not worth a rename."""
    now = work.naming
    columns = {s.id: s.column for s in work.evolution.slots}
    return {
        each: columns[each] if each in columns and columns[each].lower() != own.lower() else own
        for each, own in now.items()
    }


def _renames(work: TablePlan) -> list[tuple[str, str, dict[str, str]]]:
    """One column's name before and after, and how all are called then: one by one, by way of a free name in a circle."""
    now, final = dict(work.naming), _final(work)
    done = []

    def rename(each: str, name: str) -> None:
        before, now[each] = now[each], name
        done.append((before, name, dict(now)))

    while waiting := [each for each in now if now[each] != final[each]]:
        taken = {name.lower() for name in now.values()}
        free = [each for each in waiting if final[each].lower() not in taken]
        if free:
            rename(free[0], final[free[0]])
        else:
            rename(waiting[0], f"{now[waiting[0]]}__renaming")
    return done


def _through(renames: Iterable[tuple[str, str, object]], name: str) -> str:
    """What a column is called after all of them."""
    for before, after, _ in renames:
        if name == before:
            name = after
    return name


def _properties(
    work: TablePlan, added: list[StructField], widened: list[StructField], *, renamed: bool
) -> tuple[dict[str, str], list[str]]:
    """Delta's properties that the table needs and does not have, and for the log why it is no longer plain."""
    needed, told = {}, []
    unusual = unusual_names(added)
    if (unusual or renamed) and work.properties.get("delta.columnMapping.mode", "none") == "none":
        needed["delta.columnMapping.mode"] = "name"
        why = f"none can be called {', '.join(unusual)}" if unusual else "none can be renamed"
        told.append(f"columns are mapped from now on, as otherwise {why}")
    if widened and work.properties.get("delta.enableTypeWidening") != "true":
        needed["delta.enableTypeWidening"] = "true"
        told.append(f"types are widened in place from now on, beginning with {', '.join(f.name for f in widened)}")
    local = [f for f in added if f.dataType == TimestampNTZType()]
    first = work.present is not None and local and not any(f.dataType == TimestampNTZType() for f in work.present)
    if first:
        needed["delta.feature.timestampNtz"] = "supported"
    return needed, told


def _meaning(column: SourceColumn) -> str:
    return str(column.type) if column.type else "of a type that MySQL does not have"
