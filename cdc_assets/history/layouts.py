"""What each row of a table is read by: its message's own layout, and the shape that the table had then."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_assets.config import Feed
from cdc_assets.history.columns import Layout
from cdc_assets.history.evolution import Evolution, Slot
from cdc_assets.lakehouse.decisions import statement_id
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import WireColumn
from cdc_assets.protocols.loaded import columns_in


@dataclass(frozen=True)
class TableShape:
    """The types of a table's columns, by name in lower case, from a place on, and the statement that made it so.

    Attributes:
        order: position and number of the statement, as `Spot.order`.
        types: column -> type.
        id: of the statement; None: a message has told the shape.
    """

    order: tuple[int, int]
    types: dict[str, str]
    id: str | None

    @property
    def since(self) -> int:
        """The commit_ts from which on it counts."""
        return self.order[0]


def shapes_of(known: Iterable[Mapping[str, Any]]) -> list[TableShape]:
    """The shapes that statements gave to a table, in order; `known`: its rows of table_schemas."""
    found = [
        TableShape(
            (r["commit_ts"], -1) if r["sequence"] is None else (r["position"], r["sequence"]),
            {c["name"].lower(): c["type"] for c in r["columns"]},
            statement_id(r["commit_ts"], r["default_database"], r["ddl_statement"]) if r["ddl_statement"] else None,
        )
        for r in known
        if r["columns"] is not None
    ]
    return sorted(found, key=lambda shape: shape.order)


def layouts_of(
    feed: Feed,
    rows: Sequence[Mapping[str, Any]],
    shapes: list[TableShape],
    evolution: Evolution,
    among: tuple[int, int] | None,
) -> list[Layout]:
    """What each row of a table is read by: its message's own layout, and the shape that the table had then."""
    protocol, texts = protocol_of(feed), {r["layout_id"]: r["layout"] for r in rows}
    spans: dict[int, tuple[int, int]] = {}
    for r in rows:
        first, last = spans.get(r["layout_id"], (r["commit_ts"], r["last_ts"]))
        spans[r["layout_id"]] = min(first, r["commit_ts"]), max(last, r["last_ts"])
    layouts = []
    for layout_id, (first, last) in sorted(spans.items(), key=lambda span: span[1][1]):
        columns = tuple(columns_in(protocol, texts[layout_id]))
        low, high = among or evolution.between(first, last)
        layouts += [
            Layout(layout_id, since, columns, types, era, _slots(evolution, era, columns))
            for era in range(low, high + 1)
            for since, types in _of_era(shapes, evolution, era, first)
        ]
    return layouts


def _of_era(
    shapes: Sequence[TableShape], evolution: Evolution, era: int, first: int
) -> list[tuple[int, dict[str, str]]]:
    """The types of an era's rows, in order, each from a commit_ts on."""
    steps = {step.ddl.id for step in evolution.steps}
    begin, end = evolution.span(era)
    mine = [s for s in shapes if s.id not in steps and begin < s.order < end]
    # One that leaves the table as it is may be told without its shape.
    made = [s.types for step in evolution.steps[:era] for s in shapes if s.id == step.ddl.id]
    # Statements may be stamped a little later than the rows before which they ran: the first shape known counts.
    known = [s.types for s in shapes if s.since < first] or [s.types for s in shapes[:1]] or [{}]
    before = [*made[-1:], *(s.types for s in mine if s.since < first)] or known
    within = [(s.since, s.types) for s in mine if s.since >= first]
    told: list[tuple[int, dict[str, str]]] = []
    for since, types in [(0, before[-1]), *within]:
        if not told or told[-1][1] != types:  # a connector describes a table again and again
            told.append((since, types))
    return told


def _slots(evolution: Evolution, era: int, columns: Sequence[WireColumn]) -> dict[str, Slot]:
    found = {c.name.lower(): evolution.slot(era, c.name) for c in columns}
    return {lower: slot for lower, slot in found.items() if slot is not None}
