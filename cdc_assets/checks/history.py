"""What a history table promises: no versions of a key overlap, or leave a gap that no delete explains."""

from typing import Any

from cdc_assets.checks.verdict import Verdict


def intervals(broken: list[dict[str, Any]]) -> Verdict:
    """`broken`: the versions that break a rule, at most as many as are shown."""
    told = (
        f"{len(broken)} or more versions are wrong."
        if broken
        else "Versions neither overlap nor leave unexplained gaps."
    )
    return Verdict(not broken, told, broken)
