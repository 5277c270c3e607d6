"""The audit's checks: one step a feed, over everything its tables hold, run by the job `audit` and by hand in the UI."""

import functools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetKey,
    In,
    Nothing,
    Out,
    op,
)

from cdc_assets.assets import change_events, history, raw_records, released_changes, type_observations
from cdc_assets.assets.common import check_result
from cdc_assets.assets.names import CheckSpec, output_name
from cdc_assets.checks import audit
from cdc_assets.checks.verdict import Verdict
from cdc_assets.feeds import Feed
from cdc_assets.resources import LakehouseResource
from cdc_assets.tables.lakehouse import Lakehouse

_OF_TYPES = {"audit_mysql_type_mapping", "audit_jdbc_type_mapping"}


def build(name: str, feed: Feed, tables: Sequence[tuple[str, str]]) -> AssetChecksDefinition:
    """The audit of one feed, its history tables' included."""
    told = {
        (raw_records.key_of(name), "audit_each_record_once"): "No (topic, partition, offset) stands there twice.",
        (change_events.key_of(name), "audit_conservation"): "Every raw record ever read is decoded or in quarantine.",
        (type_observations.key_of(name), "audit_mysql_type_mapping"): "The mysqlType mapping over all events.",
        (type_observations.key_of(name), "audit_jdbc_type_mapping"): "The JDBC type mapping over all events.",
        (released_changes.key_of(name), "audit_conservation"): (
            "Every row event ever seen is released, duplicate, late, excluded or pending; each change stands once."
        ),
    } | {
        (history.key_of(name, *table), "audit_history_intervals"): "The rules of the intervals, over all versions."
        for table in tables
    }
    specs = [CheckSpec(check, asset=key, description=description) for (key, check), description in told.items()]

    # As @multi_asset_check does it; but that names the inputs by the keys, and a table's name need not be a Dagster name.
    inputs = {output_name(key): key for key, _ in told}
    outputs = {spec.get_python_identifier(): spec for spec in specs}

    @op(
        name=f"{name}__audit",
        ins={each: In(Nothing) for each in inputs},
        out={each: Out(None, is_required=False) for each in outputs},
    )
    def run_audit(context: AssetCheckExecutionContext, lakehouse: LakehouseResource) -> Iterator[AssetCheckResult]:
        audits = _audits(lakehouse.feed(name), feed, tables)
        for spec in specs:
            if spec.key in context.selected_asset_check_keys:
                verdict = audits[spec.asset_key, spec.name]()
                context.log.info(f"{spec.asset_key.to_user_string()} {spec.name}: {verdict.description}")
                mild = feed.type_mapping == "warn" and spec.name in _OF_TYPES
                severity = AssetCheckSeverity.WARN if mild else AssetCheckSeverity.ERROR
                yield check_result(spec.name, spec.asset_key, verdict, severity)

    checks: AssetChecksDefinition = AssetChecksDefinition.create(
        keys_by_input_name=inputs, node_def=run_audit, check_specs_by_output_name=outputs, can_subset=True
    )
    return checks


def _audits(
    lake: Lakehouse, feed: Feed, tables: Sequence[tuple[str, str]]
) -> dict[tuple[AssetKey, str], Callable[[], Verdict]]:
    """The checks by asset and name."""
    name = lake.feed

    @functools.cache
    def types() -> tuple[Verdict, Verdict]:
        """Both mappings: one pass over the events."""
        return audit.all_types_mapped(lake, feed)

    found: dict[tuple[AssetKey, str], Callable[[], Verdict]] = {
        (raw_records.key_of(name), "audit_each_record_once"): partial(audit.each_record_once, lake),
        (change_events.key_of(name), "audit_conservation"): partial(audit.all_records_decoded, lake),
        (type_observations.key_of(name), "audit_mysql_type_mapping"): lambda: types()[0],
        (type_observations.key_of(name), "audit_jdbc_type_mapping"): lambda: types()[1],
        (released_changes.key_of(name), "audit_conservation"): partial(audit.all_events_placed, lake, feed),
    }
    for table in tables:
        found[history.key_of(name, *table), "audit_history_intervals"] = partial(audit.all_intervals, lake, *table)
    return found
