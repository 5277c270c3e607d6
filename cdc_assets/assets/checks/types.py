"""The two mapping checks of a feed: the MySQL types that its messages name, and the type codes beside them."""

from typing import Any

from cdc_assets.assets.checks.verdict import SHOWN, Verdict
from cdc_assets.lakehouse.raw_records import record_place
from cdc_assets.protocols.base import UnprovenSetting
from cdc_assets.stages.type_verdicts import breaks_mapping, describe_observation, identity_of
from cdc_assets.stages.types import SHOWN as SHOWN_OBSERVATIONS
from cdc_assets.stages.types import TypesReport
from cdc_assets.type_checks.row_images import Observation

_DEFAULT_ADVICE = "Give the columns' types under columns: in the feeds file, or set type_mapping: warn"


def mysql_type_mapping(report: TypesReport) -> Verdict:
    """Return whether every column's type is one that MySQL has."""
    return _check_mapping(report, "mysqlType", "mysql_type_verdict")


def jdbc_type_mapping(report: TypesReport) -> Verdict:
    """Return whether every column's code is the one that its MySQL type and value prescribe."""
    return _check_mapping(report, report.codes_called, "code_verdict")


def connector_settings(report: TypesReport) -> Verdict:
    """Return whether nothing was read by a setting of the connector that no message, feeds file or other value states."""
    description = "All values were read as their messages, the feeds file or other values of the connector prove."
    if report.unproven:
        description = " ".join(map(_describe_unproven, report.unproven))
    rows = [
        {"setting": each.setting, "read_as": each.as_read, "otherwise": each.otherwise}
        | {name: each.observation[name] for name in ("database", "table", "column", "mysql_type", "sample_value")}
        | {name: each.observation["first"][name] for name in ("topic", "partition", "offset", "commit_ts")}
        for each in report.unproven
    ]
    return Verdict(not rows, description, rows)


def _describe_unproven(unproven: UnprovenSetting) -> str:
    o, place = unproven.observation, unproven.observation["first"]
    evidence = (
        f"other records show that {unproven.setting} is {' or '.join(unproven.proven)}"
        if unproven.proven
        else "no other record shows which of the two is right"
    )
    return (
        f"Messages do not state {unproven.setting}. Column {o['database']}.{o['table']}.{o['column']} ({o['mysql_type']}) "
        f"of {record_place(place)} has {o['sample_value']}. It "
        f"was read as {unproven.as_read}; it may be {unproven.otherwise}; {evidence}. State {unproven.setting} under "
        f"connector_settings: of the feed. If it is not {' or '.join(unproven.assumed)}, then run the job rebuild."
    )


def _check_mapping(report: TypesReport, mapping: str, verdict_column: str) -> Verdict:
    """Return the verdict of one mapping.

    Args:
        report: of the stage.
        mapping: its name for people.
        verdict_column: the column of the observations that has the mapping's verdict.
    """
    wrong = [o for o in report.wrong if breaks_mapping(o, verdict_column)]
    tables = {(o["database"], o["table"]) for o in wrong}
    refused = [r for r in report.refused if (r.database, r.table) in tables]
    events = sum(o["events"] for o in wrong)
    description = f"{report.distinct} distinct observations, all as the reference prescribes."
    if wrong:
        description = (
            f"{len(wrong)} of {report.distinct} observations break the {mapping} mapping, in {events} events. The "
            "violations name the column, the first record, and what was expected."
        )
    if refused:
        advice = sorted({r.first.get("advice", _DEFAULT_ADVICE) for r in refused})
        description += f" {len(refused)} tables are blocked from the first such event on. " + " ".join(
            f"{each}." for each in advice
        )
    blocked = [
        {"database": r.database, "table": r.table, "commit_ts": r.commit_ts, "batch": r.batch, **r.first}
        for r in refused
    ]

    def rows(observations: list[Observation], most: int) -> list[dict[str, Any]]:
        # Violations come first, because the list is cut.
        ordered = sorted(observations, key=lambda o: not breaks_mapping(o, verdict_column))
        return [
            describe_observation(o, verdict_column, report.events_by_identity.get(identity_of(o), 0))
            for o in ordered[:most]
        ]

    metadata = {
        "refused": blocked,
        "new": rows(report.new, SHOWN),
        "observations": rows(report.observations, SHOWN_OBSERVATIONS),
        "violations_in_all": len(wrong),
        "events_with_violations": events,
        "refused_tables": len(refused),
        "new_observations": len(report.new),
        "observations_in_all": report.distinct,
    }
    return Verdict(not wrong, description, rows(wrong, SHOWN), metadata)
