"""What Debezium's messages say of each column's type, held against the reference table.

The reference is `mysql_types.debezium`: which MySQL types a semantic type may stand for. The MySQL type is known where a
schema-change record (`tableChanges`) of the same run tells it.
"""

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd
import pandera.pandas as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.checks.observations import SEEN, WHERE, Rules, parsed
from cdc_assets.mysql_types.debezium import SEMANTICS, UNTOLD, column_type, layout, stands_for
from cdc_assets.mysql_types.types import MySQLType
from cdc_assets.protocols.events import Kind

_WHAT = [*WHERE, "mysql_type", "semantic_type", "connect_type"]
_Tables = dict[tuple[str, str], dict[str, MySQLType | None]]


def observe(events: DataFrame) -> pd.DataFrame:
    """Boil row events down to their observations: one row a (table, column, MySQL type, semantic type).

    In: rows of change_events. Out: `_WHAT` and `SEEN`; the coordinates are those of one event as a sample.
    """
    kinds = F.col("kind").isin(str(Kind.ROW), str(Kind.DDL)) & F.col("mysql_types").isNotNull()
    place = F.min(F.struct("topic", "partition", "offset")).alias("at")
    found = (
        events.where(kinds)
        .groupBy("kind", "database", "table", "mysql_types")
        .agg(F.count("*").alias("events"), place, F.max("commit_ts").alias("commit_ts"))
        .collect()
    )
    statements = sorted((r for r in found if r["kind"] == Kind.DDL), key=lambda r: r["commit_ts"])
    tables: _Tables = {}
    for statement in statements:
        tables |= _described(json.loads(statement["mysql_types"]))
    observations: list[dict[str, Any]] = []
    for r in (r for r in found if r["kind"] == Kind.ROW):
        known = tables.get((r["database"], r["table"]), {})
        for field in layout(r["mysql_types"]):
            mysql_type = known.get(field.name) or field.alone
            observations.append(
                {
                    "database": r["database"],
                    "table": r["table"],
                    "column": field.name,
                    "mysql_type": str(mysql_type) if mysql_type else None,
                    "semantic_type": field.semantic,
                    "connect_type": field.connect,
                    "events": r["events"],
                    **r["at"].asDict(),
                    "sample_value": None,
                }
            )
    return pd.DataFrame(observations, columns=[*_WHAT, *SEEN])


def _described(table_changes: list[dict[str, Any]]) -> _Tables:
    """(database, table) -> column -> type, out of the `tableChanges` of a schema-change record."""
    tables: _Tables = {}
    for change in table_changes:
        parts = str(change.get("id")).strip('"').split('"."')
        if change.get("table") and len(parts) == 2:
            tables[parts[0], parts[1]] = {
                c["name"]: column_type(c["typeName"], c.get("length"), c.get("scale"))
                for c in change["table"]["columns"]
            }
    return tables


def _fits(semantic: str, mysql_type: str | None) -> bool:
    row, known = SEMANTICS.get(semantic), parsed(mysql_type)
    return known is None or row is None or stands_for(known) in row.types


def semantic_type_schema() -> pa.DataFrameSchema:
    """Every semantic type is known, stands on the Connect type that it has, and may stand for the column's MySQL type."""

    def connect(frame: pd.DataFrame) -> pd.Series:
        pairs = zip(frame["semantic_type"], frame["connect_type"], strict=True)
        return pd.Series([s not in SEMANTICS or SEMANTICS[s].connect == c for s, c in pairs], index=frame.index)

    def fits(frame: pd.DataFrame) -> pd.Series:
        pairs = zip(frame["semantic_type"], frame["mysql_type"], strict=True)
        return pd.Series([_fits(s, t) for s, t in pairs], index=frame.index)

    known = pa.Check.isin([*SEMANTICS, UNTOLD], name="known_semantic_type", error="not a type of Debezium's for MySQL")
    checks = [
        pa.Check(connect, name="connect_type_of_semantic_type", error="not the Connect type of this semantic type"),
        pa.Check(fits, name="semantic_type_fits_mysql_type", error="not a semantic type of this MySQL type"),
    ]
    return pa.DataFrameSchema({"semantic_type": pa.Column(str, known)}, checks=checks)


def _expected(row: Mapping[str, Any]) -> dict[str, Any]:
    known = SEMANTICS.get(row["semantic_type"])
    return {"expected": f"{known.connect}: {', '.join(sorted(known.types))}" if known else "no such type"}


RULES = Rules(
    observe=observe, codes=semantic_type_schema(), called="semantic type", what=tuple(_WHAT), expected=_expected
)
