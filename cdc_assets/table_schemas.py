"""The stage table_schemas: what the DDL statements that went by say of each source table.

The table is the DDL log and its outcome: one row for every statement and table that it touches, with the table's whole
shape from that commit_ts on. It is small, and a pure function of the set of statements: whenever a new one arrives, all
are applied again in commit order, so that it does not matter in which order or how often they came.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import functions as F

from cdc_assets.lakehouse import Lakehouse, next_sequence
from cdc_assets.mysql_types.ddl import TableSchema, apply_ddl
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
)

_STATEMENT = ["commit_ts", "topic", "partition", "offset", "ddl_type", "ddl_statement", "default_database"]


@dataclass(frozen=True)
class SchemasReport:
    """What one run of the stage did."""

    statements: int = 0  # DDL statements new in this run
    tables: int = 0  # tables whose shape is known now
    errors: list[dict[str, Any]] = field(default_factory=list)  # statements that could not be read


def learn(lake: Lakehouse) -> SchemasReport:
    """Apply the DDL events of the event batches that are not learnt yet: one commit, none without new batches.

    Raises:
        ConcurrentRunError: another run learnt them meanwhile.
    """
    table = lake.table_schemas
    table.create(SCHEMA)
    cursor = table.cursor() or {"sequence": 0, "batch": 0}
    through = (lake.change_events.cursor() or {"batch": 0})["batch"]
    if through <= cursor["batch"]:
        return SchemasReport()
    ddl = lake.change_events.read().where((F.col("batch") > cursor["batch"]) & (F.col("kind") == str(Kind.DDL)))
    new = [r.asDict() for r in ddl.withColumn("default_database", F.col("database")).select(*_STATEMENT).collect()]
    if not new:
        return SchemasReport()
    known = [r.asDict() for r in table.read().select(*_STATEMENT).distinct().collect()]
    rows = outcome([*known, *new])
    frame = lake.spark.createDataFrame(rows, SCHEMA).coalesce(1)
    with table.transaction({"sequence": next_sequence(cursor), "batch": through}):
        frame.write.format("delta").mode("overwrite").save(table.path)
    current = {(r["database"], r["table"]): r for r in rows if r["table"] is not None}
    known_statements = {_identity(s) for s in known}
    return SchemasReport(
        statements=len({_identity(s) for s in new} - known_statements),
        tables=sum(r["columns"] is not None for r in current.values()),
        errors=[r for r in rows if r["error"] and _identity(r) not in known_statements],
    )


def outcome(statements: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Apply statements (the first seven columns of `SCHEMA`) in commit order; return rows of `SCHEMA`.

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
        tables = effect.tables
        touched: Iterable[tuple[str | None, str | None]] = effect.affected or [(None, None)]
        rows += [
            {c: statement[c] for c in _STATEMENT}
            | {"database": database, "table": name, "error": effect.error}
            | _shape(tables.get((database or "", name or "")))
            for database, name in touched
        ]
    return rows


def _identity(statement: dict[str, Any]) -> tuple[Any, ...]:
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
