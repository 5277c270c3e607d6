"""What Debezium's messages say of each column's type, held against the reference tables.

The references are in `mysql_types.debezium`: which MySQL types a semantic type may stand for, and which JDBC code
schema-change records (`tableChanges`) have beside a type's name. A row's MySQL type is known where such a record, or a DDL
statement, of this run or of an earlier one tells it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pandera.pandas as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.checks.observations import WHERE, Observed, Rules, seen, seen_of
from cdc_assets.mysql_types.debezium import (
    JDBC_TYPES,
    SEMANTICS,
    UNTOLD,
    Field,
    described_tables,
    layout,
    stands_for,
)
from cdc_assets.mysql_types.types import MySQLType, parsed
from cdc_assets.tables.change_events import Kind

_WHAT = [*WHERE, "mysql_type", "jdbc_type", "semantic_type", "connect_type"]
_Types = dict[str, MySQLType | None]
# (database, table) -> its columns from a commit_ts on, in that order
_Shapes = dict[tuple[str, str], list[tuple[int, _Types]]]


def rules() -> Rules:
    """What holds for the messages of a feed."""
    return Rules(observe=observe, codes=semantic_type_schema(), what=tuple(_WHAT), expected=_expected)


def observe(events: DataFrame, known: Sequence[Mapping[str, Any]]) -> list[Observed]:
    """Boil events down to their observations: one a (table, column, MySQL type, semantic type), or (..., JDBC code).

    In: rows of change_events, and of table_schemas. Out: `_WHAT` and `SEEN`; the coordinates are those of one event as a
    sample. Rows have a semantic type and no JDBC code, schema-change records the other way round.
    """
    told = F.coalesce("layout", "table_schemas").alias("told")
    found = (
        events.where(F.col("kind").isin(str(Kind.ROW), str(Kind.DDL)) & told.isNotNull())
        .groupBy("kind", "database", "table", told)
        .agg(*seen())
        .collect()
    )
    shapes = _shapes(known)
    observations: list[Observed] = []
    for r in (r for r in found if r["kind"] == Kind.DDL):
        for (database, table), (columns, _) in described_tables(r["told"]).items():
            shapes[database, table].append((r["first"]["commit_ts"], {c.name: c.type for c in columns}))
            place = {"database": database, "table": table}
            observations += [
                place
                | {"column": c.name, "mysql_type": str(c.type or c.type_name), "jdbc_type": c.jdbc_type, **seen_of(r)}
                for c in columns
            ]
    for r in (r for r in found if r["kind"] == Kind.ROW):
        place = {"database": r["database"], "table": r["table"]}
        held = _between(shapes[r["database"], r["table"]], r["first"]["commit_ts"], r["last"]["commit_ts"])
        for field in layout(r["told"]):
            mysql_type = _type_of(field, held)
            text = str(mysql_type) if mysql_type else None
            types = {"mysql_type": text, "semantic_type": field.semantic, "connect_type": field.connect}
            observations.append(place | {"column": field.name} | types | seen_of(r))
    return [dict.fromkeys(_WHAT) | o for o in observations]


def _shapes(known: Sequence[Mapping[str, Any]]) -> _Shapes:
    shapes: _Shapes = defaultdict(list)
    for r in known:
        if r["columns"] is not None:
            types = {c["name"]: parsed(c["type"]) for c in r["columns"]}
            shapes[r["database"], r["table"]].append((r["commit_ts"], types))
    return shapes


def _between(shapes: list[tuple[int, _Types]], first: int, last: int) -> list[_Types]:
    """The shapes that a table had while rows of one layout came: that before the first row, and those until the last."""
    ordered = sorted(shapes, key=lambda shape: shape[0])
    before = [types for since, types in ordered if since < first]
    return before[-1:] + [types for since, types in ordered if first <= since <= last]


def _type_of(field: Field, held: list[_Types]) -> MySQLType | None:
    """The newest type of the column that the field may stand for; else the newest; else what the field itself tells."""
    known = [types[field.name] for types in held if types.get(field.name)]
    fitting = [t for t in known if _fits(field.semantic, t)]
    return [field.alone, *known, *fitting][-1]


def _fits(semantic: str, known: MySQLType | None) -> bool:
    row = SEMANTICS.get(semantic)
    return known is None or row is None or stands_for(known) in row.types


def semantic_type_schema() -> pa.DataFrameSchema:
    """Every semantic type is known, stands on the Connect type that it has, and may stand for the column's MySQL type.

    And every JDBC code is one that the connector gives to the MySQL type.
    """

    def connect(frame: pd.DataFrame) -> pd.Series:
        pairs = zip(frame["semantic_type"], frame["connect_type"], strict=True)
        return pd.Series([s not in SEMANTICS or SEMANTICS[s].connect == c for s, c in pairs], index=frame.index)

    def fits(frame: pd.DataFrame) -> pd.Series:
        pairs = zip(frame["semantic_type"], frame["mysql_type"], strict=True)
        return pd.Series([_fits(s, parsed(t)) for s, t in pairs], index=frame.index)

    def jdbc(frame: pd.DataFrame) -> pd.Series:
        pairs = zip(frame["mysql_type"], frame["jdbc_type"], strict=True)
        return pd.Series([pd.isna(code) or code in _codes(t) for t, code in pairs], index=frame.index)

    known = pa.Check.isin([*SEMANTICS, UNTOLD], name="known_semantic_type", error="not a type of Debezium's for MySQL")
    checks = [
        pa.Check(connect, name="connect_type_of_semantic_type", error="not the Connect type of this semantic type"),
        pa.Check(fits, name="semantic_type_fits_mysql_type", error="not a semantic type of this MySQL type"),
        pa.Check(jdbc, name="jdbc_type_of_mysql_type", error="not the JDBC code of this MySQL type"),
    ]
    columns = {"semantic_type": pa.Column(str, known, nullable=True)}
    return pa.DataFrameSchema(columns, checks=checks)


def _codes(mysql_type: str | None) -> frozenset[int]:
    known = parsed(mysql_type)
    return JDBC_TYPES[known.base] if known else frozenset()


def _expected(row: Mapping[str, Any]) -> str:
    if row["jdbc_type"] is not None:
        codes = ", ".join(map(str, sorted(_codes(row["mysql_type"]))))
        return f"JDBC code {codes}" if codes else "no such type"
    known = SEMANTICS.get(row["semantic_type"])
    return f"{known.connect}: {', '.join(sorted(known.types))}" if known else "no such type"
