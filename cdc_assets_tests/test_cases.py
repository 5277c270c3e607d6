"""Run small inputs from public bug reports, each with the right result: one folder of `cases/` for each case.

All selected cases go through one run of the job, each as a feed of its own, and those with a second part through a second
run. Variants of other cases are left to `make soak`.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from cdc_assets.assets.resources import SparkResource
from cdc_assets_tests.case_results import Results, differences, is_same_value
from cdc_assets_tests.jobs import Job, evaluated, failures
from cdc_assets_tests.support import rows_in

CASES = {path.parent.name: path.parent for path in sorted(Path(__file__).parent.glob("cases/*/expected.json"))}
PARTS = ("records1", "records2")


def expected_of(case: Path) -> dict[str, Any]:
    """Return what is right for a case."""
    expected: dict[str, Any] = json.loads((case / "expected.json").read_text(), parse_float=Decimal)
    return expected


def parameter(name: str) -> Any:
    """Return the test parameter of a case.

    A file `xfail` in its folder names the fault that makes it fail today, a file `variant` the case of which it is one.
    """
    fault = CASES[name] / "xfail"
    marks = [pytest.mark.xfail(strict=True, reason=fault.read_text().strip())] if fault.exists() else []
    marks += [pytest.mark.soak] if (CASES[name] / "variant").exists() else []
    return pytest.param(name, marks=marks)


def feed_of(case: Path) -> dict[str, Any]:
    """Return the entry of a case in the feeds file."""
    settings: dict[str, Any] = yaml.safe_load((case / "feed.yaml").read_text())
    return settings | {"source": {"recorded": case.name}}


def run_cases(job: Job, cases: Mapping[str, Path], part: str) -> dict[str, Results]:
    """Add one part of the cases' records, run the job over their feeds, and return the results of each."""
    fed = []
    for name, case in cases.items():
        folders = [case / part, *([case / "records"] if part == PARTS[0] else [])]
        files = [file for folder in folders for file in sorted(folder.glob("*.jsonl*"))]
        if files:
            (job.home / name).mkdir(exist_ok=True)
            fed.append(name)
        for file in files:
            shutil.copy(file, job.home / name / f"{part}-{file.name}")
    (job.home / "feeds.yaml").write_text(yaml.safe_dump({"feeds": {name: feed_of(cases[name]) for name in fed}}))
    done = job.run()
    results = {name: Results() for name in fed}
    for evaluation in evaluated(done):
        results[evaluation.asset_key.path[0]].add(evaluation)
    for step, error in failures(done).items():
        results[step.partition("__raw_to_history")[0]].errors.append(error)
    return results


def merged(parts: Sequence[Results]) -> Results:
    """Return the results of several runs of one feed as one; later evaluations of a check replace earlier ones in `last`."""
    merged_results = Results()
    for part in parts:
        merged_results.failed += part.failed
        merged_results.last |= part.last
        merged_results.errors += part.errors
    return merged_results


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Results]]:
    """The results of each selected case."""
    items = [
        item for item in request.session.items if isinstance(item, pytest.Function) and item.parent is request.node
    ]
    names = {item.callspec.params["name"] for item in items if "results" in item.fixturenames}
    cases = {name: case for name, case in CASES.items() if name in names}
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("cases")
        patch.setenv("CDC_FEEDS", str(home / "feeds.yaml"))
        patch.setenv("CDC_LAKEHOUSE", str(home / "lake"))
        patch.setattr(SparkResource, "spark_session", spark)
        job = Job(home, spark)
        runs = [run_cases(job, cases, part) for part in PARTS]
        by_case = {name: merged([run[name] for run in runs if name in run]) for name in cases}
        for name, result in by_case.items():
            lake = job.lake(name)
            for database, table in lake.histories():
                result.versions[f"{database}.{table}"] = rows_in(lake.history(database, table), spark)
        yield by_case


@pytest.mark.parametrize("name", [parameter(name) for name in CASES])
def test_case(name: str, results: dict[str, Results]) -> None:
    assert results[name].last or results[name].errors, "the feed did not run"
    assert differences(expected_of(CASES[name]), results[name]) == []


@pytest.mark.fast
@pytest.mark.parametrize(
    ("expected", "actual", "is_same"),
    [
        (1, 1, True),
        (1, 2, False),
        (1, None, False),
        (None, None, True),
        (None, 0, False),
        (Decimal("1.5"), Decimal("1.50"), True),
        ("129012.1230000", Decimal("129012.123"), True),
        (Decimal("0.5"), 0.5, True),
        (Decimal("0.5"), 0.6, False),
        ("x", "x", True),
        ("x", "y", False),
        ("0AFF", b"\x0a\xff", True),
        ("0aff", "0aff", True),
        ("26:03:04", "26:03:04.000000", True),
        ("2024-01-05 03:04:00", "2024-01-05 03:04:00.000000", True),
        ("2024-01-05 03:04:00", "2024-01-05 03:04:01.000000", False),
        ('{"level": 2}', '{"level":2}', True),
        ('{"level": 2}', '{"level":3}', False),
        ("1", "2", False),
    ],
)
def test_values_are_compared_by_what_they_mean(expected: Any, actual: Any, is_same: bool) -> None:
    assert is_same_value(expected, actual) is is_same
