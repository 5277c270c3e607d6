"""What is to be done for each table that has news: which releases, in which layouts, and what its columns become."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructField, StructType, TimestampNTZType

from cdc_assets.feeds import Feed
from cdc_assets.history.columns import (
    Layout,
    Reading,
    SourceColumn,
    needs_scale,
    readings_of,
    target_type,
)
from cdc_assets.protocols import protocol_of
from cdc_assets.tables.history import CDC_COLUMNS, COPY, HistoryCursor, history_name
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.log import DataFile
from cdc_assets.tables.released_changes import ReleasedKind
from cdc_assets.tables.schema import quoted
from cdc_assets.tables.table import LakeTable

Name = tuple[str, str]  # database, table
_Shape = tuple[int, dict[str, str]]  # the columns' types, by name in lower case, from a commit_ts on


@dataclass(frozen=True)
class Work:
    """The releases in (after, through] that one history table has not seen.

    Attributes:
        changes: row events of these releases, about.
        files: of released_changes, with the table's changes among others.
        layouts: of the changes, the newest last.
        keyless: whether the table has no key.
        present: the columns that the history table has; None: there is no table.
        cursor: the history table's.
    """

    name: Name
    table: LakeTable[HistoryCursor]
    after: int
    through: int
    changes: int
    files: list[DataFile]
    layouts: list[Layout]
    keyless: bool
    present: StructType | None
    properties: Mapping[str, str]
    cursor: HistoryCursor


def works(
    lake: Lakehouse, feed: Feed, due: Iterable[Name], through: int, failed: Callable[[Name, Exception], None]
) -> list[Work]:
    """What is to be done for the tables `due`, by name, up to a release; nothing for those without changes.

    `failed` is told of tables of which that cannot be said.
    """
    cursors: dict[Name, HistoryCursor] = {}
    for name in sorted(set(due)):
        try:
            cursors[name] = lake.history(*name).cursor() or HistoryCursor(sequence=0)
        except Exception as error:  # noqa: BLE001 -- whatever is wrong with one table holds up that table only
            failed(name, error)
    if not cursors:
        return []
    after = min(c.release for c in cursors.values())
    log = lake.released_changes.log()
    files = [f for f in log.files() if f.high["release"] > after] if log else []
    layout_files = [f for f in files if f.partition["kind"] == ReleasedKind.LAYOUT]
    columns = ["release", "database", "table", "layout_id", "layout", "key_columns", "commit_ts", "last_ts"]
    layouts: dict[Name, list[dict[str, Any]]] = {}
    for r in lake.released_changes.fetch(layout_files, *columns).to_pylist():
        layouts.setdefault((r["database"], r["table"]), []).append(r)
    shapes, counts = _shapes(lake, cursors), _counts(lake, after)
    found = []
    for name, cursor in cursors.items():
        mine = [r for r in layouts.get(name, []) if cursor.release < r["release"] <= through]
        if not mine:
            continue  # nothing came of the table, or repeats only
        table = lake.history(*name)
        there = table.log()
        try:
            found.append(
                Work(
                    name=name,
                    table=table,
                    after=cursor.release,
                    through=through,
                    changes=sum(n for release, n in counts.get(name, {}).items() if release > cursor.release),
                    files=[
                        f
                        for f in files
                        if f.partition["kind"] == ReleasedKind.ROW and f.high["release"] > cursor.release
                    ],
                    layouts=_layouts(feed, mine, shapes.get(name, [])),
                    keyless=not any(r["key_columns"] for r in mine),
                    present=table.schema(),
                    properties=there.properties if there else {},
                    cursor=cursor,
                )
            )
        except Exception as error:  # noqa: BLE001 -- as above
            failed(name, error)
    return found


def _counts(lake: Lakehouse, after: int) -> dict[Name, Counter[int]]:
    """(database, table) -> release -> row events, of the releases after one, as their cursors tell."""
    found: dict[Name, Counter[int]] = {}
    for cursor in lake.released_changes.cursors():
        if cursor.sequence <= after:
            break
        for database, table, count in cursor.tables:
            found.setdefault((database, table), Counter())[cursor.sequence] = count
    return found


def _shapes(lake: Lakehouse, tables: Iterable[Name]) -> dict[Name, list[_Shape]]:
    """The shapes that statements gave to tables, in order."""
    shapes: dict[Name, list[_Shape]] = {}
    for r in sorted(lake.schema_rows(tables), key=lambda r: r["commit_ts"]):
        if r["columns"] is None:
            continue
        told = {c["name"].lower(): c["type"] for c in r["columns"]}
        held = shapes.setdefault((r["database"], r["table"]), [])
        if not held or held[-1][1] != told:  # a connector describes a table again and again
            held.append((r["commit_ts"], told))
    return shapes


def _layouts(feed: Feed, rows: Sequence[Mapping[str, Any]], shapes: list[_Shape]) -> list[Layout]:
    """What each row of a table is read by: its message's own layout, and the shape that the table had then."""
    protocol, texts = protocol_of(feed), {r["layout_id"]: r["layout"] for r in rows}
    spans: dict[int, tuple[int, int]] = {}
    for r in rows:
        first, last = spans.get(r["layout_id"], (r["commit_ts"], r["last_ts"]))
        spans[r["layout_id"]] = min(first, r["commit_ts"]), max(last, r["last_ts"])
    layouts = []
    for layout_id, (first, last) in sorted(spans.items(), key=lambda span: span[1][1]):
        columns = tuple(protocol.columns(texts[layout_id]))
        # Statements may be stamped a little later than the rows before which they ran: the first shape known counts.
        before = [types for since, types in shapes if since <= first] or [types for _, types in shapes[:1]] or [{}]
        layouts.append(Layout(layout_id, 0, columns, before[-1]))
        layouts += [Layout(layout_id, since, columns, types) for since, types in shapes if first < since <= last]
    return layouts


@dataclass(frozen=True)
class Readable:
    """The columns of a run before their types are settled."""

    readings: dict[str, tuple[Reading, ...]]
    unknown_scale: list[str]  # decimals of which only the values tell the digits


def readable(feed: Feed, work: Work) -> Readable:
    """The source's columns in this run, in the table's order."""
    place = f"{'.'.join(work.name)}."
    overrides = {path.removeprefix(place): told for path, told in feed.columns.items() if path.startswith(place)}
    readings = readings_of(protocol_of(feed), work.layouts, overrides)
    order = {name: n for n, name in enumerate(work.layouts[-1].declared)}
    names = sorted(readings, key=lambda name: order.get(name.lower(), len(order)))
    present = _present(work)
    unknown = [n for n in names if needs_scale(readings[n][-1].type) and history_name(n).lower() not in present]
    return Readable({name: readings[name] for name in names}, unknown)


def columns_of(work: Work, read: Readable, scales: Mapping[str, int]) -> list[SourceColumn]:
    """The source's columns, each with the type that its history column is to have."""
    present = _present(work)
    columns = []
    for name, readings in read.readings.items():
        own = history_name(name)
        there = present.get(own.lower())
        target = target_type(readings, scales.get(name), there.dataType if there else None)
        columns.append(SourceColumn(name, there.name if there else own, readings, target))
    return columns


def _present(work: Work) -> dict[str, StructField]:
    return {f.name.lower(): f for f in work.present or ()}


# What Delta takes in a column's name only when its columns are mapped.
_NEEDS_MAPPING = set(" ,;{}()\n\t=")


@dataclass(frozen=True)
class Shape:
    """What a history table becomes.

    Attributes:
        columns: all of its columns, ours first.
        properties: of Delta's, that it needs beyond those of every history table.
        statements: what brings a table that is there to that: each a step that a run that comes again finds done.
        told: for the log, why the table is no longer plain.
    """

    columns: StructType
    properties: dict[str, str]
    statements: list[str]
    told: list[str]


def shape_of(work: Work, columns: list[SourceColumn]) -> Shape:
    """The table's shape after this run: columns are added and widened, and none goes."""
    own = [StructField(c.column, c.target, metadata={"comment": _meaning(c)}) for c in columns]
    present = _present(work)
    added = [f for f in own if f.name.lower() not in present]
    widened = [f for f in own if f.name.lower() in present and present[f.name.lower()].dataType != f.dataType]
    properties, told = _properties(work, added, widened)
    if work.present is None:
        copy = [COPY] if work.keyless else []
        return Shape(StructType([*CDC_COLUMNS, *copy, *own]), properties, [], told)
    table = f"delta.{quoted(work.table.path)}"
    statements = []
    if properties:
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        statements.append(f"ALTER TABLE {table} SET TBLPROPERTIES ({listed})")
    if added:
        listed = ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()} COMMENT {_literal(f)}" for f in added)
        statements.append(f"ALTER TABLE {table} ADD COLUMNS ({listed})")
    statements += [
        f"ALTER TABLE {table} ALTER COLUMN {quoted(f.name)} TYPE {f.dataType.simpleString()}" for f in widened
    ]
    wider = {f.name.lower(): f.dataType for f in widened}
    kept = [StructField(f.name, wider.get(f.name.lower(), f.dataType), metadata=f.metadata) for f in work.present]
    return Shape(StructType([*kept, *added]), {}, statements, told)


def _properties(work: Work, added: list[StructField], widened: list[StructField]) -> tuple[dict[str, str], list[str]]:
    """Delta's properties that the table needs and does not have, and for the log why it is no longer plain."""
    needed, told = {}, []
    unusual = [f.name for f in added if _NEEDS_MAPPING.intersection(f.name)]
    if unusual and work.properties.get("delta.columnMapping.mode", "none") == "none":
        needed["delta.columnMapping.mode"] = "name"
        told.append(f"columns are mapped from now on, as otherwise none can be called {', '.join(unusual)}")
    if widened and work.properties.get("delta.enableTypeWidening") != "true":
        needed["delta.enableTypeWidening"] = "true"
        told.append(f"types are widened in place from now on, beginning with {', '.join(f.name for f in widened)}")
    local = [f for f in added if f.dataType == TimestampNTZType()]
    if work.present is not None and local and not any(f.dataType == TimestampNTZType() for f in work.present):
        needed["delta.feature.timestampNtz"] = "supported"
    return needed, told


def _meaning(column: SourceColumn) -> str:
    return str(column.type) if column.type else "of a type that MySQL does not have"


def _literal(column: StructField) -> str:
    text = column.metadata["comment"].replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"
