"""The stage table_schemas: what is known of each source table, from DDL statements and from schemas that messages carry.

A DDL statement is read here, once, into actions on tables; release and history use the actions. The table is small, and a
pure function of the set of statements and schemas, and of the tables that rows show: whenever a new one arrives, all
statements are applied again in order, so that it does not matter in which order or how often they came.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import pyarrow.compute as pc

from cdc_assets.config import Feed
from cdc_assets.ddl.actions import text_of
from cdc_assets.ddl.replay import SentStatement, TableRows, in_effect_order, replay
from cdc_assets.ddl.resolve import Name
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.decisions import Decision, statement_id
from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import ReleaseCursor, ReleasedKind
from cdc_assets.lakehouse.table_schemas import TABLE_SCHEMAS, SchemasCursor
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Protocol, Watermarks
from cdc_assets.protocols.loaded import columns_in

_STATEMENT = [
    "commit_ts", "topic", "partition", "offset", "ddl_type", "ddl_statement", "default_database", "table_schemas",
    "message_table", "source",
]  # fmt: skip
# Names in change_events, where they are others.
_IN_EVENTS = {"default_database": "database", "message_table": "table"}
_PLACE = ["topic", "partition", "offset"]
_NUMBERED = ["database", "table", "table_id", "schema_version"]

Numbered = tuple[str, str, int, int]  # the values of `_NUMBERED`


@dataclass(frozen=True)
class SchemasReport:
    """What one run of the stage did."""

    statements: int = 0  # DDL statements new in this run
    tables: int = 0  # tables whose shape is known now
    errors: list[dict[str, Any]] = field(default_factory=list)  # statements that could not be read
    schemas: int = 0  # numbered schemas new in this run


class Schemas:
    """Learns from the DDL and bootstrap events that are not learnt yet."""

    name = "table_schemas"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Whether there are such events, tables of dumps, decisions about statements that are learnt already, or rows.

        Rows count that tell which table a statement means, or what IF NOT EXISTS did.
        """
        cursor = _cursor(lake)
        new = bool(_new_events(lake, feed, cursor.batch)) or _decisions(lake) > cursor.decisions
        return new or _loads(lake) > cursor.loads or _rows_tell_more(lake)

    def run(self, lake: Lakehouse, feed: Feed) -> SchemasReport:
        """Learn from them: one commit.

        Raises:
            ConcurrentRunError: another run learnt them meanwhile.
        """
        cursor, decisions = _cursor(lake), _decisions(lake)
        files = _new_events(lake, feed, cursor.batch)
        loads = _loads(lake)
        by_statements = bool(files) or decisions > cursor.decisions or loads > cursor.loads
        by_rows = not by_statements and _rows_tell_more(lake)
        if not by_statements and not by_rows:
            return SchemasReport(tables=_known(lake.schema_rows()))
        new, bootstraps = _statements(lake, files, cursor.batch), _bootstraps(lake, files, cursor.batch)
        present = lake.schema_rows()
        known = [{c: r[c] for c in _STATEMENT} for r in present if r["ddl_statement"] is not None]
        if loads > cursor.loads:
            # All of them: what was found and not loaded may have been found anew.
            known = [s for s in known if s["topic"] != LOAD_TOPIC]
            new += [_created(row) for row in lake.load_rows()]
        numbered = {_number(r): r for r in present if r["schema_version"] is not None}
        protocol = protocol_of(feed)
        arrived = {_number(r): r for message in [*bootstraps, *new] for r in _numbered(protocol, message)}
        added = {number: row for number, row in arrived.items() if number not in numbered}
        rows: list[dict[str, Any]] = []
        if new or added or decisions > cursor.decisions or by_rows:
            rows = [*numbered.values(), *added.values(), *_outcome(lake, feed, [*known, *new])]
        batch = max([cursor.batch, *(f.high["batch"] for f in files)])
        advanced = SchemasCursor(sequence=cursor.sequence + 1, batch=batch, decisions=decisions, loads=loads)
        # Bootstraps that tell nothing new come again and again: read them once.
        lake.table_schemas.commit(lake.table_schemas.stage_rows(rows), advanced, replaces=bool(rows))
        known_statements = {_identity(s) for s in known}
        return SchemasReport(
            statements=len({_identity(s) for s in new} - known_statements),
            tables=_known(rows or present),
            errors=[r for r in rows if r["error"] and _identity(r) not in known_statements],
            schemas=len(added),
        )


def _cursor(lake: Lakehouse) -> SchemasCursor:
    return lake.table_schemas.cursor() or SchemasCursor(sequence=0)


def _decisions(lake: Lakehouse) -> int:
    cursor = lake.decisions.cursor()
    return cursor.sequence if cursor else 0


def _loads(lake: Lakehouse) -> int:
    cursor = lake.loads.cursor()
    return cursor.sequence if cursor else 0


def _created(row: Mapping[str, Any]) -> dict[str, Any]:
    """The CREATE TABLE of a dump, as a statement at the dump's position; `row`: of initial_load. Out: `_STATEMENT`."""
    place = {"topic": LOAD_TOPIC, "partition": 0, "offset": row["number"], "table_schemas": None}
    told = {"ddl_type": "CREATE", "ddl_statement": row["statement"], "default_database": row["database"]}
    return place | told | {"commit_ts": row["position"], "message_table": row["table"], "source": None}


def _new_events(lake: Lakehouse, feed: Feed, after: int) -> list[DataFile]:
    """The files with DDL and bootstrap events of later batches."""
    kinds = [Kind.DDL, Kind.BOOTSTRAP] if protocol_of(feed).numbers_schemas else [Kind.DDL]
    log = lake.change_events.log()
    files = [f for kind in kinds for f in log.files(kind=str(kind))] if log else []
    return [f for f in files if f.high["batch"] > after]


def _statements(lake: Lakehouse, files: list[DataFile], after: int) -> list[dict[str, Any]]:
    """The new statements. Out: `_STATEMENT`."""
    files = [f for f in files if f.partition["kind"] == Kind.DDL]
    columns = {c: _IN_EVENTS.get(c, c) for c in _STATEMENT}
    found = lake.change_events.fetch(files, *columns.values(), "batch").to_pylist()
    rows = [{c: r[of] for c, of in columns.items()} for r in found if r["batch"] > after]
    return [r | {"source": _place(r["source"])} for r in rows]


def _place(source: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The place in the binlog out of an event's `source`."""
    if not source or not source["file"] or not source["position"]:
        return None
    return {"file": source["file"], "position": source["position"]}


def _bootstraps(lake: Lakehouse, files: list[DataFile], after: int) -> list[dict[str, Any]]:
    """The different schemas among new bootstrap events, each under its first record."""
    files = [f for f in files if f.partition["kind"] == Kind.BOOTSTRAP]
    rows = lake.change_events.fetch(files, *_PLACE, *_NUMBERED, "table_schemas", "batch")
    if not rows.num_rows:
        return []
    rows = rows.filter(pc.greater(rows["batch"], after)).sort_by([(c, "ascending") for c in _PLACE])
    kept = [*_PLACE, "table_schemas"]
    first = rows.group_by(_NUMBERED, use_threads=False).aggregate([(c, "first") for c in kept])
    return [{c: r[f"{c}_first"] for c in kept} | {"ddl_type": None} for r in first.to_pylist()]


def _numbered(protocol: Protocol, message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of table_schemas: the numbered schemas that a message carries."""
    empty = dict.fromkeys(TABLE_SCHEMAS.columns.names)
    place = {c: message[c] for c in ("topic", "partition", "offset")}
    return [
        empty
        | place
        | {"commit_ts": version, "database": schema.database, "table": schema.table}
        | {"table_id": table_id, "schema_version": version}
        | _shape(schema)
        for table_id, version, schema in protocol.numbered_schemas(message["table_schemas"] or "[]")
    ]


def _number(row: Mapping[str, Any]) -> Numbered:
    return row["database"], row["table"], row["table_id"], row["schema_version"]


def _outcome(lake: Lakehouse, feed: Feed, statements: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`outcome` of all statements of a feed; what rows show is looked up only where it may tell something."""
    protocol, decided = protocol_of(feed), lake.read_decisions()
    exact = protocol.watermarks(feed) is Watermarks.ALWAYS
    of_feed = partial(
        outcome, protocol, statements, decided, exact=exact, ignores_case=protocol.source_kind(feed) == "tidb"
    )
    rows, asks_rows = of_feed()
    if asks_rows or _rows_tell_more(lake, rows):
        rows, _ = of_feed(rows=_shown_by_rows(lake, protocol))
    return rows


def outcome(
    protocol: Protocol,
    statements: Iterable[Mapping[str, Any]],
    decided: Mapping[str, Decision],
    *,
    rows: Mapping[Name, TableRows] = MappingProxyType({}),
    exact: bool = False,
    ignores_case: bool = False,
) -> tuple[list[dict[str, Any]], bool]:
    """Apply statements (`_STATEMENT`) in the order in which they took effect.

    A statement that came more than once counts once, under its first record.

    Args:
        protocol: of the feed.
        statements: in any order.
        decided: what people have decided about statements, by id.
        rows: what rows show of tables.
        exact: whether the commit_ts is the source's own order.
        ignores_case: whether the server takes names of tables in any case.

    Returns:
        Rows of table_schemas, and whether more rows might tell more. One of an ignored statement has no actions.
    """
    ordered, seen = list[dict[str, Any]](), set[tuple[Any, ...]]()
    for statement in in_effect_order(statements, exact=exact):
        if _identity(statement) not in seen:
            seen.add(_identity(statement))
            ordered.append(statement)
    sent = [_sent_statement(protocol, statement, decided) for statement in ordered]
    found, asks_rows = replay(sent, rows, exact=exact, ignores_case=ignores_case)
    made = []
    for sequence, (place, result) in enumerate(found):
        statement = ordered[place]
        learnt = {
            "sequence": sequence,
            "position": statement["position"],
            "error": result.error,
            "actions": None if result.statement is None else text_of(result.statement),
        }
        affected: Iterable[tuple[str | None, str | None]] = result.affected or [(None, None)]
        made += [
            dict.fromkeys(TABLE_SCHEMAS.columns.names)
            | {c: statement.get(c) for c in _STATEMENT}
            | learnt
            | {"database": database, "table": name}
            | _shape(result.shapes.get((database or "", name or "")))
            for database, name in affected
        ]
    return made, asks_rows


def _sent_statement(protocol: Protocol, statement: Mapping[str, Any], decided: Mapping[str, Decision]) -> SentStatement:
    """A statement as it is to be read."""
    database, text = statement["default_database"] or "", statement["ddl_statement"]
    decision = decided.get(statement_id(statement["commit_ts"], statement["default_database"], text))
    return SentStatement(
        statement["position"],
        database,
        statement.get("message_table"),
        text if decision is None else decision.text(text),
        None if decision is None else text,
        partial(protocol.schemas_after, statement),
    )


def _rows_tell_more(lake: Lakehouse, rows: Iterable[Mapping[str, Any]] | None = None) -> bool:
    """Whether new rows are of a table that statements name in another case, or have made IF NOT EXISTS, as far as is known.

    `rows`: of table_schemas; None: as it is.
    """
    files = _row_files(lake)
    if not files:
        return False
    named = {
        (r["database"], r["table"]): '"tolerant":true' in (r["actions"] or "") and "create_table" in r["actions"]
        for r in (lake.schema_rows() if rows is None else rows)
        if r["ddl_statement"] is not None and r["table"] is not None
    }
    if not named:
        return False
    alike = {(database.lower(), table.lower()) for database, table in named}
    came = {(r["database"], r["table"]) for r in _distinct(lake, files, "database", "table")}
    return any(named.get(name, (name[0].lower(), name[1].lower()) in alike) for name in came)


def _shown_by_rows(lake: Lakehouse, protocol: Protocol) -> dict[Name, TableRows]:
    """What the rows that have come show of each table: those that were released, and those that are new."""
    layouts = lake.released_changes.fetch(
        lake.released_changes.files(kind=str(ReleasedKind.LAYOUT)),
        "database", "table", "layout", "key_columns", "commit_ts",
    ).to_pylist()  # fmt: skip
    for r in _distinct(lake, _row_files(lake), "database", "table", "layout", "key_columns"):
        text = r["layout"] and protocol.layout_of({"layout": r["layout"], "jdbc_types": None})
        layouts.append({**r, "layout": text, "key_columns": r["key_columns"].split("\0") if r["key_columns"] else []})
    first: dict[Name, dict[str, Any]] = {}
    for r in layouts:
        name = r["database"], r["table"]
        if name not in first or r["commit_ts"] < first[name]["commit_ts"]:
            first[name] = r
    return {
        name: TableRows(
            r["commit_ts"],
            {
                c.name.lower(): c.wire_type if isinstance(c.wire_type, str) else None
                for c in columns_in(protocol, r["layout"])
            }
            if r["layout"]
            else {},
            frozenset(column.lower() for column in r["key_columns"] or ()),
        )
        for name, r in first.items()
    }


def _row_files(lake: Lakehouse) -> list[DataFile]:
    """The files of change_events with rows that no release has looked at, or that wait."""
    released = lake.released_changes.cursor() or ReleaseCursor(sequence=0)
    oldest = released.oldest_pending if released.pending and released.oldest_pending else released.batch + 1
    return [f for f in lake.change_events.files(kind=str(Kind.ROW)) if f.high["batch"] >= oldest]


def _distinct(lake: Lakehouse, files: Iterable[DataFile], *columns: str) -> list[dict[str, Any]]:
    """The distinct values of columns in row events, with the lowest commit_ts of each; `key_columns` as one text."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for part in lake.change_events.fetch_parts(files, *columns, "commit_ts"):
        if "key_columns" in columns:
            at = part.column_names.index("key_columns")
            part = part.set_column(at, "key_columns", pc.binary_join(part["key_columns"], "\0"))  # noqa: PLW2901
        for r in part.group_by(list(columns), use_threads=False).aggregate([("commit_ts", "min")]).to_pylist():
            key = tuple(r[c] for c in columns)
            if key not in found or r["commit_ts_min"] < found[key]["commit_ts"]:
                found[key] = {**{c: r[c] for c in columns}, "commit_ts": r["commit_ts_min"]}
    return list(found.values())


def _known(rows: Iterable[Mapping[str, Any]]) -> int:
    """How many tables there are, by the last row of each."""
    last = sorted(
        (r for r in rows if r["table"] is not None), key=lambda r: -1 if r["sequence"] is None else r["sequence"]
    )
    current = {(r["database"], r["table"]): r for r in last}
    return sum(r["columns"] is not None for r in current.values())


def _identity(statement: Mapping[str, Any]) -> tuple[Any, ...]:
    return statement["commit_ts"], statement["default_database"], statement["ddl_statement"]


def _shape(schema: TableSchema | None) -> dict[str, Any]:
    if schema is None:
        return {"columns": None, "character_sets": None, "primary_key": None, "key_columns": None}
    columns = [
        {"name": c.name, "type": c.type, "nullable": c.nullable, "default": c.default, "generated": c.generated}
        for c in schema.columns
    ]
    character_sets = [
        {"column": c.name, "charset": c.charset, "collation": c.collation}
        for c in schema.columns
        if c.charset is not None or c.collation is not None
    ]
    return {
        "columns": columns,
        "character_sets": character_sets or None,
        "primary_key": list(schema.primary_key),
        "key_columns": list(schema.key_columns),
    }
