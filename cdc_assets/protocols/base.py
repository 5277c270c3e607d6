"""The interface of a protocol: everything that the pipeline must know of a protocol, in one object."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pyspark.sql import Column, DataFrame

from cdc_assets.config import Feed
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.lakehouse.registry_schemas import SchemaId
from cdc_assets.mysql_types.types import MySQLType, UnknownType, parse_type
from cdc_assets.type_checks.row_images import Observation

if TYPE_CHECKING:
    from cdc_assets.type_checks.rules import Rules


class Envelope(NamedTuple):
    """How a protocol wraps its messages in records.

    Attributes:
        key: how many bytes of a record's key precede the first event's key.
        value: how many bytes of a record's value precede the first event's JSON text. If any do, they are the event's
            length: each event has one, and is compressed by itself.
        claim: where an event names its claim-check file: the column, and the JSON path in it.
        plain: the first bytes of an uncompressed value, if it is not a JSON object.
    """

    key: int = 0
    value: int = 0
    claim: tuple[str, str] = ("value", "")
    plain: tuple[bytes, ...] = ()


# Schema id -> the schema's text in the schema registry; None if the registry has no schema of this id.
SchemaTexts = Mapping[SchemaId, str | None]
NO_SCHEMAS: SchemaTexts = {}


class DeniedSetting(NamedTuple):
    """A setting that records of the feed contradict.

    Attributes:
        right: the right setting, as text of the feeds file.
        evidence: what such records have, to follow "messages with" in a sentence.
        consequence: what goes wrong with the present setting, a clause.
    """

    right: str
    evidence: str
    consequence: str


class UnprovenSetting(NamedTuple):
    """A setting of the connector that decided how values were read, and that nothing proves.

    Attributes:
        setting: the connector's name of it.
        observation: the first values that may be wrong; a row of type_observations.
        as_read: the first of these values as it was read, for people.
        otherwise: the same value as it would be read under another setting, for people.
        assumed: the values of the setting under which the values are right.
        proven: the other values of the setting that other records prove; empty if none does.
    """

    setting: str
    observation: Observation
    as_read: str
    otherwise: str
    assumed: Sequence[str]
    proven: Sequence[str]


class Watermarks(Enum):
    """Whether a feed has watermarks."""

    ALWAYS = auto()
    NEVER = auto()
    IF_SHOWN = auto()  # it has them from the first watermark on


@dataclass(frozen=True)
class WireColumn:
    """A column of a column layout.

    Attributes:
        name: the column's name.
        wire_type: what messages state of its type, in the protocol's own form, hashable; None if they state no type.
        is_guessed: whether messages state no type, so that `wire_type` is an assumption.
        is_loaded: whether the layout is a dump's, not a message's.
    """

    name: str
    wire_type: Any
    is_guessed: bool = False
    is_loaded: bool = False


class Reader(ABC):
    """Reads column layouts: their columns, the columns' types, and the texts of values.

    Attributes:
        dialect: the form of the values' texts, a dialect of `mysql_types.casting`.
    """

    dialect: ClassVar[str]

    @abstractmethod
    def columns(self, layout: str) -> Sequence[WireColumn]:
        """Return the columns of a layout, in the table's order if the layout has it."""

    def resolve(self, column: WireColumn, declared: str | None, override: str | None) -> MySQLType | None:
        """Return the MySQL type of a column; None if MySQL has no such type.

        Messages may state `decimal` for decimal(12,2) and `enum` for enum('a','b'): the declared type has the parameters.

        Args:
            column: a column of a layout.
            declared: the column's type by its table's schema; it counts if the message states no type.
            override: the column's type by the feeds file, which comes first.
        """
        if override:
            return parse_type(override)
        try:
            if column.wire_type is None:
                return parse_type(declared) if declared else None
            wire_type = parse_type(str(column.wire_type))
            declared_type = parse_type(declared) if declared else None
        except UnknownType:
            return None
        if declared_type is None or wire_type.length is not None or wire_type.labels is not None:
            return wire_type
        is_same = (declared_type.base, declared_type.unsigned) == (wire_type.base, wire_type.unsigned)
        return declared_type if is_same else wire_type

    def text(self, value: Column, column: WireColumn, mysql_type: MySQLType | None) -> Column:  # noqa: ARG002
        """Return a value's text in the dialect, from the text of its JSON value."""
        return value


class Protocol(Reader):
    """A protocol. A new one is a package beside this module (class, `decoding`, `type_rules`) and one line in the registry.

    Attributes:
        name: the protocol's name in the feeds file.
        codes_called: what messages state beside the MySQL types, as the messages of the type checks call it.
        events_a_record: about how many events a record has.
        settings: Spark settings under which records are decoded.
        distinguishes_inserts: whether the message of an INSERT always differs from that of an UPDATE.
        joins_pairs: whether, with watermarks, a delete and an insert of a key at one commit_ts are one update.
        numbers_schemas: whether a row names its table's schema by number, and waits until a message has carried that schema.
        carries_schemas: whether messages carry table schemas, against which rows are checked.
        marks_transactions: whether a feed may have transaction markers.
        takes_snapshots: whether the connector takes snapshots of tables; a read's `detail` then says its place in one.
        assumes_settings: whether messages may lack a statement of how values are written, so that the feed's
            `connector_settings` decide it.
    """

    name: ClassVar[str]
    codes_called: ClassVar[str]
    events_a_record: ClassVar[int] = 1
    settings: ClassVar[Mapping[str, str]] = {}
    distinguishes_inserts: ClassVar[bool] = True
    joins_pairs: ClassVar[bool] = True
    numbers_schemas: ClassVar[bool] = False
    carries_schemas: ClassVar[bool] = False
    marks_transactions: ClassVar[bool] = False
    takes_snapshots: ClassVar[bool] = False
    assumes_settings: ClassVar[bool] = False

    def for_feed(self, feed: Feed) -> "Protocol":  # noqa: ARG002
        """Return the protocol for the messages of a feed."""
        return self

    @abstractmethod
    def decode(self, raw: DataFrame, feed: Feed) -> DataFrame:
        """Decode records of `raw_records` into rows of `change_events`; every record becomes at least one event.

        A record or an event that cannot be decoded becomes one event of kind `undecodable` with its `reason`.

        In: topic, partition, offset, batch, timestamp, key BINARY, value BINARY, headers. Out: the columns of
        `change_events`.
        """

    @abstractmethod
    def envelope(self, feed: Feed) -> Envelope:
        """Return how messages are wrapped in records."""

    def schema_ids(self, feed: Feed) -> tuple[Column, ...]:  # noqa: ARG002
        """Return the ids of the registry schemas that a record names, each STRUCT<kind STRING, number BIGINT> or NULL.

        In: key, value, headers of a record.
        """
        return ()

    def with_schemas(self, schemas: SchemaTexts) -> "Protocol":  # noqa: ARG002
        """Return the protocol for records that name these schemas of a schema registry."""
        return self

    @abstractmethod
    def watermarks(self, feed: Feed) -> Watermarks:
        """Return whether the feed has watermarks."""

    def source_kind(self, feed: Feed) -> str:
        """Return the kind of source, `tidb` or `mysql`: only TiCDC, which reads TiDB, always sends watermarks.

        A protocol that both TiDB and MySQL may send has `mysql`.
        """
        return "tidb" if self.watermarks(feed) is Watermarks.ALWAYS else "mysql"

    def denied_setting(self, feed: Feed) -> DeniedSetting | None:  # noqa: ARG002
        """Return the setting that a feed's records may contradict.

        The decoder marks such events with the detail `CONTRADICTS_SETTINGS`. None if records cannot contradict the settings,
        or the decoder quarantines such records.
        """
        return None

    @property
    @abstractmethod
    def signatures(self) -> Mapping[str, Column]:
        """Settings, as text of the feeds file -> whether a record seems to be written under them. BOOLEAN.

        The first bytes or the names of some fields decide. Only for records that could not be decoded, to name the settings
        that would fit them. In: key BINARY, value BINARY of a record.
        """

    def changes_key_text(self, mysql_type: MySQLType) -> bool:  # noqa: ARG002
        """Return whether keys of messages have values of a type as another text than the value itself has."""
        return False

    def find_unproven_settings(self, observations: Iterable[Observation]) -> list[UnprovenSetting]:  # noqa: ARG002
        """Return the settings of the connector by which values may have been read wrongly, because nothing proves them.

        Args:
            observations: rows of type_observations.
        """
        return []

    @abstractmethod
    def type_rules(self, feed: Feed) -> "Rules":
        """Return the rules that the type checks apply to the feed's messages."""

    def schemas_after(
        self,
        statement: Mapping[str, Any],  # noqa: ARG002
        from_statement: Mapping[tuple[str, str], TableSchema],  # noqa: ARG002
    ) -> dict[tuple[str, str], TableSchema]:
        """Return the schemas of tables after a DDL statement, if its message carries them.

        Args:
            statement: `ddl_type` and `table_schemas` of the event.
            from_statement: the schemas that follow from the statement's text.
        """
        return {}

    def numbered_schemas(self, table_schemas: str) -> list[tuple[int, int, TableSchema]]:  # noqa: ARG002
        """Return (table_id, schema_version, schema) of each numbered schema in an event's `table_schemas`."""
        return []

    def layout_of(self, sample: Mapping[str, Any]) -> str:
        """Return the text of a column layout for released_changes, from `layout` and `jdbc_types` of an event."""
        return str(sample["layout"])

    def column_flags(self, layout: str) -> dict[str, str]:  # noqa: ARG002
        """Return column -> what a layout states of it beside name and type, for people."""
        return {}

    def normalize_key(self, key: Column, layout: Column) -> Column:  # noqa: ARG002
        """Return a key in the form in which keys are compared, if messages have several forms."""
        return key

    def sent_key_columns(self, schema: TableSchema) -> list[str]:
        """Return the columns of a table's key in the order in which messages have them."""
        return list(schema.key_columns)

    def dumped_key(self, value: Column, mysql_type: MySQLType) -> Column | None:  # noqa: ARG002
        """Return a dumped value (in the form of `protocols.loaded`) in the form of the keys in messages.

        None if that form cannot be derived: then no table with such a key column can be loaded.
        """
        return None
