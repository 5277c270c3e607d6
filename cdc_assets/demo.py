"""`make demo`: run the job over the recorded snapshots as a user would, and tell what came out.

The job's own log goes to .dagster/demo.log. The summary is read from what the assets told Dagster, as the UI shows it.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagster import (
    AssetKey,
    DagsterInstance,
    MetadataValue,
    TableMetadataValue,
)
from pyarrow.fs import FileSelector

from cdc_assets.assets.verdicts import failed_checks, reasons
from cdc_assets.config import Feed, FeedsError, load_feeds
from cdc_assets.config.locations import LocationError, scheme_of
from cdc_assets.lakehouse.lakehouse import history_tables, lakehouse_root
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Watermarks
from cdc_assets.stores.storage import Store

_LOG = Path(".dagster/demo.log")
_NO_WATERMARK = {True: "none yet", False: "none: a run releases what it takes in"}
_JOB = ("dagster", "job", "execute", "-m", "cdc_assets.definitions", "-j", "cdc_pipeline")


def main() -> int:
    """Run the job, print the summary, return the job's exit code."""
    try:
        file, root = load_feeds(), lakehouse_root()
    except (FeedsError, LocationError) as error:
        print(error, file=sys.stderr)
        return 1
    feeds, store = file.feeds, Store.of(file, root)
    before, known = _commits(root, store), _newest_run()
    code = _run_job()
    if code:
        _say(f"\nThe job failed (exit code {code}); its whole log is in {_LOG}.")
        newest = _newest_run()
        for reason in _why(newest if newest != known else None):
            _say(reason)
        return code
    commits, this_run = _commits(root, store) - before, _newest_run()
    with DagsterInstance.get() as instance:
        with_news = {name: _last_run_with_news(instance, name) for name in feeds}
        for name, feed in feeds.items():
            idle = "" if with_news[name] == this_run else ": nothing new; the last run with news told"
            _say(f"\nFeed {name} ({feed.protocol}){idle}")
            for label, value in _counts(instance, name, feed).items():
                _say(f"  {label:<22}{value}")
            _say("  history")
            for database, table in history_tables(root, name, store):
                told = _metadata(instance, name, "history", database, table)
                rows = f"{_number(told, 'dagster/row_count')} versions, {_number(told, 'current_rows')} current rows"
                _say(f"    {database}.{table:<20}{rows}")
        for run in filter(None, dict.fromkeys(with_news.values())):
            for line in failed_checks(instance, run):
                _say(f"\nFailing: {line}")
    if commits:
        _say(
            f"\n{commits} commits to Delta tables below {root if scheme_of(root) else os.path.relpath(root)}. "
            "Run `make demo` again: nothing is taken in twice."
        )
    else:
        _say("\nNothing was new: nothing was taken in, and no Delta table got a commit.")
    _say("Runs, checks and metadata: `make ui`, then http://127.0.0.1:3000/asset-groups")
    return 0


def _run_job() -> int:
    """Run the job in a process of its own; show its progress, a line a stage."""
    _LOG.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", *_JOB]
    with (
        _LOG.open("w") as log,
        subprocess.Popen(  # noqa: S603
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as job,
    ):
        for line in job.stdout or ():
            log.write(line)
            fields = line.rstrip("\n").split(" - ", 6)
            if len(fields) == 7 and fields[2] in {"INFO", "WARNING"} and "did not yield" not in fields[6]:
                _say(fields[6])
        return job.wait()


def _newest_run() -> str | None:
    with DagsterInstance.get() as instance:
        return next((run.run_id for run in instance.get_runs(limit=1)), None)


def _last_run_with_news(instance: DagsterInstance, name: str) -> str | None:
    """The run that told of the feed's last asset, as each run with news does."""
    event = instance.get_latest_materialization_event(AssetKey([name, "quarantine"]))
    return event.run_id if event else None


def _why(run: str | None) -> list[str]:
    """Why the job failed, a line a reason."""
    with DagsterInstance.get() as instance:
        found = reasons(instance, run) if run else []
    # It did not even begin.
    return found or _LOG.read_text().splitlines()[-1:]


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
    """What the asset's newest materialisation says."""
    event = instance.get_latest_materialization_event(AssetKey(key))
    materialization = event.asset_materialization if event else None
    return materialization.metadata if materialization else {}


def _commits(root: str, store: Store) -> int:
    """How many commits all Delta tables below a root have together."""
    files, path = store.files(root)
    found = files.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    return sum(f.extension == "json" and "/_delta_log/" in f.path for f in found)


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
