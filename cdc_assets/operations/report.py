"""One static page about a feed: its state, tables, volumes, types, DDL and quarantine. Without Spark, server or network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any
from xml.etree.ElementTree import Element

import pyarrow as pa
import pygal
from jinja2 import Environment, PackageLoader
from pygal.style import Style

from cdc_assets.config import Feed
from cdc_assets.errors import first_line
from cdc_assets.history.days import DAYS
from cdc_assets.history.progress import holds_of
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.quarantine import MESSAGES, Reason
from cdc_assets.lakehouse.raw_records import cursor_to_continue
from cdc_assets.lakehouse.released_changes import ReleaseCursor
from cdc_assets.operations.fates import held_by
from cdc_assets.operations.finality import Final, final
from cdc_assets.tso import TSO_LOGICAL_BITS, time_of

Row = dict[str, Any]

# What the page shows at most of each kind; it says how many there are.
RELEASES, STATEMENTS, SAMPLES = 100, 200, 5
_BEGINNING = 200  # bytes of a value
_MANY = 2  # releases, or days with versions, from which on there is something to draw
_OK = "ok"
_OF_PAGE = "currentColor"  # the ink of pictures in the page itself


@dataclass(frozen=True)
class Release:
    """One commit of the gate.

    Attributes:
        number: of the release.
        time: when it was.
        window: row events in its window.
        late: row events that came after their time.
        pending: row events that it left pending.
        lag_seconds: from the oldest released watermark of a topic to the newest Kafka time; None: there is no watermark.
    """

    number: int
    time: datetime
    window: int
    late: int
    pending: int
    lag_seconds: float | None


@dataclass(frozen=True)
class Partition:
    """One partition: the offsets that are held of it, and its largest watermark."""

    topic: str
    partition: int
    first: int
    last: int
    watermark: datetime | None
    released: datetime | None


@dataclass(frozen=True)
class Table:
    """One history table; `waits` is what it waits for, `reload` the statement after which it must be loaded anew."""

    database: str
    table: str
    current: int
    versions: int
    newest: datetime | None
    final: Final
    waits: str | None
    reload: str | None


@dataclass(frozen=True)
class Quarantined:
    """What is in quarantine for one reason, with the newest of it."""

    reason: str
    rows: int
    message: str
    samples: list[Row]


@dataclass(frozen=True)
class Report:
    """What the page tells of a feed.

    Attributes:
        feed: its name.
        protocol: as the feeds file has it.
        made_at: when this was asked.
        counts: what -> how many, since the feed began.
        partitions: of the source.
        tables: the histories, and tables without one that wait.
        releases: the newest, oldest first.
        types: what messages say of each column's type, what breaks a mapping first.
        statements: DDL, newest first.
        statements_in_all: how many there are.
        quarantine: by reason, most first.
    """

    feed: str
    protocol: str
    made_at: datetime
    counts: dict[str, int]
    partitions: list[Partition]
    tables: list[Table]
    releases: list[Release]
    types: list[Row]
    statements: list[Row]
    statements_in_all: int
    quarantine: list[Quarantined]

    @property
    def attention(self) -> list[str]:
        """What somebody has to look at, a line each."""
        waiting = [f"{t.database}.{t.table} waits: {t.waits}" for t in self.tables if t.waits]
        reload = [f"{t.database}.{t.table} has to be loaded anew, since {t.reload}" for t in self.tables if t.reload]
        quarantined = [
            f"{q.rows} rows are in quarantine: {q.reason}" for q in self.quarantine if q.reason != Reason.ZERO_DATE
        ]
        wrong = sum(1 for row in self.types if breaks(row))
        types = [f"{wrong} observations of column types break a mapping"] if wrong else []
        unseen = self.counts["late, never seen"]
        late = [f"{unseen} row events came after their time, and are in no history"] if unseen else []
        return [*waiting, *reload, *types, *late, *quarantined]


def gather(lake: Lakehouse, feed: Feed) -> Report:
    """Read what there is to tell of a feed, out of cursors, logs and the small tables."""
    released = lake.released_changes.cursor() or ReleaseCursor(sequence=0)
    raw = cursor_to_continue(lake.raw_records)
    totals = released.totals
    quarantine = lake.quarantine.cursor()
    statements = _statements(lake)
    return Report(
        feed=lake.feed,
        protocol=feed.protocol,
        made_at=datetime.now(UTC),
        counts={
            "records": raw.records if raw else 0,
            "row events": totals.get("rows", 0),
            "released, or repeats": totals.get("window", 0),
            "pending": released.pending,
            "late, repeats": totals.get("late_repeated", 0),
            "late, never seen": totals.get("late_unseen", 0),
            "excluded": totals.get("excluded", 0),
            "in quarantine": quarantine.rows if quarantine else 0,
        },
        partitions=_partitions(lake, released),
        tables=_tables(lake),
        releases=releases_of(lake),
        types=_types(lake),
        statements=statements[:STATEMENTS],
        statements_in_all=len(statements),
        quarantine=_quarantine(lake),
    )


def breaks(observed: Row) -> bool:
    """Whether an observation of `Report.types` breaks a mapping."""
    return {observed["mysql_type_verdict"], observed["code_verdict"]} != {_OK}


def _time(commit_ts: int | None) -> datetime | None:
    return time_of(commit_ts) if commit_ts is not None and commit_ts > 0 else None


def _partitions(lake: Lakehouse, released: ReleaseCursor) -> list[Partition]:
    raw = lake.raw_records.cursor()
    return [
        Partition(
            topic,
            int(number),
            first,
            last,
            _time(released.partition_watermarks.get(topic, {}).get(number)),
            _time(released.watermarks.get(topic)),
        )
        for topic, partitions in sorted(raw.offsets.items() if raw else ())
        for number, (first, last) in sorted(partitions.items(), key=lambda p: int(p[0]))
    ]


def _tables(lake: Lakehouse) -> list[Table]:
    holds: dict[tuple[str, str], str] = {}
    for h in holds_of(lake):
        # A table may wait at the gate, and with what it got from there before.
        holds[h.database, h.table] = "; ".join(filter(None, [holds.get((h.database, h.table)), held_by(h, lake.feed)]))
    found = []
    for name in sorted({*lake.histories(), *holds}):
        try:
            cursor = lake.history(*name).cursor()
        except Exception as error:  # noqa: BLE001 -- of the others there is something to tell
            waits = "; ".join(filter(None, [holds.get(name), f"its history cannot be read: {first_line(error)}"]))
            unknown = Final(-1, "its history cannot be read")
            found.append(Table(*name, 0, 0, None, unknown, waits, None))
            continue
        current, versions, newest = (cursor.current, cursor.versions, cursor.newest) if cursor else (0, 0, None)
        reload = cursor.reload[0]["statement"] if cursor and cursor.reload else None
        found.append(
            Table(*name, current, versions, _time(newest), final(lake, *name), holds.get(name), reload),
        )
    return found


def releases_of(lake: Lakehouse) -> list[Release]:
    """The newest that the log still has, oldest first; of the first of them it is not known what it counted."""
    cursors: dict[int, tuple[datetime, ReleaseCursor]] = {}
    for each in lake.released_changes.cursors_with_commits():
        cursors[each.cursor.sequence] = each.commit.time, each.cursor
        if len(cursors) > RELEASES + 1:
            break
    ordered = sorted(cursors.items())
    if ordered and ordered[0][0] == 1:
        ordered = [(0, (ordered[0][1][0], ReleaseCursor(sequence=0))), *ordered]
    return [
        Release(
            number,
            time,
            _counted(before, cursor, "window"),
            _counted(before, cursor, "late_repeated", "late_unseen"),
            cursor.pending,
            _lag(cursor),
        )
        for (_, (_, before)), (number, (time, cursor)) in pairwise(ordered)
    ][-RELEASES:]


def _counted(before: ReleaseCursor, after: ReleaseCursor, *totals: str) -> int:
    return sum(after.totals.get(name, 0) - before.totals.get(name, 0) for name in totals)


def _lag(cursor: ReleaseCursor) -> float | None:
    if not cursor.watermarks:
        return None
    return max(0, cursor.newest - (min(cursor.watermarks.values()) >> TSO_LOGICAL_BITS)) / 1000


def _types(lake: Lakehouse) -> list[Row]:
    told = ["database", "table", "column", "mysql_type", "told", "expected", "mysql_type_verdict", "code_verdict"]
    table = lake.type_observations
    seen: pa.Table = table.fetch(table.files(), *told, "events")
    rows = seen.group_by(told).aggregate([("events", "sum")]).to_pylist() if seen.num_rows else []
    return sorted(
        rows, key=lambda r: (not breaks(r), *(str(r[c]) for c in ("database", "table", "column", "mysql_type", "told")))
    )


def _statements(lake: Lakehouse) -> list[Row]:
    rows = [r for r in lake.schema_rows() if r["ddl_statement"] is not None]
    return [
        {"time": time_of(r["commit_ts"])}
        | {c: r[c] for c in ("commit_ts", "database", "table", "ddl_statement", "error")}
        for r in sorted(rows, key=lambda r: (r["commit_ts"], r["offset"]), reverse=True)
    ]


def _quarantine(lake: Lakehouse) -> list[Quarantined]:
    table = lake.quarantine
    cursor = table.cursor()
    shown = ("reason", "topic", "partition", "offset", "file", "line", "database", "table", "column", "value")
    found: dict[str, list[Row]] = {}
    for file in sorted(table.files(), key=lambda f: f.high["batch"], reverse=True):
        # A file that can only hold what there are samples enough of need not be opened.
        low, high = file.low["reason"], file.high["reason"]
        if low == high and len(found.get(low, ())) >= SAMPLES:
            continue
        for row in table.fetch([file], *shown).to_pylist():
            samples = found.setdefault(row["reason"], [])
            if len(samples) < SAMPLES:
                value = row["value"]
                begins = None if value is None else value[:_BEGINNING].decode(errors="replace")
                samples.append(row | {"value": begins})
    counted = sorted(cursor.reasons.items() if cursor else (), key=lambda c: (-c[1], c[0]))
    return [Quarantined(r, rows, MESSAGES[Reason(r)], found.get(r, [])) for r, rows in counted]


# --- the page


def as_html(report: Report) -> str:
    """The page: one text, which asks for nothing else."""
    pages = Environment(
        loader=PackageLoader("cdc_assets.operations"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    pages.filters |= {"count": "{:,}".format, "instant": _instant_text, "breaks": breaks}
    return pages.get_template("report.html.jinja").render(report=report, charts=charts(report.releases))


def _instant_text(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def charts(releases: Sequence[Release], ink: str = _OF_PAGE) -> list[tuple[str, str]]:
    """Titles and pictures, as SVG with texts and axes in this colour."""
    chart = partial(_chart, [f"{release.time:%m-%d %H:%M}" for release in releases], ink)
    if len(releases) < _MANY:
        return []
    drawn = [
        (
            "Row events of each release, repeats included",
            chart(pygal.StackedBar, released=_of(releases, "window"), late=_of(releases, "late")),
        ),
        ("Row events left pending by each release", chart(pygal.Line, pending=_of(releases, "pending"))),
    ]
    if any(release.lag_seconds is not None for release in releases):
        lag = "Seconds from the released watermark to the newest record, after each release"
        drawn.append((lag, chart(pygal.Line, lag=_of(releases, "lag_seconds"))))
    return drawn


def versions_chart(days: Mapping[str, int], ink: str) -> tuple[str, str] | None:
    """Title and picture of the versions by day (ISO text) that changes opened, up to the newest; as `charts`."""
    if len(days) < _MANY:
        return None
    newest = date.fromisoformat(max(days))
    shown = [newest - timedelta(days=ago) for ago in reversed(range(DAYS))]
    title = "Versions that the changes of each day opened (the source's time, UTC)"
    return title, _chart([f"{day:%m-%d}" for day in shown], ink, pygal.Bar, versions=[days.get(str(d)) for d in shown])


def _of(releases: Sequence[Release], name: str) -> list[Any]:
    return [getattr(release, name) for release in releases]


def _chart(labels: list[str], ink: str, kind: Any, **series: list[Any]) -> str:  # noqa: ANN401 -- untyped library
    in_page = ink == _OF_PAGE
    # What stands alone is shown in a narrow window, and would be made smaller there.
    width, height = (700, 240) if in_page else (480, 190)
    style = Style(
        background="transparent",
        plot_background="transparent",
        foreground=ink,
        foreground_strong=ink,
        foreground_subtle="#8886",
        guide_stroke_color="#8886",
        major_guide_stroke_color="#8886",
        font_family="inherit" if in_page else "sans-serif",
        colors=("#3b82f6", "#f97316"),
    )
    drawn = kind(
        style=style,
        js=[],  # no script, and so nothing that is asked for
        height=height,
        width=width,
        max_scale=6,
        order_min=0,  # no half events
        disable_xml_declaration=True,
        include_x_axis=True,
        show_legend=len(series) > 1,
        legend_at_bottom=True,
        x_label_rotation=0,
        show_minor_x_labels=False,
        x_labels_major_count=6,
        truncate_label=-1,
        dots_size=2,
        no_prefix=not in_page,  # which several pictures of one page need
    )
    drawn.x_labels = labels
    for name, values in series.items():
        drawn.add(name, values)
    drawn.add_xml_filter(_without_script)
    return str(drawn.render(is_unicode=True))


def _without_script(svg: Element) -> Element:
    """Without what is there for a script alone, settings and tips: more than half of a picture."""
    for element in list(svg.iter()):
        for unused in [*element.findall("script"), *element.findall("desc")]:
            element.remove(unused)
    return svg
