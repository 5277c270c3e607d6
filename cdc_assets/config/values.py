"""Types of single values in the feeds file, which pydantic checks, and the texts of what each type allows."""

import difflib
import re
import zoneinfo
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal, NoReturn, cast

from pydantic import AfterValidator, BeforeValidator, PlainValidator, SecretStr, StringConstraints, ValidationInfo
from pydantic_core import PydanticCustomError

from cdc_assets.config import cron, jdbc
from cdc_assets.config.locations import AZURE, AZURE_FORM, SCHEMES, LocationError, canonical_location, scheme_of
from cdc_assets.config.patterns import split_pattern
from cdc_assets.mysql_types.types import UnknownType, parse_type

# The offset at which reading of a new partition begins; a mapping is topic -> partition -> offset.
StartingOffsets = Literal["earliest", "latest"] | datetime | dict[str, dict[int, int]]
Setting = str | int | float | bool

SCHEMA = "a schema of Spark's catalog, of letters a-z, digits and _"
_OFFSET = re.compile(r"[+-](?:(?:0\d|1[0-3]):[0-5]\d|14:00)")  # the range of MySQL's time zone offsets
# The email addresses that Dagster accepts, and teams.
_OWNER = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}|team:.+")


def reject(allowed: str, detail: str = "") -> NoReturn:
    """Reject the value of a field.

    Args:
        allowed: the text of what the field allows.
        detail: more about the value, which it may quote; shown only if the value has no environment variable.
    """
    raise PydanticCustomError("rule", "{allowed}{detail}", {"allowed": allowed, "detail": detail})


def did_you_mean(text: str, allowed: Iterable[str]) -> str:
    """Return a question that suggests the allowed word most similar to `text`; "" if no word is similar."""
    close = difflib.get_close_matches(text, list(allowed), n=1)
    return f"did you mean {close[0]}?" if close else ""


def _allow(accepts: Callable[[str], object], allowed: str) -> AfterValidator:
    """Return the check that `accepts` returns something true for a text; `allowed` says to people what it accepts."""

    def check(text: str) -> str:
        if not accepts(text):
            reject(allowed)
        return text

    return AfterValidator(check)


def _allow_parsable(parse: Callable[[str], object], error_type: type[Exception], allowed: str) -> AfterValidator:
    """Return the check that `parse` raises no error of this type for a text; people read the error's message."""

    def check(text: str) -> str:
        try:
            parse(text)
        except error_type as error:
            reject(allowed, str(error))
        return text

    return AfterValidator(check)


def _begin_with(prefix: str) -> AfterValidator:
    return _allow(lambda key: key.startswith(prefix) and key != prefix, f"keys that begin with {prefix}")


# Options that Spark's reader sets itself, or for which the feeds file has a field.
_RESERVED_OPTIONS = (
    "kafka.bootstrap.servers",
    "kafka.auto.offset.reset",
    "kafka.enable.auto.commit",
    "kafka.interceptor.classes",
    "kafka.key.deserializer",
    "kafka.value.deserializer",
)


PATTERN = "a regular expression (Python's)"
STARTING_OFFSETS = (
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
    reject(STARTING_OFFSETS)


# Settings of the file systems for which `storage` has fields.
_STORAGE_FIELDS = (
    "fs.s3a.endpoint",
    "fs.s3a.endpoint.region",
    "fs.s3a.path.style.access",
    "fs.gs.storage.root.url",
    "fs.azure.abfs.endpoint",
)
# Credentials. Azure's keys may end with the name of an account. The endpoint that issues Azure's refresh tokens is not a
# secret, nor is S3's encryption key, which may be the name of a key.
_CREDENTIALS = re.compile(
    r"\.(access\.key|secret\.key|session\.token|account\.key|sas\.fixed\.token|private\.key|client\.secret|password"
    r"|refresh\.token(?!\.endpoint)|gs\.encryption\.key|client-provided-encryption-key)(\.|$)"
)


def _hadoop_key(key: str) -> str:
    if key in _STORAGE_FIELDS:
        reject(f"keys other than {', '.join(_STORAGE_FIELDS)}: they have fields of their own")
    if _CREDENTIALS.search(key):
        reject(
            "no credentials: they come from the environment (AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, "
            "AZURE_STORAGE_ACCOUNT_KEY and the like) or the platform"
        )
    return key


ENDPOINT = "an http or https URL without a path, such as https://minio.example:9000"


REGISTRY_URL = (
    "an http or https URL, such as https://registry.example:8081 or https://registry.example/apis/registry/v2"
)


def _url(path: str, allowed: str) -> PlainValidator:
    """Return the check of a URL without credentials whose path matches a regular expression; it drops a slash at the end."""

    def check(value: object) -> str:
        if isinstance(value, str) and re.fullmatch(rf"https?://[^/\s@?#]+{path}", value):
            return value.rstrip("/")
        reject(allowed)

    return PlainValidator(check)


# A setting of Apicurio's converters: which of Apicurio's two kinds of ids their records have.
USE_ID = "apicurio.registry.use-id"
REGISTRY_IDS = ("globalId", "contentId")
# The other keys are settings of Confluent's client.
_REGISTRY_KEYS = (
    "basic.auth.user.info",
    "bearer.auth.token",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    USE_ID,
)
REGISTRY_OPTIONS = f"a mapping of {', '.join(_REGISTRY_KEYS)} to text"


def _registry_key(key: str) -> str:
    if key not in _REGISTRY_KEYS:
        reject(f"the keys {', '.join(_REGISTRY_KEYS)}", did_you_mean(key, _REGISTRY_KEYS))
    return key


def _setting(value: object) -> Setting:
    if not isinstance(value, str | int | float):  # bool is an int
        reject("text, a number, true or false")
    return value


def _as_text(value: object) -> object:
    """Return a boolean or number as text: Kafka's options are text, but YAML reads `true` and `30000` as other types."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _not_bool(value: object) -> object:
    if isinstance(value, bool):  # pydantic would read true as 1
        reject("")  # the field's description is shown as what is allowed
    return value


DURATION = "a whole number and its unit, s, m, h or d, such as 36h"
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_MAX_DURATION = timedelta(days=36_500)


def _duration(value: object) -> timedelta:
    if isinstance(value, str) and (match := re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", value)):
        duration = timedelta(**{_UNITS[match[2]]: int(match[1])})
        if duration <= _MAX_DURATION:
            return duration
    reject(DURATION)


def _time_zone(zone: str) -> str:
    if not _OFFSET.fullmatch(zone) and zone != "UTC":
        names = zoneinfo.available_timezones()
        if zone not in names:
            reject("a time zone name such as UTC or Europe/Berlin, or an offset +HH:MM", did_you_mean(zone, names))
    return zone


_TABLE_PATTERN = "patterns database.table, with * and ? as wildcards"


def _is_table_path(path: str) -> bool:
    return all(split_pattern(path))


def by_table(*choices: str) -> Callable[[object], str | dict[str, str]]:
    """Return a check that accepts one of the choices for all tables, or a mapping of table patterns to choices."""

    def check(value: object) -> str | dict[str, str]:
        if isinstance(value, str) and value in choices:
            return value
        if not isinstance(value, dict) or not value or any(choice not in choices for choice in value.values()):
            reject(by_table_allowed(choices))
        if not all(map(_is_table_path, value)):
            reject(_TABLE_PATTERN)
        return value

    return check


def by_table_allowed(choices: Iterable[str]) -> str:
    """Return the text of what a field with the check `by_table(*choices)` allows."""
    return f"{', '.join(choices)}, or a mapping of patterns database.table to these"


FOLDER = f"a folder, relative to the feeds file, or a URI of {', '.join(f'{s}://' for s in SCHEMES)}"


def _location(value: str, info: ValidationInfo) -> str:
    """Return a location of the feeds file as an absolute path or a URI; relative paths begin at the file's folder."""
    if scheme_of(value):
        try:
            return canonical_location(value)
        except LocationError:
            reject(AZURE_FORM if scheme_of(value) in AZURE else FOLDER)
    return str(((info.context or {}).get("folder", Path()) / value).resolve())


def _server_address(value: object) -> jdbc.ServerAddress:
    problem = ""
    if isinstance(value, str):
        try:
            return jdbc.ServerAddress.from_jdbc_url(value)
        except jdbc.JdbcUrlError as error:
            problem = str(error)
    # Outside the except block, so that no exception with a password in its arguments is chained.
    reject(jdbc.ALLOWED, problem)


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Location = Annotated[Text, AfterValidator(_location)]
Endpoint = Annotated[str, _url("/?", ENDPOINT)]
RegistryUrl = Annotated[str, _url(r"(/[^\s?#]*)?", REGISTRY_URL)]
RegistryKey = Annotated[str, AfterValidator(_registry_key)]
TimeZone = Annotated[str, AfterValidator(_time_zone)]
FeedName = Annotated[
    str,
    _allow(
        re.compile("[A-Za-z0-9_]+").fullmatch,
        "a feed name of letters A-Z a-z, digits and _ only (it names folders, asset keys and an asset group)",
    ),
]
SparkKey = Annotated[str, _begin_with("spark.")]
SparkValue = Annotated[Setting, PlainValidator(_setting)]  # plain, as pydantic reports one error a type of a union
KafkaKey = Annotated[
    str,
    _begin_with("kafka."),
    _allow(lambda key: key not in _RESERVED_OPTIONS, f"keys other than {', '.join(_RESERVED_OPTIONS)}"),
]
ClientKey = Annotated[
    Text,
    _allow(
        lambda key: key not in ("bootstrap.servers", "isolation.level") and not key.endswith("_cb"),
        "keys other than bootstrap.servers, isolation.level, and callbacks (*_cb)",
    ),
]
Pattern = Annotated[Text, _allow_parsable(re.compile, re.error, PATTERN)]
HadoopKey = Annotated[str, _begin_with("fs."), AfterValidator(_hadoop_key)]
OffsetsValue = Annotated[StartingOffsets, PlainValidator(_starting_offsets)]
WholeNumber = Annotated[int, BeforeValidator(_not_bool)]
Duration = Annotated[timedelta, PlainValidator(_duration)]
Option = Annotated[SecretStr, BeforeValidator(_as_text)]
TablePattern = Annotated[str, _allow(_is_table_path, _TABLE_PATTERN)]
ColumnPath = Annotated[
    str,
    _allow(re.compile(r"[^.]+\.[^.]+\.[^.]+").fullmatch, "keys of three dotted parts, database.table.column"),
]
TablePath = Annotated[str, _allow(_is_table_path, "keys database.table")]
TypeText = Annotated[str, _allow_parsable(parse_type, UnknownType, "a MySQL type such as decimal(12,2)")]
SchemaName = Annotated[str, _allow(re.compile("[a-z][a-z0-9_]*").fullmatch, SCHEMA)]
Cron = Annotated[str, _allow_parsable(cron.check_cron, cron.CronError, cron.ALLOWED)]
JdbcUrl = Annotated[jdbc.ServerAddress, PlainValidator(_server_address)]
Owner = Annotated[str, _allow(_OWNER.fullmatch, "email addresses and team:name")]
