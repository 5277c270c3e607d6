"""Column layouts of released rows: their text, and the keys of tables whose messages do not state one."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.expressions import first_true
from cdc_assets.lakehouse.released_changes import ReleasedKind
from cdc_assets.lakehouse.schema import BIGINT, STRING, array, frame_of, struct
from cdc_assets.protocols.base import Protocol
from cdc_assets.release.base import EventGroup


@dataclass(frozen=True)
class NumberedSchema:
    """The key and the layout's text of a schema that rows name by its number."""

    key_columns: list[str]
    layout: str


@dataclass(frozen=True)
class LayoutSchemas:
    """The schemas and keys from table_schemas that complete the messages' layouts.

    Attributes:
        schemas: layout_id -> the schema that rows with this layout name.
        missing: (database, table) -> the lowest commit_ts of a row whose schema has not come.
        missing_layouts: the layout_ids of these rows.
        keys: (database, table) -> in ascending order [commit_ts from which on, the key's columns by a statement].
    """

    schemas: dict[int, NumberedSchema] = field(default_factory=dict)
    missing: dict[tuple[str, str], int] = field(default_factory=dict)
    missing_layouts: set[int] = field(default_factory=set)
    keys: dict[tuple[str, str], list[tuple[int, list[str]]]] = field(default_factory=dict)


def list_unkeyed_tables(groups: Iterable[EventGroup]) -> set[tuple[str, str]]:
    """Return the tables of the groups whose messages have no key."""
    return {(g.database, g.table) for g in groups if g.unkeyed}


def match_schemas(rows: Sequence[dict[str, Any]], protocol: Protocol, groups: Sequence[EventGroup]) -> LayoutSchemas:
    """Return the schemas and keys of groups whose messages have no key.

    Args:
        rows: of table_schemas, of the tables of `list_unkeyed_tables`.
        protocol: the feed's protocol.
        groups: the groups.
    """
    return _match_numbered(rows, groups) if protocol.numbers_schemas else _collect_keys(rows)


def _collect_keys(rows: Sequence[dict[str, Any]]) -> LayoutSchemas:
    """Return the keys of tables without a primary key, until they lose them; `rows`: of table_schemas."""
    keys: dict[tuple[str, str], list[tuple[int, list[str]]]] = {}
    for r in sorted(rows, key=lambda r: r["commit_ts"]):
        name, has_key = (r["database"], r["table"]), not r["primary_key"] and r["key_columns"]
        if has_key or name in keys:
            keys.setdefault(name, []).append((r["commit_ts"], r["key_columns"] if has_key else []))
    return LayoutSchemas(keys=keys)


def _match_numbered(rows: Sequence[dict[str, Any]], groups: Sequence[EventGroup]) -> LayoutSchemas:
    """Return the numbered schema of each group, and the groups whose schema is missing; `rows`: of table_schemas."""
    numbered: dict[tuple[str, str, int], dict[int, NumberedSchema]] = {}
    for r in rows:
        if r["schema_version"] is not None:
            columns = [{"name": c["name"], "type": c["type"]} for c in r["columns"]]
            by_table_id = numbered.setdefault((r["database"], r["table"], r["schema_version"]), {})
            by_table_id[r["table_id"]] = NumberedSchema(r["key_columns"], json.dumps(columns))
    result = LayoutSchemas()
    for g in groups:
        sample = g.sample
        schema = _choose_schema(numbered.get((g.database, g.table, sample["schema_version"]), {}), sample["table_id"])
        if g.layout_id is None:
            continue
        if schema is not None:
            result.schemas[g.layout_id] = schema
            continue
        result.missing_layouts.add(g.layout_id)
        name = g.database, g.table
        result.missing[name] = min(g.first, result.missing.get(name, g.first))
    return result


def _choose_schema(schemas: dict[int, NumberedSchema], table_id: int) -> NumberedSchema | None:
    """Return the schema of a row; None if it has not come.

    By TiCDC's documentation, table name and version identify a schema, but a rename may give one name and version to two
    tables. So the table id decides if a schema has it. A row of a partitioned table has the id of its partition, which no
    schema has; then the schemas must be equal.

    Args:
        schemas: table id -> the schema, of the row's table name and version.
        table_id: the row's table id.
    """
    if table_id in schemas:
        return schemas[table_id]
    candidates = list(schemas.values())
    return candidates[0] if candidates and all(s == candidates[0] for s in candidates) else None


def fill_key_columns(events: DataFrame, schemas: LayoutSchemas) -> DataFrame:
    """Fill the `key_columns` of row events from their schema, or from the statements before their commit_ts."""
    if schemas.schemas:
        rows = [{"layout_id": layout_id, "declared_key": s.key_columns} for layout_id, s in schemas.schemas.items()]
        frame = frame_of(events.sparkSession, rows, struct(layout_id=BIGINT, declared_key=array(STRING)))
        joined = events.join(F.broadcast(frame), on="layout_id", how="left")
        return joined.withColumn("key_columns", F.coalesce("declared_key", "key_columns")).drop("declared_key")
    if not schemas.keys:
        return events
    # Tables whose key only a statement states are rare, so their keys are literals in the plan.
    by_statement = first_true(
        *(
            (
                (F.col("database") == database) & (F.col("table") == table) & (F.col("commit_ts") > since),
                F.array(*[F.lit(c) for c in columns]).cast("array<string>"),
            )
            for (database, table), keys in schemas.keys.items()
            for since, columns in reversed(keys)
        )
    )
    completed = F.coalesce(by_statement, "key_columns")
    return events.withColumn(
        "key_columns", F.when(F.size("key_columns") == 0, completed).otherwise(F.col("key_columns"))
    )


def build_layout_rows(protocol: Protocol, schemas: LayoutSchemas, groups: Sequence[EventGroup]) -> list[dict[str, Any]]:
    """Return a row of released_changes, of kind `layout`, for each column layout of the groups."""
    by_layout: dict[tuple[str, str, int], list[EventGroup]] = {}
    for g in groups:
        if g.layout_id is not None:
            by_layout.setdefault((g.database, g.table, g.layout_id), []).append(g)
    return [
        {
            "kind": str(ReleasedKind.LAYOUT),
            "database": database,
            "table": table,
            "layout_id": layout_id,
            "layout": schemas.schemas[layout_id].layout
            if layout_id in schemas.schemas
            else protocol.layout_of(members[0].sample),
            "key_columns": _find_key_columns(schemas, layout_id, members),
            "commit_ts": min(g.first for g in members),
            "last_ts": max(g.last for g in members),
        }
        for (database, table, layout_id), members in by_layout.items()
    ]


def _find_key_columns(schemas: LayoutSchemas, layout_id: int, groups: list[EventGroup]) -> list[str]:
    """Return the key's columns of the newest row with a layout; [] if the table has no key."""
    if layout_id in schemas.schemas:
        return schemas.schemas[layout_id].key_columns
    by_message = groups[0].sample["key_columns"] or []
    newest = max(groups, key=lambda g: g.last)
    keys = schemas.keys.get((newest.database, newest.table), [])
    by_statement = [columns for since, columns in keys if since < newest.last]
    return by_message or (by_statement[-1] if by_statement else [])
