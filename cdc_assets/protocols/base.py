"""What a protocol is: everything that the pipeline has to know of one, in one object."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pyspark.sql import Column, DataFrame

from cdc_assets.config import Feed
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets.lakehouse.registry_schemas import SchemaId
from cdc_assets.mysql_types.types import MySQLType, UnknownType, parse_type

if TYPE_CHECKING:
    from cdc_assets.type_checks.observations import Rules


class Envelope(NamedTuple):
    """How a protocol wraps its messages.

    Attributes:
        key: bytes of a record's key that stand before the (first) event's key.
        value: bytes of a record's value that stand before the (first) event's JSON text. Where there are any, they are its
            length: each event has one, and is compressed by itself.
        claim: where an event names its claim-check file: the field, and the JSON path in it.
        plain: what an uncompressed value begins with, where that is not a JSON object.
    """

    key: int = 0
    value: int = 0
    claim: tuple[str, str] = ("value", "")
    plain: tuple[bytes, ...] = ()


# What the schema registry answered by id: the text of a schema, None where it has none.
Answers = Mapping[SchemaId, str | None]
NO_ANSWERS: Answers = MappingProxyType({})


class DeniedSetting(NamedTuple):
    """What records say that the feed's settings deny.

    Attributes:
        right: the setting that records ask for, as text of the feeds file.
        evidence: what such records have, after "messages with".
        consequence: what goes wrong until it is set, a clause.
    """

    right: str
    evidence: str
    consequence: str


class Watermarks(Enum):
    """Whether a feed's source tells up to where it has sent everything."""

    ALWAYS = auto()
    NEVER = auto()
    IF_SHOWN = auto()  # from the first watermark on


@dataclass(frozen=True)
class WireColumn:
    """A column as messages of one layout have it: `said` is what they say of its type, in the protocol's own form."""

    name: str
    said: Hashable
    guessed: bool = False  # the message itself says nothing
    loaded: bool = False  # it is a dump's, not a message's


class Reader(ABC):
    """What tells the columns of a layout, their types, and what their values' texts mean.

    Attributes:
        dialect: of its values' texts, in `mysql_types.casting`.
    """

    dialect: ClassVar[str]

    @abstractmethod
    def columns(self, layout: str) -> Sequence[WireColumn]:
        """The columns of a layout, in the table's order as far as it tells that."""

    def resolve(self, column: WireColumn, declared: str | None, override: str | None) -> MySQLType | None:
        """The type of a column: what the feeds file says, else the message, with the parameters of the declared type.

        Messages may say `decimal` for decimal(12,2) and `enum` for enum('a','b'); the CREATE TABLE has the rest. Where they
        name no type of the column, the declared type counts. None where MySQL has no such type.
        """
        if override:
            return parse_type(override)
        try:
            if column.said is None:
                return parse_type(declared) if declared else None
            on_wire = parse_type(str(column.said))
            known = parse_type(declared) if declared else None
        except UnknownType:
            return None
        bare = on_wire.length is None and on_wire.labels is None
        same = known is not None and (known.base, known.unsigned) == (on_wire.base, on_wire.unsigned)
        return known if bare and same else on_wire

    def text(self, value: Column, column: WireColumn, mysql_type: MySQLType | None) -> Column:  # noqa: ARG002
        """A value's text as the dialect has it, out of the text of its JSON value."""
        return value


class Protocol(Reader):
    """A protocol. A new one is one module beside this one, and one line in the registry.

    Attributes:
        name: in the feeds file.
        codes_called: what stands beside the MySQL types in its messages, in the type checks' words.
        events_a_record: about how many events a record holds.
        settings: of Spark, under which its records are decoded.
        joins_pairs: whether, with watermarks, a delete and an insert of a key at one commit_ts are one update.
        numbers_schemas: whether a row names its table's schema by number only, and waits until a message has brought it.
        carries_schemas: whether messages carry the schemas of tables, which rows are checked against.
        marks_transactions: whether there may be markers of transactions.
        takes_snapshots: whether its connector reads tables; then `detail` of a read is which of the snapshot it is.
    """

    name: ClassVar[str]
    codes_called: ClassVar[str]
    events_a_record: ClassVar[int] = 1
    settings: ClassVar[Mapping[str, str]] = MappingProxyType({})
    joins_pairs: ClassVar[bool] = True
    numbers_schemas: ClassVar[bool] = False
    carries_schemas: ClassVar[bool] = False
    marks_transactions: ClassVar[bool] = False
    takes_snapshots: ClassVar[bool] = False

    @abstractmethod
    def decode(self, raw: DataFrame, feed: Feed) -> DataFrame:
        """Decode records of `raw_records` into rows of `change_events`; every record gives at least one.

        In: topic, partition, offset, batch, timestamp, key BINARY, value BINARY, headers. Out: the columns of the table that
        the protocol fills. A record, or an event, that cannot be decoded becomes one event of kind `undecodable` with its
        `reason`.
        """

    @abstractmethod
    def envelope(self, feed: Feed) -> Envelope:
        """How its messages are wrapped."""

    def schema_ids(self, feed: Feed) -> tuple[Column, ...]:  # noqa: ARG002
        """Return the ids of the schemas that a record names in a schema registry, each STRUCT(kind, number) or NULL."""
        return ()

    def with_answers(self, answers: Answers) -> "Protocol":  # noqa: ARG002
        """Return the protocol that decodes records which name these schemas."""
        return self

    @abstractmethod
    def watermarks(self, feed: Feed) -> Watermarks:
        """Whether a feed has watermarks."""

    def source_kind(self, feed: Feed) -> str:
        """What the source is, as far as the settings tell: of all senders TiCDC alone promises watermarks.

        What both it and others send, as Debezium's form, is `mysql`, whose protocol TiDB speaks.
        """
        return "tidb" if self.watermarks(feed) is Watermarks.ALWAYS else "mysql"

    def denied_setting(self, feed: Feed) -> DeniedSetting | None:  # noqa: ARG002
        """Return the setting that a feed's records may ask for and its file denies.

        Its decoder marks such events with the detail `CONTRADICTS_SETTINGS`. None where the settings deny nothing that
        records may say, or the decoder quarantines such records.
        """
        return None

    @property
    @abstractmethod
    def looks(self) -> Mapping[str, Column]:
        """Return how its records look: settings, as text of the feeds file -> whether a record does. BOOLEAN.

        In: key BINARY, value BINARY of a record. The first bytes, or the names of a few fields, tell: it is asked of records
        that could not be decoded, to say which settings would fit them.
        """

    @abstractmethod
    def type_rules(self, feed: Feed) -> "Rules":
        """What the type checks hold its messages against."""

    def schemas_after(
        self,
        statement: Mapping[str, Any],  # noqa: ARG002
        told: Mapping[tuple[str, str], TableSchema],  # noqa: ARG002
    ) -> dict[tuple[str, str], TableSchema]:
        """The tables after a DDL statement, where its message carries them.

        Args:
            statement: `ddl_type` and `table_schemas`, as the event has them.
            told: the tables as the statement itself has them.
        """
        return {}

    def numbered_schemas(self, carried: str) -> list[tuple[int, int, TableSchema]]:  # noqa: ARG002
        """(table_id, schema_version, schema) of those that a message carries in `table_schemas`."""
        return []

    def layout_of(self, sample: Mapping[str, Any]) -> str:
        """The text of a layout as released changes have it, out of one event of it (`layout` and `jdbc_types`)."""
        return str(sample["layout"])

    def column_flags(self, layout: str) -> dict[str, str]:  # noqa: ARG002
        """Return what a layout says of columns beside their names and types, for people; by column."""
        return {}

    def normal_key(self, key: Column, layout: Column) -> Column:  # noqa: ARG002
        """A key in the one form in which it is compared, where the protocol has several."""
        return key

    def sent_key_columns(self, schema: TableSchema) -> list[str]:
        """The columns of a table's key, in the order that they have in the keys of the protocol's messages."""
        return list(schema.key_columns)

    def dumped_key(self, value: Column, mysql_type: MySQLType) -> Column | None:  # noqa: ARG002
        """A dumped value (as `protocols.loaded` has it) as it stands in the keys of the protocol's messages.

        None where that cannot be told: then no row of a key with such a column can be loaded.
        """
        return None
