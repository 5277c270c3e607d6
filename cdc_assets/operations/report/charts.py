"""Charts of a feed's releases and of a table's versions, as SVG."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any
from xml.etree.ElementTree import Element

import pygal
from pygal.style import Style

from cdc_assets.history.days import DAYS
from cdc_assets.operations.report.feed_report import ReleaseCounts

_INHERITED_COLOR = "currentColor"  # of a chart inside the page
_MIN_POINTS = 2

TitledChart = tuple[str, str]  # title, SVG


def draw_release_charts(releases: Sequence[ReleaseCounts], color: str = _INHERITED_COLOR) -> list[TitledChart]:
    """Return charts over releases: row events, pending row events and, in a feed with watermarks, the lag.

    Args:
        releases: oldest first; nothing is drawn of a single one.
        color: of texts and axes; by default the color of the page around the chart.
    """
    if len(releases) < _MIN_POINTS:
        return []
    labels = [f"{release.time:%m-%d %H:%M}" for release in releases]
    windows, late = [release.window for release in releases], [release.late for release in releases]
    pending, lags = [release.pending for release in releases], [release.lag_seconds for release in releases]
    charts = [
        (
            "Row events of each release, duplicates included",
            _draw(pygal.StackedBar, labels, color, released=windows, late=late),
        ),
        ("Row events left pending by each release", _draw(pygal.Line, labels, color, pending=pending)),
    ]
    if any(lag is not None for lag in lags):
        title = "Seconds from the released watermark to the newest record, after each release"
        charts.append((title, _draw(pygal.Line, labels, color, lag=lags)))
    return charts


def draw_versions_chart(versions_by_day: Mapping[str, int], color: str) -> TitledChart | None:
    """Return a chart of the versions that the changes of each day opened, up to the newest day; None of a single day.

    Args:
        versions_by_day: day as ISO text -> number of versions.
        color: of texts and axes.
    """
    if len(versions_by_day) < _MIN_POINTS:
        return None
    newest = date.fromisoformat(max(versions_by_day))
    days = [newest - timedelta(days=ago) for ago in reversed(range(DAYS))]
    title = "Versions that the changes of each day opened (the source's time, UTC)"
    counts = [versions_by_day.get(str(day)) for day in days]
    return title, _draw(pygal.Bar, [f"{day:%m-%d}" for day in days], color, versions=counts)


def _draw(kind: Any, labels: Sequence[str], color: str, **series: Sequence[float | None]) -> str:  # noqa: ANN401 -- pygal has no types
    """Return a chart of pygal's class `kind` as SVG without scripts."""
    is_in_page = color == _INHERITED_COLOR
    # Dagster shows metadata in a narrow window, and would make a wide chart's texts too small to read.
    width, height = (700, 240) if is_in_page else (480, 190)
    style = Style(
        background="transparent",
        plot_background="transparent",
        foreground=color,
        foreground_strong=color,
        foreground_subtle="#8886",
        guide_stroke_color="#8886",
        major_guide_stroke_color="#8886",
        font_family="inherit" if is_in_page else "sans-serif",
        colors=("#3b82f6", "#f97316"),
    )
    chart = kind(
        style=style,
        js=[],  # pygal's scripts are fetched from a server
        height=height,
        width=width,
        max_scale=6,
        order_min=0,  # counts are whole numbers
        disable_xml_declaration=True,
        include_x_axis=True,
        show_legend=len(series) > 1,
        legend_at_bottom=True,
        x_label_rotation=0,
        show_minor_x_labels=False,
        x_labels_major_count=6,
        truncate_label=-1,
        dots_size=2,
        no_prefix=not is_in_page,  # several charts in one page need prefixes to keep their styles apart
    )
    chart.x_labels = labels
    for name, values in series.items():
        chart.add(name, values)
    chart.add_xml_filter(_remove_script_data)
    return str(chart.render(is_unicode=True))


def _remove_script_data(svg: Element) -> Element:
    """Remove what only a script reads, settings and tooltips: more than half of a chart's size."""
    for element in list(svg.iter()):
        for unused in [*element.findall("script"), *element.findall("desc")]:
            element.remove(unused)
    return svg
