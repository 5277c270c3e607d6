"""Sessions at the server, the statements that they execute, and the log of these."""

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pymysql

from cdc_assets_tests.live.catalog import Name
from cdc_assets_tests.mariadb import MariaDB

_LOCK_SECONDS = 20


@dataclass(frozen=True)
class Statement:
    """A statement.

    Attributes:
        sql: its text.
        session: the number of the session that executes it.
        waits: whether it may wait for a lock, so that the next statement does not wait for its end.
        seconds: for which the session does nothing before it.
    """

    sql: str
    session: int = 0
    waits: bool = False
    seconds: float = 0


@dataclass(frozen=True)
class Step:
    """Statements that belong together, such as a transaction.

    Attributes:
        productions: the rules of the grammar that made it.
        tables: the tables that it concerns.
        statements: in their order.
    """

    productions: tuple[str, ...]
    tables: tuple[Name, ...]
    statements: tuple[Statement, ...]


@dataclass
class Executed:
    """What became of a step: the binlog's position after it, and the errors of refused statements."""

    step: Step
    number: int
    position: str
    errors: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For a file of the steps."""
        return asdict(self)


class Sessions:
    """Some sessions at the server, of which several may be at work at the same time."""

    def __init__(self, server: MariaDB, number: int = 3) -> None:
        self._server = server
        self._connections = [self._connect() for _ in range(number)]
        self._admin = server.connect()
        self.executed: list[Executed] = []

    def _connect(self) -> Any:
        connection = self._server.connect()
        with connection.cursor() as cursor:
            cursor.execute(
                f"SET SESSION innodb_lock_wait_timeout = {_LOCK_SECONDS}, lock_wait_timeout = {_LOCK_SECONDS}"
            )
        return connection

    def run(self, step: Step, *, log: bool = True) -> Executed:
        """Execute a step, and return what became of it once all its statements have ended."""
        errors: list[str] = []
        waiting: list[threading.Thread] = []
        for statement in step.statements:
            time.sleep(statement.seconds)
            if statement.waits:
                thread = threading.Thread(target=self._execute, args=(statement, errors))
                thread.start()
                waiting.append(thread)
            else:
                self._execute(statement, errors)
        for thread in waiting:
            thread.join()
        ((file, position, *_),) = self.query("SHOW MASTER STATUS")
        done = Executed(step, len(self.executed), f"{file}:{position}", errors)
        if log:
            self.executed.append(done)
        return done

    def query(self, sql: str) -> Sequence[Any]:
        """Return the rows of a query."""
        with self._admin.cursor() as cursor:
            cursor.execute(sql)
            rows: Sequence[Any] = cursor.fetchall()
            return rows

    def cursor(self) -> Any:
        """Return a cursor for reading."""
        return self._admin.cursor()

    def _execute(self, statement: Statement, errors: list[str]) -> None:
        try:
            with self._connections[statement.session].cursor() as cursor:
                cursor.execute(statement.sql)
        except pymysql.MySQLError as error:
            errors.append(f"{error.args[-1]}: {statement.sql}")
