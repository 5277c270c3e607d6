"""Measure a feed of 1,000 tables of which 5 are touched: with one asset for each table, and one for each database."""

import os
import subprocess
import sys
from pathlib import Path

import yaml
from dagster import DagsterInstance

from benchmarks.changes import Changes
from benchmarks.form import Bench
from benchmarks.measuring import Ratio, Section, Timing, median, timed
from benchmarks.stages import CANAL_JSON, FEED, QUIET, Place, prepare, run_stages
from cdc_assets.config import load_feeds
from cdc_assets.definitions import build_definitions

_TABLES, _TOUCHED = 1_000, 5
_FEEDS, _FEEDS_SECONDS = 50, 3  # the definitions of so many feeds load in so many seconds of the processor
_LOAD = "from cdc_assets.definitions import defs; defs().get_repository_def().get_all_jobs()"
_JOB = ["-m", "dagster", "job", "execute", "-m", "cdc_assets.definitions", "-j", "cdc_pipeline"]


def measure(bench: Bench) -> Section:
    """Load the definitions, run without new records, and touch a small number of tables, in both forms in turn."""
    bench.say(f"{_TABLES} tables in one feed, an asset each, and an asset a database ...")
    forms = {"an asset a table": _TABLES, "an asset a database": _TABLES - 1}
    places = {form: _place(bench, form, limit) for form, limit in forms.items()}
    events = {form: _events(place) for form, place in places.items()}
    timings: dict[str, list[list[Timing]]] = {form: [] for form in forms}
    for _ in range(bench.form.rounds):
        for form, place in places.items():
            loading = timed(f"loading the definitions, {form}", lambda p=place: _python(p, ["-c", _LOAD]))  # type: ignore[misc]
            idle = timed(f"a run without news, new process, {form}", lambda p=place: _python(p, _JOB))  # type: ignore[misc]
            bench.say(f"  {form}: definitions {loading.seconds:.1f} s, run without news {idle.seconds:.1f} s")
            timings[form].append([loading, idle])
    feeds = _many_feeds(bench)
    loads_feeds = median(
        [timed(f"loading the definitions of {_FEEDS} feeds", lambda: _python(feeds, ["-c", _LOAD])) for _ in range(3)]
    )
    (loads, idles), (loads_by_database, idles_by_database) = (
        [median(same) for same in zip(*timings[form], strict=True)] for form in forms
    )
    each, by_database = events.values()
    return Section(
        "tables",
        f"{_TABLES} tables in one feed",
        f"The last run touched {_TOUCHED} of the tables: it wrote {each} events where each is an asset, {by_database} "
        "where their database is one. The others are empty folders: no run looks into them.",
        [loads, loads_by_database, idles, idles_by_database, loads_feeds],
        [
            Ratio("definitions: an asset a database / a table", loads_by_database.seconds / loads.seconds, 1.0),
            Ratio("run without news: the same", idles_by_database.seconds / idles.seconds, 1.0),
            Ratio("events of a run that touches 5 tables: the same", by_database / each, 1.0),
            Ratio(f"definitions of {_FEEDS} feeds, CPU s", loads_feeds.cpu_seconds, _FEEDS_SECONDS),
        ],
    )


def _place(bench: Bench, form: str, limit: int) -> Place:
    """Return a feed with a small number of written tables, and many empty ones."""
    place = prepare(bench.again(form.replace(" ", "-")), None, **CANAL_JSON, max_table_assets=limit)
    changes = Changes(_TOUCHED)
    changes.write(place.snapshots)
    run_stages(bench.spark, place)
    for number in range(_TOUCHED, _TABLES):
        Path(place.lake(bench.spark).history("shop", f"t{number:04d}").path, "_delta_log").mkdir(parents=True)
    changes.write(place.snapshots)
    return place


def _many_feeds(bench: Bench) -> Place:
    """Return feeds without records."""
    place = prepare(bench.again("feeds"))
    (feed,) = yaml.safe_load(place.feeds_file.read_text())["feeds"].values()
    place.feeds_file.write_text(yaml.safe_dump({"feeds": {f"f{n}": feed for n in range(_FEEDS)}}))
    return place


def _events(place: Place) -> int:
    """Return the number of events that Dagster keeps of a run that touches the tables."""
    os.environ |= _environment(place)
    with DagsterInstance.from_config(str(place.folder)) as instance:
        job = build_definitions(load_feeds(place.feeds_file)).resolve_job_def(f"cdc_pipeline_{FEED}")
        done = job.execute_in_process(instance=instance, run_config=QUIET)
        return len([entry for entry in instance.all_logs(done.run_id) if entry.dagster_event is not None])


def _python(place: Place, arguments: list[str]) -> None:
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, env=os.environ | _environment(place), cwd=place.folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")


def _environment(place: Place) -> dict[str, str]:
    return {
        "CDC_FEEDS": str(place.feeds_file),
        "CDC_LAKEHOUSE": str(place.root),
        "DAGSTER_HOME": str(place.folder),
    }
