"""The address of a source database, from a JDBC URL without user and password."""

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

# The environment variables that hold the user of the source database, and the password.
USER, PASSWORD = "CDC_VERIFY_USER", "CDC_VERIFY_PASSWORD"
_PORTS = {"mysql": 3306, "mariadb": 3306}
_TLS = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_IDENTITY")
_LOGIN_PARAMETERS = ("user", "username", "password")
ALLOWED = "jdbc:mysql://HOST:PORT/ or jdbc:mariadb://HOST:PORT/, without user and password"


class JdbcUrlError(ValueError):
    """A JDBC URL that cannot be used; the message is one line and does not repeat the URL."""


@dataclass(frozen=True)
class ServerAddress:
    """The address of a database server.

    Attributes:
        host: its host name or IP address.
        port: its port.
        tls: `DISABLED`; `PREFERRED`: TLS if the server supports it; `REQUIRED`: TLS, with any certificate;
            `VERIFY_IDENTITY`: TLS, with a trusted certificate for `host`.
    """

    host: str
    port: int
    tls: str = "PREFERRED"

    @classmethod
    def from_jdbc_url(cls, url: str) -> "ServerAddress":
        """Return the address in a JDBC URL, `jdbc:mysql://host:port/...?sslMode=...`; other parameters are ignored.

        Raises:
            JdbcUrlError: it is not such a URL, or it contains a user or a password.
        """
        try:
            parts = urlsplit(url.removeprefix("jdbc:"))
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not url.startswith("jdbc:") or not host or parts.scheme not in _PORTS:
            raise JdbcUrlError(f"not a JDBC URL of a MySQL server; allowed: {ALLOWED}")
        parameters = {name.lower(): value for name, value in parse_qsl(parts.query, keep_blank_values=True)}
        if parts.username is not None or parts.password is not None or parameters.keys() & set(_LOGIN_PARAMETERS):
            raise JdbcUrlError(f"the URL contains a user or a password: set {USER} and {PASSWORD} instead")
        tls = parameters.get("sslmode", "PREFERRED").upper().replace("-", "_")
        if tls not in _TLS:
            raise JdbcUrlError(f"sslMode {tls}: unknown; allowed: {', '.join(_TLS)}")
        return cls(host, port or _PORTS[parts.scheme], tls)
