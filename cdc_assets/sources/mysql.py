"""Queries to the source database as of one moment: TiDB, MySQL and MariaDB, through MySQL's protocol, without a JVM."""

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import pymysql
from pymysql.constants import ER
from pymysql.converters import encoders
from pymysql.cursors import SSCursor

from cdc_assets.config.jdbc import PASSWORD, USER, ServerAddress
from cdc_assets.lakehouse.schema import quoted

_CONNECT_SECONDS = 20
_MISSING = (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE)


class SourceError(RuntimeError):
    """The source database refuses a request or gives no usable answer; the message is one line."""


class MissingTableError(SourceError):
    """The source database does not have the table."""


class DatabaseColumn(NamedTuple):
    """A column of a table in the source database: its name, and its MySQL type as text."""

    name: str
    type: str


class DatabaseSnapshot:
    """The source database as of one moment: every query returns rows of the same state.

    Attributes:
        version: the server's version, as it states it.
        is_at_position: whether the snapshot is as of the requested position.
        description: a text for people, with the server's kind and the snapshot's position.
    """

    def __init__(self, connection: "pymysql.Connection[Any]", position: int) -> None:
        """Begin a snapshot.

        Args:
            connection: a connection to the server, used by this snapshot only.
            position: the commit_ts that the snapshot of a TiDB server has; other servers can only read their present state.
        """
        self._connection = connection
        # TIMESTAMP values in UTC. No SQL mode, so that no query fails at a stored value that a mode forbids.
        self._run("SET SESSION time_zone = '+00:00', sql_mode = ''")
        ((version,),) = self._run("SELECT VERSION()")
        self.version = decode_text(version)
        self.is_at_position = "TiDB" in self.version
        if self.is_at_position:
            self.description = self._begin_tidb(position)
        else:
            self.description = self._begin_mariadb() if "MariaDB" in self.version else self._begin_mysql()

    def columns(self, database: str, table: str) -> list[DatabaseColumn]:
        """Return the columns of a table.

        Raises:
            MissingTableError: the table does not exist.
            SourceError: the server refuses to show the columns.
        """
        rows = self._run(f"SHOW COLUMNS FROM {qualified_name(database, table)}")
        return [DatabaseColumn(row[0], decode_text(row[1])) for row in rows]

    def rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query as the server sends them."""
        try:
            with closing(self._connection.cursor(SSCursor)) as cursor:
                cursor.execute(sql)
                yield from cursor
        except pymysql.MySQLError as error:
            raise _source_error(error) from error

    def _run(self, sql: str) -> list[tuple[Any, ...]]:
        return list(self.rows(sql))

    def _begin_tidb(self, position: int) -> str:
        """Set the TSO of a snapshot: `AS OF TIMESTAMP` takes milliseconds only, and rows change within one."""
        self._run(f"SET SESSION tidb_snapshot = '{position}'")
        return f"TiDB as of {position}"

    def _begin_mariadb(self) -> str:
        """Begin a snapshot on MariaDB, which states the snapshot's binlog position."""
        self._start_transaction()
        status = {name.lower(): value for name, value in self._run("SHOW STATUS LIKE 'binlog_snapshot_%'")}
        return _describe("MariaDB", status.get("binlog_snapshot_file"), status.get("binlog_snapshot_position"))

    def _begin_mysql(self) -> str:
        """Begin a snapshot on MySQL, with the binlog positions before and after.

        MySQL does not state a snapshot's position, and reading it under a global lock would block writers.
        """
        major, minor, *_ = self.version.partition("-")[0].split(".")
        log = "BINARY LOG" if (int(major), int(minor)) >= (8, 2) else "MASTER"
        (before,) = self._run(f"SHOW {log} STATUS") or [(None, None)]
        self._start_transaction()
        (after,) = self._run(f"SHOW {log} STATUS") or [(None, None)]
        description = _describe("MySQL", *before[:2])
        return description if before[:2] == after[:2] else f"{description}, or up to {after[0]}:{after[1]}"

    def _start_transaction(self) -> None:
        self._run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self._run("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")


@contextmanager
def open_snapshot(
    address: ServerAddress, position: int, environment: Mapping[str, str] = os.environ
) -> Iterator[DatabaseSnapshot]:
    """Connect as the environment's user, and yield a snapshot.

    Raises:
        SourceError: the environment names no user, or the server refuses the login or the snapshot.
    """
    if not environment.get(USER):
        raise SourceError(
            f"{USER} is not set: set it to the user of the source database, and {PASSWORD} to the password"
        )
    try:
        connection = pymysql.connect(
            host=address.host,
            port=address.port,
            user=environment[USER],
            password=environment.get(PASSWORD, ""),
            charset="utf8mb4",
            connect_timeout=_CONNECT_SECONDS,
            conv=dict[Any, Any](encoders),  # without decoders, so that values come as text or bytes
            **_build_tls_options(address),
        )
    except (pymysql.MySQLError, RuntimeError) as error:  # RuntimeError: the login needs TLS
        raise _source_error(error) from error
    with closing(connection):
        yield DatabaseSnapshot(connection, position)


def qualified_name(database: str, table: str) -> str:
    """Return a table's quoted name with its database, for SQL."""
    return f"{quoted(database)}.{quoted(table)}"


def decode_text(value: str | bytes) -> str:
    """Return a value of a query's row as text; servers send some texts as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _describe(server: str, file: str | None, position: str | None) -> str:
    return f"{server} as it is now, at binlog {file}:{position}" if file else f"{server} as it is now, without a binlog"


def _build_tls_options(address: ServerAddress) -> dict[str, Any]:
    """Return PyMySQL's options for TLS."""
    if address.tls == "DISABLED":
        return {"ssl_disabled": True}
    if address.tls == "PREFERRED":
        return {}
    context = ssl.create_default_context()
    if address.tls == "REQUIRED":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return {"ssl": context}


def _source_error(error: Exception) -> SourceError:
    kind = MissingTableError if error.args and error.args[0] in _MISSING else SourceError
    return kind(f"the source database answers: {' '.join(str(error.args[-1] if error.args else error).split())}")
