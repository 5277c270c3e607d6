"""The live differential test: what its grammar has, and two minutes of it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_assets_tests.live.run import PRODUCTIONS_BY_ROW
from cdc_assets_tests.live.schema_changes import FOLLOWS, NOT_HERE

PROJECT = Path(__file__).parents[1]


def test_every_row_of_the_page_is_a_production() -> None:
    page = (PROJECT / "docs" / "schema-evolution.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+?) \|", page.partition("## Statement by statement")[2], re.MULTILINE)
    rows = [row for row in rows if row != "Statement" and not row.startswith("-")]
    assert rows
    assert set(rows) == PRODUCTIONS_BY_ROW.keys() | NOT_HERE.keys() | FOLLOWS


@pytest.mark.extended
def test_two_minutes(tmp_path: Path) -> None:
    # A known seed, so that a failure can be repeated; `make soak` tries others.
    command = [sys.executable, "-m", "cdc_assets_tests.live", "--minutes", "2", "--seed", "1"]
    command += ["--keep", str(tmp_path / "live")]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
