"""The wheel of `make dist`, in a new virtual environment and an empty folder, where nothing can be compiled."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest

from cdc_assets.stores.jars import JARS, ensure_jars, java
from cdc_assets_tests.ports import free_port
from cdc_assets_tests.support import Rows, Stream, tso

pytestmark = pytest.mark.extended

PROJECT = Path(__file__).parents[1]
FILES = ("Makefile", "README.md", "pyproject.toml", "requirements.lock")
# Spark's jars have the compiler.
NO_COMPILER = """#!/bin/sh
case "$*" in *scala.tools.nsc*) echo "a compiler was started" >&2; exit 1;; esac
exec {java} "$@"
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run `make dist` over a copy of the project, with the environment of the tests."""
    copy = tmp_path_factory.mktemp("project")
    shutil.copytree(PROJECT / "cdc_assets", copy / "cdc_assets", ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy2(PROJECT / name, copy)
    made = ["make", f"--old-file={sys.prefix}/.ready", f"VENV={sys.prefix}", "dist"]
    done = subprocess.run(made, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list((copy / "cdc_assets").rglob("*.jar"))
    (built,) = (copy / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Install the wheel; return the environment of a user, who has the pinned packages and a JRE."""
    home = tmp_path_factory.mktemp("machine")
    python = home / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home / "venv")], check=True)
    install = ["install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", f"--python={python}", *install], check=True)
    (site,) = (home / "venv").glob("lib/python*/site-packages")
    # A folder that a .pth file names is searched last, and its own .pth files, with the project's, are not read.
    (site / "pinned.pth").write_text(str(Path(pytest.__file__).parents[1]))
    (home / "jre/bin").mkdir(parents=True)
    (home / "jre/bin/java").write_text(NO_COMPILER.format(java=shutil.which(java())))
    (home / "jre/bin/java").chmod(0o755)
    (home / "jars").mkdir()
    for jar in ensure_jars(JARS):
        (home / "jars" / jar.name).symlink_to(jar)
    return {
        "PATH": f"{python.parent}:/usr/bin:/bin",
        "HOME": str(home),
        "JAVA_HOME": str(home / "jre"),
        "CDC_JARS": str(home / "jars"),
        "CDC_SPARK_MASTER": "local[2]",
        "CDC_SPARK_DRIVER_MEMORY": "1g",
    }


def test_the_wheel_has_the_code_its_templates_and_both_jars_and_no_test(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    (core,) = [name for name in names if name.startswith("cdc_assets/spark/native/cdc-assets-core-")]
    (stores,) = [name for name in names if name.startswith("cdc_assets/spark/native/cdc-assets-stores-")]
    assert [name for name in names if name.endswith(".jar")] == sorted([core, stores])
    assert "cdc_assets/operations/inspect/templates/dagster.yaml" in names
    assert "cdc_assets/protocols/simple/message.avsc" in names
    assert {name.partition("/")[0] for name in names if not name.startswith("cdc_assets-")} == {"cdc_assets"}


def test_init_run_and_ui_in_an_empty_folder(installed: dict[str, str], tmp_path: Path) -> None:
    rows, stream = Rows("shop", "orders"), Stream()
    stream.send(rows.insert(tso(10), 1, "a"))
    stream.send(rows.update(tso(20), 1, "b", old="a"))
    stream.watermark(tso(30))
    records, folder = tmp_path / "records", tmp_path / "empty"
    records.mkdir()
    (records / "1.jsonl").write_text("".join(json.dumps(record) + "\n" for record in stream.records))
    folder.mkdir()

    def call(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=installed, cwd=folder, capture_output=True, text=True, check=False)

    place = call("python", "-c", "import cdc_assets; print(cdc_assets.__file__)").stdout
    assert place.startswith(installed["HOME"])
    begun = call("cdc-assets", "init", "--recorded", str(records))
    assert begun.returncode == 0, begun.stderr
    ran = call("cdc-assets", "run", "--strict")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = [" ".join(line.split()) for line in ran.stdout.splitlines()]
    assert {"records ingested 3", "released 2", "shop.orders 2 versions, 1 current rows"} <= set(lines)
    assert any(line.startswith("raw_records/") and line.endswith(" s") for line in lines)
    assert call("cdc-assets", "run", "nowhere").returncode == 1
    again = call("cdc-assets", "run")
    assert "No new records: nothing was ingested, and no Delta table got a commit." in again.stdout
    # What the machine had, and nothing that was compiled.
    assert {path.name for path in Path(installed["CDC_JARS"]).iterdir()} == {jar.file_name for jar in JARS}
    serve(installed, folder)


def serve(env: dict[str, str], folder: Path) -> None:
    """Start the web server, see that it answers, and stop it."""
    port = free_port()
    command = ["cdc-assets", "ui", "--port", str(port)]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, env=env, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        for _ in range(900):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5) as answer:
                    assert answer.status == 200
                    return
            except OSError:
                assert process.poll() is None, (folder / "server.log").read_text()
                time.sleep(0.1)
        raise AssertionError("the web server does not answer")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
