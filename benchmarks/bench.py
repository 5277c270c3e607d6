"""Measure what the pipeline costs, beside the same work without it (`make bench`, `make bench-all`).

python -m benchmarks.bench [--form short|all|tiny] [SECTION ...]

All compared variants run in turn, in one process and one Spark session. Each figure is a median.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import asking, cluster, decoding, idle, loading, many, small, stream, tables, verifying, versions
from benchmarks.form import FORMS, Bench
from benchmarks.measuring import Section
from benchmarks.report import section_text, write_report

SECTIONS: dict[str, Callable[[Bench], Section | None]] = {
    "idle": idle.measure,
    "small": small.measure,
    "many": many.measure,
    "tables": tables.measure,
    "stream": stream.measure,
    "versions": versions.measure,
    "decoding": decoding.measure,
    "asking": asking.measure,
    "verifying": verifying.measure,
    "loading": loading.measure,
    "cluster": cluster.measure,
}


def main() -> None:
    """Measure and print; write the report of a complete run to benchmarks/results/."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--form", choices=FORMS, default="short", help="tiny only shows that everything runs")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    folder = Path(tempfile.mkdtemp(prefix="cdc-bench-"))
    bench = Bench(folder, FORMS[options.form])
    try:
        sections = []
        for name in options.sections or SECTIONS:
            section = SECTIONS[name](bench)
            if section is not None:
                print("\n" + section_text(section), flush=True)
                sections.append(section)
        is_complete = not options.sections and options.form != "tiny"
        write_report(options.results if is_complete else None, bench.form, sections)
    finally:
        bench.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
