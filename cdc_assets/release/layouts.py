"""What is known of the layouts that row events have: their text, and the keys of tables whose messages do not tell them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.expressions import first_true
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import ReleasedKind
from cdc_assets.lakehouse.schema import BIGINT, STRING, array, frame_of, struct
from cdc_assets.protocols.base import Protocol
from cdc_assets.release.base import Group


@dataclass(frozen=True)
class Schema:
    """A numbered schema: its key, and the text of its layout."""

    key_columns: list[str]
    layout: str


@dataclass(frozen=True)
class Known:
    """What is known beside the messages.

    Attributes:
        schemas: layout_id -> the schema that rows of it name.
        missing: (database, table) -> the lowest commit_ts of a row whose schema is not known.
        missing_layouts: the layouts of these rows.
        keys: (database, table) -> (commit_ts, key columns) from which on its statements tell of a key.
    """

    schemas: dict[int, Schema] = field(default_factory=dict)
    missing: dict[tuple[str, str], int] = field(default_factory=dict)
    missing_layouts: set[int] = field(default_factory=set)
    keys: dict[tuple[str, str], list[tuple[int, list[str]]]] = field(default_factory=dict)


def known_layouts(lake: Lakehouse, protocol: Protocol, groups: Sequence[Group]) -> Known:
    """Look up what row events of these groups need."""
    unkeyed = {(g.database, g.table) for g in groups if g.unkeyed}
    if not unkeyed:
        return Known()
    rows = lake.schema_rows(unkeyed)
    if not protocol.numbers_schemas:
        keys: dict[tuple[str, str], list[tuple[int, list[str]]]] = {}
        for r in sorted(rows, key=lambda r: r["commit_ts"]):
            if r["columns"] is not None and not r["primary_key"] and r["key_columns"]:
                keys.setdefault((r["database"], r["table"]), []).append((r["commit_ts"], r["key_columns"]))
        return Known(keys=keys)
    numbered: dict[tuple[str, str, int], dict[int, Schema]] = {}
    for r in rows:
        if r["schema_version"] is not None:
            columns = [{"name": c["name"], "type": c["type"]} for c in r["columns"]]
            by_table = numbered.setdefault((r["database"], r["table"], r["schema_version"]), {})
            by_table[r["table_id"]] = Schema(r["key_columns"], json.dumps(columns))
    known = Known()
    for g in groups:
        sample = g.sample
        schema = _schema_of(numbered.get((g.database, g.table, sample["schema_version"]), {}), sample["table_id"])
        if g.layout_id is None:
            continue
        if schema is not None:
            known.schemas[g.layout_id] = schema
            continue
        known.missing_layouts.add(g.layout_id)
        name = g.database, g.table
        known.missing[name] = min(g.first, known.missing.get(name, g.first))
    return known


def _schema_of(schemas: dict[int, Schema], table_id: int) -> Schema | None:
    """The schema of a row, out of those of its table's name and version by table_id; None when it is not known.

    Name and version identify a schema, says the document, but for what renames do to names: so the table_id decides where
    it is known. It is not where the table is partitioned: there a row has the table_id of its partition.
    """
    if table_id in schemas:
        return schemas[table_id]
    different = list(schemas.values())
    return different[0] if different and all(s == different[0] for s in different) else None


def with_known_keys(events: DataFrame, known: Known) -> DataFrame:
    """Row events with the `key_columns` that their schema, or the statements as of their commit_ts, tell."""
    if known.schemas:
        rows = [{"layout_id": layout_id, "known": s.key_columns} for layout_id, s in known.schemas.items()]
        schemas = frame_of(events.sparkSession, rows, struct(layout_id=BIGINT, known=array(STRING)))
        joined = events.join(F.broadcast(schemas), on="layout_id", how="left")
        return joined.withColumn("key_columns", F.coalesce("known", "key_columns")).drop("known")
    if not known.keys:
        return events
    # Few tables are like that, so what is known of them stands in the plan as literals.
    told = first_true(
        *(
            (
                (F.col("database") == database) & (F.col("table") == table) & (F.col("commit_ts") > since),
                F.array(*[F.lit(c) for c in columns]),
            )
            for (database, table), shapes in known.keys.items()
            for since, columns in reversed(shapes)
        )
    )
    key_columns = F.when(F.size("key_columns") == 0, F.coalesce(told, "key_columns")).otherwise(F.col("key_columns"))
    return events.withColumn("key_columns", key_columns)


def layout_rows(protocol: Protocol, known: Known, groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Rows of released_changes with the text of each layout that these groups have."""
    by_layout: dict[tuple[str, str, int], list[Group]] = {}
    for g in groups:
        if g.layout_id is not None:
            by_layout.setdefault((g.database, g.table, g.layout_id), []).append(g)
    return [
        {
            "kind": str(ReleasedKind.LAYOUT),
            "database": database,
            "table": table,
            "layout_id": layout_id,
            "layout": known.schemas[layout_id].layout
            if layout_id in known.schemas
            else protocol.layout_of(of[0].sample),
            "key_columns": _key_columns(known, layout_id, of),
            "commit_ts": min(g.first for g in of),
            "last_ts": max(g.last for g in of),
        }
        for (database, table, layout_id), of in by_layout.items()
    ]


def _key_columns(known: Known, layout_id: int, groups: list[Group]) -> list[str]:
    """The key of rows of a layout, of the newest of them; none where the table has none."""
    if layout_id in known.schemas:
        return known.schemas[layout_id].key_columns
    said = groups[0].sample["key_columns"] or []
    newest = max(groups, key=lambda g: g.last)
    told = [columns for since, columns in known.keys.get((newest.database, newest.table), []) if since < newest.last]
    return said or (told[-1] if told else [])
