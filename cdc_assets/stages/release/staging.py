"""Write the changes of a release into files, and read back what is in them."""

from dataclasses import replace
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import RELEASED_CHANGES, ReleasedKind
from cdc_assets.lakehouse.schema import conform
from cdc_assets.lakehouse.table import Staged
from cdc_assets.release.base import EventGroup


def stage_changes(lake: Lakehouse, release: int, changes: DataFrame) -> Staged:
    """Write the changes of a release into files that no commit has added yet."""
    columns = {"release": F.lit(release).cast("bigint"), "kind": F.lit(str(ReleasedKind.ROW))}
    if "kind" in changes.columns:
        columns["kind"] = F.coalesce("kind", columns["kind"])
    return lake.released_changes.stage(conform(changes.withColumns(columns), RELEASED_CHANGES.columns))


def narrow_groups(lake: Lakehouse, taken: list[EventGroup], staged: Staged) -> list[EventGroup]:
    """Return the groups that have changes, from the first commit_ts of a change to the last.

    A change has a larger commit_ts than its event if the source's clock went back, and duplicates have no change.
    """
    files = staged.in_partition(kind=str(ReleasedKind.ROW)).files
    columns = ["database", "table", "layout_id"]
    spans: dict[tuple[Any, ...], list[int]] = {}
    for part in lake.released_changes.fetch_parts(files, *columns, "commit_ts"):
        for r in part.group_by(columns).aggregate([("commit_ts", "min"), ("commit_ts", "max")]).to_pylist():
            spans.setdefault(tuple(r[c] for c in columns), []).extend((r["commit_ts_min"], r["commit_ts_max"]))
    with_spans = [(g, spans.get((g.database, g.table, g.layout_id))) for g in taken]
    return [replace(g, first=min(span), last=max(span)) for g, span in with_spans if span]


def count_written(lake: Lakehouse, staged: Staged) -> tuple[int, int]:
    """Return how many row events the changes in staged files stand for, and how many duplicates they dropped."""
    events = repeats = 0
    for kind in (ReleasedKind.ROW, ReleasedKind.REPEAT):
        for part in lake.released_changes.fetch_parts(staged.in_partition(kind=str(kind)).files, "events", "repeats"):
            events += pc.sum(part["events"]).as_py() or 0
            repeats += pc.sum(part["repeats"]).as_py() or 0
    return events, repeats
