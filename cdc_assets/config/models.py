"""Models of the feeds file: feeds, sources, tables, initial loads, storage, alerts."""

from datetime import timedelta
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, HttpUrl, PlainValidator, SecretStr, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from cdc_assets.config import cron, jdbc
from cdc_assets.config.connector_settings import BinaryHandlingMode, DecimalHandlingMode, TimePrecisionMode
from cdc_assets.config.kafka_options import OptionError, librdkafka_options
from cdc_assets.config.patterns import choice_for_table, matches_pattern
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
    Cron,
    Duration,
    Endpoint,
    FeedName,
    HadoopKey,
    JdbcUrl,
    KafkaKey,
    Location,
    OffsetsValue,
    Option,
    Owner,
    Pattern,
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

Encoding = Literal["json", "avro"]
TypeMapping = Literal["block", "warn"]
SchemaChanges = Literal["evolve", "stop"]
DumpFormat = Literal["dumpling-csv", "dumpling-sql", "parquet"]

# One choice for all tables, or a mapping of table patterns to choices: the first matching pattern counts.
_TypeMapping = Annotated[TypeMapping | dict[str, TypeMapping], PlainValidator(by_table(*get_args(TypeMapping)))]
_SchemaChanges = Annotated[SchemaChanges | dict[str, SchemaChanges], PlainValidator(by_table(*get_args(SchemaChanges)))]


def _exactly_one(other: str, value: object, info: ValidationInfo) -> None:
    """Reject the model if both or neither of `value` and the earlier field `other` are set."""
    # An `other` that is not in `data` was invalid and is reported already.
    if other in info.data and (info.data[other] is None) == (value is None):
        given = "neither" if value is None else "both"
        allowed = f"exactly one of {other}, {info.field_name}"
        raise PydanticCustomError("exactly_one", "{given}{allowed}", {"given": given, "allowed": allowed})


# Settings that only one protocol has.
_PROTOCOL_OF = {
    "tidb_extension": "canal-json",
    "bootstrap_interval": "simple",
    "snapshots": "debezium",
    "connector_settings": "debezium",
}


# In the models below, a field's description is the text that error messages show after "allowed:". Without a description
# they show the values of the field's Literal or bool.


class _Model(BaseModel):
    # hide_input_in_errors: pydantic's own messages would show values from environment variables.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Kafka(_Model):
    """A Kafka cluster and the topics that are read from it: `topics` or `topic_pattern`, never both.

    Spark reads records with `options`, which are options of Kafka's Java client. librdkafka lists topics and offsets: with
    those `options` that it understands, and with `client_options`, which are its own. Both may hold passwords, so each
    value is a secret: `options[key].get_secret_value()` returns it.
    """

    bootstrap_servers: Text = Field(description="host:port, several with commas between them")
    topics: tuple[Text, ...] | None = Field(None, min_length=1, description="a list of topic names, at least one")
    topic_pattern: Pattern | None = Field(None, validate_default=True, description=PATTERN)
    client_options: dict[ClientKey, Option] = Field({}, description="a mapping of librdkafka's settings to text")
    options: dict[KafkaKey, Option] = Field({}, description="a mapping of kafka.* settings to text")
    starting_offsets: OffsetsValue = Field("earliest", description=STARTING_OFFSETS)
    on_data_loss: Literal["fail", "skip"] = "fail"
    max_records_per_run: WholeNumber | None = Field(None, ge=1, description="a whole number, 1 or more")

    @field_validator("topic_pattern")
    @classmethod
    def _check_one_of_topics_and_pattern(cls, value: str | None, info: ValidationInfo) -> str | None:
        _exactly_one("topics", value, info)
        return value

    @field_validator("options")
    @classmethod
    def _check_librdkafka_options(cls, value: dict[str, SecretStr], info: ValidationInfo) -> dict[str, SecretStr]:
        options, client_options = (
            {name: each.get_secret_value() for name, each in values.items()}
            for values in (value, info.data.get("client_options", {}))
        )
        try:
            librdkafka_options(options, client_options)
        except OptionError as error:
            at = (error.option,) if error.is_value else (error.option, "[key]")  # pydantic's mark of an error in a key
            context = {"allowed": error.allowed, "detail": error.detail, "at": at}
        else:
            return value
        # Outside the except block, so that no exception with a secret in its arguments is chained.
        raise PydanticCustomError("rule", "{allowed}{detail}", context)


class FeedSource(_Model):
    """The source of a feed's records: a folder of recorded snapshots, or a Kafka cluster.

    Once the file is loaded, `recorded` is an absolute path or a URI.
    """

    recorded: Location | None = Field(None, description=FOLDER)
    partitions: WholeNumber | None = Field(None, ge=1, description="a whole number, 1 or more")
    kafka: Kafka | None = Field(None, validate_default=True)

    @field_validator("partitions")
    @classmethod
    def _check_partitions_with_recorded(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("recorded", value) is None:
            reject("partitions only beside recorded (a broker knows its own)")
        return value

    @field_validator("kafka")
    @classmethod
    def _check_one_of_recorded_and_kafka(cls, value: Kafka | None, info: ValidationInfo) -> Kafka | None:
        _exactly_one("recorded", value, info)
        return value


class TableFilter(_Model):
    """The source tables that a feed takes: patterns `database.table` with `*` and `?`, case-sensitive."""

    include: tuple[TablePattern, ...] = Field(
        ("*.*",), min_length=1, description="a list of patterns database.table, at least one"
    )
    exclude: tuple[TablePattern, ...] = Field((), description="a list of patterns database.table")

    def takes(self, database: str, table: str) -> bool:
        """Return whether the table matches a pattern of `include` and no pattern of `exclude`."""
        included = any(matches_pattern(pattern, database, table) for pattern in self.include)
        return included and not any(matches_pattern(pattern, database, table) for pattern in self.exclude)


# Milliseconds, seconds and positions in a binlog are lower than the TSOs of this time, before which there was no TiDB.
_LOWEST_TSO = 1_420_070_400_000 << 18  # 2015-01-01
_TSO = f"a TSO (milliseconds << 18) such as 449876543210987520, {_LOWEST_TSO} or more"


class TableLoad(_Model):
    """Settings of the initial load for one table, in place of those of `InitialLoad`."""

    path: Location | None = Field(None, description=FOLDER)
    format: DumpFormat | None = None
    position: WholeNumber | None = Field(None, ge=_LOWEST_TSO, description=_TSO)


class InitialLoad(_Model):
    """A dump of the source, with whose rows the histories of its tables begin.

    `position` is the TSO at which the dump was taken; without it, the TSO is read from the dump's `metadata` file.
    `tables` overrides settings for single tables, by "database.table". `time_zone` is the zone in which the dump has
    TIMESTAMP values.
    """

    path: Location = Field(description=FOLDER)
    format: DumpFormat
    position: WholeNumber | None = Field(None, ge=_LOWEST_TSO, description=_TSO)
    time_zone: TimeZone = Field("UTC", description="a time zone name such as UTC or Europe/Berlin, or an offset +HH:MM")
    tables: dict[TablePath, TableLoad] = Field({}, description="a mapping of database.table to path, format, position")


class SchemaRegistry(_Model):
    """The schema registry that has the Avro schemas of a feed's records by the ids that records have.

    The URL is the base of Confluent's API, which other registries have too, or of Apicurio's own API:
    `.../apis/registry/v2` or `v3`. Options may hold passwords, so each value is a secret: `options[key].get_secret_value()`
    returns it.
    """

    url: RegistryUrl = Field(description=REGISTRY_URL)
    options: dict[RegistryKey, Option] = Field({}, description=REGISTRY_OPTIONS)

    @field_validator("options")
    @classmethod
    def _check_id_kind(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        id_kind = value.get(USE_ID)
        if id_kind is not None and id_kind.get_secret_value() not in REGISTRY_IDS:
            reject(f"{USE_ID}: {' or '.join(REGISTRY_IDS)}")
        return value


class SourceComparison(_Model):
    """When which histories of a feed are compared with the rows of the source database.

    `tables` are patterns `database.table` with `*` and `?`. On MySQL and MariaDB, which can only be read as they are now, a
    comparison waits up to `settle_minutes` until the history shows the rows that have changed since its position.
    """

    jdbc: JdbcUrl = Field(description=jdbc.ALLOWED)
    tables: tuple[TablePattern, ...] = Field(
        ("*.*",), min_length=1, description="a list of patterns database.table, at least one"
    )
    cron: Cron = Field(description=cron.ALLOWED)
    settle_minutes: WholeNumber = Field(10, ge=0, description="a whole number, 0 (no wait) or more")

    def takes(self, database: str, table: str) -> bool:
        """Return whether the table matches a pattern."""
        return any(matches_pattern(pattern, database, table) for pattern in self.tables)


class ConnectorSettings(_Model):
    """Settings of a feed's Debezium connector, by the connector's own names.

    They count where a message does not state how its values are written.
    """

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "."))

    time_precision_mode: TimePrecisionMode | None = None
    decimal_handling_mode: DecimalHandlingMode | None = None
    binary_handling_mode: BinaryHandlingMode | None = None

    @property
    def by_name(self) -> dict[str, str]:
        """The settings that are given, by the connector's names."""
        return self.model_dump(by_alias=True, exclude_none=True)


class Feed(_Model):
    """One changefeed or connector. `columns` overrides types: it maps "database.table.column" to a MySQL type."""

    protocol: Literal["canal-json", "open-protocol", "simple", "debezium"]
    tidb_extension: bool = False
    encoding: Encoding = "json"
    schema_registry: SchemaRegistry | None = Field(None, validate_default=True)
    # Seconds; the changefeed's send-bootstrap-interval-in-sec. 0: the changefeed sends no BOOTSTRAP messages.
    bootstrap_interval: WholeNumber = Field(120, ge=0, description="a whole number, 0 (none are sent) or more")
    time_zone: TimeZone = Field("UTC", description="a time zone name such as UTC or Europe/Berlin, or an offset +HH:MM")
    source: FeedSource
    gate_scope: Literal["topic", "feed"] = "topic"
    tables: TableFilter = TableFilter()
    columns: dict[ColumnPath, TypeText] = Field({}, description="a mapping of database.table.column to a MySQL type")
    type_mapping: _TypeMapping = Field("block", description=by_table_allowed(get_args(TypeMapping)))
    schema_changes: _SchemaChanges = Field("evolve", description=by_table_allowed(get_args(SchemaChanges)))
    # "whole": a snapshot of the connector contains every row of each table that it covers.
    snapshots: Literal["partial", "whole"] = "partial"
    connector_settings: ConnectorSettings = ConnectorSettings()
    freshness_minutes: WholeNumber | None = Field(None, ge=1, description="a whole number, 1 or more")
    # A watermark that is further ahead of its record's Kafka timestamp is quarantined.
    max_watermark_lead: Duration = Field(timedelta(days=1), description=DURATION)
    # Whether a run fails when a check of severity ERROR does.
    strict: bool = False
    owners: tuple[Owner, ...] = Field((), description="a list of email addresses and team:name")
    # With more tables than this, Dagster shows one asset a database.
    max_table_assets: WholeNumber = Field(200, ge=1, description="a whole number, 1 or more")
    claim_check: Location | None = Field(None, description=FOLDER)
    initial_load: InitialLoad | None = None
    verify: SourceComparison | None = None
    # The schema of Spark's catalog in which each run, and `cdc-assets views`, registers the histories.
    views: SchemaName | None = Field(None, description=SCHEMA)

    @field_validator("initial_load")
    @classmethod
    def _check_feed_has_tsos(cls, value: InitialLoad | None, info: ValidationInfo) -> InitialLoad | None:
        protocol = info.data.get("protocol")
        if value is not None and protocol == "canal-json" and not info.data.get("tidb_extension"):
            reject("initial_load only where events have a TSO; canal-json has it with tidb_extension: true")
        if value is not None and protocol == "debezium":
            reject("initial_load only with canal-json, open-protocol, simple: a connector takes its own snapshot")
        return value

    @field_validator(*_PROTOCOL_OF)
    @classmethod
    def _check_protocol_has_setting(cls, value: object, info: ValidationInfo) -> object:
        protocol = _PROTOCOL_OF[str(info.field_name)]
        # An invalid protocol is not in `data`, and is reported already.
        if info.data.get("protocol", protocol) != protocol:
            reject(f"{info.field_name} only with protocol: {protocol}")
        return value

    @field_validator("encoding")
    @classmethod
    def _check_protocol_has_encodings(cls, value: Encoding, info: ValidationInfo) -> Encoding:
        if info.data.get("protocol") in ("canal-json", "open-protocol"):
            reject("encoding only with protocol: simple, debezium")
        return value

    @field_validator("schema_registry")
    @classmethod
    def _check_schema_registry(cls, value: SchemaRegistry | None, info: ValidationInfo) -> SchemaRegistry | None:
        if not {"protocol", "encoding"} <= info.data.keys():  # an invalid field is not in `data`, and reported already
            return value
        has_registry = (info.data["protocol"], info.data["encoding"]) == ("debezium", "avro")
        if has_registry and value is None:
            raise PydanticCustomError("missing", "missing")
        if value is not None and not has_registry:
            reject("schema_registry only with protocol: debezium and encoding: avro")
        return value

    @field_validator("freshness_minutes", "max_watermark_lead")
    @classmethod
    def _check_feed_has_watermarks(cls, value: int | timedelta | None, info: ValidationInfo) -> int | timedelta | None:
        if value is not None and info.data.get("protocol") == "canal-json" and not info.data.get("tidb_extension"):
            reject(f"{info.field_name} only with watermarks; canal-json has them with tidb_extension: true")
        return value

    @property
    def wire_format(self) -> str:
        """Return the name of the wire format: the protocol, and its encoding unless that is JSON."""
        return self.protocol if self.encoding == "json" else f"{self.protocol}-{self.encoding}"

    def takes(self, database: str, table: str) -> bool:
        """Return whether the feed takes this source table."""
        return self.tables.takes(database, table)

    def blocks_types(self, database: str, table: str) -> bool:
        """Return whether a broken type mapping blocks this source table."""
        return choice_for_table(self.type_mapping, database, table, "block") == "block"

    def stops_at_ddl(self, database: str, table: str) -> bool:
        """Return whether a schema change holds this source table until a person acknowledges the change."""
        return choice_for_table(self.schema_changes, database, table, "evolve") == "stop"


class Alerts(_Model):
    """The receiver of notifications about failed runs and checks."""

    webhook: HttpUrl = Field(repr=False, description="an http or https URL, which takes JSON with a text")


class CodeReferences(_Model):
    """Where the UI's links from assets to their source code lead: a copy of this package's repository."""

    git_url: HttpUrl = Field(description="the URL of a repository")
    git_branch: Text = Field(description="the name of a branch, a tag or a commit")
    platform: Literal["github", "gitlab"] = "github"


class Storage(_Model):
    """Connection settings of the object store or HDFS that holds the lakehouse, recorded snapshots and claim-checks.

    `endpoint` is the URL of the object store, if it is not the vendor's own. If the locations are in several kinds of
    object store, `endpoint` belongs to S3, else to Google Cloud Storage. `region` and `path_style` are for S3. `options`
    are Hadoop's settings of its file systems, which only Spark reads. They may hold secrets:
    `options[key].get_secret_value()` returns one.
    """

    endpoint: Endpoint | None = Field(None, description=ENDPOINT)
    region: Text | None = Field(None, description="the name of a region, such as eu-central-1")
    path_style: bool = False
    options: dict[HadoopKey, Option] = Field({}, description="a mapping of fs.* settings to text")


class FeedsFile(_Model):
    """The complete feeds file. Spark settings are not in its repr, because a storage key may be among them."""

    feeds: dict[FeedName, Feed] = Field(min_length=1, description="a mapping of feed names to feeds, at least one")
    spark: dict[SparkKey, SparkValue] = Field({}, repr=False, description="a mapping of spark.* settings to values")
    storage: Storage = Storage()
    alerts: Alerts | None = None
    code_references: CodeReferences | None = None
    # Whether schedules and the sensor run until somebody starts or stops them.
    automation: Literal["running", "stopped"] = "stopped"
