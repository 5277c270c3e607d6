"""Use the class archive if this JVM made it with this Spark and these jars; Spark also starts without it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_assets.spark import session
from cdc_assets.stores import jars

pytestmark = pytest.mark.extended

# Starts a session and ends.
_SESSION = """
import sys
from cdc_assets.spark.session import spark_session

spark_session({"spark.master": "local[1]", "spark.driver.extraJavaOptions": f"-Xlog:class+load:file={sys.argv[1]}"})
"""


def options(settings: dict[str, str]) -> list[str]:
    """Return the JVM options for the archive."""
    return [
        option for option in settings["spark.driver.extraJavaOptions"].split() if "Archive" in option or "cds" in option
    ]


def test_the_archive_of_make_setup_is_used(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _SESSION, str(tmp_path / "classes")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    loaded = (tmp_path / "classes").read_text().splitlines()
    assert sum("org.apache.spark" in line and "shared objects file (top)" in line for line in loaded) > 1000


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive that no JVM can read, in a separate cache."""
    compiled = jars.spark_jars()[len(jars.JARS) :]
    monkeypatch.setenv("CDC_JARS", str(tmp_path))
    for name in [*(jar.file_name for jar in jars.JARS), *(jar.name for jar in compiled)]:
        (tmp_path / name).write_bytes(b"")
    path = jars.class_archive(jars.spark_jars())
    path.write_bytes(os.urandom(100_000))
    return path


def test_an_archive_of_other_jars_is_not_used(archive: Path) -> None:
    assert f"-XX:SharedArchiveFile={archive}" in options(session.spark_settings({}))
    (archive.parent / jars.JARS[0].file_name).write_bytes(b"another")
    os.utime(archive.parent / jars.JARS[0].file_name, ns=(1, 1))
    assert options(session.spark_settings({})) == []


def test_no_archive_is_used_with_another_class_path_or_a_cluster(archive: Path) -> None:
    assert archive.exists()
    assert options(session.spark_settings({"spark.driver.extraClassPath": "/x.jar"})) == []
    assert options(session.spark_settings({"spark.master": "spark://host:7077"})) == []


def test_a_jvm_that_cannot_read_the_archive_starts_without_a_warning(archive: Path) -> None:
    assert archive.exists()
    command = [jars.java(), *options(session.spark_settings({})), "-version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "warning" not in (done.stdout + done.stderr).lower()
