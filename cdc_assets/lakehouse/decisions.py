"""decisions: what people have decided about DDL statements that held their tables. Kept whatever else is derived again."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, STRING, TIMESTAMP, column
from cdc_assets.lakehouse.table import Definition


class Verdict(StrEnum):
    """What is to be done with a statement."""

    APPLY = "apply"  # as it stands
    IGNORE = "ignore"  # nothing
    AS = "as"  # as if it were another


@dataclass(frozen=True)
class Decision:
    """What was decided about one statement.

    Attributes:
        verdict: what.
        read_as: the statement in whose place it stands; only with `AS`.
    """

    verdict: Verdict
    read_as: str | None = None

    def text(self, statement: str) -> str | None:
        """What the statement is taken for; None: it does nothing."""
        return {Verdict.APPLY: statement, Verdict.IGNORE: None, Verdict.AS: self.read_as}[self.verdict]


def statement_id(commit_ts: int, default_database: str | None, text: str) -> str:
    """What a statement is called: the same however often, and in whatever partition, it comes."""
    said = "\0".join((str(commit_ts), default_database or "", text))
    return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, kw_only=True)
class DecisionsCursor(Cursor):
    """`sequence` is the number of decisions."""


DECISIONS = Definition(
    columns=StructType(
        [
            column("statement_id", STRING, "Which statement: a hash of its commit_ts, default database and text."),
            column("verdict", STRING, "apply, ignore, or as (as if it were read_as)."),
            column("read_as", STRING, "The statement in whose place it stands; null: none."),
            column("decided_at", TIMESTAMP, "When it was decided."),
            column("commit_ts", BIGINT, "The statement's position in the source."),
            column("database", STRING, "Database of a table that it held."),
            column("table", STRING, "Its name."),
            column("ddl_statement", STRING, "The statement's text."),
        ]
    ),
    cursor=DecisionsCursor,
)
