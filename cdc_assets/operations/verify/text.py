"""A verification for people, as text."""

from cdc_assets.operations.formatting import format_position, format_row, format_value
from cdc_assets.operations.verify.verification import DifferingRow, Verification
from cdc_assets.operations.why.text import format_brief


def format_text(verification: Verification) -> str:
    """Return the verdict, the caveats, the columns that were not compared, and each sample with its life in brief."""
    counts = ", ".join(f"{count} {kind}" for kind, count in verification.counts.items())
    verdict = "equal" if verification.is_equal else f"rows {counts}"
    head = (
        f"{verification.table} as of {format_position(verification.position)} against {verification.source}: {verdict}"
    )
    rows = f"The history has {verification.rows} rows, the source {verification.source_rows}"
    chunks = f"{verification.differing_chunks} of {verification.chunks} chunks differ; {format_digest(verification)}"
    not_compared = [f"  column {name} is not compared: {why}" for name, why in verification.not_compared.items()]
    lines = [head, f"{rows}; {chunks}.", *verification.caveats, *not_compared]
    for sample in verification.samples:
        lines.append(f"  {sample.kind} {format_row(sample.key)}: {format_differing_values(sample)}")
        lines += [f"    {line}" for line in format_brief(sample.life)]
    return "\n".join(lines)


def format_digest(verification: Verification) -> str:
    """Return the digest over all chunks; if the sides differ, those of both."""
    if verification.digest == verification.source_digest:
        return f"digest {verification.digest}"
    return f"digest of the history {verification.digest}, of the source {verification.source_digest}"


def format_differing_values(sample: DifferingRow) -> str:
    """Return the values of both sides in the differing columns, or the row that one side has, on one line."""
    if sample.history is None or sample.source is None:
        return format_row(sample.history or sample.source or {})
    return ", ".join(
        f"{column}: {format_value(value)} in the history, {format_value(sample.source[column])} in the source"
        for column, value in sample.history.items()
    )
