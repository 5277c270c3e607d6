"""The type checks over events that no run has ingested."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from cdc_assets.assets.checks import types
from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.config import Feed
from cdc_assets.protocols import protocol_of
from cdc_assets.stages.type_verdicts import check_event_types
from cdc_assets.stages.types import make_audit_report


class Verdicts(NamedTuple):
    """The verdicts over the same observations, and how many observations there are."""

    observations: int
    mysql_types: Verdict
    codes: Verdict


def check_types(events: DataFrame, feed: Feed, schemas: Sequence[Mapping[str, Any]] = ()) -> Verdicts:
    """Check rows of change_events; `schemas`: rows of table_schemas."""
    # The stage reads committed events, so its plan does not contain the decoder's.
    observations = check_event_types(events.localCheckpoint(), schemas, feed)
    report = make_audit_report(observations, protocol_of(feed).codes_called)
    return Verdicts(len(observations), types.mysql_type_mapping(report), types.jdbc_type_mapping(report))
