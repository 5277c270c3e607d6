"""The stage table_schemas: the schema of each source table, from DDL statements and from schemas that messages carry.

The stage reads each DDL statement once, into schema actions that release and history use. The table is small, and a pure
function of three sets: the statements, the schemas in messages, and what row events show of tables. When a new element
arrives, the stage applies all statements again in order, so it does not matter in which order or how often they arrived.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import pyarrow.compute as pc

from cdc_assets.config import Feed
from cdc_assets.ddl.actions import ForeignKey, encode_statement
from cdc_assets.ddl.replay import SentStatement, TableRows, order_by_effect, replay
from cdc_assets.ddl.resolve import Name
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.decisions import Decision, identify_statement
from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.table_schemas import TABLE_SCHEMAS, SchemasCursor
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Protocol, Watermarks
from cdc_assets.stages.table_rows import read_table_rows, rows_may_show_more

_STATEMENT_COLUMNS = [
    "commit_ts", "topic", "partition", "offset", "ddl_type", "ddl_statement", "default_database", "table_schemas",
    "message_table", "sent_ms", "source",
]  # fmt: skip
# Columns that change_events names otherwise.
_NAMES_IN_EVENTS = {"default_database": "database", "message_table": "table"}
_COLUMN_FIELDS = ["name", "type", "nullable", "default", "generated", "computed_default"]
_RECORD_COLUMNS = ["topic", "partition", "offset"]
_SCHEMA_ID_COLUMNS = ["database", "table", "table_id", "schema_version"]

SchemaId = tuple[str, str, int, int]  # the values of `_SCHEMA_ID_COLUMNS`


@dataclass(frozen=True)
class SchemasReport:
    """What one run of the stage did.

    Attributes:
        statements: the number of DDL statements that this run read first.
        tables: the number of tables whose schema is known now.
        errors: the rows of statements that this run read first and could not apply, or that something contradicts.
        schemas: the number of numbered schemas that this run read first.
    """

    statements: int = 0
    tables: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)
    schemas: int = 0


class Schemas:
    """Reads new DDL statements and new schemas in messages."""

    name = "table_schemas"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Return whether there are new DDL or bootstrap events, dumped tables or decisions, or row events that show more.

        Row events may show which table a statement means, or whether IF NOT EXISTS created one.
        """
        cursor = lake.table_schemas.last_cursor()
        return (
            bool(_list_new_files(lake, feed, cursor.batch))
            or lake.decisions.last_cursor().sequence > cursor.decisions
            or lake.loads.last_cursor().sequence > cursor.loads
            or rows_may_show_more(lake)
        )

    def run(self, lake: Lakehouse, feed: Feed) -> SchemasReport:
        """Read what is new, and apply all statements again, with one commit.

        Raises:
            ConcurrentRunError: another run read it meanwhile.
        """
        cursor = lake.table_schemas.last_cursor()
        decisions, loads = lake.decisions.last_cursor().sequence, lake.loads.last_cursor().sequence
        files = _list_new_files(lake, feed, cursor.batch)
        has_statements = bool(files) or decisions > cursor.decisions or loads > cursor.loads
        has_rows = not has_statements and rows_may_show_more(lake)
        if not has_statements and not has_rows:
            return SchemasReport(tables=_count_tables(lake.schema_rows()))
        new = _read_statements(lake, files, cursor.batch)
        bootstraps = _read_bootstraps(lake, files, cursor.batch)
        present_rows = lake.schema_rows()
        earlier = [{c: r[c] for c in _STATEMENT_COLUMNS} for r in present_rows if r["ddl_statement"] is not None]
        if loads > cursor.loads:
            # A dumped table that is not loaded yet may come from another dump now, so read all of them again.
            earlier = [s for s in earlier if s["topic"] != LOAD_TOPIC]
            new += [_make_create_statement(row) for row in lake.load_rows()]
        numbered = {_schema_id(r): r for r in present_rows if r["schema_version"] is not None}
        protocol = protocol_of(feed)
        arrived = {_schema_id(r): r for message in [*bootstraps, *new] for r in _numbered_schemas(protocol, message)}
        added = {schema_id: row for schema_id, row in arrived.items() if schema_id not in numbered}
        rows: list[dict[str, Any]] = []
        if new or added or decisions > cursor.decisions or has_rows:
            rows = [*numbered.values(), *added.values(), *_apply_to_feed(lake, feed, [*earlier, *new])]
        batch = max([cursor.batch, *(f.high["batch"] for f in files)])
        advanced = SchemasCursor(sequence=cursor.sequence + 1, batch=batch, decisions=decisions, loads=loads)
        # Sources repeat their bootstraps. One without a new schema advances the cursor alone, so it is read once.
        lake.table_schemas.commit(lake.table_schemas.stage_rows(rows), advanced, replaces=bool(rows))
        earlier_identities = {identify_statement(s) for s in earlier}
        return SchemasReport(
            statements=len({identify_statement(s) for s in new} - earlier_identities),
            tables=_count_tables(rows or present_rows),
            errors=[r for r in rows if r["error"] and identify_statement(r) not in earlier_identities],
            schemas=len(added),
        )


def _make_create_statement(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the CREATE TABLE of a dump as a statement (`_STATEMENT_COLUMNS`) at the dump's position.

    Args:
        row: a row of initial_load.
    """
    record = {"topic": LOAD_TOPIC, "partition": 0, "offset": row["number"], "table_schemas": None}
    text = {"ddl_type": "CREATE", "ddl_statement": row["statement"], "default_database": row["database"]}
    return (
        record | text | {"commit_ts": row["position"], "message_table": row["table"], "sent_ms": None, "source": None}
    )


def _list_new_files(lake: Lakehouse, feed: Feed, after: int) -> list[DataFile]:
    """Return the files of change_events with DDL and bootstrap events of batches after batch `after`."""
    kinds = [Kind.DDL, Kind.BOOTSTRAP] if protocol_of(feed).numbers_schemas else [Kind.DDL]
    log = lake.change_events.log()
    files = [f for kind in kinds for f in log.files(kind=str(kind))] if log else []
    return [f for f in files if f.high["batch"] > after]


def _read_statements(lake: Lakehouse, files: list[DataFile], after: int) -> list[dict[str, Any]]:
    """Return the statements (`_STATEMENT_COLUMNS`) in these files of batches after batch `after`."""
    files = [f for f in files if f.partition["kind"] == Kind.DDL]
    columns = {c: _NAMES_IN_EVENTS.get(c, c) for c in _STATEMENT_COLUMNS}
    events = lake.change_events.fetch_rows(files, *columns.values(), "batch")
    rows = [{c: r[of] for c, of in columns.items()} for r in events if r["batch"] > after]
    return [r | {"source": _binlog_position(r["source"])} for r in rows]


def _binlog_position(source: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the binlog position in an event's `source`; None: it has none."""
    if not source or not source["file"] or not source["position"]:
        return None
    return {name: source[name] for name in ("server_id", "file", "position", "gtid")}


def _read_bootstraps(lake: Lakehouse, files: list[DataFile], after: int) -> list[dict[str, Any]]:
    """Return the first record of each schema in bootstrap events of batches after batch `after`.

    Returns:
        Messages with the columns topic, partition, offset and table_schemas, and a ddl_type that is None.
    """
    files = [f for f in files if f.partition["kind"] == Kind.BOOTSTRAP]
    rows = lake.change_events.fetch(files, *_RECORD_COLUMNS, *_SCHEMA_ID_COLUMNS, "table_schemas", "batch")
    if not rows.num_rows:
        return []
    rows = rows.filter(pc.greater(rows["batch"], after)).sort_by([(c, "ascending") for c in _RECORD_COLUMNS])
    columns = [*_RECORD_COLUMNS, "table_schemas"]
    first = rows.group_by(_SCHEMA_ID_COLUMNS, use_threads=False).aggregate([(c, "first") for c in columns])
    return [{c: r[f"{c}_first"] for c in columns} | {"ddl_type": None} for r in first.to_pylist()]


def _numbered_schemas(protocol: Protocol, message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the numbered schemas that a message carries as rows of table_schemas."""
    empty = dict.fromkeys(TABLE_SCHEMAS.columns.names)
    record = {c: message[c] for c in _RECORD_COLUMNS}
    return [
        empty
        | record
        | {"commit_ts": version, "database": schema.database, "table": schema.table}
        | {"table_id": table_id, "schema_version": version}
        | _schema_columns(schema)
        for table_id, version, schema in protocol.numbered_schemas(message["table_schemas"] or "[]")
    ]


def _schema_id(row: Mapping[str, Any]) -> SchemaId:
    """Return what identifies a numbered schema."""
    return row["database"], row["table"], row["table_id"], row["schema_version"]


def _apply_to_feed(lake: Lakehouse, feed: Feed, statements: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of table_schemas of all statements (`_STATEMENT_COLUMNS`) of a feed.

    Row events are read only if they may show which table a statement means, or what it did.
    """
    protocol, decisions = protocol_of(feed), lake.read_decisions()
    apply = partial(
        apply_statements,
        protocol,
        statements,
        decisions,
        exact=protocol.watermarks(feed) is Watermarks.ALWAYS,
        of_tidb=protocol.source_kind(feed) == "tidb",
    )
    schema_rows, asks_rows = apply()
    if asks_rows or rows_may_show_more(lake, schema_rows):
        schema_rows, _ = apply(rows=read_table_rows(lake, protocol))
    return schema_rows


def apply_statements(
    protocol: Protocol,
    statements: Iterable[Mapping[str, Any]],
    decisions: Mapping[str, Decision],
    *,
    rows: Mapping[Name, TableRows] = MappingProxyType({}),
    exact: bool = False,
    of_tidb: bool = False,
) -> tuple[list[dict[str, Any]], bool]:
    """Apply statements in the order in which they took effect.

    A statement that arrived more than once is applied once, under its first record.

    Args:
        protocol: the protocol of the feed.
        statements: with `_STATEMENT_COLUMNS`, in any order.
        decisions: people's decisions about statements, by statement id.
        rows: what the row events of tables show.
        exact: whether the commit_ts gives the source's order of all statements.
        of_tidb: whether the source is TiDB.

    Returns:
        Rows of table_schemas, those of ignored statements without actions; and whether more row events might show more.
    """
    ordered, identities = list[dict[str, Any]](), set[str]()
    for statement in order_by_effect(statements, exact=exact):
        if identify_statement(statement) not in identities:
            identities.add(identify_statement(statement))
            ordered.append(statement)
    sent = [_make_sent_statement(protocol, statement, decisions) for statement in ordered]
    outcomes, asks_rows = replay(sent, rows, exact=exact, of_tidb=of_tidb)
    schema_rows = []
    for sequence, (place, outcome) in enumerate(outcomes):
        statement = ordered[place]
        effect = {
            "sequence": sequence,
            "position": statement["position"],
            "error": outcome.error,
            "actions": None if outcome.statement is None else encode_statement(outcome.statement),
        }
        affected: Iterable[tuple[str | None, str | None]] = outcome.affected or [(None, None)]
        schema_rows += [
            dict.fromkeys(TABLE_SCHEMAS.columns.names)
            | {c: statement.get(c) for c in _STATEMENT_COLUMNS}
            | effect
            | {"database": database, "table": name}
            | _schema_columns(outcome.shapes.get((database or "", name or "")))
            for database, name in affected
        ]
    return schema_rows, asks_rows


def _make_sent_statement(
    protocol: Protocol, statement: Mapping[str, Any], decisions: Mapping[str, Decision]
) -> SentStatement:
    """Return a statement with what its message states, and with the text that a decision gives it."""
    database, text = statement["default_database"] or "", statement["ddl_statement"]
    decision = decisions.get(identify_statement(statement))
    return SentStatement(
        position=statement["position"],
        database=database,
        table=statement.get("message_table"),
        text=text if decision is None else decision.text(text),
        original=None if decision is None else text,
        read_stated=partial(protocol.schemas_after, statement),
    )


def _count_tables(rows: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of tables whose last row of table_schemas has columns."""
    ordered = sorted(
        (r for r in rows if r["table"] is not None), key=lambda r: -1 if r["sequence"] is None else r["sequence"]
    )
    last = {(r["database"], r["table"]): r for r in ordered}
    return sum(r["columns"] is not None for r in last.values())


def _schema_columns(schema: TableSchema | None) -> dict[str, Any]:
    """Return the columns of table_schemas that state a table's schema; None: its schema is not known."""
    if schema is None:
        return dict.fromkeys(("columns", "character_sets", "primary_key", "key_columns", "foreign_keys"))
    columns = [{name: getattr(c, name) for name in _COLUMN_FIELDS} for c in schema.columns]
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
        "foreign_keys": [_foreign_key_row(key) for key in schema.foreign_keys if key.changes_rows] or None,
    }


def _foreign_key_row(key: ForeignKey) -> dict[str, Any]:
    """Return a foreign key as an element of the column `foreign_keys`."""
    return {
        "name": key.name,
        "columns": list(key.columns),
        "database": key.parent.database,
        "table": key.parent.table,
        "parent_columns": list(key.parent_columns),
        "on_delete": key.on_delete,
        "on_update": key.on_update,
    }
