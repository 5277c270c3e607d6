"""The check of a history against the source's own rows, which the job `verify_<feed>` evaluates."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cdc_assets.assets.checks.database import merge_table_verdicts
from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.operations.formatting import format_position, format_row
from cdc_assets.operations.verify.tables import MOST_EXAMINED, Outcome
from cdc_assets.operations.verify.text import format_differing_values
from cdc_assets.operations.verify.verification import DifferingRow, Grade, Verification
from cdc_assets.operations.why.text import format_brief
from cdc_assets.tso import time_text

_ADVICE = (
    "The violations show samples, with what became of their events (why). A change that has no event was lost before the "
    "pipeline: load the table again. If the events are there and the history shows another row, run the job audit, then "
    "rebuild the table."
)


def matches_source(outcome: Outcome) -> Verdict:
    """Return whether a history holds the source's rows, with the record of the comparison."""
    passed, only_warns = outcome.grade == Grade.PASSED, outcome.grade == Grade.WARNING
    if not isinstance(outcome, Verification):
        return Verdict(passed, outcome.reason, only_warns=only_warns)
    metadata = _build_record(outcome) | {
        "differences": [{"kind": kind, "rows": rows} for kind, rows in outcome.counts.items()],
        "columns_compared": ", ".join(outcome.compared),
        "columns_not_compared": [{"column": name, "why": why} for name, why in outcome.not_compared.items()],
        "caveats": [{"caveat": caveat} for caveat in outcome.caveats],
        "versions": [{"software": name, "version": version} for name, version in outcome.versions.items()],
    }
    return Verdict(passed, _describe_outcome(outcome), list(map(_describe_row, outcome.samples)), metadata, only_warns)


def matches_source_of_database(outcomes: Mapping[str, Outcome]) -> Verdict:
    """Return the verdict of a database that is one asset, with the record of each table; `outcomes` are by table."""
    verdict = merge_table_verdicts({table: matches_source(outcome) for table, outcome in outcomes.items()})
    records = [
        {"table": table, "outcome": str(outcome.grade)}
        | (_build_record(outcome) if isinstance(outcome, Verification) else {})
        for table, outcome in outcomes.items()
    ]
    return replace(verdict, metadata={"tables": records})


def _build_record(verification: Verification) -> dict[str, Any]:
    """Return what identifies a comparison and its result."""
    return {
        "position": str(verification.position),
        "position_time": time_text(verification.position),
        "compared_at": verification.compared_at,
        "source": verification.source,
        "server": verification.server,
        "rows_compared": verification.rows,
        "source_rows": verification.source_rows,
        "chunks": verification.chunks,
        "differing_chunks": verification.differing_chunks,
        "digest": verification.digest,
        "source_digest": verification.source_digest,
        "rows_in_history_later": verification.later,
        "rows_unsettled": verification.unsettled,
        "rows_not_examined": verification.not_examined,
    }


def _describe_outcome(verification: Verification) -> str:
    """Return what the comparison says about the table, and what to do."""
    against = f"at {format_position(verification.position)} against {verification.source}"
    if verification.is_equal:
        sentences = [f"{verification.rows} rows of the history {against}: no difference."]
    else:
        counts = ", ".join(f"{count} {kind}" for kind, count in verification.counts.items())
        sentences = [f"Rows differ {against}: {counts}.", _ADVICE]
    if verification.later:
        sentences.append(
            f"{verification.later} rows had changed at the source since; the history held them later as the source did."
        )
    if verification.unsettled:
        sentences.append(
            f"{verification.unsettled} rows changed again at the source before the history showed them, so they are not "
            "decided. Raise settle_minutes: of verify: in the feeds file, or compare when the table changes less."
        )
    if verification.not_examined:
        sentences.append(
            f"{verification.not_examined} more rows differed; of each kind only {MOST_EXAMINED} are waited for. Compare "
            "when the table changes less, or when the pipeline is less behind."
        )
    return " ".join(sentences)


def _describe_row(sample: DifferingRow) -> dict[str, str]:
    return {
        "kind": sample.kind,
        "key": format_row(sample.key),
        "values": format_differing_values(sample),
        "why": "; ".join(format_brief(sample.life)),
    }
