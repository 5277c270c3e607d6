"""Kafka's options for two clients: Spark reads records with the Java client, librdkafka lists topics and offsets.

A feed's `options` are the Java client's. They are translated for librdkafka; where librdkafka has no counterpart of one, the
feed's `client_options` must say what librdkafka uses instead.
"""

import re
from collections.abc import Mapping

from cdc_assets.config.values import did_you_mean

PREFIX = "kafka."
TIMEOUT = "default.api.timeout.ms"

# Options that librdkafka does not need to connect and to list offsets; none is a secret. TLS versions are among them, since
# OpenSSL agrees on one with the broker.
_OF_READING = frozenset(
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
# Options that librdkafka has under the same name; none is a secret.
_SAME = frozenset(
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
# How options begin that librdkafka lacks -> its counterparts, of which `client_options` must have one -> another way.
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
    """An option that librdkafka can not be given.

    Attributes:
        option: its name, with `kafka.`.
        is_value: whether the value is wrong, not the option; the value is no secret then.
        allowed: what is allowed in its place.
        detail: a question about the name.
    """

    def __init__(self, option: str, allowed: str, *, is_value: bool = False, detail: str = "") -> None:
        super().__init__(option)
        self.option, self.allowed, self.is_value, self.detail = f"{PREFIX}{option}", allowed, is_value, detail


def librdkafka_options(options: Mapping[str, str], client_options: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's options, secrets and all: never to be shown.

    Args:
        options: the Java client's, each with `kafka.` in front.
        client_options: librdkafka's own, which count where both say something.

    Raises:
        OptionError: librdkafka has no counterpart of an option, and `client_options` has nothing in its place.
    """
    given = {name.removeprefix(PREFIX): value for name, value in options.items()}
    _check_values(given)
    truststore = given.pop("ssl.truststore.type", "")
    given.pop("ssl.keystore.type", None)
    found: dict[str, str] = {}
    for name, value in given.items():
        if name in _SAME:
            found[name] = value
        elif name in _RENAMED:
            found[_RENAMED[name]] = value
        elif name == "sasl.jaas.config" and (login := _login(value)):
            found |= login
        elif name == "ssl.truststore.location" and truststore.upper() == "PEM":
            found["ssl.ca.location"] = value
        elif name not in _OF_READING:
            _require_counterpart(name, client_options)
    if given.get("security.protocol", "").upper().startswith("SASL") and "sasl.password" not in found:
        _require_counterpart("security.protocol", client_options)
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found | dict(client_options)


def is_public(option: str) -> bool:
    """Whether an option of this name, without `kafka.`, is known to hold no secret."""
    return option in _OF_READING or option in _SAME


def unescaped(quoted: str) -> str:
    """Return the text that stands between quotes in a JAAS configuration."""
    return re.sub(r"\\(.)", r"\1", quoted)


def _check_values(given: Mapping[str, str]) -> None:
    if given.get("isolation.level", _ISOLATION[0]).lower() not in _ISOLATION:
        raise OptionError("isolation.level", ", ".join(_ISOLATION), is_value=True)
    if not given.get(TIMEOUT, "0").isdecimal():
        raise OptionError(TIMEOUT, "a whole number of milliseconds", is_value=True)


def _require_counterpart(name: str, client_options: Mapping[str, str]) -> None:
    beginning = next((each for each in _COUNTERPARTS if name.startswith(each)), None)
    if beginning is None:
        known = [*_OF_READING, *_SAME, *_RENAMED, *_COUNTERPARTS, "ssl.truststore.type", "ssl.keystore.type"]
        names = sorted(
            f"{PREFIX}{each}{'*' if each.endswith('.') else ''}" for each in {*known} - {"bootstrap.servers"}
        )
        raise OptionError(name, ", ".join(names), detail=did_you_mean(f"{PREFIX}{name}", names))
    counterparts, other = _COUNTERPARTS[beginning]
    if not any(each in client_options for each in counterparts):
        way = f"with {' or '.join(counterparts)} in client_options, which librdkafka uses instead"
        raise OptionError(name, f"{way}; or {other}" if other else way)


def _login(jaas: str) -> dict[str, str]:
    """Return user and password of a JAAS configuration of PLAIN or SCRAM; nothing for another one."""
    login = _LOGIN.fullmatch(jaas)
    if not login:
        return {}
    found = {f"sasl.{name}": unescaped(value) for name, value in _LOGIN_FIELD.findall(login["rest"])}
    return found if len(found) == 2 and not _LOGIN_FIELD.sub("", login["rest"]).strip() else {}
