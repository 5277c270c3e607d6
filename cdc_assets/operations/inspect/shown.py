"""Reports of topics for people, as rich draws them, and for programs, as JSON."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cdc_assets.operations.inspect.topics import TopicReport
from cdc_assets.tso import time_of

_TABLES = 12


def as_json(reports: Iterable[TopicReport]) -> str:
    """Return `{"topics": [...]}`; each topic has the fields of `TopicReport` under their names."""
    return json.dumps({"topics": [asdict(each) for each in reports]}, ensure_ascii=False, indent=2)


def as_text(reports: Iterable[TopicReport], width: int | None = None) -> str:
    """Return one panel a topic; coloured where the output is a terminal."""
    console = Console(width=width)
    with console.capture() as captured:
        for each in reports:
            console.print(Panel(Group(*_parts(each)), title=f"[bold]{each.topic}[/bold]", title_align="left"))
    return captured.get().rstrip("\n")


def _parts(each: TopicReport) -> Iterator[RenderableType]:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    for name, value in _facts(each):
        facts.add_row(name, Text(value))
    yield facts
    for problem in each.problems:
        yield Text(f"! {problem.problem}", style="yellow")
        yield Text(f"  {problem.advice}")


def _facts(each: TopicReport) -> Iterator[tuple[str, str]]:
    yield "protocol", each.protocol or "unknown"
    if each.protocol:
        yield "dialect", f"{each.dialect} ({each.evidence})"
        yield "settings", ", ".join(f"{name}: {value}" for name, value in each.settings.items()) or "none needed"
        yield "sender shows", ", ".join(each.switches) or "nothing"
    kinds = ", ".join(f"{count} {kind}" for kind, count in each.kinds.items())
    yield "sample", f"{each.records} records of {each.partitions} partitions: {kinds or 'none'}"
    for partition, watermark in each.watermarks.items():
        yield f"watermark {partition}", f"{watermark} ({time_of(watermark):%Y-%m-%d %H:%M:%S} UTC)"
    for table in each.tables[:_TABLES]:
        columns = ", ".join(f"{name} {kind}".rstrip() for name, kind in table["columns"].items())
        key = ", ".join(table["key"] or ()) or ("none" if table["key"] is not None else "not stated")
        yield f"{table['database']}.{table['table']}", f"key: {key}; columns: {columns or 'not stated'}"
    if len(each.tables) > _TABLES:
        yield "further tables", str(len(each.tables) - _TABLES)
    if each.cannot_tell:
        yield "not in the messages", "; ".join(each.cannot_tell)
