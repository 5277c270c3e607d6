"""The stage table_schemas: what is known of each source table, from DDL statements and from schemas that messages carry.

Two kinds of rows. The DDL log and its outcome: one row for every statement and table that it touches, with the table's
whole shape from that commit_ts on; where the message carries the table's schema, that is its shape, else what the SQL
says. And, for protocols whose rows name their schema by number (Simple), the *numbered schemas*: each (database, table,
table_id, schema_version) that any message carried, once, whichever message that was.

The table is small, and a pure function of the set of statements and schemas: whenever a new one arrives, all statements
are applied again in commit order, so that it does not matter in which order or how often they came.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.feeds import Feed
from cdc_assets.lakehouse import Lakehouse, next_sequence
from cdc_assets.mysql_types.ddl import Column, TableSchema, apply_ddl
from cdc_assets.mysql_types.debezium import Described, described_tables
from cdc_assets.mysql_types.simple import type_text
from cdc_assets.mysql_types.types import UnknownType, parse_type
from cdc_assets.protocols import numbers_schemas
from cdc_assets.protocols.events import Kind
from cdc_assets.schema import BIGINT, BOOLEAN, INT, STRING, array, struct

SCHEMA = struct(
    commit_ts=BIGINT,
    topic=STRING,
    partition=INT,
    offset=BIGINT,
    ddl_type=STRING,
    ddl_statement=STRING,
    # the session's database when the statement ran, and the table that the row is about (null: none)
    default_database=STRING,
    database=STRING,
    table=STRING,
    # null: the table is gone, or the statement could not be read (`error` says why)
    columns=array(struct(name=STRING, type=STRING, nullable=BOOLEAN, default=STRING, generated=BOOLEAN)),
    primary_key=array(STRING),
    key_columns=array(STRING),
    error=STRING,
    # of a numbered schema, which has no statement; its commit_ts is its version, a TSO
    table_id=BIGINT,
    schema_version=BIGINT,
    # of a statement: the schemas that its message carries, as `events.SCHEMA` has them
    table_schemas=STRING,
)

_STATEMENT = [
    "commit_ts", "topic", "partition", "offset", "ddl_type", "ddl_statement", "default_database", "table_schemas"
]  # fmt: skip
_NUMBERED = ["database", "table", "table_id", "schema_version"]

Numbered = tuple[str, str, int, int]  # the values of `_NUMBERED`


@dataclass(frozen=True)
class SchemasReport:
    """What one run of the stage did."""

    statements: int = 0  # DDL statements new in this run
    tables: int = 0  # tables whose shape is known now
    errors: list[dict[str, Any]] = field(default_factory=list)  # statements that could not be read
    schemas: int = 0  # numbered schemas new in this run


def learn(lake: Lakehouse, feed: Feed) -> SchemasReport:
    """Apply the DDL and bootstrap events of the event batches that are not learnt yet: one commit, none without any.

    Raises:
        ConcurrentRunError: another run learnt them meanwhile.
    """
    table = lake.table_schemas
    table.create(SCHEMA)
    cursor = table.cursor() or {"sequence": 0, "batch": 0}
    through = (lake.change_events.cursor() or {"batch": 0})["batch"]
    if through <= cursor["batch"]:
        return SchemasReport()
    events = lake.change_events.read().where(F.col("batch") > cursor["batch"])
    ddl = events.where(F.col("kind") == str(Kind.DDL))
    new = [r.asDict() for r in ddl.withColumn("default_database", F.col("database")).select(*_STATEMENT).collect()]
    bootstraps = _bootstraps(events) if numbers_schemas(feed) else []
    if not new and not bootstraps:
        return SchemasReport()
    present = [r.asDict(recursive=True) for r in table.read().collect()]
    known = [{c: r[c] for c in _STATEMENT} for r in present if r["ddl_statement"] is not None]
    numbered = {_number(r): r for r in present if r["schema_version"] is not None}
    carrying = [*bootstraps, *new] if numbers_schemas(feed) else []
    arrived = {_number(r): r for message in carrying for r in _numbered(message)}
    added = {number: row for number, row in arrived.items() if number not in numbered}
    advanced = {"sequence": next_sequence(cursor), "batch": through}
    if not new and not added:
        table.append(table.read().limit(0), advanced)  # bootstraps come again and again: read them once
        return SchemasReport(tables=_known(present))
    rows = [*numbered.values(), *added.values(), *outcome([*known, *new])]
    frame = lake.spark.createDataFrame(rows, SCHEMA).coalesce(1)
    with table.transaction(advanced):
        frame.write.format("delta").mode("overwrite").save(table.path)
    known_statements = {_identity(s) for s in known}
    return SchemasReport(
        statements=len({_identity(s) for s in new} - known_statements),
        tables=_known(rows),
        errors=[r for r in rows if r["error"] and _identity(r) not in known_statements],
        schemas=len(added),
    )


def numbered_schemas(lake: Lakehouse) -> DataFrame:
    """The numbered schemas of a feed, for `schema_of` to look rows up in.

    Out: database, table, schema_version, `schemas` MAP<BIGINT, STRUCT<key_columns ARRAY<STRING>, mysql_types STRING>> by
    table_id.
    """
    types = F.transform("columns", lambda c: F.struct(c["name"].alias("name"), c["type"].alias("type")))
    schema = F.struct("key_columns", F.to_json(F.map_from_entries(types)).alias("mysql_types"))
    rows = lake.table_schemas.read().where(F.col("schema_version").isNotNull())
    entries = F.collect_list(F.struct(F.col("table_id"), schema))
    return rows.groupBy("database", "table", "schema_version").agg(F.map_from_entries(entries).alias("schemas"))


def carried_schemas(events: DataFrame, known: DataFrame | None) -> list[dict[str, Any]]:
    """The numbered schemas in `known` (rows of table_schemas) and those that DDL and bootstrap events carry, each once.

    Out: rows of `SCHEMA`.
    """
    carrying = events.where(F.col("table_schemas").isNotNull())
    found = carrying.groupBy("table_schemas").agg(F.min(F.struct("topic", "partition", "offset")).alias("at")).collect()
    rows = [row for r in found for row in _numbered(r["at"].asDict() | {"table_schemas": r["table_schemas"]})]
    if known is not None:
        learnt = known.where(F.col("schema_version").isNotNull()).collect()
        rows = [r.asDict(recursive=True) for r in learnt] + rows
    return list({_number(row): row for row in reversed(rows)}.values())


def schema_of(schemas: SparkColumn, table_id: SparkColumn) -> SparkColumn:
    """The schema of a row out of the `schemas` of its table's name and version; null when it is not known.

    Name and version identify a schema, says the document, but for what renames do to names: so the table_id decides where
    it is known. It is not where the table is partitioned: there a row has the table_id of its partition.
    """
    shapes = F.array_distinct(F.map_values(schemas))
    return F.coalesce(F.try_element_at(schemas, table_id), F.when(F.size(shapes) == 1, F.get(shapes, F.lit(0))))


def _bootstraps(events: DataFrame) -> list[dict[str, Any]]:
    """The different schemas among bootstrap events, each under its first record."""
    of_message = ["topic", "partition", "offset", "table_schemas"]
    first = F.min_by(F.struct(*of_message), F.struct("topic", "partition", "offset"))
    found = events.where(F.col("kind") == str(Kind.BOOTSTRAP)).groupBy(*_NUMBERED).agg(first.alias("first"))
    return [r["first"].asDict() | {"ddl_type": None} for r in found.collect()]


def _numbered(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of `SCHEMA`: the schemas that a message carries."""
    empty = dict.fromkeys(SCHEMA.names)
    place = {c: message[c] for c in ("topic", "partition", "offset")}
    return [
        empty
        | place
        | {"commit_ts": carried["version"], "database": carried["schema"], "table": carried["table"]}
        | {"table_id": carried["tableID"], "schema_version": carried["version"]}
        | _shape(_table_schema(carried))
        for carried in json.loads(message["table_schemas"] or "[]")
    ]


def _number(row: Mapping[str, Any]) -> Numbered:
    return row["database"], row["table"], row["table_id"], row["schema_version"]


def _table_schema(carried: Mapping[str, Any]) -> TableSchema:
    """A Simple message's TableSchema (`ticdc-simple-protocol`, section "TableSchema definition")."""
    indexes = carried.get("indexes") or []
    # A table whose rows are told apart by a unique key has an index `primary` as well, from the encoder.
    primary = next((i["columns"] for i in indexes if i.get("primary")), ())
    unique = [i for i in indexes if i.get("unique") and not i.get("primary")]
    columns = tuple(
        Column(c["name"], type_text(c["dataType"]), nullable=c.get("nullable", True), default=c.get("default"))
        for c in carried["columns"]
    )
    return TableSchema(
        carried["schema"],
        carried["table"],
        columns,
        tuple(primary),
        tuple(tuple(i["columns"]) for i in unique),
        tuple(i.get("name", "") for i in unique),
    )


def outcome(statements: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Apply statements (`_STATEMENT`) in commit order; return rows of `SCHEMA`.

    A statement that came more than once counts once, under its first record.
    """
    ordered = sorted(statements, key=lambda s: (s["commit_ts"], s["topic"], s["partition"], s["offset"]))
    tables: Mapping[tuple[str, str], TableSchema] = {}
    rows: list[dict[str, Any]] = []
    seen = set()
    for statement in ordered:
        if _identity(statement) in seen:
            continue
        seen.add(_identity(statement))
        effect = apply_ddl(tables, statement["ddl_statement"], statement["default_database"] or "")
        shown = _shown(statement, effect.tables)
        tables = {**effect.tables, **shown} if shown else effect.tables
        touched: Iterable[tuple[str | None, str | None]] = dict.fromkeys([*effect.affected, *shown]) or [(None, None)]
        rows += [
            dict.fromkeys(SCHEMA.names)
            | {c: statement.get(c) for c in _STATEMENT}
            # Where the message says what came of it, it does not matter that the statement cannot be read.
            | {"database": database, "table": name, "error": None if (database, name) in shown else effect.error}
            | _shape(tables.get((database or "", name or "")))
            for database, name in touched
        ]
    return rows


def _shown(
    statement: Mapping[str, Any], told: Mapping[tuple[str, str], TableSchema]
) -> dict[tuple[str, str], TableSchema]:
    """The tables after the statement, where its message carries them; `told`: as the statement itself has them.

    Simple carries a dropped table as it was, Debezium not at all.
    """
    carried = json.loads(statement.get("table_schemas") or "[]")
    if not carried or statement["ddl_type"] == "ERASE":
        return {}
    if isinstance(carried[0], dict) and "tableID" in carried[0]:
        schema = _table_schema(carried[0])
        return {(schema.database, schema.table): schema}
    described = described_tables(statement["table_schemas"])
    return {name: _of_columns(name, *shape, told.get(name)) for name, shape in described.items()}


def _of_columns(
    name: tuple[str, str], columns: list[Described], primary_key: tuple[str, ...], told: TableSchema | None
) -> TableSchema:
    """A table as Debezium describes it. Defaults and keys, which it does not tell, are those of the statements."""
    stated = {c.name: c for c in told.columns} if told else {}

    def column(described: Described) -> Column:
        known = stated.get(described.name)
        text = _completed(described, known.type if known else None)
        if known:
            return replace(known, type=text, nullable=described.nullable)
        return Column(described.name, text, nullable=described.nullable, generated=described.generated)

    shape = tuple(column(c) for c in columns)
    return replace(told or TableSchema(*name, ()), columns=shape, primary_key=primary_key)


def _completed(described: Described, stated: str | None) -> str:
    """The text of a type, with the labels of enum and set that 1.9.5 does not tell."""
    if described.type is None:
        return described.type_name
    if stated is not None and described.type.base in {"enum", "set"} and described.type.labels is None:
        try:
            same = parse_type(stated).base == described.type.base
        except UnknownType:
            same = False
        return stated if same else str(described.type)
    return str(described.type)


def _known(rows: Iterable[Mapping[str, Any]]) -> int:
    """How many tables there are, by the last row of each."""
    current = {(r["database"], r["table"]): r for r in rows if r["table"] is not None}
    return sum(r["columns"] is not None for r in current.values())


def _identity(statement: Mapping[str, Any]) -> tuple[Any, ...]:
    return statement["commit_ts"], statement["default_database"], statement["ddl_statement"]


def _shape(schema: TableSchema | None) -> dict[str, Any]:
    if schema is None:
        return {"columns": None, "primary_key": None, "key_columns": None}
    columns = [
        {"name": c.name, "type": c.type, "nullable": c.nullable, "default": c.default, "generated": c.generated}
        for c in schema.columns
    ]
    return {
        "columns": columns,
        "primary_key": list(schema.primary_key),
        "key_columns": list(schema.key_columns),
    }
