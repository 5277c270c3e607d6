"""The paths of one INSERT, one watermark and one ADD COLUMN, as docs/architecture.md describes them."""

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import cdc_assets
from cdc_assets_tests.history.test_statements import alter, create, insert, run
from cdc_assets_tests.support import Chain, Stream

PACKAGE = Path(cdc_assets.__file__).parent
DOCUMENT = PACKAGE.parent / "docs/architecture.md"

Function = tuple[str, str]  # its file below cdc_assets, its qualified name


def documented_steps(path: str) -> list[Function]:
    """Return the functions that the document names, in its order."""
    _, _, section = DOCUMENT.read_text().partition(f"### {path}\n")
    steps = re.findall(r"^\d+\. \[`(.+?)`\]\(\.\./cdc_assets/(.+?)\)", section.partition("\n#")[0], re.MULTILINE)
    return [(file, name) for name, file in steps]


def called_functions(work: Callable[[], object]) -> list[Function]:
    """Return the functions of the package that the work calls, a call each, in the order of the calls."""
    called: list[Function] = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(PACKAGE):
            called.append((str(file.relative_to(PACKAGE)), frame.f_code.co_qualname))

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return [function for function in called if "<" not in function[1].rpartition(".")[2]]


def test_the_document_names_the_steps_of_each_path(
    chain: Callable[..., Chain], capsys: pytest.CaptureFixture[str]
) -> None:
    it, stream = chain(), Stream()
    run(it, stream, create(), insert(2, 1), upto=3)
    paths = {
        "One INSERT": called_functions(lambda: run(it, stream, insert(4, 2), upto=5)),
        "One watermark": called_functions(lambda: run(it, stream, upto=7)),
        "One ADD COLUMN": called_functions(
            lambda: run(it, stream, alter(8, "orders", "ADD COLUMN `c` INT DEFAULT 3"), upto=9)
        ),
    }
    for path, called in paths.items():
        with capsys.disabled():
            print(f"\n{path}: {len(set(called))} functions in {len({file for file, _ in called})} files")
        steps = documented_steps(path)
        assert len(steps) >= 6, path
        assert set(steps) <= set(called), path
        later_calls = iter(called)
        assert all(step in later_calls for step in steps), f"{path}: the document has another order"
