"""Choose how each row is decoded: by its message's column layout, and by the types that statements had declared."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_assets.config import Feed
from cdc_assets.history.columns import Layout
from cdc_assets.history.evolution import Evolution, Slot
from cdc_assets.lakehouse.decisions import identify_statement
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import WireColumn
from cdc_assets.protocols.loaded import columns_in


@dataclass(frozen=True)
class DeclaredTypes:
    """The types that a table's columns have from a position on.

    Attributes:
        order: position and number of the statement that declared the types, as `Spot.order`; they hold from there on.
        types: column, in lower case -> declared type.
        id: the id of that statement; None if a message stated the table's schema.
    """

    order: tuple[int, int]
    types: dict[str, str]
    id: str | None


def _list_declared_types(schema_rows: Iterable[Mapping[str, Any]]) -> list[DeclaredTypes]:
    """Return the types that a table's columns had one after the other; `schema_rows`: its rows of table_schemas."""
    declared = [
        DeclaredTypes(
            (r["commit_ts"], -1) if r["sequence"] is None else (r["position"], r["sequence"]),
            {c["name"].lower(): c["type"] for c in r["columns"]},
            identify_statement(r) if r["ddl_statement"] else None,
        )
        for r in schema_rows
        if r["columns"] is not None
    ]
    return sorted(declared, key=lambda each: each.order)


def plan_layouts(
    feed: Feed,
    rows: Sequence[Mapping[str, Any]],
    schema_rows: Iterable[Mapping[str, Any]],
    evolution: Evolution,
    eras: tuple[int, int] | None,
) -> list[Layout]:
    """Return the layouts that a table's rows may have, the newest last.

    Args:
        feed: the feed.
        rows: the table's rows of released_changes of kind layout.
        schema_rows: the table's rows of table_schemas.
        evolution: the table's.
        eras: the first and the last era that rows may be of; None: it follows from the commit_ts of the rows.
    """
    protocol, texts = protocol_of(feed), {r["layout_id"]: r["layout"] for r in rows}
    declared = _list_declared_types(schema_rows)
    spans: dict[int, tuple[int, int]] = {}
    for r in rows:
        first, last = spans.get(r["layout_id"], (r["commit_ts"], r["last_ts"]))
        spans[r["layout_id"]] = min(first, r["commit_ts"]), max(last, r["last_ts"])
    layouts = []
    for layout_id, (first, last) in sorted(spans.items(), key=lambda span: span[1][1]):
        columns = tuple(columns_in(protocol, texts[layout_id]))
        low, high = eras or evolution.eras_between(first, last)
        layouts += [
            Layout(
                layout_id,
                since,
                columns,
                types,
                era,
                _find_slots(evolution, era, columns),
                _labelled_in_era(declared, evolution, era),
            )
            for era in range(low, high + 1)
            for since, types in _types_in_era(declared, evolution, era, first, exact=eras is None)
        ]
    return layouts


def _types_in_era(
    declared: Sequence[DeclaredTypes],
    evolution: Evolution,
    era: int,
    first: int,
    *,
    exact: bool,
) -> list[tuple[int, dict[str, str]]]:
    """Return the types of an era's rows in order, each with the commit_ts from which on they hold.

    Args:
        declared: the types by the table's schemas, in order.
        evolution: the table's.
        era: the era.
        first: the lowest commit_ts of the rows.
        exact: whether commit_ts orders rows and statements.
    """
    step_ids = {step.ddl.id for step in evolution.steps}
    begin, end = evolution.bounds(era)
    in_era = [d for d in declared if d.id not in step_ids and begin < d.order < end]
    # A statement that does not change the table may come without the table's schema.
    by_steps = [
        types
        for step in evolution.steps[:era]
        for types in [d.types for d in declared if d.id == step.ddl.id] or [{}] * step.begins_table
    ]
    # Clocks may give a statement a commit_ts slightly above that of rows after it: then use the first known types.
    first_types = [d.types for d in declared[:1] if not exact or d.order[0] <= first]
    earlier = [d.types for d in declared if d.order[0] < first] or first_types or [{}]
    before_rows = [*by_steps[-1:], *(d.types for d in in_era if d.order[0] < first)] or earlier
    types_since: list[tuple[int, dict[str, str]]] = []
    for since, types in [(0, before_rows[-1]), *((d.order[0], d.types) for d in in_era if d.order[0] >= first)]:
        if not types_since or types_since[-1][1] != types:  # a connector repeats a table's schema
            types_since.append((since, types))
    return types_since


def _labelled_in_era(declared: Sequence[DeclaredTypes], evolution: Evolution, era: int) -> Mapping[str, str]:
    """Return the types with labels that the statement before an era leaves a table whose schema is not known."""
    if not era or any(d.id == evolution.steps[era - 1].ddl.id for d in declared):
        return {}
    return evolution.steps[era - 1].labelled


def _find_slots(evolution: Evolution, era: int, columns: Sequence[WireColumn]) -> dict[str, Slot]:
    """Return the columns, in lower case -> their slots, without the columns that the table never had."""
    slots = {c.name.lower(): evolution.find_slot(era, c.name) for c in columns}
    return {lower: slot for lower, slot in slots.items() if slot is not None}
