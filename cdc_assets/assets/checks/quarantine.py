"""What is in quarantine, by reason."""

from typing import Any

from cdc_assets.assets.checks.verdict import SHOWN, Verdict
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.quarantine import MESSAGES, QuarantineCursor, Reason
from cdc_assets.lakehouse.table import LakeTable

_SHOWN_COLUMNS = (
    "stage", "reason", "topic", "partition", "offset", "file", "line", "database", "table", "column", "message",
    "value",
)  # fmt: skip
_BEGINNING = 200


def nothing_quarantined(lake: Lakehouse) -> Verdict:
    """The quarantine is empty; otherwise how much of what is in it, and the newest of it as samples."""
    quarantine = lake.quarantine.at_current_version()
    cursor = quarantine.cursor()
    if cursor is None or not cursor.rows:
        return Verdict(passed=True, description="Nothing is in quarantine.")
    counts = sorted(cursor.reasons.items(), key=lambda c: (-c[1], c[0]))
    told = f"{cursor.rows} rows are in quarantine: " + ", ".join(f"{n} {reason}" for reason, n in counts)
    by_reason = [{"reason": reason, "count": n, "message": MESSAGES[Reason(reason)]} for reason, n in counts]
    return Verdict(passed=False, description=told, violations=_samples(quarantine), metadata={"by_reason": by_reason})


def _samples(quarantine: LakeTable[QuarantineCursor]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in sorted(quarantine.files(), key=lambda f: f.high["batch"], reverse=True):
        found += quarantine.fetch([file], *_SHOWN_COLUMNS).slice(0, SHOWN).to_pylist()
        if len(found) >= SHOWN:
            break
    return [_sample(row) for row in found[:SHOWN]]


def _sample(row: dict[str, Any]) -> dict[str, Any]:
    value = row.pop("value")
    return row | {"value_begins": None if value is None else value.decode(errors="replace")[:_BEGINNING]}
