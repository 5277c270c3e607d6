"""The type rules of Canal-JSON: what its messages state of columns' types, compared with the reference table.

The reference is `ticdc-canal-json`, sections "MySQL Type", "SQL Type" and "integer types"; `mysql_types.jdbc` holds
it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.mysql_types.descriptors import NUMBERS, TYPES
from cdc_assets.mysql_types.jdbc import JDBC, JdbcRow, Source, jdbc_rows, jdbc_text
from cdc_assets.mysql_types.types import MySQLType, parsed
from cdc_assets.type_checks.declared_types import SchemaLookup, complete_decimal
from cdc_assets.type_checks.observations import COLUMN_FIELDS, LayoutGroup, MessageColumn, RowLayout, format_range
from cdc_assets.type_checks.row_images import Sending
from cdc_assets.type_checks.rules import NO_SUCH_TYPE, LayoutRules, ValuesFit
from cdc_assets.type_checks.validation import is_in_table, make_rule_table, pa
from cdc_assets.type_checks.values import Limits, TextForm, ValueClass, limits_of

# Types that only TiCDC prints without parameters: Canal prints types as they were declared, and these need parameters.
_NEVER_BARE = frozenset({"varchar", "varbinary", "enum", "set"})


def _object(value: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    """Return a JSON object, given as such or as text; empty if the value is none, which decoding quarantines."""
    try:
        parsed_value = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        parsed_value = None
    return parsed_value if isinstance(parsed_value, dict) else {}


def _code(value: Any) -> int | None:  # noqa: ANN401
    """Return a JDBC code; None if the value is no 32-bit integer."""
    return value if type(value) is int and abs(value) < 1 << 31 else None


def _sender(types: Any, sources: frozenset[Source]) -> Source:  # noqa: ANN401
    """Return the program whose table of codes applies to messages with these types: TiCDC (`spec`) or Canal."""
    if "canal" not in sources:
        return "spec"
    mysql_types = [parsed(text) for text in types if text is not None]
    bare = [t for t in mysql_types if t and t.base in _NEVER_BARE and t.length is None and t.labels is None]
    return "spec" if bare else "canal"


def _make_column(
    name: str,
    text: str | None,
    code: int | None,
    sender: Source,
    given: str | None,
    declared: Sequence[Mapping[str, Any]],
) -> MessageColumn:
    """Return a column with what its values may be.

    Args:
        name: the column's name.
        text: its type in the message.
        code: its JDBC code.
        sender: the program whose table of codes applies.
        given: its type in the feeds file.
        declared: the column in each of the table's schemas at that time.
    """
    wire_type = parsed(text)
    declared_types = [t for column in declared if (t := parsed(column["type"]))]
    mysql_type = parsed(given) if given else complete_decimal(wire_type, declared_types)
    limits = limits_of(mysql_type, binary=TextForm.LATIN1)
    kind = _kind(wire_type) if wire_type else None
    if kind and not given:
        limits = _limit_by_code(limits, kind, code, sender)
    # NULL is wrong only if all schemas of that time exclude it.
    if declared and all(column["nullable"] is False for column in declared):
        limits = limits._replace(null=ValueClass.NOT_NULL)
    return MessageColumn(name, text, {"jdbc_code": code, "sender": sender, "kind": kind}, limits)


def _limit_by_code(limits: Limits, kind: str, code: int | None, sender: Source) -> Limits:
    """Return the limits of a type, narrowed if its code stands for only some of the type's values."""
    rows = [row for row in _ROWS[sender, kind] if row.code == code]
    if not rows:
        return limits
    if not any(row.null for row in rows):
        limits = limits._replace(null=ValueClass.ELSEWHERE)
    ranges = [row.values for row in rows if row.values is not None]
    if len(ranges) < len(rows) or limits.ranges is None:
        return limits
    return limits._replace(ranges=(*ranges[0], *limits.ranges[2:]))


def _kind(mysql_type: MySQLType) -> str:
    """Return the name that a type has in the table of codes."""
    return f"{mysql_type.base} unsigned" if mysql_type.unsigned else mysql_type.base


_KINDS = [*map(MySQLType, TYPES), *(MySQLType(base, unsigned=True) for base in sorted(NUMBERS))]
_SENDERS: Mapping[Source, frozenset[Source]] = {"spec": frozenset({"spec"}), "canal": frozenset({"spec", "canal"})}
_ROWS: Mapping[tuple[Source, str], tuple[JdbcRow, ...]] = {
    (sender, _kind(each)): jdbc_rows(each, sources) for sender, sources in _SENDERS.items() for each in _KINDS
}
_CODES = sorted({row.code for row in JDBC})
_PAIRS = make_rule_table({(sender, kind, row.code) for (sender, kind), rows_of in _ROWS.items() for row in rows_of})


class JdbcCodes(ValuesFit):
    """The rule that every column has a code of the reference, and one that belongs to the column's type."""

    jdbc_code: pd.Int64Dtype = pa.Field(coerce=True)
    kind: object = pa.Field(nullable=True)
    sender: object = pa.Field(nullable=True)

    @pa.check("jdbc_code", name="is_jdbc_code", error=f"not one of the codes {', '.join(map(jdbc_text, _CODES))}")
    def is_jdbc_code(cls, codes: pd.Series) -> pd.Series:  # noqa: N805 -- pandera's form
        """Check that the reference has the code; a missing code breaks the rule that `jdbc_code` is not null."""
        return codes.isin(_CODES)

    @pa.dataframe_check(name="type_has_codes", error=NO_SUCH_TYPE)
    def type_has_codes(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check that the table of codes has the column's type."""
        return frame["kind"].notna()

    @pa.dataframe_check(name="code_fits_type", error="not a code of this type")
    def code_fits_type(cls, frame: pd.DataFrame) -> pd.Series:  # noqa: N805
        """Check that the code belongs to the type; a missing code and a missing type break other rules."""
        judged_elsewhere = frame["kind"].isna() | frame["jdbc_code"].isna()
        return is_in_table(frame, ["sender", "kind", "jdbc_code"], _PAIRS) | judged_elsewhere


class CanalJsonRules(LayoutRules):
    """The type rules for messages that some programs may have written."""

    model = JdbcCodes
    fields = (*COLUMN_FIELDS, "mysql_type", "jdbc_code", "value_class")
    has_wire_types = False

    def __init__(self, sources: frozenset[Source]) -> None:
        """Make the rules; `sources`: the programs that may have written the messages."""
        self._sources = sources
        # With the TiDB extension commit_ts is a position; in Canal's own messages it is a clock.
        self.sending = Sending(by_commit_ts="canal" not in sources, statements=True)

    def state_columns(self) -> dict[str, Column]:
        """Return the types and the codes. The codes of an UPDATE are those of the new values."""
        return {"layout": F.col("layout"), "codes": F.col("jdbc_types")}

    def make_layout(self, group: LayoutGroup, find_schemas: SchemaLookup, given_types: Mapping[str, str]) -> RowLayout:
        """Return the columns of a group of row events."""
        # A missing or null type stays None, because the rules judge it.
        stated_types = _object(_object(group.stated["layout"]).get("types"))
        types = {name: None if text is None else str(text) for name, text in stated_types.items()}
        codes = {name: _code(code) for name, code in _object(group.stated["codes"]).items()}
        sender = _sender(types.values(), self._sources)
        declared = find_schemas(group.database, group.table, group.span)
        # The codes have the order of the row's columns.
        names = [*codes, *(name for name in types if name not in codes)]
        columns = [
            _make_column(
                name,
                types.get(name),
                codes.get(name),
                sender,
                given=given_types.get(f"{group.database}.{group.table}.{name}"),
                declared=[schema[name] for schema in declared if name in schema],
            )
            for name in names
        ]
        return RowLayout(group, columns)

    def expected(self, row: Mapping[str, Any]) -> str:
        """Return the codes of an observation's type with the values that they stand for, for people."""
        if not row.get("kind"):
            return "no such type"
        values_by_code: dict[int, list[str]] = {}
        for each in _ROWS[row["sender"], row["kind"]]:
            values = each.values
            values_by_code.setdefault(each.code, []).append("" if values is None else format_range(*values))
        return ", ".join(
            jdbc_text(code) if "" in values else f"{jdbc_text(code)} for {' or '.join(values)}"
            for code, values in sorted(values_by_code.items())
        )
