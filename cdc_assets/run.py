"""`cdc-assets run`: run the pipeline once, show its progress, and summarise the metadata of its assets.

The pipeline runs in a separate process, whose log goes to .dagster/run.log. The UI shows the same metadata.
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
from cdc_assets.assets.verdicts import list_failing_checks, list_failure_reasons
from cdc_assets.config import Feed, FeedsFile
from cdc_assets.config.locations import scheme_of
from cdc_assets.lakehouse.lakehouse import history_tables, lakehouse_root
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Watermarks
from cdc_assets.stores.storage import Store

_LOG = Path(".dagster/run.log")
_NO_WATERMARK = {True: "none yet", False: "none: a run releases all events that it ingests"}
_CONSOLE = Console(soft_wrap=True, highlight=False)


def run(file: FeedsFile, names: Sequence[str], *, strict: bool) -> int:
    """Run the pipeline and print a summary.

    Args:
        file: the feeds file.
        names: the feeds to run, each in its own process; empty: all feeds in one process.
        strict: whether a failing check of severity ERROR is a failure of the command.

    Returns:
        The exit code: that of the first job that failed; 1 if `strict` finds a failing check; else 0.
    """
    root = lakehouse_root()
    feeds, store = {name: file.feeds[name] for name in names or file.feeds}, Store.of(file, root)
    before = _count_commits(root, store)
    runs: list[str] = []
    code = 0
    _LOG.parent.mkdir(exist_ok=True)
    with _LOG.open("w+") as log:
        for job in [f"{PIPELINE}_{name}" for name in names] or [PIPELINE]:
            exit_code, this_run = _run_job(job, log)
            runs += [this_run] if this_run else []
            if exit_code:
                code = code or exit_code
                _print(f"\nThe job {job} failed (exit code {exit_code}); its log is {_LOG}.")
                for reason in _list_reasons(this_run, log):
                    _print(reason)
    if code:
        return code
    with DagsterInstance.get() as instance:
        last_runs = {name: _find_last_change(instance, name) for name in feeds}
        for name, feed in feeds.items():
            _print_feed(instance, name, feed, history_tables(root, name, store), is_idle=last_runs[name] not in runs)
        failing = list_failing_checks(instance, dict.fromkeys([*filter(None, last_runs.values()), *runs]), feeds)
    for line in failing:
        _print(f"\nFailing: {line}")
    if commits := _count_commits(root, store) - before:
        location = root if scheme_of(root) else os.path.relpath(root)
        _print(f"\n{commits} commits to Delta tables below {location}. Another run ingests nothing twice.")
    else:
        _print("\nNo new records: nothing was ingested, and no Delta table got a commit.")
    _print("Runs, checks and metadata: `cdc-assets ui`, then http://127.0.0.1:3000/asset-groups")
    return int(strict and bool(failing))


def _run_job(job: str, log: TextIO) -> tuple[int, str | None]:
    """Run a job in a separate process, and print a line for each stage and table, with its rows and seconds.

    Returns:
        The exit code, and the run's id if the run began.
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
                _print(message)
                progress.update(task, description=f"{job}: after {message.partition(':')[0]}")
        return process.wait(), this_run


def _find_last_change(instance: DagsterInstance, name: str) -> str | None:
    """Return the last run that changed something: each such run materializes the feed's last asset."""
    event = instance.get_latest_materialization_event(AssetKey([name, "quarantine"]))
    return event.run_id if event else None


def _list_reasons(this_run: str | None, log: TextIO) -> list[str]:
    """Return why the job failed, a line a reason; for a job that did not begin, the last line of its log."""
    with DagsterInstance.get() as instance:
        reasons = list_failure_reasons(instance, this_run) if this_run else []
    log.seek(0)
    return reasons or log.read().splitlines()[-1:]


def _print_feed(
    instance: DagsterInstance, name: str, feed: Feed, tables: Sequence[tuple[str, str]], *, is_idle: bool
) -> None:
    idle = ": nothing new; counts of the last run that changed something" if is_idle else ""
    _print(f"\nFeed {name} ({feed.protocol}){idle}")
    for label, value in _read_counts(instance, name, feed).items():
        _print(f"  {label:<22}{value}")
    _print("  history")
    for database, table in tables:
        metadata = _read_metadata(instance, name, "history", database, table)
        versions, current = _read_number(metadata, "dagster/row_count"), _read_number(metadata, "current_rows")
        rows = f"{versions} versions, {current} current rows"
        _print(f"    {database}.{table:<20}{rows}")


def _read_counts(instance: DagsterInstance, name: str, feed: Feed) -> dict[str, Any]:
    raw = _read_metadata(instance, name, "raw_records")
    events = _read_metadata(instance, name, "change_events")
    gate = _read_metadata(instance, name, "released_changes")
    quarantined = _read_number(raw, "lines_quarantined") + _read_number(events, "events_undecodable")
    # The metadata is a text, not a table, before the first watermark.
    table = gate.get("watermarks")
    marks = table.records if isinstance(table, TableMetadataValue) else []
    watermarks = [f"{m.data['watermark']}  {m.data['time']}  ({m.data['topic']})" for m in marks]
    return {
        "records ingested": _read_number(raw, "records_taken_in"),
        "row events decoded": _read_number(events, "events_row"),
        "quarantined": quarantined,
        "released": _read_number(gate, "released"),
        "pending": _read_number(gate, "pending"),
        "duplicate": _read_number(gate, "duplicate"),
        "late": _read_number(gate, "late_repeated") + _read_number(gate, "late_unseen"),
        "watermark": "; ".join(watermarks) or _NO_WATERMARK[protocol_of(feed).watermarks(feed) is Watermarks.ALWAYS],
    }


def _read_number(metadata: Mapping[str, MetadataValue[Any]], name: str) -> int:
    return int(metadata[name].value) if name in metadata else 0


def _read_metadata(instance: DagsterInstance, *key: str) -> Mapping[str, MetadataValue[Any]]:
    """Return the metadata of the asset's last materialization."""
    event = instance.get_latest_materialization_event(AssetKey(key))
    materialization = event.asset_materialization if event else None
    return materialization.metadata if materialization else {}


def _count_commits(root: str, store: Store) -> int:
    """Return the number of commits of all Delta tables below a root."""
    files, path = store.files(root)
    listed = files.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    return sum(f.extension == "json" and "/_delta_log/" in f.path for f in listed)


def _print(text: str) -> None:
    _CONSOLE.print(text, markup=False, emoji=False)
