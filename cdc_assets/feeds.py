"""The feeds file: which changefeeds are read, from where, and how; validated as a whole before anything runs.

Values may take text from the environment (`${NAME}`; `$${` is a literal `${`). It is put in after the YAML is parsed,
so no variable can add structure, and no message shows it, since it may be a secret: messages quote the file as written.
"""

import difflib
import json
import os
import re
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NoReturn, cast, get_args

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    HttpUrl,
    PlainValidator,
    SecretStr,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from cdc_assets.mysql_types.types import UnknownType, parse_type
from cdc_assets.places import SCHEMES, PlaceError, canonical, scheme_of

ProtocolName = Literal["canal-json", "open-protocol", "simple", "debezium"]
Encoding = Literal["json", "avro"]
GateScope = Literal["topic", "feed"]
TypeMapping = Literal["block", "warn"]
SchemaChanges = Literal["evolve", "stop"]
Snapshots = Literal["partial", "whole"]
OnDataLoss = Literal["fail", "skip"]
DumpFormat = Literal["dumpling-csv", "dumpling-sql", "parquet"]
# Where a partition that the feed has never seen is read from; a mapping is topic -> partition -> offset.
StartingOffsets = Literal["earliest", "latest"] | datetime | dict[str, dict[int, int]]
Setting = str | int | float | bool

_Loc = tuple[str | int, ...]
_Yaml = dict[str, Any] | list[Any] | Setting | None  # as _Loader reads it

_FEED_NAME = re.compile(r"[A-Za-z0-9_]+")
_SCHEMA_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SCHEMA = "a schema of Spark's catalog, of letters a-z, digits and _"
_OFFSET = re.compile(r"[+-](?:(?:0\d|1[0-3]):[0-5]\d|14:00)")  # as far as MySQL's own time zones go
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")  # what Dagster takes for an address
_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|\$\{")


class FeedsError(ValueError):
    """The feeds file can not be used. The message has one line per wrong field: file, path in it, found, allowed."""


def _reject(allowed: str, detail: str = "") -> NoReturn:
    """Fail a field; `detail` may quote its value and is shown only when no environment variable is in that value."""
    raise PydanticCustomError("rule", "{allowed}{detail}", {"allowed": allowed, "detail": detail})


def _did_you_mean(text: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(text, list(known), n=1)
    return f"did you mean {close[0]}?" if close else ""


def _feed_name(name: str) -> str:
    if not _FEED_NAME.fullmatch(name):
        _reject("a feed name of letters A-Z a-z, digits and _ only (it names folders, asset keys and an asset group)")
    return name


def _schema_name(name: str) -> str:
    if not _SCHEMA_NAME.fullmatch(name):
        _reject(_SCHEMA)
    return name


def _begins_with(prefix: str) -> Callable[[str], str]:
    def check(key: str) -> str:
        if not key.startswith(prefix) or key == prefix:
            _reject(f"keys that begin with {prefix}")
        return key

    return check


# Spark's reader sets these itself, or a field of its own does.
_TAKEN_OPTIONS = (
    "kafka.bootstrap.servers",
    "kafka.auto.offset.reset",
    "kafka.enable.auto.commit",
    "kafka.interceptor.classes",
    "kafka.key.deserializer",
    "kafka.value.deserializer",
)


def _free_option(key: str) -> str:
    if key in _TAKEN_OPTIONS:
        _reject(f"keys other than {', '.join(_TAKEN_OPTIONS)}")
    return key


_STARTING_OFFSETS = (
    "earliest, latest, an instant such as 2024-05-01T00:00:00Z, or a mapping of topics to {partition: offset}"
)


def _starting_offsets(value: object) -> StartingOffsets:
    if value in ("earliest", "latest"):
        return cast("StartingOffsets", value)
    if isinstance(value, str):
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            instant = None
        if instant and instant.tzinfo:
            return instant
    if isinstance(value, dict) and value and all(isinstance(each, dict) and each for each in value.values()):
        pairs = [pair for each in value.values() for pair in each.items()]
        if all(str(number).isdecimal() and type(offset) is int and offset >= 0 for number, offset in pairs):
            return {topic: {int(number): offset for number, offset in each.items()} for topic, each in value.items()}
    _reject(_STARTING_OFFSETS)


# Of the file systems, what `storage` has fields for, and credentials.
_STORAGE_FIELDS = ("fs.s3a.endpoint", "fs.s3a.endpoint.region", "fs.s3a.path.style.access")
_CREDENTIALS = re.compile(r"\.(access\.key|secret\.key|session\.token)$")


def _free_hadoop_key(key: str) -> str:
    if key in _STORAGE_FIELDS:
        _reject(f"keys other than {', '.join(_STORAGE_FIELDS)}: they have fields of their own")
    if _CREDENTIALS.search(key):
        _reject("no credentials: they come from the environment (AWS_ACCESS_KEY_ID and the like) or the platform")
    return key


_ENDPOINT = "an http or https URL without a path, such as https://minio.example:9000"


def _endpoint(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"https?://[^/\s@?#]+/?", value):
        return value.rstrip("/")
    _reject(_ENDPOINT)


def _setting(value: object) -> Setting:
    if not isinstance(value, str | int | float):  # bool is an int
        _reject("text, a number, true or false")
    return value


def _as_text(value: object) -> object:
    """Kafka's options are text; YAML reads `true` and `30000` as something else."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _not_bool(value: object) -> object:
    if isinstance(value, bool):  # pydantic would take true for 1
        _reject("a whole number, 1 or more")
    return value


_DURATION = "a whole number and its unit, s, m, h or d, such as 36h"
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_LONGEST = timedelta(days=36_500)


def _duration(value: object) -> timedelta:
    if isinstance(value, str) and (told := re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", value)):
        duration = timedelta(**{_UNITS[told[2]]: int(told[1])})
        if duration <= _LONGEST:
            return duration
    _reject(_DURATION)


def _time_zone(zone: str) -> str:
    if not _OFFSET.fullmatch(zone) and zone != "UTC":
        known = zoneinfo.available_timezones()
        if zone not in known:
            _reject("a time zone name such as UTC or Europe/Berlin, or an offset +HH:MM", _did_you_mean(zone, known))
    return zone


def _table_pattern(pattern: str) -> str:
    if not all(split_pattern(pattern)):
        _reject("patterns database.table, with * and ? as wildcards")
    return pattern


def _column_path(path: str) -> str:
    parts = path.split(".")
    if len(parts) != 3 or not all(parts):
        _reject("keys of three dotted parts, database.table.column")
    return path


def _by_table(*choices: str) -> Callable[[object], str | dict[str, str]]:
    """Take one of the choices for all tables, or a mapping of table patterns to them."""

    def check(value: object) -> str | dict[str, str]:
        if isinstance(value, str) and value in choices:
            return value
        if not isinstance(value, dict) or not value or any(choice not in choices for choice in value.values()):
            _reject(_by_table_allowed(choices))
        return {_table_pattern(pattern): choice for pattern, choice in value.items()}

    return check


def _by_table_allowed(choices: Iterable[str]) -> str:
    return f"{', '.join(choices)}, or a mapping of patterns database.table to these"


def _mysql_type(text: str) -> str:
    try:
        parse_type(text)
    except UnknownType as error:
        problem = str(error)
    else:
        return text
    _reject("a MySQL type such as decimal(12,2)", problem)


def _table_path(path: str) -> str:
    if not all(split_pattern(path)):
        _reject("keys database.table")
    return path


def _owner(owner: str) -> str:
    if not _EMAIL.fullmatch(owner) and not re.fullmatch(r"team:.+", owner):
        _reject("email addresses and team:name")
    return owner


def _exactly_one(other: str, value: object, info: ValidationInfo) -> None:
    """Fail the model that has the field when both or neither of `value` and the earlier field `other` are given."""
    if other in info.data and (info.data[other] is None) == (value is None):  # not in data: wrong, reported already
        found = "neither" if value is None else "both"
        allowed = f"exactly one of {other}, {info.field_name}"
        raise PydanticCustomError("exactly_one", "{found}{allowed}", {"found": found, "allowed": allowed})


_FOLDER = f"a folder, relative to the feeds file, or a URI of {', '.join(f'{s}://' for s in SCHEMES)}"


def _place(value: str | None, info: ValidationInfo) -> str | None:
    """A folder of the feeds file: an absolute path, or a URI."""
    if value is None:
        return None
    if scheme_of(value):
        try:
            return canonical(value)
        except PlaceError:
            _reject(_FOLDER)
    return str(((info.context or {}).get("folder", Path()) / value).resolve())


def _only_with(protocol: ProtocolName, info: ValidationInfo) -> None:
    if info.data.get("protocol", protocol) != protocol:  # a wrong protocol is reported already
        _reject(f"{info.field_name} only with protocol: {protocol}")


def split_pattern(pattern: str) -> tuple[str, str]:
    """The database part and the table part of a table pattern, split at its first dot (table names may have dots)."""
    database, _, table = pattern.partition(".")
    return database, table


@cache
def _glob(part: str) -> re.Pattern[str]:
    # Not fnmatch: [ is a wildcard there, and a plain character in a table's name.
    return re.compile("".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in part), re.DOTALL)


def _matches(pattern: str, database: str, table: str) -> bool:
    database_part, table_part = split_pattern(pattern)
    return bool(_glob(database_part).fullmatch(database) and _glob(table_part).fullmatch(table))


def _chosen(choices: str | Mapping[str, str], database: str, table: str, default: str) -> str:
    """What holds for a table: of patterns the first that matches counts, and without any the default."""
    if isinstance(choices, str):
        return choices
    return next((choice for pattern, choice in choices.items() if _matches(pattern, database, table)), default)


_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_FeedName = Annotated[str, AfterValidator(_feed_name)]
_SparkKey = Annotated[str, AfterValidator(_begins_with("spark."))]
_Setting = Annotated[Setting, PlainValidator(_setting)]  # plain: a union would report each of its types
_OptionKey = Annotated[str, AfterValidator(_begins_with("kafka.")), AfterValidator(_free_option)]
_HadoopKey = Annotated[str, AfterValidator(_begins_with("fs.")), AfterValidator(_free_hadoop_key)]
_StartingOffsets = Annotated[StartingOffsets, PlainValidator(_starting_offsets)]
_WholeNumber = Annotated[int, BeforeValidator(_not_bool)]
_Duration = Annotated[timedelta, PlainValidator(_duration)]
_Option = Annotated[SecretStr, BeforeValidator(_as_text)]
_TablePattern = Annotated[str, AfterValidator(_table_pattern)]
_ColumnPath = Annotated[str, AfterValidator(_column_path)]
_TablePath = Annotated[str, AfterValidator(_table_path)]
_Position = Annotated[int, BeforeValidator(_not_bool)]
_TypeText = Annotated[str, AfterValidator(_mysql_type)]
_SchemaName = Annotated[str, AfterValidator(_schema_name)]
_Owner = Annotated[str, AfterValidator(_owner)]
# Of patterns of tables the first that matches counts.
_TypeMapping = Annotated[TypeMapping | dict[str, TypeMapping], PlainValidator(_by_table(*get_args(TypeMapping)))]
_SchemaChanges = Annotated[
    SchemaChanges | dict[str, SchemaChanges], PlainValidator(_by_table(*get_args(SchemaChanges)))
]


# In the models below a field's description is what error messages give as allowed.


class _Model(BaseModel):
    # hide_input_in_errors: pydantic's own messages would show what came from the environment.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Kafka(_Model):
    """A broker, and the topics read from it: `topics` or `topic_pattern`, never both.

    `options` may hold passwords: `options[key].get_secret_value()` is the only way to see one.
    """

    bootstrap_servers: _Text = Field(description="host:port, several with commas between them")
    topics: tuple[_Text, ...] | None = Field(None, min_length=1, description="a list of topic names, at least one")
    topic_pattern: _Text | None = Field(None, validate_default=True, description="a regular expression (Java's)")
    options: dict[_OptionKey, _Option] = Field({}, description="a mapping of kafka.* settings to text")
    starting_offsets: _StartingOffsets = Field("earliest", description=_STARTING_OFFSETS)
    on_data_loss: OnDataLoss = Field("fail", description=", ".join(get_args(OnDataLoss)))
    max_records_per_run: _WholeNumber | None = Field(None, ge=1, description="a whole number, 1 or more")

    @field_validator("topic_pattern")
    @classmethod
    def _one_choice_of_topics(cls, value: str | None, info: ValidationInfo) -> str | None:
        _exactly_one("topics", value, info)
        return value


class Source(_Model):
    """Where a feed's records come from: a folder of recorded ones (an absolute path or a URI once loaded), or a broker."""

    recorded: _Text | None = Field(None, description=_FOLDER)
    partitions: _WholeNumber | None = Field(None, ge=1, description="a whole number, 1 or more")
    kafka: Kafka | None = Field(None, validate_default=True)

    _absolute = field_validator("recorded")(_place)

    @field_validator("partitions")
    @classmethod
    def _of_a_recorded_source(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("recorded", value) is None:
            _reject("partitions only beside recorded (a broker knows its own)")
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

    include: tuple[_TablePattern, ...] = Field(
        ("*.*",), min_length=1, description="a list of patterns database.table, at least one"
    )
    exclude: tuple[_TablePattern, ...] = Field((), description="a list of patterns database.table")

    def takes(self, database: str, table: str) -> bool:
        """Whether the table matches a pattern of `include` and none of `exclude`."""
        included = any(_matches(pattern, database, table) for pattern in self.include)
        return included and not any(_matches(pattern, database, table) for pattern in self.exclude)


_FORMATS = ", ".join(get_args(DumpFormat))
_TSO = "a TSO, a whole number, 1 or more"


class TableLoad(_Model):
    """What is different in the initial load of one table."""

    path: _Text | None = Field(None, description=_FOLDER)
    format: DumpFormat | None = Field(None, description=_FORMATS)
    position: _Position | None = Field(None, ge=1, description=_TSO)

    _absolute = field_validator("path")(_place)


class InitialLoad(_Model):
    """A dump of the source that the histories of its tables begin with.

    `position` is the TSO that the dump was taken at; without it, the dump's own `metadata` file tells it. `tables` has what
    is different for single tables, by "database.table". TIMESTAMP values are printed in `time_zone`.
    """

    path: _Text = Field(description=_FOLDER)
    format: DumpFormat = Field(description=_FORMATS)
    position: _Position | None = Field(None, ge=1, description=_TSO)
    time_zone: str = Field("UTC", description="a time zone name such as UTC or Europe/Berlin, or an offset +HH:MM")
    tables: dict[_TablePath, TableLoad] = Field({}, description="a mapping of database.table to path, format, position")

    _absolute = field_validator("path")(_place)

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        return _time_zone(value)


class Feed(_Model):
    """One changefeed or connector. `columns` maps "database.table.column" to the text of a MySQL type."""

    protocol: ProtocolName = Field(description=", ".join(get_args(ProtocolName)))
    tidb_extension: bool = Field(default=False, description="true, false")
    encoding: Encoding = Field("json", description=", ".join(get_args(Encoding)))
    # Seconds, as send-bootstrap-interval-in-sec of the changefeed.
    bootstrap_interval: Annotated[int, BeforeValidator(_not_bool)] = Field(
        120, ge=1, description="a whole number, 1 or more"
    )
    time_zone: str = Field("UTC", description="a time zone name such as UTC or Europe/Berlin, or an offset +HH:MM")
    source: Source
    gate_scope: GateScope = Field("topic", description=", ".join(get_args(GateScope)))
    tables: Tables = Tables()
    columns: dict[_ColumnPath, _TypeText] = Field({}, description="a mapping of database.table.column to a MySQL type")
    type_mapping: _TypeMapping = Field("block", description=_by_table_allowed(get_args(TypeMapping)))
    schema_changes: _SchemaChanges = Field("evolve", description=_by_table_allowed(get_args(SchemaChanges)))
    # Whether the connector's snapshots have every row of each of their tables.
    snapshots: Snapshots = Field("partial", description=", ".join(get_args(Snapshots)))
    freshness_minutes: _WholeNumber | None = Field(None, ge=1, description="a whole number, 1 or more")
    # How far a watermark may be ahead of its record's Kafka time and be believed.
    max_watermark_lead: _Duration = Field(timedelta(days=1), description=_DURATION)
    owners: tuple[_Owner, ...] = Field((), description="a list of email addresses and team:name")
    # Above it Dagster shows one asset a database.
    max_table_assets: _WholeNumber = Field(200, ge=1, description="a whole number, 1 or more")
    claim_check: _Text | None = Field(None, description=_FOLDER)
    initial_load: InitialLoad | None = None
    # Where each run, and `cdc-assets views`, registers the histories.
    views: _SchemaName | None = Field(None, description=_SCHEMA)

    _absolute = field_validator("claim_check")(_place)

    @field_validator("initial_load")
    @classmethod
    def _of_feeds_with_tsos(cls, value: InitialLoad | None, info: ValidationInfo) -> InitialLoad | None:
        protocol = info.data.get("protocol")
        if value is not None and protocol == "canal-json" and not info.data.get("tidb_extension"):
            _reject("initial_load only where events tell their TSO; canal-json does with tidb_extension: true")
        if value is not None and protocol == "debezium":
            _reject("initial_load only with canal-json, open-protocol, simple: a connector takes its own snapshot")
        return value

    @field_validator("tidb_extension")
    @classmethod
    def _of_canal_json(cls, value: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 - pydantic calls it
        _only_with("canal-json", info)
        return value

    @field_validator("encoding", "bootstrap_interval")
    @classmethod
    def _of_simple(cls, value: Encoding | int, info: ValidationInfo) -> Encoding | int:
        _only_with("simple", info)
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
            _reject(f"{info.field_name} only with watermarks; canal-json has some with tidb_extension: true")
        return value

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        return _time_zone(value)

    @property
    def wire(self) -> str:
        """The wire format: the protocol, and its encoding where that is not JSON."""
        return self.protocol if self.encoding == "json" else f"{self.protocol}-{self.encoding}"

    def takes(self, database: str, table: str) -> bool:
        """Whether the feed takes this source table."""
        return self.tables.takes(database, table)

    def blocks_types(self, database: str, table: str) -> bool:
        """Whether a broken type mapping holds this source table."""
        return _chosen(self.type_mapping, database, table, "block") == "block"

    def stops_at_ddl(self, database: str, table: str) -> bool:
        """Whether this source table waits at its next change of schema until a person lets it go on."""
        return _chosen(self.schema_changes, database, table, "evolve") == "stop"


class Alerts(_Model):
    """Who is told of failed runs and checks."""

    webhook: HttpUrl = Field(repr=False, description="an http or https URL, which takes JSON with a text")


class Storage(_Model):
    """How the store is reached in which the lakehouse, recorded snapshots and claim-checks lie, where it is no local folder.

    `endpoint`, `region` and `path_style` are S3's. `options` are Hadoop's settings of the file systems, so Spark's alone;
    they may hold secrets: `options[key].get_secret_value()` is the only way to see one.
    """

    endpoint: Annotated[str, PlainValidator(_endpoint)] | None = Field(None, description=_ENDPOINT)
    region: _Text | None = Field(None, description="the name of a region, such as eu-central-1")
    path_style: bool = Field(default=False, description="true, false")
    options: dict[_HadoopKey, _Option] = Field({}, description="a mapping of fs.* settings to text")


class FeedsFile(_Model):
    """The whole file: the feeds by name, and Spark settings (not in repr: a storage key may be among them)."""

    feeds: dict[_FeedName, Feed] = Field(min_length=1, description="a mapping of feed names to feeds, at least one")
    spark: dict[_SparkKey, _Setting] = Field({}, repr=False, description="a mapping of spark.* settings to values")
    storage: Storage = Storage()
    alerts: Alerts | None = None


def feeds_path() -> Path:
    """The feeds file: `CDC_FEEDS`, else `data/feeds.yaml`."""
    return Path(os.environ.get("CDC_FEEDS") or "data/feeds.yaml")


def load_feeds(path: Path | None = None) -> FeedsFile:
    """Read and validate the feeds file.

    Args:
        path: the file; default is `feeds_path`.

    Returns:
        The file with `${NAME}` expanded from the environment and its local folders made absolute.

    Raises:
        FeedsError: the file is missing, is no YAML, or has wrong fields: one line for each of them.
    """
    file = path or feeds_path()
    problems: dict[_Loc, str] = {}
    try:
        raw = _read(file)
        expanded = _expand(raw, (), problems)
    except RecursionError:
        raise FeedsError(f"{file}: nested too deeply, or an alias that refers to itself") from None
    try:
        feeds = FeedsFile.model_validate(expanded, context={"folder": file.parent})
    except ValidationError as error:
        for details in error.errors(include_url=False, include_input=False):
            if details["type"] == "too_short" and _lookup(raw, details["loc"]):
                continue  # pydantic counts the right items only, and the wrong ones have lines of their own
            where, what = _explain(details, raw)
            problems.setdefault(where, what)
    if problems:
        # Outside the except block: pydantic's error has the values from the environment, and must not be chained.
        raise FeedsError("\n".join(_line(file, where, what) for where, what in problems.items()))
    return feeds


class _Loader(yaml.SafeLoader):
    """Plain YAML data (text, numbers, booleans, null, lists, mappings); keys are text, and none comes twice."""

    def compose_mapping_node(self, anchor: dict[str, yaml.Node]) -> yaml.MappingNode:
        """Check the keys here: construction merges `<<` into nodes first, and there a key may well come twice."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key must be plain text", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"duplicate key {key.value}", problem_mark=key.start_mark)
            seen.add(key.value)
            if key.tag != "tag:yaml.org,2002:merge":
                key.tag = "tag:yaml.org,2002:str"  # a feed may be called 2024 or on
        return node

    def scalar(self, node: yaml.ScalarNode) -> Setting:
        """Read a number or boolean; YAML 1.1 takes +10:00 for a sixty-based number, but here it is a time zone."""
        if ":" in node.value:
            return str(node.value)
        kind = node.tag.rpartition(":")[2]
        try:
            value: Setting = getattr(self, f"construct_yaml_{kind}")(node)
        except (ValueError, LookupError):  # an explicit tag (!!int x), or a number without digits (0x_)
            raise yaml.MarkedYAMLError(problem=f"not a value of type {kind}", problem_mark=node.start_mark) from None
        return value

    def text(self, node: yaml.ScalarNode) -> str:
        """Take a bare date, or a bare =, as written."""
        return str(node.value)

    def refuse(self, node: yaml.Node) -> NoReturn:
        """Refuse what is no plain data."""
        raise yaml.MarkedYAMLError(problem=f"the tag {node.tag} has no use here", problem_mark=node.start_mark)


for _tag in ("int", "float", "bool"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.scalar)
for _tag in ("timestamp", "value"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.text)
for _tag in ("binary", "set", "omap", "pairs"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.refuse)


def _read(file: Path) -> dict[str, Any]:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise FeedsError(f"{file}: no such file; name the feeds file in CDC_FEEDS") from None
    except OSError as error:
        raise FeedsError(f"{file}: can not be read: {error.strerror}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FeedsError(f"{file}: line {line}: not UTF-8 text") from None
    try:
        root = _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise FeedsError(_one_line(f"{file}: line {line}: not usable as YAML: {error.problem}")) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise FeedsError(f"{file}: line {line}: not usable as YAML: control character in the text") from None
    allowed = _keys_of(FeedsFile)
    if root is None:
        raise FeedsError(f"{file}: is empty; allowed: {allowed}")
    if not isinstance(root, dict):
        raise FeedsError(f"{file}: found {_shown(root, ())}; allowed: {allowed}")
    return root


def _expand(value: _Yaml, where: _Loc, problems: dict[_Loc, str]) -> _Yaml:
    """Copy a YAML value with its variables expanded; what can not be expanded stays, and is noted in `problems`."""
    match value:
        case dict():
            return {key: _expand(item, (*where, key), problems) for key, item in value.items()}
        case list():
            return [_expand(item, (*where, index), problems) for index, item in enumerate(value)]
        case str():
            return _VARIABLE.sub(lambda match: _variable(match, where, problems), value)
        case _:
            return value


def _variable(match: re.Match[str], where: _Loc, problems: dict[_Loc, str]) -> str:
    name = match["name"]
    if match[0] == "$${":
        return "${"
    if name is None:
        problems[where] = "${ does not begin a ${NAME}; write $${ for a plain ${"
    elif name not in os.environ:
        problems[where] = f"found ${{{name}}}; the environment variable {name} is not set"
    return os.environ.get(name, match[0]) if name else match[0]


def _explain(error: ErrorDetails, raw: _Yaml) -> tuple[_Loc, str]:
    """Where in the file an error is, and what is found and allowed there, in the file's words."""
    where, kind, context = error["loc"], error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return where, _unknown_key(where)
    if kind == "missing":
        return where, f"missing; allowed: {_allowed(where)}"
    if kind == "exactly_one":
        return where[:-1], f"found {context['found']}; allowed: {context['allowed']}"
    key_is_wrong = where[-1] == "[key]"  # pydantic's mark
    where = where[:-1] if key_is_wrong else where
    value = where[-1] if key_is_wrong else _lookup(raw, where)
    what = f"found {_shown(value, where)}; allowed: {context.get('allowed') or _allowed(where)}"
    if kind == "string_type" and isinstance(value, int | float):
        what += "; put it in quotes"
    detail = context.get("detail")
    return where, f"{what}; {detail}" if detail and "${" not in str(value) else what


def _unknown_key(where: _Loc) -> str:
    model = _model_at(where[:-1])
    known = list(model.model_fields) if model else []
    return "; ".join(filter(None, ["unknown key", _did_you_mean(str(where[-1]), known), f"known: {', '.join(known)}"]))


# The mappings whose keys are fields, by where they stand; `*` is the name of a feed, or of a table.
_MODELS: Mapping[_Loc, type[BaseModel]] = MappingProxyType(
    {
        (): FeedsFile,
        ("alerts",): Alerts,
        ("storage",): Storage,
        ("feeds", "*"): Feed,
        ("feeds", "*", "source"): Source,
        ("feeds", "*", "source", "kafka"): Kafka,
        ("feeds", "*", "tables"): Tables,
        ("feeds", "*", "initial_load"): InitialLoad,
        ("feeds", "*", "initial_load", "tables", "*"): TableLoad,
    }
)


def _model_at(where: _Loc) -> type[BaseModel] | None:
    if len(where) > 1 and where[0] == "feeds":
        where = ("feeds", "*", *where[2:])
    if where[2:4] == ("initial_load", "tables") and len(where) > 4:
        where = (*where[:4], "*", *where[5:])
    return _MODELS.get(where)


def _keys_of(model: type[BaseModel]) -> str:
    return f"a mapping with the keys {', '.join(model.model_fields)}"


def _allowed(where: _Loc) -> str:
    if model := _model_at(where):
        return _keys_of(model)
    for end in range(len(where) - 1, -1, -1):  # an item of a list or mapping: the field that has it
        model = _model_at(where[:end])
        if model and (field := model.model_fields.get(str(where[end]))):
            return field.description or ""
    return ""


def _lookup(raw: _Yaml, where: _Loc) -> _Yaml:
    value: Any = raw
    for step in where:
        value = value[step]
    return cast("_Yaml", value)


def _shown(value: _Yaml, where: _Loc) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if where[-1:] == ("options",):  # whoever puts settings there as one text may well put a password there
        return "text"
    text = json.dumps(value, ensure_ascii=False)
    return f"{text[:80]}..." if len(text) > 80 else text


def _line(file: Path, where: _Loc, what: str) -> str:
    path = ""
    for step in where:
        if isinstance(step, int):
            path += f"[{step}]"
        elif re.fullmatch(r"[\w-]+", step):
            path += f".{step}" if path else step
        else:  # dots of its own: spark["spark.master"]
            path += f"[{json.dumps(step, ensure_ascii=False)}]"
    return _one_line(f"{file}: {path}: {what}")


def _one_line(text: str) -> str:
    return " ".join(text.split())
