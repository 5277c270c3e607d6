"""The HTML report of a feed, which each run that changed something writes, and the charts in the metadata of assets.

The report lies beside the list of the feed's history tables. One of its charts is also metadata of `released_changes`; each
history table has a chart of its versions by day.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import dagster as dg

from cdc_assets.assets.table_list import build_state_path, write_atomically
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse

# The report reads the Delta log of every table. With more tables only the command `cdc-assets report` writes it.
MOST_TABLES = 100
# Readable on white and on black: an embedded chart cannot know the colours of the page around it.
_INK = "#888888"
# The number of releases in the chart; the report has more.
_CHARTED_RELEASES = 20


def build_page_path(feed: str) -> Path:
    """Return the path of a feed's report."""
    return build_state_path(feed).with_suffix(".html")


def write_page(
    context: dg.AssetExecutionContext, lake: Lakehouse, feed: Feed, tables: Sequence[tuple[str, str]]
) -> None:
    """Write the report of a feed. A failure is a warning in the log and never fails the run.

    Args:
        context: of the run, for its log.
        lake: the feed's tables.
        feed: the feed's settings.
        tables: the (database, table) pairs that have a history.
    """
    if len(tables) > MOST_TABLES:
        return
    # Import late: a run without new input writes no report, and the import is slow.
    from cdc_assets.operations.report.collect import collect_report  # noqa: PLC0415
    from cdc_assets.operations.report.page import render_page  # noqa: PLC0415

    path = build_page_path(lake.feed)
    try:
        write_atomically(path, render_page(collect_report(lake, feed)))
    except Exception as error:  # noqa: BLE001 -- the run has done its work, whatever fails here
        context.log.warning(f"{lake.feed}: the report {path} could not be written: {error}")
    else:
        context.log.info(f"{lake.feed}: {path} is the report of this run and the runs before")


def draw_releases(context: dg.AssetExecutionContext, lake: Lakehouse) -> dict[str, dg.MetadataValue]:
    """Return the last chart of the report as metadata: the lag of each release or, without watermarks, the pending events.

    The metadata is empty if there are too few releases to draw. The chart is short, because Dagster keeps those of all runs.
    """
    from cdc_assets.operations.report.charts import draw_release_charts  # noqa: PLC0415 -- as above
    from cdc_assets.operations.report.collect import list_releases  # noqa: PLC0415 -- as above

    def draw() -> tuple[str, str] | None:
        return next(reversed(draw_release_charts(list_releases(lake)[-_CHARTED_RELEASES:], _INK)), None)

    return _embed_chart(context, lake.feed, "over_time", draw)


def draw_versions(
    context: dg.AssetExecutionContext, table: str, days: Mapping[str, int]
) -> dict[str, dg.MetadataValue]:
    """Return a chart of a table's versions by day (ISO text) as metadata; empty for a single day."""
    from cdc_assets.operations.report.charts import draw_versions_chart  # noqa: PLC0415 -- as above

    return _embed_chart(context, table, "versions_by_day", lambda: draw_versions_chart(days, _INK))


def _embed_chart(
    context: dg.AssetExecutionContext, subject: str, name: str, draw: Callable[[], tuple[str, str] | None]
) -> dict[str, dg.MetadataValue]:
    """Return a drawn chart as metadata; empty if there is none. A failure is a warning, since the stage has committed."""
    try:
        chart = draw()
    except Exception as error:  # noqa: BLE001 -- the stage has done its work, whatever fails here
        context.log.warning(f"{subject}: the chart {name} could not be drawn: {error}")
        return {}
    if chart is None:
        return {}
    title, svg = chart
    encoded = base64.b64encode(svg.encode()).decode()
    return {name: dg.MetadataValue.md(f"{title}:\n\n![{title}](data:image/svg+xml;base64,{encoded})")}
