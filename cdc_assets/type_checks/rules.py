"""The type rules of a protocol: the observations that it makes of events, and the pandera models that judge them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.mysql_types.types import parsed
from cdc_assets.type_checks.declared_types import SchemaLookup, SchemaRows, make_schema_lookup
from cdc_assets.type_checks.observations import (
    LayoutGroup,
    RowLayout,
    group_by_layout,
    observe_missing_columns,
    observe_values,
    with_layout_hash,
)
from cdc_assets.type_checks.row_images import Earlier, Observation, Sending, nothing_earlier
from cdc_assets.type_checks.validation import FAILING_VALUE, pa
from cdc_assets.type_checks.values import ValueClass

# The verdicts on a column whose message names no type, and on one whose type no reference table has.
NO_TYPE, NO_SUCH_TYPE = "the message names no type of the column", "no type that the reference has"


class MySQLTypes(pa.DataFrameModel):
    """The rule of mysql_type_mapping: every column has a type that MySQL has."""

    mysql_type: object = pa.Field(nullable=True)
    type_optional: object = pa.Field(coerce=True, nullable=True)
    value_class: object = pa.Field()

    @pa.dataframe_check(name="is_mysql_type", error="not a MySQL type")
    def is_mysql_type(cls, frame: Any) -> Any:  # noqa: ANN401, N805 -- pandera's form
        """Check a type's text; `names_type` and `has_type` judge a missing type."""
        texts = frame["mysql_type"]
        return texts.isna() | texts.isin([t for t in texts.dropna().unique() if parsed(t) is not None])

    @pa.dataframe_check(name="names_type", error=NO_TYPE)
    def names_type(cls, frame: Any) -> Any:  # noqa: ANN401, N805
        """Check that there is a type, unless the protocol documents that it may be missing.

        `has_type` judges a column of the row that the message does not list at all.
        """
        may_lack = frame["type_optional"].isin([True]) | (frame["value_class"] == ValueClass.UNTYPED)
        return frame["mysql_type"].notna() | may_lack

    @pa.dataframe_check(name="has_type", error=str(ValueClass.UNTYPED))
    def has_type(cls, frame: Any) -> Any:  # noqa: ANN401, N805
        """Check that the message lists each column of its row."""
        return frame["value_class"] != ValueClass.UNTYPED


class ValuesFit(pa.DataFrameModel):
    """The rule that every value is one that its type holds. Each protocol's model extends it."""

    value_class: object = pa.Field()

    @pa.check("value_class", name="value_fits_type", error=FAILING_VALUE)
    def value_fits_type(cls, classes: Any) -> Any:  # noqa: ANN401, N805 -- pandera's form
        """Check a value's class; `MySQLTypes.has_type` judges a column without a type."""
        return ~classes.isin([c for c in ValueClass if c is not ValueClass.UNTYPED])


class Rules(ABC):
    """The type rules of a protocol.

    Attributes:
        model: the rules beside those of `MySQLTypes`.
        fields: the fields that tell observations apart.
        has_wire_types: whether the protocol prescribes the types that values have on the wire.
        sending: what the protocol promises of its row events; None: messages state which columns a row has.
    """

    model: ClassVar[type[pa.DataFrameModel]]
    fields: ClassVar[tuple[str, ...]]
    has_wire_types: ClassVar[bool] = True
    sending: Sending | None = None

    def observe(
        self,
        events: DataFrame,
        schemas: SchemaRows,
        given_types: Mapping[str, str],
        earlier: Earlier = nothing_earlier,
    ) -> list[Observation]:
        """Return the observations of events, one for each value of `fields`. Of an UPDATE the new row is observed.

        Args:
            events: rows of change_events.
            schemas: rows of table_schemas.
            given_types: `database.table.column` -> the type that the feeds file gives.
            earlier: the columns that rows of earlier runs had.

        Returns:
            Observations with `fields` and `OCCURRENCE_FIELDS`.
        """
        stated = self.state_columns()
        with_types = with_layout_hash(self.select_events(events), **stated)
        groups = group_by_layout(with_types, *stated)
        layouts = self.make_layouts(groups, schemas, given_types)
        observations = [
            *self.observe_groups(groups),
            *observe_values(select_row_events(with_types), layouts, has_wire_types=self.has_wire_types),
        ]
        if self.sending is not None:
            observations += observe_missing_columns(layouts, schemas, self.sending, earlier)
        return observations

    def select_events(self, events: DataFrame) -> DataFrame:
        """Return the events that state types: those of kind row."""
        return select_row_events(events)

    @abstractmethod
    def state_columns(self) -> dict[str, Column]:
        """Return what a message states of its columns, in the protocol's form, by name. In: a row of change_events."""

    @abstractmethod
    def make_layouts(
        self, groups: Sequence[LayoutGroup], schemas: SchemaRows, given_types: Mapping[str, str]
    ) -> list[RowLayout]:
        """Return the columns of groups of row events; `schemas` and `given_types`: as of `observe`."""

    def observe_groups(self, groups: Sequence[LayoutGroup]) -> list[Observation]:  # noqa: ARG002
        """Return observations that are not of values."""
        return []

    @abstractmethod
    def expected(self, row: Mapping[str, Any]) -> str:
        """Return what the reference prescribes for an observation, for people."""


class LayoutRules(Rules):
    """The type rules of a protocol whose messages state the columns of their row."""

    def make_layouts(
        self, groups: Sequence[LayoutGroup], schemas: SchemaRows, given_types: Mapping[str, str]
    ) -> list[RowLayout]:
        """Return the columns of groups of row events, by what the messages state."""
        find_schemas = make_schema_lookup(schemas)
        return [self.make_layout(group, find_schemas, given_types) for group in groups if group.kind == Kind.ROW]

    @abstractmethod
    def make_layout(self, group: LayoutGroup, find_schemas: SchemaLookup, given_types: Mapping[str, str]) -> RowLayout:
        """Return the columns of a group of row events.

        Args:
            group: the events.
            find_schemas: the declared columns of a table during a span of commit_ts.
            given_types: `database.table.column` -> the type that the feeds file gives.
        """


def select_row_events(events: DataFrame) -> DataFrame:
    """Return the events of kind row."""
    return events.where(F.col("kind") == str(Kind.ROW))
