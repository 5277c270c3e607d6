"""The page of `cdc-assets report`, which each run with news makes anew, beside what it keeps of the feed's tables.

One of its pictures is metadata of the gate's asset, too; and there is one of each table's versions by day.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dagster import AssetExecutionContext, MetadataValue

from cdc_assets.assets.known_tables import state_file, write_whole
from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse

# The page looks into the log of each table: of a feed with more of them no run makes it, but the command alone.
MOST_TABLES = 100
# To be read on white and on black: a picture knows nothing of the page that it is in.
_INK = "#888888"
# Releases in metadata; the page has more.
_DRAWN = 20


def place(feed: str) -> Path:
    """The file of a feed's page."""
    return state_file(feed).with_suffix(".html")


def renew(context: AssetExecutionContext, lake: Lakehouse, feed: Feed, tables: Sequence[tuple[str, str]]) -> None:
    """Make the page of a feed with these history tables anew. A run never fails by it: what goes wrong is a warning.

    Args:
        context: whose log is told.
        lake: of the feed.
        feed: its settings.
        tables: the (database, table) pairs that have a history.
    """
    if len(tables) > MOST_TABLES:
        return
    # Which a run without news need not load.
    from cdc_assets.operations.report.collect import collect_report  # noqa: PLC0415
    from cdc_assets.operations.report.page import render_page  # noqa: PLC0415

    path = place(lake.feed)
    try:
        write_whole(path, render_page(collect_report(lake, feed)))
    except Exception as error:  # noqa: BLE001 -- whatever it is, the run has done its work
        context.log.warning(f"{lake.feed}: its page {path} could not be made: {error}")
    else:
        context.log.info(f"{lake.feed}: {path} tells what this run and those before it have done")


def picture(context: AssetExecutionContext, lake: Lakehouse) -> dict[str, MetadataValue]:
    """The page's last picture of releases over time, as metadata: of the lag, or without watermarks of what is pending.

    There is none where there is too little to draw. Dagster keeps each run's, so it is short.
    """
    from cdc_assets.operations.report.charts import draw_release_charts  # noqa: PLC0415 -- as above
    from cdc_assets.operations.report.collect import list_releases  # noqa: PLC0415 -- as above

    def draw() -> tuple[str, str] | None:
        return next(reversed(draw_release_charts(list_releases(lake)[-_DRAWN:], _INK)), None)

    return _drawn(context, lake.feed, "over_time", draw)


def versions_picture(context: AssetExecutionContext, table: str, days: Mapping[str, int]) -> dict[str, MetadataValue]:
    """A picture of a table's versions by day (ISO text), as metadata; none of a single day."""
    from cdc_assets.operations.report.charts import draw_versions_chart  # noqa: PLC0415 -- as above

    return _drawn(context, table, "versions_by_day", lambda: draw_versions_chart(days, _INK))


def _drawn(
    context: AssetExecutionContext, of: str, name: str, draw: Callable[[], tuple[str, str] | None]
) -> dict[str, MetadataValue]:
    """The picture, if there is one. Its stage has committed before, and goes on: what goes wrong is a warning here, too."""
    try:
        drawn = draw()
    except Exception as error:  # noqa: BLE001 -- whatever it is, the stage has done its work
        context.log.warning(f"{of}: the picture {name} could not be drawn: {error}")
        return {}
    if drawn is None:
        return {}
    title, svg = drawn
    return {name: MetadataValue.md(f"{title}:\n\n![{title}]({_inline(svg)})")}


def _inline(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
