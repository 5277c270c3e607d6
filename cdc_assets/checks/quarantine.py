"""What is in quarantine, by reason."""

from pyspark.sql import functions as F

from cdc_assets.checks.verdict import SHOWN, Verdict
from cdc_assets.lakehouse import Lakehouse


def nothing_quarantined(lake: Lakehouse) -> Verdict:
    """The quarantine is empty; otherwise how much of what is in it, and samples."""
    rows = lake.quarantine.read()
    by = ["stage", "reason", "message", "database", "table", "column"]
    counts = [r.asDict() for r in rows.groupBy(*by).count().orderBy("stage", "reason", "database", "table").collect()]
    if not counts:
        return Verdict(passed=True, description="Nothing is in quarantine.")
    total = sum(c["count"] for c in counts)
    shown = ["stage", "reason", "topic", "partition", "offset", "file", "line", "database", "table", "column"]
    text = F.substring(F.make_valid_utf8(F.col("value").cast("string")), 1, 200)
    samples = rows.select(*shown, text.alias("value_begins")).limit(SHOWN).collect()
    told = f"{total} rows are in quarantine: " + ", ".join(f"{n} {reason}" for reason, n in _by_reason(counts).items())
    return Verdict(
        passed=False, description=told, violations=[r.asDict() for r in samples], metadata={"by_reason": counts[:SHOWN]}
    )


def _by_reason(counts: list[dict[str, object]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for c in counts:
        totals[str(c["reason"])] = totals.get(str(c["reason"]), 0) + int(str(c["count"]))
    return totals
