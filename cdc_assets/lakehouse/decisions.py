"""decisions: what people have decided about DDL statements that held tables. A rebuild keeps this table."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, STRING, TIMESTAMP, column
from cdc_assets.lakehouse.table import Definition


class DecisionVerdict(StrEnum):
    """What to do with a statement."""

    APPLY = "apply"  # apply it as it was written
    IGNORE = "ignore"  # skip it
    AS = "as"  # apply another statement in its place


@dataclass(frozen=True)
class Decision:
    """A person's decision about one statement.

    Attributes:
        verdict: what to do with the statement.
        read_as: the statement to apply in its place; only with `AS`.
    """

    verdict: DecisionVerdict
    read_as: str | None = None

    def text(self, statement: str) -> str | None:
        """Return the text to apply in place of a statement; None to skip it."""
        if self.verdict == DecisionVerdict.APPLY:
            return statement
        return self.read_as if self.verdict == DecisionVerdict.AS else None


def statement_id(commit_ts: int, default_database: str | None, text: str, gtid: str | None = None) -> str:
    """Return the id of a statement, which is the same for every copy of it in any partition.

    A GTID distinguishes equal statements of one second, and is the same in the logs of all servers.
    """
    identity = "\0".join((str(commit_ts), default_database or "", text, *([gtid] if gtid else [])))
    return hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()


def identify_statement(row: Mapping[str, Any]) -> str:
    """Return the id of the statement in a row of table_schemas, change_events or released_changes."""
    database = row["default_database"] if "default_database" in row else row["database"]
    source: Mapping[str, Any] = row.get("source") or {}
    return statement_id(row["commit_ts"], database, row["ddl_statement"], source.get("gtid"))


@dataclass(frozen=True, kw_only=True)
class DecisionsCursor(Cursor):
    """`sequence` is the number of decisions."""


DECISIONS = Definition(
    columns=StructType(
        [
            column("statement_id", STRING, "The statement: a hash of its commit_ts, default database, text and GTID."),
            column("verdict", STRING, "apply, ignore, or as (apply read_as in its place)."),
            column("read_as", STRING, "The statement to apply in its place; null unless the verdict is as."),
            column("decided_at", TIMESTAMP, "When the decision was made."),
            column("commit_ts", BIGINT, "The statement's position in the source."),
            column("database", STRING, "Database of a table that the statement held."),
            column("table", STRING, "Name of that table."),
            column("ddl_statement", STRING, "The statement's text."),
        ]
    ),
    cursor=DecisionsCursor,
)
