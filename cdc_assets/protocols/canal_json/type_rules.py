"""What Canal-JSON messages say of each column's type, held against the reference table.

The reference is `ticdc-canal-json`, sections "MySQL Type", "SQL Type" and "integer types", as `mysql_types.reference` has
it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.mysql_types.reference import JDBC, TYPES, JdbcRow, Source, jdbc_rows, jdbc_text
from cdc_assets.mysql_types.types import NUMBERS, MySQLType, parsed
from cdc_assets.type_checks.declared_types import SchemaRows, complete_decimal, make_schema_lookup
from cdc_assets.type_checks.observations import (
    COLUMN_FIELDS,
    NO_SUCH_TYPE,
    MessageColumn,
    RowLayout,
    Rules,
    ValuesFit,
    format_range,
    group_by_layout,
    observe_missing_columns,
    observe_values,
    select_row_events,
    with_layout_hash,
)
from cdc_assets.type_checks.row_images import Earlier, Observation, Sending, nothing_earlier
from cdc_assets.type_checks.validation import is_in_table, make_rule_table, pa
from cdc_assets.type_checks.values import Limits, TextForm, ValueClass, limits_of

_WHAT = (*COLUMN_FIELDS, "mysql_type", "jdbc_code", "value_class")
# Types that Canal, which prints them as they were declared, never has without parameters: only TiCDC has.
_NEVER_BARE = frozenset({"varchar", "varbinary", "enum", "set"})


def rules(sources: frozenset[Source]) -> Rules:
    """What holds for the messages of these sources."""
    return Rules(
        observe=lambda events, known, columns, earlier: observe(events, sources, known, columns, earlier),
        model=JdbcCodes,
        fields=_WHAT,
        expected=_expected,
    )


def observe(
    events: DataFrame,
    sources: frozenset[Source],
    known: SchemaRows = (),
    columns: Mapping[str, str] | None = None,
    earlier: Earlier = nothing_earlier,
) -> list[Observation]:
    """Boil row events down to their observations: one a (table, column, type, code, class of value).

    In: rows of change_events, and of table_schemas, the types that the feeds file gives, and the columns that rows of
    earlier runs have had. Out: `_WHAT` and `OCCURRENCE_FIELDS`. In an UPDATE the code, and what else is looked at, goes by
    the new value.
    """
    rows = with_layout_hash(select_row_events(events), layout=F.col("layout"), codes=F.col("jdbc_types"))
    stated = make_schema_lookup(known)
    layouts = []
    for group in group_by_layout(rows, "layout", "codes"):
        # A type may be missing, or null: that is judged, so it must not become a text.
        stated_types = _object(_object(group.stated["layout"]).get("types"))
        types = {name: None if text is None else str(text) for name, text in stated_types.items()}
        codes = {name: _code(code) for name, code in _object(group.stated["codes"]).items()}
        sender = _sender(types.values(), sources)
        shapes = stated(group.database, group.table, group.span)
        # In the order of the codes, which is the rows'.
        told = [
            _told(
                name,
                types.get(name),
                codes.get(name),
                sender,
                given=(columns or {}).get(f"{group.database}.{group.table}.{name}"),
                stated=[shape[name] for shape in shapes if name in shape],
            )
            for name in [*codes, *(n for n in types if n not in codes)]
        ]
        layouts.append(RowLayout(group, told))
    # The TiDB extension has true positions; Canal's own messages have clocks.
    sending = Sending(by_commit_ts="canal" not in sources, statements=True)
    return [
        *observe_values(rows, layouts, has_wire_types=False),
        *observe_missing_columns(layouts, known, sending, earlier),
    ]


def _object(value: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    """An object, or the text of one; empty where it is none: decoding lets nothing else pass."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def _code(value: Any) -> int | None:  # noqa: ANN401
    return value if type(value) is int and abs(value) < 1 << 31 else None


def _sender(types: Any, sources: frozenset[Source]) -> Source:  # noqa: ANN401
    """Whose table holds for messages with these types."""
    if "canal" not in sources:
        return "spec"
    known = [parsed(t) for t in types if t is not None]
    bare = [t for t in known if t and t.base in _NEVER_BARE and t.length is None and t.labels is None]
    return "spec" if bare else "canal"


def _told(
    name: str,
    text: str | None,
    code: int | None,
    sender: Source,
    given: str | None,
    stated: Sequence[Mapping[str, Any]],
) -> MessageColumn:
    mysql_type = (
        parsed(given) if given else complete_decimal(parsed(text), [t for s in stated if (t := parsed(s["type"]))])
    )
    limits = limits_of(mysql_type, binary=TextForm.LATIN1)
    kind = _kind(named) if (named := parsed(text)) else None
    if kind and not given:
        limits = _beside(limits, kind, code, sender)
    # That a column may be NULL is ruled out where all statements of that time do.
    if stated and all(s["nullable"] is False for s in stated):
        limits = limits._replace(null=ValueClass.NOT_NULL)
    return MessageColumn(name, text, {"jdbc_code": code, "sender": sender, "kind": kind}, limits)


def _beside(limits: Limits, kind: str, code: int | None, sender: Source) -> Limits:
    """The limits of a type where its code stands for some of its values only."""
    mine = [row for row in _ROWS[sender, kind] if row.code == code]
    if not mine:
        return limits
    if not any(row.null for row in mine):
        limits = limits._replace(null=ValueClass.ELSEWHERE)
    some = [row.values for row in mine if row.values is not None]
    if len(some) < len(mine) or limits.ranges is None:
        return limits
    return limits._replace(ranges=(*some[0], *limits.ranges[2:]))


def _kind(mysql_type: MySQLType) -> str:
    """A type as the table of codes tells types apart."""
    return f"{mysql_type.base} unsigned" if mysql_type.unsigned else mysql_type.base


_KINDS = [*map(MySQLType, TYPES), *(MySQLType(base, unsigned=True) for base in sorted(NUMBERS))]
_SENDERS: Mapping[Source, frozenset[Source]] = {"spec": frozenset({"spec"}), "canal": frozenset({"spec", "canal"})}
_ROWS: Mapping[tuple[Source, str], tuple[JdbcRow, ...]] = {
    (sender, _kind(each)): jdbc_rows(each, sources) for sender, sources in _SENDERS.items() for each in _KINDS
}
_CODES = sorted({row.code for row in JDBC})
_PAIRS = make_rule_table({(sender, kind, row.code) for (sender, kind), rows_of in _ROWS.items() for row in rows_of})


class JdbcCodes(ValuesFit):
    """Every column has a code that is known, and that the reference has for the column's type."""

    jdbc_code: pd.Int64Dtype = pa.Field(coerce=True)
    kind: object = pa.Field(nullable=True)
    sender: object = pa.Field(nullable=True)

    @pa.check("jdbc_code", name="known_jdbc_code", error=f"not one of the codes {', '.join(map(jdbc_text, _CODES))}")
    def known_jdbc_code(cls, codes: pd.Series) -> pd.Series:  # noqa: N805 -- pandera's form
        """Check the code of a column of any type; that there is none breaks the column's own rule, not to be null."""
        return codes.isin(_CODES)

    @pa.dataframe_check(name="type_has_codes", error=NO_SUCH_TYPE)
    def type_has_codes(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check that there is a type that the table of codes has."""
        return frame["kind"].notna()

    @pa.dataframe_check(name="code_fits_type", error="not a code of this type")
    def code_fits_type(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check a code beside its type; a missing code and a missing type break rules of their own."""
        judged_elsewhere = frame["kind"].isna() | frame["jdbc_code"].isna()
        return is_in_table(frame, ["sender", "kind", "jdbc_code"], _PAIRS) | judged_elsewhere


def _expected(row: Mapping[str, Any]) -> str:
    if not row.get("kind"):
        return "no such type"
    told: dict[int, list[str]] = {}
    for each in _ROWS[row["sender"], row["kind"]]:
        values = each.values
        told.setdefault(each.code, []).append(
            "" if values is None else format_range(*values) if values.low <= values.high else "NULL"
        )
    return ", ".join(
        jdbc_text(code) if "" in values else f"{jdbc_text(code)} for {' or '.join(values)}"
        for code, values in sorted(told.items())
    )
