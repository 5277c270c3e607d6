"""What a feeds file declares: changefeeds, where they are read from, and how."""

from datetime import timedelta
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, HttpUrl, PlainValidator, SecretStr, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from cdc_assets.config.kafka_options import OptionError, librdkafka_options
from cdc_assets.config.patterns import chosen, matches
from cdc_assets.config.values import (
    DURATION,
    ENDPOINT,
    FOLDER,
    PATTERN,
    REGISTRY_IDS,
    REGISTRY_OPTIONS,
    REGISTRY_URL,
    SCHEMA,
    STARTING_OFFSETS,
    USE_ID,
    ClientKey,
    ColumnPath,
    Duration,
    Endpoint,
    FeedName,
    HadoopKey,
    KafkaKey,
    OffsetsValue,
    Option,
    Owner,
    Pattern,
    Place,
    RegistryKey,
    RegistryUrl,
    SchemaName,
    SparkKey,
    SparkValue,
    TablePath,
    TablePattern,
    Text,
    TimeZone,
    TypeText,
    WholeNumber,
    by_table,
    by_table_allowed,
    reject,
)

ProtocolName = Literal["canal-json", "open-protocol", "simple", "debezium"]
Encoding = Literal["json", "avro"]
GateScope = Literal["topic", "feed"]
TypeMapping = Literal["block", "warn"]
SchemaChanges = Literal["evolve", "stop"]
Snapshots = Literal["partial", "whole"]
OnDataLoss = Literal["fail", "skip"]
DumpFormat = Literal["dumpling-csv", "dumpling-sql", "parquet"]

# Of patterns of tables the first that matches counts.
_TypeMapping = Annotated[TypeMapping | dict[str, TypeMapping], PlainValidator(by_table(*get_args(TypeMapping)))]
_SchemaChanges = Annotated[SchemaChanges | dict[str, SchemaChanges], PlainValidator(by_table(*get_args(SchemaChanges)))]


def _exactly_one(other: str, value: object, info: ValidationInfo) -> None:
    """Fail the model that has the field when both or neither of `value` and the earlier field `other` are given."""
    if other in info.data and (info.data[other] is None) == (value is None):  # not in data: wrong, reported already
        found = "neither" if value is None else "both"
        allowed = f"exactly one of {other}, {info.field_name}"
        raise PydanticCustomError("exactly_one", "{found}{allowed}", {"found": found, "allowed": allowed})


def _only_with(protocol: ProtocolName, info: ValidationInfo) -> None:
    if info.data.get("protocol", protocol) != protocol:  # a wrong protocol is reported already
        reject(f"{info.field_name} only with protocol: {protocol}")


# In the models below a field's description is what error messages give as allowed.


class _Model(BaseModel):
    # hide_input_in_errors: pydantic's own messages would show what came from the environment.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Kafka(_Model):
    """A broker, and the topics read from it: `topics` or `topic_pattern`, never both.

    Spark reads records with `options`, those of Kafka's Java client. Topics and offsets are listed by librdkafka: with what
    it understands of `options`, and with `client_options`, its own. Both may hold passwords:
    `options[key].get_secret_value()` is the only way to see one.
    """

    bootstrap_servers: Text = Field(description="host:port, several with commas between them")
    topics: tuple[Text, ...] | None = Field(None, min_length=1, description="a list of topic names, at least one")
    topic_pattern: Pattern | None = Field(None, validate_default=True, description=PATTERN)
    client_options: dict[ClientKey, Option] = Field({}, description="a mapping of librdkafka's settings to text")
    options: dict[KafkaKey, Option] = Field({}, description="a mapping of kafka.* settings to text")
    starting_offsets: OffsetsValue = Field("earliest", description=STARTING_OFFSETS)
    on_data_loss: OnDataLoss = Field("fail", description=", ".join(get_args(OnDataLoss)))
    max_records_per_run: WholeNumber | None = Field(None, ge=1, description="a whole number, 1 or more")

    @field_validator("topic_pattern")
    @classmethod
    def _one_choice_of_topics(cls, value: str | None, info: ValidationInfo) -> str | None:
        _exactly_one("topics", value, info)
        return value

    @field_validator("options")
    @classmethod
    def _for_both_clients(cls, value: dict[str, SecretStr], info: ValidationInfo) -> dict[str, SecretStr]:
        options, client_options = (
            {name: each.get_secret_value() for name, each in given.items()}
            for given in (value, info.data.get("client_options", {}))
        )
        try:
            librdkafka_options(options, client_options)
        except OptionError as error:
            at = (error.option,) if error.is_value else (error.option, "[key]")
            context = {"allowed": error.allowed, "detail": error.detail, "at": at}
        else:
            return value
        # Outside the except block: no exception that has seen a secret is chained.
        raise PydanticCustomError("rule", "{allowed}{detail}", context)


class Source(_Model):
    """Where a feed's records come from: a folder of recorded ones (an absolute path or a URI once loaded), or a broker."""

    recorded: Place | None = Field(None, description=FOLDER)
    partitions: WholeNumber | None = Field(None, ge=1, description="a whole number, 1 or more")
    kafka: Kafka | None = Field(None, validate_default=True)

    @field_validator("partitions")
    @classmethod
    def _of_a_recorded_source(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("recorded", value) is None:
            reject("partitions only beside recorded (a broker knows its own)")
        return value

    @field_validator("kafka")
    @classmethod
    def _one_choice_of_source(cls, value: Kafka | None, info: ValidationInfo) -> Kafka | None:
        _exactly_one("recorded", value, info)
        return value


class Tables(_Model):
    """The source tables a feed takes, as patterns `database.table` with `*` and `?`, upper and lower case told apart.

    A Spark expression for them takes a pattern apart with `split_pattern`.
    """

    include: tuple[TablePattern, ...] = Field(
        ("*.*",), min_length=1, description="a list of patterns database.table, at least one"
    )
    exclude: tuple[TablePattern, ...] = Field((), description="a list of patterns database.table")

    def takes(self, database: str, table: str) -> bool:
        """Whether the table matches a pattern of `include` and none of `exclude`."""
        included = any(matches(pattern, database, table) for pattern in self.include)
        return included and not any(matches(pattern, database, table) for pattern in self.exclude)


_FORMATS = ", ".join(get_args(DumpFormat))
_TSO = "a TSO, a whole number, 1 or more"


class TableLoad(_Model):
    """What is different in the initial load of one table."""

    path: Place | None = Field(None, description=FOLDER)
    format: DumpFormat | None = Field(None, description=_FORMATS)
    position: WholeNumber | None = Field(None, ge=1, description=_TSO)


class InitialLoad(_Model):
    """A dump of the source that the histories of its tables begin with.

    `position` is the TSO that the dump was taken at; without it, the dump's own `metadata` file tells it. `tables` has what
    is different for single tables, by "database.table". TIMESTAMP values are printed in `time_zone`.
    """

    path: Place = Field(description=FOLDER)
    format: DumpFormat = Field(description=_FORMATS)
    position: WholeNumber | None = Field(None, ge=1, description=_TSO)
    time_zone: TimeZone = Field("UTC", description="a time zone name such as UTC or Europe/Berlin, or an offset +HH:MM")
    tables: dict[TablePath, TableLoad] = Field({}, description="a mapping of database.table to path, format, position")


class SchemaRegistry(_Model):
    """The registry that gives the Avro schemas of a feed's records by the ids that the records name.

    The URL is the base of Confluent's API, which other registries offer too, or of Apicurio's own: `.../apis/registry/v2`
    or `v3`. Options may hold passwords: `options[key].get_secret_value()` is the only way to see one.
    """

    url: RegistryUrl = Field(description=REGISTRY_URL)
    options: dict[RegistryKey, Option] = Field({}, description=REGISTRY_OPTIONS)

    @field_validator("options")
    @classmethod
    def _of_known_ids(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        use = value.get(USE_ID)
        if use is not None and use.get_secret_value() not in REGISTRY_IDS:
            reject(f"{USE_ID}: {' or '.join(REGISTRY_IDS)}")
        return value


class Feed(_Model):
    """One changefeed or connector. `columns` maps "database.table.column" to the text of a MySQL type."""

    protocol: ProtocolName = Field(description=", ".join(get_args(ProtocolName)))
    tidb_extension: bool = Field(default=False, description="true, false")
    encoding: Encoding = Field("json", description=", ".join(get_args(Encoding)))
    schema_registry: SchemaRegistry | None = Field(None, validate_default=True)
    # Seconds, as send-bootstrap-interval-in-sec of the changefeed; 0: it sends no BOOTSTRAP messages.
    bootstrap_interval: WholeNumber = Field(120, ge=0, description="a whole number, 0 (none are sent) or more")
    time_zone: TimeZone = Field("UTC", description="a time zone name such as UTC or Europe/Berlin, or an offset +HH:MM")
    source: Source
    gate_scope: GateScope = Field("topic", description=", ".join(get_args(GateScope)))
    tables: Tables = Tables()
    columns: dict[ColumnPath, TypeText] = Field({}, description="a mapping of database.table.column to a MySQL type")
    type_mapping: _TypeMapping = Field("block", description=by_table_allowed(get_args(TypeMapping)))
    schema_changes: _SchemaChanges = Field("evolve", description=by_table_allowed(get_args(SchemaChanges)))
    # Whether the connector's snapshots have every row of each of their tables.
    snapshots: Snapshots = Field("partial", description=", ".join(get_args(Snapshots)))
    freshness_minutes: WholeNumber | None = Field(None, ge=1, description="a whole number, 1 or more")
    # How far a watermark may be ahead of its record's Kafka time and be believed.
    max_watermark_lead: Duration = Field(timedelta(days=1), description=DURATION)
    owners: tuple[Owner, ...] = Field((), description="a list of email addresses and team:name")
    # Above it Dagster shows one asset a database.
    max_table_assets: WholeNumber = Field(200, ge=1, description="a whole number, 1 or more")
    claim_check: Place | None = Field(None, description=FOLDER)
    initial_load: InitialLoad | None = None
    # Where each run, and `cdc-assets views`, registers the histories.
    views: SchemaName | None = Field(None, description=SCHEMA)

    @field_validator("initial_load")
    @classmethod
    def _of_feeds_with_tsos(cls, value: InitialLoad | None, info: ValidationInfo) -> InitialLoad | None:
        protocol = info.data.get("protocol")
        if value is not None and protocol == "canal-json" and not info.data.get("tidb_extension"):
            reject("initial_load only where events tell their TSO; canal-json does with tidb_extension: true")
        if value is not None and protocol == "debezium":
            reject("initial_load only with canal-json, open-protocol, simple: a connector takes its own snapshot")
        return value

    @field_validator("tidb_extension")
    @classmethod
    def _of_canal_json(cls, value: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 - pydantic calls it
        _only_with("canal-json", info)
        return value

    @field_validator("bootstrap_interval")
    @classmethod
    def _of_simple(cls, value: int, info: ValidationInfo) -> int:
        _only_with("simple", info)
        return value

    @field_validator("encoding")
    @classmethod
    def _of_protocols_with_encodings(cls, value: Encoding, info: ValidationInfo) -> Encoding:
        if info.data.get("protocol") in ("canal-json", "open-protocol"):
            reject("encoding only with protocol: simple, debezium")
        return value

    @field_validator("schema_registry")
    @classmethod
    def _of_debezium_in_avro(cls, value: SchemaRegistry | None, info: ValidationInfo) -> SchemaRegistry | None:
        if not {"protocol", "encoding"} <= info.data.keys():  # wrong, reported already
            return value
        has_registry = (info.data["protocol"], info.data["encoding"]) == ("debezium", "avro")
        if has_registry and value is None:
            raise PydanticCustomError("missing", "missing")
        if value is not None and not has_registry:
            reject("schema_registry only with protocol: debezium and encoding: avro")
        return value

    @field_validator("snapshots")
    @classmethod
    def _of_debezium(cls, value: Snapshots, info: ValidationInfo) -> Snapshots:
        _only_with("debezium", info)
        return value

    @field_validator("freshness_minutes", "max_watermark_lead")
    @classmethod
    def _of_feeds_with_watermarks(cls, value: int | timedelta | None, info: ValidationInfo) -> int | timedelta | None:
        if value is not None and info.data.get("protocol") == "canal-json" and not info.data.get("tidb_extension"):
            reject(f"{info.field_name} only with watermarks; canal-json has some with tidb_extension: true")
        return value

    @property
    def wire(self) -> str:
        """The wire format: the protocol, and its encoding where that is not JSON."""
        return self.protocol if self.encoding == "json" else f"{self.protocol}-{self.encoding}"

    def takes(self, database: str, table: str) -> bool:
        """Whether the feed takes this source table."""
        return self.tables.takes(database, table)

    def blocks_types(self, database: str, table: str) -> bool:
        """Whether a broken type mapping holds this source table."""
        return chosen(self.type_mapping, database, table, "block") == "block"

    def stops_at_ddl(self, database: str, table: str) -> bool:
        """Whether this source table waits at its next change of schema until a person lets it go on."""
        return chosen(self.schema_changes, database, table, "evolve") == "stop"


class Alerts(_Model):
    """Who is told of failed runs and checks."""

    webhook: HttpUrl = Field(repr=False, description="an http or https URL, which takes JSON with a text")


class Storage(_Model):
    """How the store is reached in which the lakehouse, recorded snapshots and claim-checks lie, where it is no local folder.

    `endpoint` is that of the object store, if it is not the vendor's own; where places lie in several kinds of store, that
    of S3, else of Google's. `region` and `path_style` are S3's. `options` are Hadoop's settings of the file systems, so
    Spark's alone; they may hold secrets: `options[key].get_secret_value()` is the only way to see one.
    """

    endpoint: Endpoint | None = Field(None, description=ENDPOINT)
    region: Text | None = Field(None, description="the name of a region, such as eu-central-1")
    path_style: bool = Field(default=False, description="true, false")
    options: dict[HadoopKey, Option] = Field({}, description="a mapping of fs.* settings to text")


class FeedsFile(_Model):
    """The whole file: the feeds by name, and Spark settings (not in repr: a storage key may be among them)."""

    feeds: dict[FeedName, Feed] = Field(min_length=1, description="a mapping of feed names to feeds, at least one")
    spark: dict[SparkKey, SparkValue] = Field({}, repr=False, description="a mapping of spark.* settings to values")
    storage: Storage = Storage()
    alerts: Alerts | None = None
