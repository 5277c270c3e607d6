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
from collections.abc import Sequence
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
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.1.1",
        "9c1ce986f548e6b1dcb0e2dfe2f253a0bc58f2232a32a0c9c6c674dd25a8570c",
    ),
    # 4.1.1 of this one is missing in some mirrors; nothing in it has changed that the connector calls.
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.1",
        "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.12.1",
        "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
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


def java() -> str:
    """The command that starts a JVM: `JAVA_HOME`'s, else the one on the path."""
    return str(Path(os.environ["JAVA_HOME"], "bin", "java")) if os.environ.get("JAVA_HOME") else "java"


def ensure_jars(jars: Sequence[Jar] | None = None) -> list[Path]:
    """Return the paths of `jars` (default: `JARS`); fetch the missing ones first, and use no network if there are none.

    Raises:
        RuntimeError: a jar could not be fetched, or is not the one that is pinned.
    """
    folder, wanted = cache_dir(), JARS if jars is None else jars
    for jar in wanted:
        if not (folder / jar.file_name).exists():
            _fetch(jar, folder)
    return [folder / jar.file_name for jar in wanted]


def _fetch(jar: Jar, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        settings = os.environ.get("CDC_IVY_SETTINGS")
        if not settings:
            settings = str(Path(work) / "ivysettings.xml")
            Path(settings).write_text(_IVY_SETTINGS)
        ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
        pattern = f"{work}/[artifact]-[revision].[ext]"
        # One jar a call: Ivy's -dependency takes a single module.
        command = [java(), "-jar", str(ivy), "-settings", settings, "-cache", f"{work}/ivy", "-confs", "default"]
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
