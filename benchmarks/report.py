"""Print the figures as tables, and keep them below benchmarks/results/ as Markdown and JSON."""

import json
import os
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.form import Form
from benchmarks.measuring import Ratio, Section, Timing

_PACKAGES = ("pyspark", "delta-spark", "dagster", "deltalake")


def write_report(folder: Path | None, form: Form, sections: list[Section]) -> None:
    """Print all ratios, and write the report to `<form>.md` and `<form>.json` of a folder."""
    now, machine = datetime.now(UTC), _machine()
    ratios = [(section.name, ratio) for section in sections for ratio in section.ratios]
    table = "\n".join(_ratios(form, ratios))
    print("\n" + table, flush=True)
    if folder is None:
        return
    packages = ", ".join(f"{package} {machine[package]}" for package in _PACKAGES)
    text = [
        f"# Benchmark, form `{form.name}`, {now:%Y-%m-%d %H:%M} UTC",
        "",
        f"{machine['cores']} cores, {machine['memory_gb']} GB of memory; Python {machine['python']}, {packages}.",
        f"The machine's load over the five minutes before the end: {machine['load']}.",
        "",
        "What a ratio compares was run in turn in one process and one Spark session, but for new processes. Each figure is",
        "a median, memory the most seen. CPU seconds are those of all cores and processes; jobs those that Spark started.",
        "",
        table,
        "",
        *[line for section in sections for line in (section_text(section), "")],
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{form.name}.md").write_text("\n".join(text))
    everything = {
        "at": now.isoformat(timespec="seconds"),
        "machine": machine,
        "form": asdict(form),
        "sections": [asdict(s) | {"ratios": [asdict(r) | {"verdict": r.verdict} for r in s.ratios]} for s in sections],
    }
    (folder / f"{form.name}.json").write_text(json.dumps(everything, indent=1) + "\n")


def section_text(section: Section) -> str:
    """Return one section in Markdown."""
    lines = [f"## {section.title}", "", section.text, ""]
    lines += [
        "| step | seconds | CPU s | Spark jobs | peak JVM MB | and Python |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    return "\n".join([*lines, *map(_row, section.timings)])


def _row(t: Timing) -> str:
    jobs = "" if t.jobs is None else t.jobs
    cpu, jvm, in_total = (
        f"{n:,.{digits}f}" if n else "" for n, digits in ((t.cpu_seconds, 1), (t.jvm_mb, 0), (t.total_mb, 0))
    )
    return f"| {t.name} | {t.seconds:.3f} | {cpu} | {jobs} | {jvm} | {in_total} |"


def _ratios(form: Form, ratios: list[tuple[str, Ratio]]) -> list[str]:
    return [
        "| ratio | measured | allowed | aim | | command |",
        "|---|---:|---:|---:|---|---|",
        *[
            f"| {r.name} | {r.value:.2f} | {r.allowed:g} | {'' if r.aim is None else format(r.aim, 'g')} | {r.verdict} "
            f"| `python -m benchmarks.bench --form {form.name} {section}` |"
            for section, r in ratios
        ],
    ]


def _machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9),
        "load": round(os.getloadavg()[1], 1),
        "python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
    }
