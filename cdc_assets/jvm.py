"""The JVM jars that Spark needs beside its own, fetched once and kept in a cache.

Only the jars named here are fetched, without their dependencies: Spark has all of those already, and a second Hadoop,
Parquet and Jackson on the class path slow every session's start. Ivy, which pyspark brings along, does the fetching, so
a user's Ivy mirror settings (`CDC_IVY_SETTINGS`) apply. Every jar is compared with the checksum pinned here.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pyspark


class Jar(NamedTuple):
    """One artifact of a Maven repository, and the SHA-256 of its jar."""

    organisation: str
    module: str
    revision: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The file's name in the cache."""
        return f"{self.module}-{self.revision}.jar"


JARS = (
    Jar(
        "io.delta",
        "delta-spark_4.1_2.13",
        "4.4.0",
        "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    ),
    Jar(
        "io.delta",
        "delta-storage",
        "4.4.0",
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
    Jar(
        "org.apache.spark",
        "spark-avro_2.13",
        "4.1.1",
        "6a19d90bc3b6e88d8db0fa36a19273aa10fea2dbd7a62bb60e4cedd73051b32d",
    ),
)

# usepoms="false": the jars alone, not what they depend on.
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false" checkconsistency="false"/></resolvers>
</ivysettings>
"""


def cache_dir() -> Path:
    """The folder of the jars: `CDC_JARS`, else below the user's cache folder."""
    if configured := os.environ.get("CDC_JARS"):
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cdc-assets" / "jars"


def ensure_jars() -> list[Path]:
    """Return the jars' paths; fetch the missing ones first. No network is used when none is missing.

    Raises:
        RuntimeError: a jar could not be fetched, or is not the one that is pinned.
    """
    folder = cache_dir()
    for jar in JARS:
        if not (folder / jar.file_name).exists():
            _fetch(jar, folder)
    return [folder / jar.file_name for jar in JARS]


def _fetch(jar: Jar, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        settings = os.environ.get("CDC_IVY_SETTINGS")
        if not settings:
            settings = str(Path(work) / "ivysettings.xml")
            Path(settings).write_text(_IVY_SETTINGS)
        ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
        java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else Path("java")
        pattern = f"{work}/[artifact]-[revision].[ext]"
        # One jar a call: Ivy's -dependency takes a single module.
        command = [str(java), "-jar", str(ivy), "-settings", settings, "-cache", f"{work}/ivy", "-confs", "default"]
        command += ["-dependency", jar.organisation, jar.module, jar.revision, "-retrieve", pattern]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        fetched = Path(work) / jar.file_name
        if done.returncode or not fetched.exists():
            raise RuntimeError(
                f"{jar.organisation}:{jar.module}:{jar.revision} could not be fetched into {folder}: "
                f"check the network, or name an Ivy settings file with a mirror in CDC_IVY_SETTINGS.\n{done.stdout}"
            )
        digest = hashlib.sha256(fetched.read_bytes()).hexdigest()
        if digest != jar.sha256:
            raise RuntimeError(f"{jar.file_name} has the SHA-256 {digest}, but {jar.sha256} is pinned.")
        fetched.replace(folder / jar.file_name)  # atomic: a reader sees the whole jar or none


if __name__ == "__main__":
    ensure_jars()
    sys.exit(0)
