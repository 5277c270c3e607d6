"""The two mapping checks of a feed: the MySQL types that its messages name, and the codes beside them."""

from cdc_assets.checks.verdict import SHOWN, Verdict
from cdc_assets.stages.types import TypesReport, breaks, shown


def mysql_types(report: TypesReport) -> Verdict:
    """Every column's type is one that MySQL has."""
    return _verdict(report, "mysqlType", "mysql_type_verdict")


def codes(report: TypesReport) -> Verdict:
    """Every column's code is the one that its MySQL type and value prescribe."""
    return _verdict(report, report.called, "code_verdict")


def _verdict(report: TypesReport, what: str, column: str) -> Verdict:
    wrong = [o for o in report.wrong if breaks(o, column)]
    told = f"{len(report.observations)} distinct observations, all as the reference has them."
    if wrong:
        events = sum(o["events"] for o in wrong)
        told = (
            f"{len(wrong)} of {len(report.observations)} observations break the {what} mapping, in {events} events. Give "
            "the columns' types under columns: in the feeds file, or set type_mapping: warn."
        )
    # What is wrong first: the list is cut.
    observations = sorted(report.observations, key=lambda o: not breaks(o, column))
    return Verdict(
        not wrong,
        told,
        [shown(o, column) for o in wrong[:SHOWN]],
        {"observations": [shown(o, column) for o in observations[: SHOWN * 10]]},
    )
