"""Find the jars in the cache without network, fetch them once, and accept only the pinned ones."""

import hashlib
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

from cdc_assets.stores import jars

REPOSITORY = """<ivysettings>
  <settings defaultResolver="local"/>
  <resolvers><filesystem name="local"><artifact pattern="{folder}/[artifact]-[revision].[ext]"/></filesystem></resolvers>
</ivysettings>
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("CDC_JARS", str(tmp_path / "jars"))
    return tmp_path / "jars"


@pytest.fixture
def one_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in a folder, with the one pinned jar."""
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "thing-1.0.jar").write_bytes(b"the jar")
    (tmp_path / "ivy.xml").write_text(REPOSITORY.format(folder=repository))
    monkeypatch.setenv("CDC_IVY_SETTINGS", str(tmp_path / "ivy.xml"))
    jar = jars.Jar("org.example", "thing", "1.0", hashlib.sha256(b"the jar").hexdigest())
    monkeypatch.setattr(jars, "JARS", (jar,))
    return repository / "thing-1.0.jar"


def refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a process was started")


def test_cached_jars_are_used_without_starting_anything(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir()
    for jar in jars.JARS:
        (cache / jar.file_name).write_bytes(b"")
    monkeypatch.setattr(subprocess, "run", refuse)
    assert jars.ensure_jars() == [cache / jar.file_name for jar in jars.JARS]


def test_only_the_jars_that_spark_does_not_have_are_fetched() -> None:
    modules = {jar.module for jar in jars.JARS}
    assert {"delta-spark_4.1_2.13", "delta-storage"} <= modules
    assert not any(word in module for module in modules for word in ("hadoop", "parquet", "jackson"))
    assert all(len(jar.sha256) == 64 for jar in jars.JARS)


def test_a_missing_jar_is_fetched_once_and_nothing_else_is_left(
    cache: Path, one_jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (jar,) = jars.ensure_jars()
    assert jar.read_bytes() == b"the jar"
    assert list(cache.iterdir()) == [jar]
    monkeypatch.setattr(subprocess, "run", refuse)
    assert jars.ensure_jars() == [jar]


def test_another_jar_under_the_same_name_is_refused_and_not_kept(cache: Path, one_jar: Path) -> None:
    one_jar.write_bytes(b"another jar")
    with pytest.raises(RuntimeError, match=r"thing-1\.0\.jar has the SHA-256 .* is pinned"):
        jars.ensure_jars()
    assert list(cache.iterdir()) == []


def test_the_error_of_an_unavailable_jar_says_what_to_do(cache: Path, one_jar: Path) -> None:
    one_jar.unlink()
    with pytest.raises(RuntimeError, match=r"org\.example:thing:1\.0 could not be fetched into .*CDC_IVY_SETTINGS"):
        jars.ensure_jars()


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CDC_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert jars.cache_dir() == Path("/somewhere/cdc-assets/jars")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert jars.cache_dir() == Path.home() / ".cache/cdc-assets/jars"


def test_the_jar_of_a_wheel_is_used_and_nothing_is_compiled(
    cache: Path, one_jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel has the jar beside the folder of its Scala files; files that have changed since need another jar."""
    source = tmp_path / "native/core/A.scala"
    source.parent.mkdir(parents=True)
    source.write_text("class A")
    monkeypatch.setattr(jars, "_NATIVE", tmp_path / "native")

    def compiled(files: list[Path], _: list[Path], jar: Path) -> None:
        jar.write_text(files[0].read_text())

    monkeypatch.setattr(jars, "_compile", compiled)
    *_, cached = jars.spark_jars()
    assert cached.parent == cache
    packaged = cached.rename(tmp_path / "native" / cached.name)
    monkeypatch.setattr(jars, "_compile", refuse)
    assert jars.spark_jars()[-1] == packaged
    source.write_text("class B")
    with pytest.raises(AssertionError, match="a process was started"):
        jars.spark_jars()
