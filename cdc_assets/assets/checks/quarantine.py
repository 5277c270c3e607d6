"""The check of the quarantine: it is empty."""

from typing import Any

from cdc_assets.assets.checks.verdict import SHOWN, Verdict
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.quarantine import MESSAGES, QuarantineCursor, Reason
from cdc_assets.lakehouse.table import LakeTable

_SAMPLE_COLUMNS = (
    "stage", "reason", "topic", "partition", "offset", "file", "line", "database", "table", "column", "message",
    "value",
)  # fmt: skip
_VALUE_CHARACTERS = 200


def nothing_quarantined(lake: Lakehouse) -> Verdict:
    """Return whether the quarantine is empty; a failing verdict has the newest rows, and the counts by reason."""
    quarantine = lake.quarantine.at_current_version()
    cursor = quarantine.cursor()
    if cursor is None or not cursor.rows:
        return Verdict(passed=True, description="Nothing is in quarantine.")
    counts = sorted(cursor.reasons.items(), key=lambda c: (-c[1], c[0]))
    description = (
        f"{cursor.rows} rows are in quarantine: {', '.join(f'{count} {reason}' for reason, count in counts)}. The "
        "violations show the newest of them, each with its coordinates and what to do."
    )
    by_reason = [{"reason": reason, "count": count, "message": MESSAGES[Reason(reason)]} for reason, count in counts]
    # A zero date is NULL in the history by design. Any other row is a change or a value that the history lacks.
    has_only_zero_dates = cursor.reasons.keys() == {Reason.ZERO_DATE}
    return Verdict(
        passed=False,
        description=description,
        violations=_read_newest(quarantine),
        metadata={"by_reason": by_reason},
        only_warns=has_only_zero_dates,
    )


def _read_newest(quarantine: LakeTable[QuarantineCursor]) -> list[dict[str, Any]]:
    """Return at most `SHOWN` rows of the newest files."""
    rows: list[dict[str, Any]] = []
    for file in sorted(quarantine.files(), key=lambda f: f.high["batch"], reverse=True):
        rows += quarantine.fetch([file], *_SAMPLE_COLUMNS).slice(0, SHOWN).to_pylist()
        if len(rows) >= SHOWN:
            break
    return [_shorten_value(row) for row in rows[:SHOWN]]


def _shorten_value(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with the beginning of its value as text, `value_begins`, in place of `value`."""
    value = row.pop("value")
    return row | {"value_begins": None if value is None else value.decode(errors="replace")[:_VALUE_CHARACTERS]}
