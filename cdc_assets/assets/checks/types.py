"""The two mapping checks of a feed: the MySQL types that its messages name, and the codes beside them."""

from typing import Any

from cdc_assets.assets.checks.verdict import SHOWN, Verdict
from cdc_assets.stages.types import SHOWN as ALL
from cdc_assets.stages.types import Observation, TypesReport, breaks, identity, shown


def mysql_types(report: TypesReport) -> Verdict:
    """Every column's type is one that MySQL has."""
    return _verdict(report, "mysqlType", "mysql_type_verdict")


def codes(report: TypesReport) -> Verdict:
    """Every column's code is the one that its MySQL type and value prescribe."""
    return _verdict(report, report.called, "code_verdict")


def _verdict(report: TypesReport, what: str, column: str) -> Verdict:
    wrong = [o for o in report.wrong if breaks(o, column)]
    tables = {(o["database"], o["table"]) for o in wrong}
    refused = [r for r in report.refused if (r.database, r.table) in tables]
    counts = {
        "violations_in_all": len(wrong),
        "events_with_violations": sum(o["events"] for o in wrong),
        "refused_tables": len(refused),
        "new_observations": len(report.new),
        "observations_in_all": report.distinct,
    }
    told = f"{report.distinct} distinct observations, all as the reference has them."
    if wrong:
        told = (
            f"{len(wrong)} of {report.distinct} observations break the {what} mapping, in "
            f"{counts['events_with_violations']} events."
        )
    if refused:
        told += f" {len(refused)} tables wait from the first of them on."
        give = "Give the columns' types under columns: in the feeds file, or set type_mapping: warn"
        told += "".join(f" {advice}." for advice in sorted({r.first.get("advice", give) for r in refused}))

    def rows(observations: list[Observation], most: int) -> list[dict[str, Any]]:
        # What is wrong first: the list is cut.
        ordered = sorted(observations, key=lambda o: not breaks(o, column))
        return [shown(o, column, report.here.get(identity(o), 0)) for o in ordered[:most]]

    waiting = [
        {"database": r.database, "table": r.table, "commit_ts": r.commit_ts, "batch": r.batch, **r.first}
        for r in refused
    ]
    return Verdict(
        not wrong,
        told,
        rows(wrong, SHOWN),
        {"refused": waiting, "new": rows(report.new, SHOWN), "observations": rows(report.observations, ALL), **counts},
    )


def blocks(verdict: Verdict) -> bool:
    """Whether what broke the check holds up tables."""
    return bool(verdict.metadata["refused_tables"])
