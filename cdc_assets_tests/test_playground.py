"""`make playground`: servers, shop, pipeline and comparison work together, and a signal ends all of their processes."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cdc_assets_tests.assets.test_as_a_user import PROJECT, Story
from cdc_assets_tests.playground.shop import TABLES

pytestmark = pytest.mark.extended

_SECONDS = 1200
_PROGRAMS = ("mariadbd", "kafka.Kafka", "ConnectStandalone", "dagster_webserver", "dagster._daemon")
_RUNS = "{ runsOrError { ... on Runs { results { jobName status tags { key value } } } } }"
_COMPARISONS = """
query($table: [String!]!) { assetCheckExecutions(assetKey: {path: $table}, checkName: "matches_source", limit: 20) {
  evaluation { success } } }
"""


@contextmanager
def playground(*arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """Start the playground; end it, even after a failure."""
    command = [sys.executable, "-m", "cdc_assets_tests.playground", *arguments]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def lines_until(process: "subprocess.Popen[str]", text: str) -> list[str]:
    """Return the lines of the process up to the first that has a text."""
    lines: list[str] = []
    while text not in "".join(lines[-1:]):
        lines.append(process.stdout.readline())
        assert lines[-1], lines
    return lines


def processes_below(pid: int) -> dict[int, str]:
    """Return the command lines of all processes that a process has started, directly or not."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except FileNotFoundError:
            continue
    below: dict[int, str] = {}
    newest = {pid}
    while newest := {child for child, parent in parents.items() if parent in newest}:
        below |= {child: command_line(child) for child in newest}
    return below


def command_line(pid: int) -> str:
    """Return the arguments of a process; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def end(process: "subprocess.Popen[str]", number: int) -> None:
    """Send a signal, and assert that the process ends with status 0 and leaves no process."""
    below = processes_below(process.pid)
    process.send_signal(number)
    assert process.wait(60) == 0
    assert {pid: text for pid, text in below.items() if text and command_line(pid) == text} == {}


def comparisons(story: Story, table: str) -> list[bool]:
    """Return for each comparison of a table with the source whether it has passed."""
    executions = story.ask(_COMPARISONS, table=["shop", "history", "shop", table])["assetCheckExecutions"]
    return [each["evaluation"]["success"] for each in executions if each["evaluation"]]


def test_the_pipeline_follows_the_shop_until_ctrl_c(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    with playground("--keep", str(folder)) as process:
        text = lines_until(process, "Ctrl-C")
        story = Story(folder, server=next(line.split()[1] for line in text if line.split()[:1] == ["UI"]))
        (why,) = [line.strip() for line in text if "cdc-assets why" in line]
        deadline = time.monotonic() + _SECONDS
        while not any(
            (run["jobName"], run["status"]) == ("cdc_pipeline_shop", "SUCCESS")
            and {"key": "dagster/sensor_name", "value": "new_records"} in run["tags"]
            for run in story.ask(_RUNS)["runsOrError"]["results"]
        ):
            assert time.monotonic() < deadline, story.server_log[-3000:]
            time.sleep(2)
        answer = subprocess.run(why, shell=True, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
        assert "snapshot: " in answer.partition("The history is complete from")[2]
        # The schedule compares every five minutes. The comparison of a table that the shop alters meanwhile warns.
        compared: dict[str, list[bool]] = {}
        while not (compared and all(compared.values()) and any(map(any, compared.values()))):
            assert time.monotonic() < deadline, (compared, story.server_log[-3000:])
            time.sleep(2)
            compared = {table: comparisons(story, table) for table in TABLES}
        running = " ".join(processes_below(process.pid).values())
        assert [program for program in _PROGRAMS if program not in running] == []
        end(process, signal.SIGINT)
    assert (folder / "lake/history/shop/shop/orders").is_dir()


def test_a_signal_ends_a_playground_that_is_starting() -> None:
    with playground() as process:
        lines_until(process, "Debezium")
        end(process, signal.SIGTERM)
