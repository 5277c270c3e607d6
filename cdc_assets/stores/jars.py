"""The jars that Spark needs beside its own: fetched once, and cached. An object store's jars are fetched when it is used.

Only the jars in this module are fetched, without their dependencies: Spark contains these, and a second Hadoop, Parquet and
Jackson on the class path would slow the start of every session. Ivy, which is part of pyspark, fetches the jars, so a
user's Ivy settings with a mirror (`CDC_IVY_SETTINGS`) apply. Each jar's checksum must equal the one pinned here.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
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
    # Version 4.1.1 is missing in some mirrors; the classes that the connector calls are unchanged since 4.0.0.
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

# The version of Hadoop in pyspark, and the version of the AWS SDK for which that Hadoop is built. Only the modules that
# Hadoop's S3A uses: the jar with the complete SDK is very large.
_HADOOP, _AWS_SDK = "3.4.2", "2.29.52"
_AWS_SDK_MODULES = {
    "annotations": "8cd8bd8afd7eca5a367f69fd87427f6d9f3e7d359962122da24d71f1963f00cd",
    "apache-client": "c96494be30ecac6f0ab7a35fdd91a4c77ca8a5daf62f3d9d84644ef0f0524dc6",
    "arns": "f5a4d1d9b4e4fc63c9bda49bcf1c59d23fd876b276c6b43aaca12969337303a6",
    "auth": "4d8143b6198dc7a530c2ccdd813129c132b96736086c0d4fea85480b9bdbc5fe",
    "aws-core": "eb560c064fbaac7e2e7f4a77ac343d3083bea0d7f6e2c69ba022d3f3e859be90",
    "aws-json-protocol": "0b174a591bac933b72b701c2fc73f73ba5dde790bf7d61ce922d4ba098f62072",
    "aws-query-protocol": "1b117672963ee5059c45f2aadb110f191b578d108d8f08d7c7a59e6c0b098a8e",
    "aws-xml-protocol": "daf87b429373ad586d165003b5b1d4fe498c6472eb65ec9a9e2aa7d56f3917dd",
    "checksums": "bca99ff25c9b917d6be03e5dce78ad5328e7dca485e96024fa8476e4192a800a",
    "checksums-spi": "21193b9b648843dcaff493f0dd80abab9ee6871b203b9218120554698d8f7b8a",
    "crt-core": "4e1f33de21b688695fec91b977ddfa99e9d376edcbad06a62b0c138c60b37de4",
    "endpoints-spi": "e54f246c668d70b55cffe0c8fad18d4465e74e22db75139918bd30610093d1e6",
    "http-auth": "d8aa3bd376aaec7196396e65fe8755f1fdd169e51357f8128ecdc7d23a687450",
    "http-auth-aws": "7ae124e81ac0c2860bb61fdde34a388dbe823fef8509dd46a6bec805ada90308",
    "http-auth-aws-eventstream": "565a4aacce955c5ffaed551f6faaaa958e9e92b2f8514c8482f664edb2bab576",
    "http-auth-spi": "7a2168c5a7baa856d7ae9f9c4f7522d2db9f1361108c38f5b6ece66f249e6a2d",
    "http-client-spi": "8ea61ce3b527779fbfe119e0775c4b7cfdf274a979b1e50596a634685a5b6542",
    "identity-spi": "85104635abf9e5c044aaf7f8951b63efc2ef82051b5ee303571ee2e1fd8b46d0",
    "json-utils": "2652cdb3668311bcff6e643c8612b9fea266423ae1ce33743c84dd7f77904311",
    "metrics-spi": "1db2e3da338148ee40a716e1733c9a5b99e9e6daa4db3aa8bd7e718adafa2510",
    "netty-nio-client": "07238668c9cf54531ee269fd6e2a1e2650fb75d6774d401f406c2a14f26af654",
    "profiles": "fef84619d101838ba45f48d0caddb09a85d9ed8bf869095bd7d2064796856cf7",
    "protocol-core": "7b32e41a3743b422d2edec1670f60b4c1e512fcd5ab7a53fef20742d6b9104d1",
    "regions": "5ee0e26277c679ffa70d83923b0d5f77a53066ecde8610f28be1856947d60eaf",
    "retries": "ca3752ba31399721980c6398992921ff5aa164e084b4c14484333df58c76a353",
    "retries-spi": "a4218ea742fc9e07a620629d7a258bfd92b8ea3ef75f1b99193d0898ca3efe99",
    "s3": "abaedea7e68063e9c4ab090f80d14b9884c57b50953bfe6e5acaa23025609efa",
    "s3-transfer-manager": "0c9e654637247187a7e2494eb7a8799477a772a7d554cd3ae787cd3e3bae3c55",
    "sdk-core": "ea8e9856569f85075a8a806d0481c4bd848c98b24fd6d706fc0b5883fc4604dc",
    "sts": "6495d0457f4e4c3724d8c9c5fe4f6f98c9530a22f92449c4cca5fd03622e4edb",
    "third-party-jackson-core": "eaece3eb60beb8ec09d8a4f48d5bff4110010b03cc23688bdcf2af2eb075cac6",
    "utils": "f150a38f2fec14ced2de6459bfe804f647c88baa573b218646ef89b436a29d42",
}

# For what lies on S3.
S3_JARS: tuple[Jar, ...] = (
    Jar(
        "org.apache.hadoop",
        "hadoop-aws",
        _HADOOP,
        "d2d24e6b715b5656b9d238bf13b6682a07e2004dd36aad74a73aeb854319f4d9",
    ),
    *(Jar("software.amazon.awssdk", module, _AWS_SDK, sha256) for module, sha256 in _AWS_SDK_MODULES.items()),
    Jar(
        "software.amazon.eventstream",
        "eventstream",
        "1.0.1",
        "0c37d8e696117f02c302191b8110b0d0eb20fa412fce34c3a269ec73c16ce822",
    ),
    Jar(
        "org.reactivestreams",
        "reactive-streams",
        "1.0.4",
        "f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28",
    ),
)

# For what lies in Google Cloud Storage: Google's connector of this version is made for this Hadoop, and brings along all it
# needs, under names of its own.
GCS_JARS: tuple[Jar, ...] = (
    Jar(
        "com.google.cloud.bigdataoss",
        "gcs-connector",
        "4.0.4",
        "dfb5832738686436e597026a8e4bab01aa22e75ebfb15d37d096981f6599d73c",
        "shaded",
    ),
)

# For what lies in Azure: all else that the client of abfs:// uses is Spark's.
AZURE_JARS: tuple[Jar, ...] = (
    Jar(
        "org.apache.hadoop",
        "hadoop-azure",
        _HADOOP,
        "f02ab756037abaecc45ea1869144ad3a69e25ccd84062bc37805837ca254e21c",
    ),
)

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
_IVY_DEPENDENCY = (
    '<dependency org="{organisation}" name="{module}" rev="{revision}" conf="default->default" transitive="false">'
    "{artifact}</dependency>"
)
_IVY_CLASSIFIED = '<artifact name="{module}" type="jar" ext="jar" m:classifier="{classifier}"/>'


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
    fields = jar._asdict()
    return _IVY_DEPENDENCY.format(**fields, artifact=_IVY_CLASSIFIED.format(**fields) if jar.classifier else "")


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
