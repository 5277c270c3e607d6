"""`cdc-assets run`: run the pipeline once, show its progress, and summarise what the assets told Dagster.

The pipeline runs in a process of its own, whose log goes to .dagster/run.log. The summary has what the UI shows as metadata.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from dagster import (
    AssetKey,
    DagsterInstance,
    MetadataValue,
    TableMetadataValue,
)
from pyarrow.fs import FileSelector
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from cdc_assets.assets.feed_definitions import PIPELINE
from cdc_assets.assets.verdicts import failing_checks, reasons
from cdc_assets.config import Feed, FeedsFile
from cdc_assets.config.locations import scheme_of
from cdc_assets.lakehouse.lakehouse import history_tables, lakehouse_root
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Watermarks
from cdc_assets.stores.storage import Store

_LOG = Path(".dagster/run.log")
_NO_WATERMARK = {True: "none yet", False: "none: a run releases what it takes in"}
_CONSOLE = Console(soft_wrap=True, highlight=False)


def run(file: FeedsFile, names: Sequence[str], *, strict: bool) -> int:
    """Run the pipeline and print the summary.

    Args:
        file: the feeds file.
        names: of the feeds to run, each in a process of its own; none: all feeds in one process.
        strict: whether a failing check of severity ERROR counts as a failure.

    Returns:
        The exit code: that of the first job that failed; 1 if `strict` finds a failing check; else 0.
    """
    root = lakehouse_root()
    feeds, store = {name: file.feeds[name] for name in names or file.feeds}, Store.of(file, root)
    before = _commits(root, store)
    runs: list[str] = []
    code = 0
    _LOG.parent.mkdir(exist_ok=True)
    with _LOG.open("w+") as log:
        for job in [f"{PIPELINE}_{name}" for name in names] or [PIPELINE]:
            ended, this_run = _run_job(job, log)
            runs += [this_run] if this_run else []
            if ended:
                code = code or ended
                _say(f"\nThe job {job} failed (exit code {ended}); its whole log is in {_LOG}.")
                for reason in _why(this_run, log):
                    _say(reason)
    if code:
        return code
    with DagsterInstance.get() as instance:
        with_news = {name: _last_run_with_news(instance, name) for name in feeds}
        for name, feed in feeds.items():
            _say_feed(instance, name, feed, history_tables(root, name, store), is_idle=with_news[name] not in runs)
        failing = failing_checks(instance, dict.fromkeys([*filter(None, with_news.values()), *runs]), feeds)
    for line in failing:
        _say(f"\nFailing: {line}")
    if commits := _commits(root, store) - before:
        place = root if scheme_of(root) else os.path.relpath(root)
        _say(f"\n{commits} commits to Delta tables below {place}. Run again: nothing is taken in twice.")
    else:
        _say("\nNothing was new: nothing was taken in, and no Delta table got a commit.")
    _say("Runs, checks and metadata: `cdc-assets ui`, then http://127.0.0.1:3000/asset-groups")
    return int(strict and bool(failing))


def _run_job(job: str, log: TextIO) -> tuple[int, str | None]:
    """Run a job in a process of its own; print a line for each stage and table, with its rows and seconds.

    Returns:
        The exit code, and the run's id if it began.
    """
    command = [sys.executable, "-m", "dagster", "job", "execute", "-m", "cdc_assets.definitions", "-j", job]
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    this_run: str | None = None
    with (
        Progress(*columns, console=_CONSOLE, transient=True) as progress,
        subprocess.Popen(  # noqa: S603
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        task = progress.add_task(f"{job}: starting")
        for line in process.stdout or ():
            log.write(line)
            fields = line.rstrip("\n").split(" - ", 6)
            if len(fields) < 7:
                continue
            _, _, level, _, this_run, _, message = fields
            if level in {"INFO", "WARNING"} and "did not yield" not in message:
                _say(message)
                progress.update(task, description=f"{job}: after {message.partition(':')[0]}")
        return process.wait(), this_run


def _last_run_with_news(instance: DagsterInstance, name: str) -> str | None:
    """Return the run that last materialised the feed's last asset, as each run with news does."""
    event = instance.get_latest_materialization_event(AssetKey([name, "quarantine"]))
    return event.run_id if event else None


def _why(this_run: str | None, log: TextIO) -> list[str]:
    """Return why the job failed, a line a reason; of a job that did not begin, the last line of its log."""
    with DagsterInstance.get() as instance:
        found = reasons(instance, this_run) if this_run else []
    log.seek(0)
    return found or log.read().splitlines()[-1:]


def _say_feed(
    instance: DagsterInstance, name: str, feed: Feed, tables: Sequence[tuple[str, str]], *, is_idle: bool
) -> None:
    idle = ": nothing new; the last run with news told" if is_idle else ""
    _say(f"\nFeed {name} ({feed.protocol}){idle}")
    for label, value in _counts(instance, name, feed).items():
        _say(f"  {label:<22}{value}")
    _say("  history")
    for database, table in tables:
        told = _metadata(instance, name, "history", database, table)
        rows = f"{_number(told, 'dagster/row_count')} versions, {_number(told, 'current_rows')} current rows"
        _say(f"    {database}.{table:<20}{rows}")


def _counts(instance: DagsterInstance, name: str, feed: Feed) -> dict[str, Any]:
    raw = _metadata(instance, name, "raw_records")
    events = _metadata(instance, name, "change_events")
    gate = _metadata(instance, name, "released_changes")
    quarantined = _number(raw, "lines_quarantined") + _number(events, "events_undecodable")
    # Before the first watermark the metadata is a text.
    table = gate.get("watermarks")
    marks = table.records if isinstance(table, TableMetadataValue) else []
    watermarks = [f"{m.data['watermark']}  {m.data['time']}  ({m.data['topic']})" for m in marks]
    return {
        "records taken in": _number(raw, "records_taken_in"),
        "row events decoded": _number(events, "events_row"),
        "quarantined": quarantined,
        "released": _number(gate, "released"),
        "pending": _number(gate, "pending"),
        "duplicate": _number(gate, "duplicate"),
        "late": _number(gate, "late_repeated") + _number(gate, "late_unseen"),
        "watermark": "; ".join(watermarks) or _NO_WATERMARK[protocol_of(feed).watermarks(feed) is Watermarks.ALWAYS],
    }


def _number(metadata: Mapping[str, MetadataValue[Any]], name: str) -> int:
    return int(metadata[name].value) if name in metadata else 0


def _metadata(instance: DagsterInstance, *key: str) -> Mapping[str, MetadataValue[Any]]:
    """Return the metadata of the asset's newest materialisation."""
    event = instance.get_latest_materialization_event(AssetKey(key))
    materialization = event.asset_materialization if event else None
    return materialization.metadata if materialization else {}


def _commits(root: str, store: Store) -> int:
    """Return how many commits all Delta tables below a root have together."""
    files, path = store.files(root)
    found = files.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    return sum(f.extension == "json" and "/_delta_log/" in f.path for f in found)


def _say(text: str) -> None:
    _CONSOLE.print(text, markup=False, emoji=False)
