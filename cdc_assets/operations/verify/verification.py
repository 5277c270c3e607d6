"""What `verify` answers: how the rows of a history and of its source differ, as plain values."""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Verification:
    """The outcome of a comparison.

    Attributes:
        table: `database.table`.
        position: the commit_ts as of which the history was read.
        source: which server was read, and as of when.
        rows: the number of the history's rows.
        source_rows: the number of the source's rows.
        chunks: the number of chunks that were compared.
        differing_chunks: how many of them differ.
        counts: kind of difference -> number of rows.
        samples: some rows of each kind.
        compared: the columns that were compared.
        not_compared: column -> why it was not compared.
        caveats: why a difference may be none, or a missing one may be one; a sentence each.
    """

    table: str
    position: int
    source: str
    rows: int
    source_rows: int
    chunks: int
    differing_chunks: int
    counts: dict[str, int]
    samples: list[DifferingRow]
    compared: list[str]
    not_compared: dict[str, str]
    caveats: list[str]

    @property
    def is_equal(self) -> bool:
        """Whether no row differs."""
        return not any(self.counts.values())
