"""The rows of the source itself, as of one moment: TiDB, MySQL and MariaDB by MySQL's protocol, without a JVM."""

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import pymysql
from pymysql.converters import encoders
from pymysql.cursors import SSCursor

from cdc_assets.lakehouse.schema import quoted

USER, PASSWORD = "CDC_VERIFY_USER", "CDC_VERIFY_PASSWORD"
_SECONDS = 20  # to connect
_PORTS = {"mysql": 3306, "mariadb": 3306}
_TLS = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_IDENTITY")
_LOGIN = ("user", "username", "password")


class SourceError(RuntimeError):
    """The source does not answer as it has to; the message is one line."""


class Column(NamedTuple):
    """A column of the source's table: its name, and the text of its MySQL type."""

    name: str
    type: str


@dataclass(frozen=True)
class Address:
    """Where a server is.

    Attributes:
        host: its name or address.
        port: its port.
        tls: `DISABLED`; `PREFERRED`: if it can; `REQUIRED`: whoever answers; `VERIFY_IDENTITY`: it has a certificate of that
            name.
    """

    host: str
    port: int
    tls: str = "PREFERRED"

    @classmethod
    def of(cls, url: str) -> "Address":
        """Read a JDBC URL, `jdbc:mysql://host:port/...?sslMode=...`; its other parameters are for JDBC drivers.

        Raises:
            SourceError: it is none, or it has a user or a password in it; the message does not repeat it.
        """
        try:
            parts = urlsplit(url.removeprefix("jdbc:"))
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not url.startswith("jdbc:") or not host or parts.scheme not in _PORTS:
            raise SourceError("no JDBC URL of a MySQL server; allowed: jdbc:mysql://HOST:PORT/ and jdbc:mariadb://...")
        parameters = {name.lower(): value for name, value in parse_qsl(parts.query, keep_blank_values=True)}
        if parts.username is not None or parts.password is not None or parameters.keys() & set(_LOGIN):
            raise SourceError(f"the URL has a user or a password in it: set {USER} and {PASSWORD} instead")
        tls = parameters.get("sslmode", "PREFERRED").upper().replace("-", "_")
        if tls not in _TLS:
            raise SourceError(f"sslMode {tls}: unknown; allowed: {', '.join(_TLS)}")
        return cls(host, port or _PORTS[parts.scheme], tls)

    @property
    def security(self) -> dict[str, Any]:
        """What the client is told about TLS."""
        if self.tls == "DISABLED":
            return {"ssl_disabled": True}
        if self.tls == "PREFERRED":
            return {}
        context = ssl.create_default_context()
        if self.tls == "REQUIRED":
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return {"ssl": context}


class Snapshot:
    """The source as of one moment: every query sees the same rows."""

    def __init__(self, connection: "pymysql.Connection[Any]", position: int) -> None:
        """Take it.

        Args:
            connection: to the server, of which nothing else is asked.
            position: the commit_ts as of which TiDB is asked; other servers have their own present only.
        """
        self._connection = connection
        # TIMESTAMP in UTC, bytes as they are; and nothing stops at a value that a mode does not permit.
        self._run("SET SESSION time_zone = '+00:00', sql_mode = ''")
        ((version,),) = self._run("SELECT VERSION()")
        self.exact = "TiDB" in version  # whether it is as of the position asked for
        if self.exact:
            self.told = self._tidb(position)
        else:
            self.told = self._mariadb() if "MariaDB" in version else self._mysql(version)

    def columns(self, database: str, table: str) -> list[Column]:
        """The columns of a table.

        Raises:
            SourceError: there is no such table.
        """
        rows = self._run(f"SHOW COLUMNS FROM {table_name(database, table)}")
        return [Column(row[0], text_of(row[1])) for row in rows]

    def rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """The answer to a SELECT, as it comes in."""
        try:
            with closing(self._connection.cursor(SSCursor)) as cursor:
                cursor.execute(sql)
                yield from cursor
        except pymysql.MySQLError as error:
            raise _said(error) from error

    def _run(self, sql: str) -> list[tuple[Any, ...]]:
        return list(self.rows(sql))

    def _tidb(self, position: int) -> str:
        """By the TSO: `AS OF TIMESTAMP` knows no more of it than its milliseconds, within which rows change."""
        self._run(f"SET SESSION tidb_snapshot = '{position}'")
        return f"TiDB as of {position}"

    def _mariadb(self) -> str:
        """MariaDB keeps the position that belongs to a snapshot."""
        self._start()
        said = {name.lower(): value for name, value in self._run("SHOW STATUS LIKE 'binlog_snapshot_%'")}
        return _binlog("MariaDB", said.get("binlog_snapshot_file"), said.get("binlog_snapshot_position"))

    def _mysql(self, version: str) -> str:
        """MySQL keeps none; and a global lock, under which to read it, would have writers wait: from before, and after."""
        major, minor, *_ = version.partition("-")[0].split(".")
        log = "BINARY LOG" if (int(major), int(minor)) >= (8, 2) else "MASTER"
        (before,) = self._run(f"SHOW {log} STATUS") or [(None, None)]
        self._start()
        (after,) = self._run(f"SHOW {log} STATUS") or [(None, None)]
        told = _binlog("MySQL", *before[:2])
        return told if before[:2] == after[:2] else f"{told}, or up to {after[0]}:{after[1]}"

    def _start(self) -> None:
        self._run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self._run("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")


@contextmanager
def snapshot(address: Address, position: int, environment: Mapping[str, str] = os.environ) -> Iterator[Snapshot]:
    """Connect as the environment's user, and take a snapshot.

    Raises:
        SourceError: no user is named, or the server does not let us in, or cannot do it.
    """
    if not environment.get(USER):
        raise SourceError(f"{USER} is not set: the user of the source, with {PASSWORD} its password")
    try:
        connection = pymysql.connect(
            host=address.host,
            port=address.port,
            user=environment[USER],
            password=environment.get(PASSWORD, ""),
            charset="utf8mb4",
            connect_timeout=_SECONDS,
            conv=dict[Any, Any](encoders),  # no decoders: texts, but for bytes
            **address.security,
        )
    except (pymysql.MySQLError, RuntimeError) as error:  # the latter: a login that is possible with TLS only
        raise _said(error) from error
    with closing(connection):
        yield Snapshot(connection, position)


def table_name(database: str, table: str) -> str:
    """A table's name in SQL."""
    return f"{quoted(database)}.{quoted(table)}"


def text_of(value: str | bytes) -> str:
    """A text of an answer, of which some come as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _binlog(server: str, file: str | None, position: str | None) -> str:
    return f"{server} as it is now, at binlog {file}:{position}" if file else f"{server} as it is now, without a binlog"


def _said(error: Exception) -> SourceError:
    return SourceError(f"the source says: {' '.join(str(error.args[-1] if error.args else error).split())}")
