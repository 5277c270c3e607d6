"""The stage table_schemas: what is known of each source table, from DDL statements and from schemas that messages carry.

The table is small, and a pure function of the set of statements and schemas: whenever a new one arrives, all statements
are applied again in commit order, so that it does not matter in which order or how often they came.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from cdc_assets.feeds import Feed
from cdc_assets.mysql_types.ddl import TableSchema, apply_ddl
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Protocol
from cdc_assets.tables.change_events import Kind
from cdc_assets.tables.decisions import Decision, statement_id
from cdc_assets.tables.initial_load import LOAD_TOPIC
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.log import DataFile
from cdc_assets.tables.table_schemas import TABLE_SCHEMAS, SchemasCursor

_STATEMENT = [
    "commit_ts", "topic", "partition", "offset", "ddl_type", "ddl_statement", "default_database", "table_schemas"
]  # fmt: skip
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
        """Whether there are such events, tables of dumps, or decisions about statements that are learnt already."""
        cursor = _cursor(lake)
        new = bool(_new_events(lake, feed, cursor.batch)) or _decisions(lake) > cursor.decisions
        return new or _loads(lake) > cursor.loads

    def run(self, lake: Lakehouse, feed: Feed) -> SchemasReport:
        """Learn from them: one commit.

        Raises:
            ConcurrentRunError: another run learnt them meanwhile.
        """
        cursor, decisions = _cursor(lake), _decisions(lake)
        files = _new_events(lake, feed, cursor.batch)
        loads = _loads(lake)
        if not files and decisions == cursor.decisions and loads == cursor.loads:
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
        if new or added or decisions > cursor.decisions:
            rows = [*numbered.values(), *added.values(), *outcome(protocol, [*known, *new], lake.decided())]
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
    return place | told | {"commit_ts": row["position"]}


def _new_events(lake: Lakehouse, feed: Feed, after: int) -> list[DataFile]:
    """The files with DDL and bootstrap events of later batches."""
    kinds = [Kind.DDL, Kind.BOOTSTRAP] if protocol_of(feed).numbers_schemas else [Kind.DDL]
    log = lake.change_events.log()
    files = [f for kind in kinds for f in log.files(kind=str(kind))] if log else []
    return [f for f in files if f.high["batch"] > after]


def _statements(lake: Lakehouse, files: list[DataFile], after: int) -> list[dict[str, Any]]:
    """The new statements. Out: `_STATEMENT`."""
    files = [f for f in files if f.partition["kind"] == Kind.DDL]
    columns = [c for c in _STATEMENT if c != "default_database"]
    found = lake.change_events.fetch(files, *columns, "database", "batch").to_pylist()
    return [{c: r.get(c) for c in columns} | {"default_database": r["database"]} for r in found if r["batch"] > after]


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


def outcome(
    protocol: Protocol, statements: Iterable[dict[str, Any]], decided: Mapping[str, Decision]
) -> list[dict[str, Any]]:
    """Apply statements (`_STATEMENT`) in commit order; return rows of table_schemas.

    A statement that came more than once counts once, under its first record. `decided`: what people have decided about
    statements, by id; one that is ignored is in a row without a table.
    """
    ordered = sorted(statements, key=lambda s: (s["commit_ts"], s["topic"], s["partition"], s["offset"]))
    tables: Mapping[tuple[str, str], TableSchema] = {}
    rows: list[dict[str, Any]] = []
    seen = set()
    for statement in ordered:
        if _identity(statement) in seen:
            continue
        seen.add(_identity(statement))
        database, text = statement["default_database"] or "", statement["ddl_statement"]
        if (decision := decided.get(statement_id(statement["commit_ts"], database, text))) is not None:
            text = decision.text(text)
        # Nothing, as a statement, does nothing.
        effect = apply_ddl(tables, text or "", database)
        shown = protocol.schemas_after(statement, effect.tables) if text is not None else {}
        tables = {**effect.tables, **shown} if shown else effect.tables
        touched: Iterable[tuple[str | None, str | None]] = dict.fromkeys([*effect.affected, *shown]) or [(None, None)]
        rows += [
            dict.fromkeys(TABLE_SCHEMAS.columns.names)
            | {c: statement.get(c) for c in _STATEMENT}
            # Where the message says what came of it, it does not matter that the statement cannot be read.
            | {"database": database, "table": name, "error": None if (database, name) in shown else effect.error}
            | _shape(tables.get((database or "", name or "")))
            for database, name in touched
        ]
    return rows


def _known(rows: Iterable[Mapping[str, Any]]) -> int:
    """How many tables there are, by the last row of each."""
    current = {(r["database"], r["table"]): r for r in rows if r["table"] is not None}
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
