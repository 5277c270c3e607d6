"""The type rules of Debezium: what its messages state of columns' types, compared with the reference tables.

`mysql_types.debezium` holds these tables: the MySQL types that a semantic type may stand for, and the JDBC codes that
schema-change records (`tableChanges`) have beside a type's name. A row's declared types come from such records and from DDL
statements, of this run and of earlier runs.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.mysql_types.debezium import (
    BASE64_BYTES,
    BINARY_MODE,
    BITS,
    DECIMAL,
    DECIMAL_MODE,
    DEFAULT_TIME_MODE,
    HEX_BYTES,
    JDBC_TYPES,
    MODES,
    SEMANTICS,
    TIME_MODE,
    UNSTATED,
    UNSTATED_BYTES,
    UNSTATED_DECIMAL,
    Field,
    assumed_field,
    deciding_setting,
    described_tables,
    fixed_size,
    layout,
    stands_for,
)
from cdc_assets.mysql_types.reference import TYPES, Family, value_range
from cdc_assets.mysql_types.types import INTEGERS, MySQLType, parsed
from cdc_assets.type_checks.declared_types import SchemaColumns, SchemaLookup, SchemaRows, make_schema_lookup
from cdc_assets.type_checks.observations import (
    COLUMN_FIELDS,
    LayoutGroup,
    MessageColumn,
    RowLayout,
    Rules,
    ValuesFit,
    group_by_layout,
    observe_missing_columns,
    observe_values,
    select_row_events,
    with_layout_hash,
)
from cdc_assets.type_checks.row_images import Earlier, Observation, Sending, nothing_earlier
from cdc_assets.type_checks.validation import is_in_table, make_rule_table, pa
from cdc_assets.type_checks.values import (
    ANYTHING,
    BASE64,
    DESCRIBED,
    SECOND_PARTS,
    SHOWS_NO_READING,
    Limits,
    TextForm,
    Unit,
    ValueClass,
    integer_limits,
    limits_of,
    widest_limits,
)

_LAST_COMMIT_TS = (1 << 63) - 1
# TiCDC has no such settings: without a schema, too, it writes these forms.
_TICDC: Mapping[str, str] = MappingProxyType({TIME_MODE: DEFAULT_TIME_MODE, BINARY_MODE: "bytes"})
# What is assumed of settings that are not given.
_ASSUMED: Mapping[str, str] = MappingProxyType(
    {TIME_MODE: DEFAULT_TIME_MODE, DECIMAL_MODE: "precise or string", BINARY_MODE: "base64 or hex"}
)

_FIELDS = (
    *COLUMN_FIELDS,
    *("mysql_type", "jdbc_type", "semantic_type", "connect_type", "assumed", "wire_type", "value_class"),
)


def make_rules(settings: Mapping[str, str] = MappingProxyType({})) -> Rules:
    """Return the type rules of Debezium; `settings`: those of the connector that the feeds file gives."""
    return Rules(observe=partial(observe_types, settings), model=ConnectTypes, fields=_FIELDS, expected=_expected)


def observe_types(
    settings: Mapping[str, str],
    events: DataFrame,
    schemas: SchemaRows,
    columns: Mapping[str, str],
    earlier: Earlier = nothing_earlier,
) -> list[Observation]:
    """Return the observations of row events and of schema-change records.

    Of row events there is one observation for each table, column, MySQL type, semantic type, JSON type and class of value;
    of schema-change records one for each table, column, MySQL type and JDBC code.

    Args:
        settings: the connector's settings that the feeds file gives.
        events: rows of change_events.
        schemas: rows of table_schemas.
        columns: `database.table.column` -> the type that the feeds file gives.
        earlier: the columns that rows of earlier runs had.

    Returns:
        Observations with the fields `_FIELDS` and `OCCURRENCE_FIELDS`.
    """
    stated = F.coalesce("layout", "table_schemas")
    kinds = F.col("kind").isin(str(Kind.ROW), str(Kind.DDL))
    # Only TiCDC's messages state no place in a binlog.
    with_types = with_layout_hash(
        events.where(kinds & stated.isNotNull()), schema=stated, of_ticdc=F.col("source").isNull()
    )
    groups = group_by_layout(with_types, "schema", "of_ticdc")
    described = [_read_schema_change(group) for group in groups if group.kind == Kind.DDL]
    find_schemas = make_schema_lookup([*schemas, *(row for rows, _ in described for row in rows)])
    # Schema changes come in a topic of their own, which a feed need not read.
    sending = Sending(by_commit_ts=False, statements=False, keys_in_rows=False)
    layouts = [_make_layout(group, find_schemas, columns, settings) for group in groups if group.kind == Kind.ROW]
    of_statements = [o for _, observations in described for o in observations]
    of_rows = [
        *observe_values(select_row_events(with_types), layouts, has_wire_types=True),
        *observe_missing_columns(layouts, schemas, sending, earlier),
    ]
    return of_statements + of_rows


def _make_layout(
    group: LayoutGroup, find_schemas: SchemaLookup, given_types: Mapping[str, str], settings: Mapping[str, str]
) -> RowLayout:
    """Return the columns of a group of row events.

    Args:
        group: the events.
        find_schemas: the declared columns of a table during a span of commit_ts.
        given_types: `database.table.column` -> the type that the feeds file gives.
        settings: the connector's settings that the feeds file gives.
    """
    declared = find_schemas(group.database, group.table, group.span)
    later = find_schemas(group.database, group.table, (group.span[1] + 1, _LAST_COMMIT_TS))
    optional = _read_optional(group.stated["schema"])
    of_sender = {**_TICDC, **settings} if group.stated["of_ticdc"] else settings
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


def _read_schema_change(group: LayoutGroup) -> tuple[list[dict[str, Any]], list[Observation]]:
    """Return the tables of schema-change records as rows of table_schemas, and the observations of their columns."""
    rows, observations = [], []
    for (database, table_name), (columns, _) in described_tables(group.stated["schema"]).items():
        place = {"database": database, "table": table_name}
        declared = [{"name": c.name, "type": str(c.type or c.type_name)} for c in columns]
        rows.append(place | {"commit_ts": group.span[0], "columns": declared})
        observations += [
            place
            | {
                "column": c.name,
                "mysql_type": str(c.type or c.type_name),
                "jdbc_type": c.jdbc_type,
                "value_class": DESCRIBED,
            }
            | {"base": c.type.base if c.type else None, "described": True}
            | group.occurrences
            for c in columns
        ]
    return rows, observations


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
    possible = [*types, *later[:2]] if field.semantic == UNSTATED and not given else types
    limits = widest_limits([_limits(field, _with_labels(t, later), settings) for t in dict.fromkeys(possible)])
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
    is_unstated = field.semantic == UNSTATED
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
    row = SEMANTICS.get(semantic)
    return row is None or stands_for(mysql_type) in row.types


_WIRES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    dict.fromkeys(["int8", "int16", "int32", "int64"], ("number",))
    # JSON has no number for infinity, so the converter writes it as text.
    | dict.fromkeys(["float", "double"], ("number", "string"))
    | {"string": ("string",), "boolean": ("boolean",), "bytes": ("string",), "struct": ("object",)}
)
_OF_LABELS = frozenset({"io.debezium.data.Enum", "io.debezium.data.EnumSet"})
_BITS_BY_INTEGER = MappingProxyType({"int8": 8, "int16": 16, "int32": 32, "int64": 64})
_FIRST_DAY, _LAST_DAY = -719_528, 2_932_896  # days since 1970 of the years 0 to 9999
_SECONDS_A_DAY, _LONGEST_TIME = 86_400, 3_020_399  # seconds; 838:59:59


def _limits(field: Field, mysql_type: MySQLType | None, settings: Mapping[str, str]) -> Limits:
    """Return what the values of a field may be, as Connect's JSON converter writes them."""
    wires = _WIRES.get(field.connect)
    if field.semantic == DECIMAL:
        wires = ("string", "number")  # decimal.format=NUMERIC
    setting = deciding_setting(field, mysql_type)
    family = TYPES[mysql_type.base].family if mysql_type else None
    # Every setting writes a TIMESTAMP in the same way.
    is_known_form = setting is not None or (field.semantic == UNSTATED and family is Family.TIMESTAMP)
    if mysql_type is None or not is_known_form:
        return _limits_of_values(field, mysql_type)._replace(wires=wires)
    limits = _limits_of_assumed(assumed_field(field, mysql_type, settings), mysql_type)._replace(wires=wires)
    if setting == TIME_MODE and setting not in settings and family is not Family.DATE:
        units = tuple(_make_unit(reading, mysql_type, parts) for reading, parts in SECOND_PARTS.items())
        usual = next(unit.reading for unit in units if limits.ranges and unit.high == limits.ranges[1])
        limits = limits._replace(usual=usual, units=units)
    return limits


def _limits_of_assumed(field: Field, mysql_type: MySQLType) -> Limits:
    """Return what the values of a column may be whose form the message does not state; `field`: as `assumed_field`."""
    length = limits_of(mysql_type).length
    if field.semantic == HEX_BYTES:
        return Limits(TextForm.HEX, length=length)
    if field.semantic == BASE64_BYTES:
        return Limits(TextForm.BASE64_OR_URL, length=length)
    if field.semantic == UNSTATED_DECIMAL:
        size = _largest_size(DECIMAL, mysql_type)
        return Limits(TextForm.UNSCALED_OR_DIGITS, length=size, usual=BASE64)
    if field.semantic == UNSTATED_BYTES or TYPES[mysql_type.base].family is Family.BINARY:
        return Limits(TextForm.HEX_OR_BASE64, length=fixed_size(mysql_type), usual=BASE64)
    return Limits(TextForm.DOUBLE) if field.semantic == "double" else _limits_of_values(field, mysql_type)


def _make_unit(reading: str, mysql_type: MySQLType, parts: int) -> Unit:
    """Return a unit in which a TIME or DATETIME may be; `parts`: the number of them in a second."""
    is_time = TYPES[mysql_type.base].family is Family.TIME
    low, high = _time_range(parts) if is_time else _datetime_range(parts)
    return Unit(reading, low, high, max(1, parts // 10 ** (mysql_type.length or 0)))


def _limits_of_values(field: Field, mysql_type: MySQLType | None) -> Limits:
    """Return what the values of a field may be, on whatever JSON type."""
    semantic = field.semantic
    if semantic == "io.debezium.data.Json" or (mysql_type and mysql_type.base == "json"):
        return Limits(TextForm.JSON)
    if semantic in _BITS_BY_INTEGER:
        return _integer_limits(_BITS_BY_INTEGER[semantic], mysql_type)
    if semantic in {"float", "double"}:
        return Limits(TextForm.ANY if mysql_type and mysql_type.base == "decimal" else TextForm.DOUBLE)
    if semantic in {BITS, DECIMAL, "bytes"}:
        form = TextForm.UNSCALED if semantic == DECIMAL else TextForm.BASE64
        return Limits(form, length=_largest_size(semantic, mysql_type))
    labels = mysql_type.labels if mysql_type and semantic in _OF_LABELS else None
    # A message separates labels by commas, so labels that contain a comma are ambiguous.
    if labels and not any("," in label for label in labels):
        return Limits(TextForm.LABELS, labels=labels)
    return limits_of(mysql_type) if semantic == "string" else _limits_of_time(semantic.rpartition(".")[2])


def _integer_limits(bits: int, mysql_type: MySQLType | None) -> Limits:
    """Return what an integer of this many bits may be, within the range of its MySQL type.

    The type's range does not count if it exceeds the integer's: Debezium writes BIGINT UNSIGNED above an int64 as negative.
    """
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    limits = value_range(mysql_type) if mysql_type and mysql_type.base in INTEGERS else None
    return (
        integer_limits(low, high)
        if limits is None or limits.high > high
        else integer_limits(max(low, limits.low), limits.high)
    )


def _limits_of_time(name: str) -> Limits:
    """Return the limits of a semantic type of days, times or years; other types have none.

    Args:
        name: the last part of the semantic type's name.
    """
    of_names = {
        "Date": integer_limits(_FIRST_DAY, _LAST_DAY),
        "Year": integer_limits(1900, 2155),  # Debezium writes the YEAR 0 as 1900
        "ZonedTimestamp": Limits(TextForm.ZONED),
        "IsoDate": Limits(TextForm.ISO_DATE),
        "IsoTime": Limits(TextForm.ISO_TIME),
        "IsoTimestamp": Limits(TextForm.ISO_DATETIME),
    }
    for size, parts in zip(("", "Micro", "Nano"), SECOND_PARTS.values(), strict=True):
        of_names[f"{size}Timestamp"] = integer_limits(*_datetime_range(parts))
        of_names[f"{size}Time"] = integer_limits(*_time_range(parts))
    return of_names.get(name, ANYTHING)


def _datetime_range(parts: int) -> tuple[int, int]:
    """Return the lowest and the highest DATETIME, with so many parts in a second."""
    return _FIRST_DAY * _SECONDS_A_DAY * parts, (_LAST_DAY + 1) * _SECONDS_A_DAY * parts - 1


def _time_range(parts: int) -> tuple[int, int]:
    """Return the lowest and the highest TIME, with so many parts in a second."""
    return -_LONGEST_TIME * parts, _LONGEST_TIME * parts


def _largest_size(semantic: str, mysql_type: MySQLType | None) -> int | None:
    """Return the largest number of bytes of a value; None if it is unknown."""
    if mysql_type is None:
        return None
    if semantic == BITS:
        return ((mysql_type.length or 64) + 7) // 8
    if semantic == DECIMAL:
        digits = mysql_type.length or 65 if mysql_type.base == "decimal" else 20
        return len(f"{10**digits:x}") // 2 + 1
    return limits_of(mysql_type).length


_SEMANTIC_TYPES = sorted([*SEMANTICS, UNSTATED])
_CONNECT = make_rule_table({(semantic, row.connect) for semantic, row in SEMANTICS.items()})
_STANDS_FOR = make_rule_table({(semantic, kind) for semantic, row in SEMANTICS.items() for kind in row.types})
_JDBC = make_rule_table({(base, code) for base, codes in JDBC_TYPES.items() for code in codes})
_JSON = make_rule_table(
    {(connect, wire) for connect, wires in _WIRES.items() for wire in wires} | {("bytes", "number")}
)


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
            ~is_number | (frame["semantic_type"] == DECIMAL)
        )
        return fits | ~frame["connect_type"].isin(sorted(_WIRES))

    @pa.dataframe_check(name="jdbc_type_of_mysql_type", error="not the JDBC code of this MySQL type")
    def jdbc_type_of_mysql_type(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check that the JDBC code of a schema-change record belongs to the MySQL type; fields of rows have no code."""
        return is_in_table(frame, ["base", "jdbc_type"], _JDBC) | ~_described_by_statement(frame)


def _described_by_statement(frame: pd.DataFrame) -> pd.Series:
    """Return BOOLEAN for each observation: whether it is of a schema-change record."""
    return frame["described"].isin([True])


def _has_semantic_type(frame: pd.DataFrame) -> pd.Series:
    """Return BOOLEAN for each observation: whether its semantic type is one of Debezium's."""
    return frame["semantic_type"].isin(list(SEMANTICS))


def _expected(row: Mapping[str, Any]) -> str:
    """Return what the references prescribe for an observation, for people."""
    if row.get("described"):
        mysql_type = parsed(row["mysql_type"])
        codes: Iterable[int] = sorted(JDBC_TYPES[mysql_type.base]) if mysql_type else ()
        return f"JDBC code {', '.join(map(str, codes))}" if mysql_type else "no such type"
    if row.get("assumed"):
        setting, _, mode = row["assumed"].partition("=")
        field = Field(row["column"], row["semantic_type"], row["connect_type"])
        given = {setting: mode} if mode in MODES[setting] else {}
        read_as = assumed_field(field, parsed(row["mysql_type"]), given).semantic
        return f"{read_as}, as with {setting}={mode}: the message does not state this setting of the connector"
    if row.get("semantic_type") == UNSTATED:
        return "any: the message has no schema"
    semantic = SEMANTICS.get(row.get("semantic_type") or "")
    return f"{semantic.connect}: {', '.join(sorted(semantic.types))}" if semantic else "no such type"
