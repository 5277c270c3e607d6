"""The type rules of Debezium: what its messages state of columns' types, compared with the reference tables.

`semantics` holds the MySQL types that a semantic type may stand for, `mysql_types.descriptors` the JDBC codes that
schema-change records (`tableChanges`) have beside a type's name. A row's declared types come from such records and from DDL
statements, of this run and of earlier runs.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.config.connector_settings import MODES
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.mysql_types.descriptors import TYPES
from cdc_assets.mysql_types.types import MySQLType, parsed
from cdc_assets.protocols.debezium import semantics
from cdc_assets.protocols.debezium.limits import WIRES, limits_of_field
from cdc_assets.protocols.debezium.schema_records import described_tables
from cdc_assets.protocols.debezium.semantics import Field, assumed_field, deciding_setting, layout, stands_for
from cdc_assets.type_checks.declared_types import SchemaColumns, SchemaLookup, SchemaRows
from cdc_assets.type_checks.observations import COLUMN_FIELDS, LayoutGroup, MessageColumn, RowLayout
from cdc_assets.type_checks.row_images import Observation, Sending
from cdc_assets.type_checks.rules import LayoutRules, ValuesFit
from cdc_assets.type_checks.validation import is_in_table, make_rule_table, pa
from cdc_assets.type_checks.values import (
    DESCRIBED,
    SHOWS_NO_READING,
    ValueClass,
    widest_limits,
)

_LAST_COMMIT_TS = (1 << 63) - 1
# TiCDC has no such settings: without a schema, too, it writes these forms.
_TICDC: Mapping[str, str] = {semantics.TIME_MODE: semantics.DEFAULT_TIME_MODE, semantics.BINARY_MODE: "bytes"}
# What is assumed of settings that are not given.
_ASSUMED: Mapping[str, str] = {
    semantics.TIME_MODE: semantics.DEFAULT_TIME_MODE,
    semantics.DECIMAL_MODE: "precise or string",
    semantics.BINARY_MODE: "base64 or hex",
}


def _described_schemas(group: LayoutGroup) -> list[dict[str, Any]]:
    """Return the tables of schema-change records as rows of table_schemas."""
    return [
        {"database": database, "table": table, "commit_ts": group.span[0]}
        | {"columns": [{"name": c.name, "type": str(c.type or c.type_name)} for c in columns]}
        for (database, table), (columns, _) in described_tables(group.stated["schema"]).items()
    ]


def _observe_schema_change(group: LayoutGroup) -> list[Observation]:
    """Return the observations of the columns of schema-change records."""
    return [
        {"database": database, "table": table, "column": c.name, "mysql_type": str(c.type or c.type_name)}
        | {"jdbc_type": c.jdbc_type, "value_class": DESCRIBED}
        | {"base": c.type.base if c.type else None, "described": True}
        | group.occurrences
        for (database, table), (columns, _) in described_tables(group.stated["schema"]).items()
        for c in columns
    ]


def _read_optional(text: str) -> dict[str, Any]:
    """Return field -> whether it may be null, by the schema of a message; None if the schema does not state it."""
    fields = (e for e in json.loads(text) if isinstance(e, dict) and isinstance(e.get("field"), str))
    return {e["field"]: e.get("optional") for e in fields}


def _declared_types(field: Field, schemas: Iterable[SchemaColumns]) -> list[MySQLType]:
    """Return the types that schemas declare for the column of a field."""
    return [t for schema in schemas if field.name in schema and (t := parsed(schema[field.name]["type"]))]


def _make_column(
    field: Field,
    declared: list[MySQLType],
    later: list[MySQLType],
    given: str | None,
    settings: Mapping[str, str],
    *,
    nullable: bool,
) -> MessageColumn:
    """Return a column with what its values may be.

    Args:
        field: the column's field in the message's schema.
        declared: the types that the table's schemas at that time declare.
        later: the types that later schemas declare.
        given: the type in the feeds file.
        settings: the connector's settings, as far as they are known.
        nullable: whether the message's schema permits NULL.
    """
    types = [parsed(given)] if given else _possible_types(field, declared, later)
    mysql_type = types[-1]
    # No row without a schema shows that it does not have the type of the next statement yet.
    possible = [*types, *later[:2]] if field.semantic == semantics.UNSTATED and not given else types
    limits = widest_limits([limits_of_field(field, _with_labels(t, later), settings) for t in dict.fromkeys(possible)])
    usual_null = SHOWS_NO_READING if limits.usual else None
    limits = limits._replace(null=usual_null if nullable else ValueClass.NOT_NULL)
    setting = deciding_setting(field, mysql_type)
    own = {
        "semantic_type": field.semantic,
        "connect_type": field.connect,
        "stands_for": stands_for(mysql_type) if mysql_type else None,
        "assumed": f"{setting}={settings.get(setting, _ASSUMED[setting])}" if setting else None,
    }
    # A message without a schema states no types; only schema changes declare the column's type then.
    is_unstated = field.semantic == semantics.UNSTATED
    return MessageColumn(field.name, str(mysql_type) if mysql_type else None, own, limits, type_optional=is_unstated)


def _possible_types(field: Field, declared: list[MySQLType], later: list[MySQLType]) -> Sequence[MySQLType | None]:
    """Return the types that the rows' column may have, the newest last.

    These are the declared types that the field may stand for, because a statement may lie between the rows. If there are
    none, it is the newest declared type, else the type by the field alone. Debezium 1.9 stamps statements with its own
    clock, and so later than the rows after them. So if no type declared until then fits, the first later type that fits
    counts.
    """
    fitting = [t for t in declared if _fits(field.semantic, t)] or [t for t in later if _fits(field.semantic, t)][:1]
    return fitting or declared[-1:] or [field.alone]


def _with_labels(mysql_type: MySQLType | None, later: list[MySQLType]) -> MySQLType | None:
    """Return a type with the labels that later schemas add, because these may apply to the rows (`_possible_types`)."""
    if mysql_type is None or not mysql_type.labels:
        return mysql_type
    more = [label for t in later if t.base == mysql_type.base for label in t.labels or ()]
    return replace(mysql_type, labels=tuple(dict.fromkeys([*mysql_type.labels, *more])))


def _fits(semantic: str, mysql_type: MySQLType) -> bool:
    """Return whether a semantic type may stand for a MySQL type; a semantic type that is not Debezium's excludes none."""
    row = semantics.SEMANTICS.get(semantic)
    return row is None or stands_for(mysql_type) in row.types


_SEMANTIC_TYPES = sorted([*semantics.SEMANTICS, semantics.UNSTATED])
_CONNECT = make_rule_table({(semantic, row.connect) for semantic, row in semantics.SEMANTICS.items()})
_STANDS_FOR = make_rule_table({(semantic, kind) for semantic, row in semantics.SEMANTICS.items() for kind in row.types})
_JDBC = make_rule_table({(base, code) for base, descriptor in TYPES.items() for code in descriptor.debezium_jdbc})
_JSON = make_rule_table({(connect, wire) for connect, wires in WIRES.items() for wire in wires} | {("bytes", "number")})


class ConnectTypes(ValuesFit):
    """The rules of a field's semantic type, Connect type, MySQL type and JSON type, and of a column's JDBC code."""

    semantic_type: object = pa.Field(nullable=True)
    connect_type: object = pa.Field(nullable=True)
    stands_for: object = pa.Field(nullable=True)
    wire_type: object = pa.Field(nullable=True)
    base: object = pa.Field(nullable=True)
    jdbc_type: pd.Int64Dtype = pa.Field(coerce=True, nullable=True)
    described: object = pa.Field(coerce=True, nullable=True)

    @pa.dataframe_check(name="is_semantic_type", error="not a type of Debezium's for MySQL")
    def is_semantic_type(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805 -- pandera's form
        """Check that Debezium has the semantic type of a row's field; columns of schema-change records have none."""
        return frame["semantic_type"].isin(_SEMANTIC_TYPES) | _described_by_statement(frame)

    @pa.dataframe_check(name="connect_type_of_semantic_type", error="not the Connect type of this semantic type")
    def connect_type_of_semantic_type(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check that the Connect type belongs to the semantic type; other semantic types break another rule."""
        return is_in_table(frame, ["semantic_type", "connect_type"], _CONNECT) | ~_has_semantic_type(frame)

    @pa.dataframe_check(name="semantic_type_fits_mysql_type", error="not a semantic type of this MySQL type")
    def semantic_type_fits_mysql_type(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check that the semantic type may stand for the MySQL type; other semantic types break another rule."""
        return is_in_table(frame, ["semantic_type", "stands_for"], _STANDS_FOR) | ~_has_semantic_type(frame)

    @pa.dataframe_check(name="json_type_of_connect_type", error="not the JSON type of this Connect type")
    def json_type_of_connect_type(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check that the JSON type belongs to the Connect type; of `bytes` only decimals may be numbers.

        An observation of NULLs has the usual JSON type. A Connect type that is not the reference's breaks another rule.
        """
        is_number = (frame["wire_type"] == "number") & (frame["connect_type"] == "bytes")
        fits = is_in_table(frame, ["connect_type", "wire_type"], _JSON) & (
            ~is_number | (frame["semantic_type"] == semantics.DECIMAL)
        )
        return fits | ~frame["connect_type"].isin(sorted(WIRES))

    @pa.dataframe_check(name="jdbc_type_of_mysql_type", error="not the JDBC code of this MySQL type")
    def jdbc_type_of_mysql_type(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check that the JDBC code of a schema-change record belongs to the MySQL type; fields of rows have no code."""
        return is_in_table(frame, ["base", "jdbc_type"], _JDBC) | ~_described_by_statement(frame)


def _described_by_statement(frame: pd.DataFrame) -> pd.Series:
    """Return BOOLEAN for each observation: whether it is of a schema-change record."""
    return frame["described"].isin([True])


def _has_semantic_type(frame: pd.DataFrame) -> pd.Series:
    """Return BOOLEAN for each observation: whether its semantic type is one of Debezium's."""
    return frame["semantic_type"].isin(list(semantics.SEMANTICS))


class DebeziumRules(LayoutRules):
    """The type rules of Debezium.

    There is an observation of row events for each table, column, MySQL type, semantic type, JSON type and class of value,
    and one of schema-change records for each table, column, MySQL type and JDBC code.
    """

    model = ConnectTypes
    fields = (
        *COLUMN_FIELDS,
        *("mysql_type", "jdbc_type", "semantic_type", "connect_type", "assumed", "wire_type", "value_class"),
    )
    # Schema changes come in a topic of their own, which a feed need not read.
    sending = Sending(by_commit_ts=False, statements=False, keys_in_rows=False)

    def __init__(self, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        """Make the rules; `settings`: those of the connector that the feeds file gives."""
        self._settings = settings

    def select_events(self, events: DataFrame) -> DataFrame:
        """Return the row events and the schema changes."""
        stated = F.coalesce("layout", "table_schemas")
        return events.where(F.col("kind").isin(str(Kind.ROW), str(Kind.DDL)) & stated.isNotNull())

    def state_columns(self) -> dict[str, Column]:
        """Return the schema of a row or of tables; only TiCDC's messages state no place in a binlog."""
        return {"schema": F.coalesce("layout", "table_schemas"), "of_ticdc": F.col("source").isNull()}

    def make_layouts(
        self, groups: Sequence[LayoutGroup], schemas: SchemaRows, given_types: Mapping[str, str]
    ) -> list[RowLayout]:
        """Return the columns of groups of row events, by earlier schemas and those of the schema changes."""
        described = [row for group in groups if group.kind == Kind.DDL for row in _described_schemas(group)]
        return super().make_layouts(groups, [*schemas, *described], given_types)

    def make_layout(self, group: LayoutGroup, find_schemas: SchemaLookup, given_types: Mapping[str, str]) -> RowLayout:
        """Return the columns of a group of row events."""
        declared = find_schemas(group.database, group.table, group.span)
        later = find_schemas(group.database, group.table, (group.span[1] + 1, _LAST_COMMIT_TS))
        optional = _read_optional(group.stated["schema"])
        of_sender = {**_TICDC, **self._settings} if group.stated["of_ticdc"] else self._settings
        columns = [
            _make_column(
                field,
                _declared_types(field, declared),
                _declared_types(field, later),
                given_types.get(f"{group.database}.{group.table}.{field.name}"),
                of_sender,
                nullable=optional.get(field.name) is not False,
            )
            for field in layout(group.stated["schema"])
        ]
        # TiCDC's rows lack virtual generated columns, which its schemas have.
        may_lack = (column.name for column in columns if group.stated["of_ticdc"] and column.limits.null is None)
        return RowLayout(group, columns, frozenset(may_lack))

    def observe_groups(self, groups: Sequence[LayoutGroup]) -> list[Observation]:
        """Return the observations of schema changes."""
        return [o for group in groups if group.kind == Kind.DDL for o in _observe_schema_change(group)]

    def expected(self, row: Mapping[str, Any]) -> str:
        """Return what the references prescribe for an observation, for people."""
        if row.get("described"):
            mysql_type = parsed(row["mysql_type"])
            codes: Iterable[int] = sorted(TYPES[mysql_type.base].debezium_jdbc) if mysql_type else ()
            return f"JDBC code {', '.join(map(str, codes))}" if mysql_type else "no such type"
        if row.get("assumed"):
            setting, _, mode = row["assumed"].partition("=")
            field = Field(row["column"], row["semantic_type"], row["connect_type"])
            given = {setting: mode} if mode in MODES[setting] else {}
            read_as = assumed_field(field, parsed(row["mysql_type"]), given).semantic
            return f"{read_as}, as with {setting}={mode}: the message does not state this setting of the connector"
        if row.get("semantic_type") == semantics.UNSTATED:
            return "any: the message has no schema"
        semantic = semantics.SEMANTICS.get(row.get("semantic_type") or "")
        return f"{semantic.connect}: {', '.join(sorted(semantic.types))}" if semantic else "no such type"
