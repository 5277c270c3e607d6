"""The type checks over events that no run has taken in."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from cdc_assets.assets.checks import types
from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.config import Feed
from cdc_assets.protocols import protocol_of
from cdc_assets.stages.types import judged, report_of


class Verdicts(NamedTuple):
    """The outcomes over the same observations."""

    observations: int
    mysql_types: Verdict
    codes: Verdict


def check_types(events: DataFrame, feed: Feed, known: Sequence[Mapping[str, Any]] = ()) -> Verdicts:
    """Check rows of change_events; `known` are rows of table_schemas."""
    # Read back, as the stage reads them: its plan does not hold the decoder's.
    found = judged(events.localCheckpoint(), known, feed)
    report = report_of(found, protocol_of(feed).codes_called)
    return Verdicts(len(found), types.mysql_type_mapping(report), types.jdbc_type_mapping(report))
