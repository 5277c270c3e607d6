"""A feed's report as one page of HTML."""

from datetime import datetime

from jinja2 import Environment, PackageLoader

from cdc_assets.operations.report.charts import draw_release_charts
from cdc_assets.operations.report.feed_report import FeedReport, breaks_mapping


def render_page(report: FeedReport) -> str:
    """Return the page: HTML that fetches nothing else."""
    environment = Environment(
        loader=PackageLoader("cdc_assets.operations.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"count": "{:,}".format, "time": _format_time, "breaks_mapping": breaks_mapping}
    template = environment.get_template("report.html.jinja")
    return template.render(report=report, charts=draw_release_charts(report.releases))


def _format_time(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}"
