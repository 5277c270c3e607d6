"""The jars that Spark needs beside its own: fetched once, and cached. An object store's jars are fetched when it is used.

Only the jars in `jars.toml` are fetched, without their dependencies: Spark contains these, and a second Hadoop, Parquet and
Jackson on the class path would slow the start of every session. Ivy, which is part of pyspark, fetches the jars, so a
user's Ivy settings with a mirror (`CDC_IVY_SETTINGS`) apply. Each jar's checksum must equal the one pinned there.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyspark


class Jar(NamedTuple):
    """An artifact of a Maven repository, and the SHA-256 checksum of its jar."""

    organisation: str
    module: str
    revision: str
    sha256: str
    classifier: str = ""

    @property
    def file_name(self) -> str:
        """The name of the jar's file in the cache."""
        return f"{'-'.join(filter(None, [self.module, self.revision, self.classifier]))}.jar"


def _read_jars(group: str) -> tuple[Jar, ...]:
    """Return the jars of one table of `jars.toml`."""
    checksums = tomllib.loads(Path(__file__).with_name("jars.toml").read_text())
    jars = []
    for name, sha256 in checksums[group].items():
        organisation, module, revision, *classifier = name.split(":")
        jars.append(Jar(organisation, module, revision, sha256, *classifier))
    return tuple(jars)


JARS, S3_JARS, GCS_JARS, AZURE_JARS = map(_read_jars, ("spark", "s3", "gcs", "azure"))

# usepoms="false": fetch the jars without their dependencies.
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false" checkconsistency="false"/></resolvers>
</ivysettings>
"""

# One run of Ivy fetches all jars, because starting its JVM takes longer than fetching most jars.
_IVY_MODULES = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="cdc-assets" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    {dependencies}
  </dependencies>
</ivy-module>
"""


# The Scala files, a folder for each jar; beside them the jars, in a wheel.
_NATIVE = Path(__file__).parents[1] / "spark" / "native"


def cache_dir() -> Path:
    """Return the folder of the jars: `CDC_JARS`, else a folder below the user's cache folder."""
    if configured := os.environ.get("CDC_JARS"):
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cdc-assets" / "jars"


def java() -> str:
    """Return the command that starts a JVM: that of `JAVA_HOME`, else `java` on the path."""
    return str(Path(os.environ["JAVA_HOME"], "bin", "java")) if os.environ.get("JAVA_HOME") else "java"


def ensure_jars(jars: Sequence[Jar] | None = None) -> list[Path]:
    """Return the paths of `jars` (default: `JARS`) in the cache; missing ones are fetched first.

    Raises:
        RuntimeError: a jar could not be fetched, or has another checksum than the pinned one.
    """
    folder, required = cache_dir(), JARS if jars is None else jars
    if missing := [jar for jar in required if not (folder / jar.file_name).exists()]:
        _fetch(missing, folder)
    return [folder / jar.file_name for jar in required]


def class_archive(jars: Sequence[Path]) -> Path:
    """Return the path of the class archive (class data sharing) for a JVM with these jars before Spark's; it may not exist.

    The name depends on the JVM, the installation of Spark and the jars, because a JVM uses an archive only if it was made
    by the same JVM with the same class path.
    """
    command = Path(shutil.which(java()) or java()).resolve()
    identity = [pyspark.__version__, pyspark.__file__, str(command), *map(str, jars)]
    identity += [str(file.stat().st_mtime_ns) for file in (command, Path(pyspark.__file__), *jars) if file.exists()]
    return cache_dir() / f"classes-{hashlib.sha256(repr(identity).encode()).hexdigest()[:16]}.jsa"


def _fetch(jars: Sequence[Jar], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        settings = os.environ.get("CDC_IVY_SETTINGS")
        if not settings:
            settings = str(Path(work) / "ivysettings.xml")
            Path(settings).write_text(_IVY_SETTINGS)
        modules = Path(work) / "ivy.xml"
        modules.write_text(_IVY_MODULES.format(dependencies="\n    ".join(map(_dependency, jars))))
        ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
        command = [java(), "-jar", str(ivy), "-settings", settings, "-cache", f"{work}/ivy", "-confs", "default"]
        command += ["-ivy", str(modules), "-retrieve", f"{work}/[artifact]-[revision](-[classifier]).[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        absent = [jar for jar in jars if not (Path(work) / jar.file_name).exists()]
        if done.returncode or absent:
            names = ", ".join(f"{jar.organisation}:{jar.module}:{jar.revision}" for jar in absent)
            raise RuntimeError(
                f"{names} could not be fetched into {folder}: "
                f"check the network, or name an Ivy settings file with a mirror in CDC_IVY_SETTINGS.\n{done.stdout}"
            )
        for jar in jars:
            fetched = Path(work) / jar.file_name
            digest = hashlib.sha256(fetched.read_bytes()).hexdigest()
            if digest != jar.sha256:
                raise RuntimeError(f"{jar.file_name} has the SHA-256 {digest}, but {jar.sha256} is pinned.")
            fetched.replace(folder / jar.file_name)  # atomic, so that no other process reads a part of the jar


def _dependency(jar: Jar) -> str:
    """Return the element of Ivy's module file for a jar."""
    artifact = f'<artifact name="{jar.module}" type="jar" ext="jar" m:classifier="{jar.classifier}"/>'
    return (
        f'<dependency org="{jar.organisation}" name="{jar.module}" rev="{jar.revision}" conf="default->default" '
        f'transitive="false">{artifact if jar.classifier else ""}</dependency>'
    )


def spark_jars() -> list[Path]:
    """Return what Spark needs wherever its tables are: `JARS`, and the jar of `native/core`."""
    return [*ensure_jars(), _native_jar("core", [jar for jar in JARS if jar.module.startswith("delta-")])]


def store_jars(jars: Sequence[Jar]) -> list[Path]:
    """Return what Spark needs for tables in an object store: its own `jars`, and the jar of `native/stores`."""
    called = [jar for jar in JARS if jar.module == "delta-storage"]
    called += [jar for jar in S3_JARS if jar.module == "hadoop-aws"] + [*GCS_JARS, *AZURE_JARS]
    return [*ensure_jars(jars), _native_jar("stores", called)]


def copy_native_jars(folder: Path) -> None:
    """Copy the jars of `native` into a folder; `make dist` puts them into the wheel so."""
    for jar in (spark_jars()[-1], store_jars(())[-1]):
        shutil.copy(jar, folder)


def _native_jar(folder: str, called: Sequence[Jar]) -> Path:
    """Return the jar of the Scala files of a folder of `native`: a wheel has it; else it is compiled into the cache once.

    Args:
        folder: of `native`.
        called: the jars whose classes the files call.

    Raises:
        RuntimeError: the files do not compile.
    """
    files = sorted((_NATIVE / folder).glob("*.scala"))
    parts = [*(file.read_text() for file in files), pyspark.__version__, *(jar.file_name for jar in called)]
    name = f"cdc-assets-{folder}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}.jar"
    packaged, cached = _NATIVE / name, cache_dir() / name
    if packaged.exists():
        return packaged
    if not cached.exists():
        _compile(files, ensure_jars(called), cached)
    return cached


def _compile(files: Sequence[Path], called: Sequence[Path], jar: Path) -> None:
    """Compile Scala files into `jar` by Spark's own compiler.

    Raises:
        RuntimeError: the files do not compile.
    """
    beside = Path(pyspark.__file__).parent / "jars"
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jar.parent) as work:
        made = f"{work}/made.jar"
        command = [java(), "-cp", f"{beside}/*", "scala.tools.nsc.Main", "-usejavacp", "-release", "17"]
        command += ["-classpath", os.pathsep.join(map(str, called)), "-d", made, *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise RuntimeError(f"{files[0].parent} does not compile:\n{done.stdout}{done.stderr}")
        Path(made).replace(jar)
