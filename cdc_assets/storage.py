"""How places are reached, told to each of those who read and write there.

Spark reaches one through Hadoop's file systems, deltalake and pyarrow without a JVM. What the feeds file says under
`storage:` is turned here, and nowhere else, into what each of them wants to be told. Nobody is told credentials: each takes
them from the environment or the platform.
"""

import os
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hdfs_native.fsspec import HdfsFileSystem
from pyarrow.fs import FileSystem, FSSpecHandler, LocalFileSystem, PyFileSystem, S3FileSystem

from cdc_assets.feeds import FeedsFile, Storage
from cdc_assets.jvm import s3_jars
from cdc_assets.places import HDFS, S3, scheme_of

# Scheme -> this package's own class that writes Delta's commits there. Delta's own looks whether the commit is there, and
# then writes it, whoever wrote it meanwhile.
LOG_STORES = {S3: "cdc_assets.ConditionalLogStore", "file": "cdc_assets.LinkingLogStore"}

# With credentials that the driver found in its environment, Spark configures the executors, too; else each process asks.
_CREDENTIALS = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
)


@dataclass(frozen=True, eq=False)
class Store:
    """How places are reached.

    Attributes:
        settings: the feeds file's.
        places: all places that Spark may be asked for; the lakehouse's root first.
    """

    settings: Storage = field(default_factory=Storage)
    places: tuple[str, ...] = ()

    @classmethod
    def of(cls, file: FeedsFile, root: str) -> "Store":
        """The store of a feeds file, and of the lakehouse below `root`."""
        others = [p for f in file.feeds.values() for p in (f.source.recorded, f.claim_check)]
        loads = [f.initial_load for f in file.feeds.values() if f.initial_load is not None]
        others += [p for load in loads for p in (load.path, *(table.path for table in load.tables.values()))]
        return cls(file.storage, (root, *(p for p in others if p)))

    # --- without a JVM

    def files(self, place: str) -> tuple[FileSystem, str]:
        """The file system that has a place, as pyarrow reaches it, and the place's path there."""
        scheme = scheme_of(place)
        if not scheme:
            return LocalFileSystem(), place
        if scheme == S3:
            return _s3(self.settings.endpoint, self._region, self.settings.path_style), place.partition("://")[2]
        if scheme == HDFS:
            server, _, path = place.partition("://")[2].partition("/")
            return _hdfs(server), f"/{path}"
        found: tuple[FileSystem, str] = FileSystem.from_uri(place)
        return found

    def log_options(self, place: str) -> dict[str, str]:
        """What deltalake wants to be told of a place, as its `storage_options`."""
        if scheme_of(place) != S3:
            return {}
        endpoint, region = self.settings.endpoint, self._region
        return {
            # The default; but a commit that is not conditional would overwrite another's.
            "aws_conditional_put": "etag",
            "aws_virtual_hosted_style_request": str(not self.settings.path_style).lower(),
            **(
                {"aws_endpoint_url": endpoint, "aws_allow_http": str(endpoint.startswith("http:")).lower()}
                if endpoint
                else {}
            ),
            **({"aws_region": region} if region else {}),
        }

    @property
    def _region(self) -> str | None:
        given = self.settings.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        # Other stores than Amazon's have none, and their clients want one all the same.
        return given or ("us-east-1" if self.settings.endpoint else None)

    # --- for Spark

    def spark_settings(self) -> dict[str, str]:
        """Spark's settings for these places; may hold secrets."""
        stores = {f"spark.delta.logStore.{scheme}.impl": name for scheme, name in LOG_STORES.items()}
        hadoop = {key: value.get_secret_value() for key, value in self.settings.options.items()}
        if self._has_s3:
            hadoop = {
                "fs.s3a.path.style.access": str(self.settings.path_style).lower(),
                "fs.s3a.aws.credentials.provider": ",".join(_CREDENTIALS),
                **({"fs.s3a.endpoint": self.settings.endpoint} if self.settings.endpoint else {}),
                **({"fs.s3a.endpoint.region": self._region} if self._region else {}),
            } | hadoop
        return stores | {f"spark.hadoop.{key}": value for key, value in hadoop.items()}

    def jars(self) -> list[Path]:
        """The jars that Spark needs for these places beside those that it always needs, fetched if they are missing.

        Raises:
            RuntimeError: one could not be fetched, or is not the one that is pinned.
        """
        return s3_jars() if self._has_s3 else []

    @property
    def _has_s3(self) -> bool:
        return any(scheme_of(place) == S3 for place in self.places)


LOCAL = Store()


def is_shared(root: str) -> bool:
    """Whether a lakehouse lies where only a conditional write keeps two commits apart: S3 has no renaming."""
    return scheme_of(root) == S3


def make_folder(files: FileSystem, path: str) -> None:
    """Make a folder in which files are to be written; S3 has none, and needs none."""
    if not isinstance(files, S3FileSystem):
        files.create_dir(path)


@cache
def _s3(endpoint: str | None, region: str | None, path_style: bool) -> S3FileSystem:  # noqa: FBT001 -- as in the file
    scheme, _, host = (endpoint or "https://").partition("://")
    return S3FileSystem(
        endpoint_override=host or None, scheme=scheme, region=region, force_virtual_addressing=not path_style
    )


@cache
def _hdfs(server: str) -> FileSystem:
    host, _, port = server.partition(":")
    return PyFileSystem(FSSpecHandler(HdfsFileSystem(host or None, int(port) if port else None)))
