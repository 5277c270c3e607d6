"""What a comparison answers: how the rows of a history and of its source differ, as plain values."""

from dataclasses import dataclass
from enum import StrEnum

from cdc_assets.operations.why.life import RowLife

DIFFERENCE_KINDS = ("missing", "extra", "changed")

ColumnTexts = dict[str, str | None]  # column -> value for people; None: NULL


@dataclass(frozen=True)
class DifferingRow:
    """A row that differs.

    Attributes:
        kind: missing: only the source has it; extra: only the history has it; changed: their values differ.
        key: the key's values; of a table without a key the row's.
        history: the differing columns in the history; None: it lacks the row.
        source: the differing columns in the source; None: it lacks the row.
        life: the row's life, as far as the feed's tables hold it.
    """

    kind: str
    key: ColumnTexts
    history: ColumnTexts | None
    source: ColumnTexts | None
    life: RowLife


class Grade(StrEnum):
    """What the outcome of a comparison means for the check `matches_source`."""

    PASSED = "passed"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Verification:
    """The outcome of a comparison.

    Attributes:
        table: `database.table`.
        position: the commit_ts as of which the history was read.
        compared_at: when the source was read, as ISO text.
        source: which server was read, and as of when.
        server: the server's version, as it states it.
        rows: the number of the history's rows.
        source_rows: the number of the source's rows.
        chunks: the number of chunks that were compared.
        differing_chunks: how many of them differ.
        digest: one digest over all chunks of the history.
        source_digest: one digest over all chunks of the source; the same if no chunk differs.
        counts: kind of difference -> number of rows.
        samples: some rows of each kind.
        compared: the columns that were compared.
        not_compared: column -> why it was not compared.
        caveats: why a difference may be none, or a missing one may be one; a sentence each.
        versions: software -> version.
        later: how many rows differed at the position, and were in the history later as the source had them. Only a
            comparison that waits for the history counts them.
        unsettled: how many rows differed, were never in the history as the source had them, and have changed again there.
        not_examined: how many more rows differed than a comparison waits for.
    """

    table: str
    position: int
    compared_at: str
    source: str
    server: str
    rows: int
    source_rows: int
    chunks: int
    differing_chunks: int
    digest: str
    source_digest: str
    counts: dict[str, int]
    samples: list[DifferingRow]
    compared: list[str]
    not_compared: dict[str, str]
    caveats: list[str]
    versions: dict[str, str]
    later: int = 0
    unsettled: int = 0
    not_examined: int = 0

    @property
    def is_equal(self) -> bool:
        """Whether no row differs."""
        return not any(self.counts.values())

    @property
    def grade(self) -> Grade:
        """What the check says."""
        if not self.is_equal:
            return Grade.ERROR
        return Grade.WARNING if self.unsettled or self.not_examined else Grade.PASSED


@dataclass(frozen=True)
class NotCompared:
    """A table that was not compared.

    Attributes:
        grade: what the check says.
        reason: why, and what to do; full sentences.
    """

    grade: Grade
    reason: str
