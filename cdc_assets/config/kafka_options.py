"""Kafka options for two clients: Spark reads records with the Java client, librdkafka lists topics and offsets.

A feed's `options` are options of the Java client. This module translates them for librdkafka. If librdkafka has no
counterpart of an option, the feed's `client_options` must have the option that librdkafka uses instead.
"""

import re
from collections.abc import Mapping

from cdc_assets.config.values import did_you_mean

PREFIX = "kafka."
TIMEOUT = "default.api.timeout.ms"

# Options that librdkafka does not need to connect and list offsets; none is a secret. TLS versions are among these options,
# because OpenSSL negotiates the version with the broker.
_UNUSED_OPTIONS = frozenset(
    {
        "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter", "check.crcs",
        "client.dns.lookup", "client.rack", "connections.max.idle.ms", TIMEOUT, "enable.metrics.push",
        "exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "group.id",
        "group.instance.id", "group.protocol", "group.remote.assignor", "heartbeat.interval.ms",
        "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records", "metadata.max.age.ms",
        "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
        "metrics.sample.window.ms", "partition.assignment.strategy", "receive.buffer.bytes",
        "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms", "retry.backoff.max.ms",
        "retry.backoff.ms", "security.providers", "send.buffer.bytes", "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms", "ssl.enabled.protocols",
        "ssl.keymanager.algorithm", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)  # fmt: skip
# Options with the same name in librdkafka; none is a secret.
_SAME_NAME = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "isolation.level",
        "sasl.mechanism",
        "security.protocol",
        "ssl.endpoint.identification.algorithm",
    }
)
_RENAMED = {
    "ssl.key.password": "ssl.key.password",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
_LOGINS = ("sasl.username", "sasl.oauthbearer.method", "sasl.oauthbearer.config", "sasl.kerberos.principal")
_CERTIFICATES = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")
# Prefix of options that librdkafka lacks -> (its counterparts, of which `client_options` must have one; the alternative in
# `options`, or "").
_COUNTERPARTS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "sasl.client.callback.handler.class": (_LOGINS, ""),
    "sasl.jaas.config": (
        _LOGINS,
        "a login module of PLAIN or SCRAM with username and password, and a semicolon at the end",
    ),
    "sasl.kerberos.": (("sasl.kerberos.principal",), ""),
    "sasl.login.": (_LOGINS, ""),
    "sasl.oauthbearer.": (("sasl.oauthbearer.method", "sasl.oauthbearer.config"), ""),
    "security.protocol": (_LOGINS, f"{PREFIX}sasl.jaas.config"),
    "ssl.cipher.suites": (("ssl.cipher.suites",), ""),
    "ssl.engine.factory.class": (("ssl.ca.location", "ssl.ca.pem", *_CERTIFICATES), ""),
    "ssl.keystore.": (
        _CERTIFICATES,
        f"{PREFIX}ssl.keystore.certificate.chain and {PREFIX}ssl.keystore.key, both in PEM",
    ),
    "ssl.truststore.": (
        ("ssl.ca.location", "ssl.ca.pem"),
        f"{PREFIX}ssl.truststore.type: PEM, and certificates in PEM",
    ),
}
_LOGIN = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(plain\.PlainLoginModule|scram\.ScramLoginModule)\s+required\s+(?P<rest>.*?);\s*",
    re.DOTALL,
)
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_LOGIN_FIELD = re.compile(rf"\s*(username|password)\s*=\s*{QUOTED.pattern}")
_ISOLATION = ("read_committed", "read_uncommitted")


class OptionError(ValueError):
    """An option that cannot be translated for librdkafka.

    Attributes:
        option: the option's name, with `kafka.` in front.
        is_value: whether the value is wrong, not the option; such a value is not a secret.
        allowed: a text of what is allowed instead.
        detail: a question that suggests a similar name.
    """

    def __init__(self, option: str, allowed: str, *, is_value: bool = False, detail: str = "") -> None:
        super().__init__(option)
        self.option, self.allowed, self.is_value, self.detail = f"{PREFIX}{option}", allowed, is_value, detail


def librdkafka_options(options: Mapping[str, str], client_options: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's options, including secrets: never show them.

    Args:
        options: options of the Java client, each with `kafka.` in front.
        client_options: options of librdkafka, which override translated ones.

    Raises:
        OptionError: librdkafka has no counterpart of an option, and `client_options` has no replacement.
    """
    java_options = {name.removeprefix(PREFIX): value for name, value in options.items()}
    _check_values(java_options)
    truststore_type = java_options.pop("ssl.truststore.type", "")
    java_options.pop("ssl.keystore.type", None)
    translated: dict[str, str] = {}
    for name, value in java_options.items():
        if name in _SAME_NAME:
            translated[name] = value
        elif name in _RENAMED:
            translated[_RENAMED[name]] = value
        elif name == "sasl.jaas.config" and (login := _parse_login(value)):
            translated |= login
        elif name == "ssl.truststore.location" and truststore_type.upper() == "PEM":
            translated["ssl.ca.location"] = value
        elif name not in _UNUSED_OPTIONS:
            _require_counterpart(name, client_options)
    if java_options.get("security.protocol", "").upper().startswith("SASL") and "sasl.password" not in translated:
        _require_counterpart("security.protocol", client_options)
    if translated.get("ssl.endpoint.identification.algorithm") == "":
        translated["ssl.endpoint.identification.algorithm"] = "none"
    return translated | dict(client_options)


def is_public(option: str) -> bool:
    """Return whether the option with this name, without `kafka.`, never holds a secret."""
    return option in _UNUSED_OPTIONS or option in _SAME_NAME


def unescape(quoted: str) -> str:
    """Return a quoted text of a JAAS configuration without its escapes."""
    return re.sub(r"\\(.)", r"\1", quoted)


def _check_values(java_options: Mapping[str, str]) -> None:
    if java_options.get("isolation.level", _ISOLATION[0]).lower() not in _ISOLATION:
        raise OptionError("isolation.level", ", ".join(_ISOLATION), is_value=True)
    if not java_options.get(TIMEOUT, "0").isdecimal():
        raise OptionError(TIMEOUT, "a whole number of milliseconds", is_value=True)


def _require_counterpart(name: str, client_options: Mapping[str, str]) -> None:
    prefix = next((each for each in _COUNTERPARTS if name.startswith(each)), None)
    if prefix is None:
        handled = [*_UNUSED_OPTIONS, *_SAME_NAME, *_RENAMED, *_COUNTERPARTS, "ssl.truststore.type", "ssl.keystore.type"]
        names = sorted(
            f"{PREFIX}{each}{'*' if each.endswith('.') else ''}" for each in {*handled} - {"bootstrap.servers"}
        )
        raise OptionError(name, ", ".join(names), detail=did_you_mean(f"{PREFIX}{name}", names))
    counterparts, alternative = _COUNTERPARTS[prefix]
    if not any(each in client_options for each in counterparts):
        allowed = f"with {' or '.join(counterparts)} in client_options, which librdkafka uses instead"
        raise OptionError(name, f"{allowed}; or {alternative}" if alternative else allowed)


def _parse_login(jaas: str) -> dict[str, str]:
    """Return librdkafka's options for the user and password of a JAAS configuration of PLAIN or SCRAM, else nothing."""
    login = _LOGIN.fullmatch(jaas)
    if not login:
        return {}
    fields = {f"sasl.{name}": unescape(value) for name, value in _LOGIN_FIELD.findall(login["rest"])}
    return fields if len(fields) == 2 and not _LOGIN_FIELD.sub("", login["rest"]).strip() else {}
