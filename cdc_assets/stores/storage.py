"""How places are reached, told to each of those who read and write there.

Spark reaches one through Hadoop's file systems, deltalake and pyarrow without a JVM. What the feeds file says under
`storage:` is turned here, and in the module of the object store that has the place, into what each of them wants to be told.
"""

from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from hdfs_native.fsspec import HdfsFileSystem
from pyarrow.fs import (
    AzureFileSystem,
    FileSystem,
    FSSpecHandler,
    GcsFileSystem,
    LocalFileSystem,
    PyFileSystem,
    S3FileSystem,
)

from cdc_assets.config import FeedsFile, Storage
from cdc_assets.config.locations import HDFS, scheme_of
from cdc_assets.stores import OBJECT_STORES, ObjectStore, store_of

# Scheme -> this package's own class that writes Delta's commits there.
LOG_STORES = {
    "file": "cdc_assets.LinkingLogStore",
    **{scheme: f"cdc_assets.{store.log_store}" for store in OBJECT_STORES for scheme in store.schemes},
}


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
        if store := store_of(place):
            return store.files(place, self._told(store))
        if scheme == HDFS:
            server, _, path = place.partition("://")[2].partition("/")
            return _hdfs(server), f"/{path}"
        found: tuple[FileSystem, str] = FileSystem.from_uri(place)
        return found

    def log_options(self, place: str) -> dict[str, str]:
        """What deltalake wants to be told of a place, as its `storage_options`."""
        store = store_of(place)
        return store.log_options(place, self._told(store)) if store else {}

    # --- for Spark

    def spark_settings(self) -> dict[str, str]:
        """Spark's settings for these places; may hold secrets."""
        stores = {f"spark.delta.logStore.{scheme}.impl": name for scheme, name in LOG_STORES.items()}
        hadoop = {k: v for store in self._stores for k, v in store.hadoop_settings(self._told(store)).items()}
        hadoop |= {key: value.get_secret_value() for key, value in self.settings.options.items()}
        return stores | {f"spark.hadoop.{key}": value for key, value in hadoop.items()}

    def jars(self) -> list[Path]:
        """The jars that Spark needs for these places beside those that it always needs, fetched if they are missing.

        Raises:
            RuntimeError: one could not be fetched, or is not the one that is pinned.
        """
        return list(dict.fromkeys(jar for store in self._stores for jar in store.jars()))

    @cached_property
    def _stores(self) -> list[ObjectStore]:
        """The object stores that have these places."""
        return [each for each in OBJECT_STORES if any(store_of(place) is each for place in self.places)]

    def _told(self, store: ObjectStore) -> Storage:
        """The settings as they are for one store: the endpoint is that of the first of those that have places."""
        if store is next(iter(self._stores), store):
            return self.settings
        return self.settings.model_copy(update={"endpoint": None})


LOCAL = Store()


def make_folder(files: FileSystem, path: str) -> None:
    """Make a folder in which files are to be written; object stores have none, and need none."""
    if not isinstance(files, S3FileSystem | GcsFileSystem | AzureFileSystem):
        files.create_dir(path)


class _Hdfs(HdfsFileSystem):
    """hdfs-native's files, which tell when they were written under the name, and in seconds, as pyarrow asks for it."""

    def info(self, path: str, **more: object) -> dict[str, Any]:
        return _timed(super().info(path, **more))

    def ls(self, path: str, detail: bool = True, **more: object) -> list[str | dict[str, Any]]:  # noqa: FBT001, FBT002 -- as fsspec has it
        found = super().ls(path, detail, **more)
        return [each if isinstance(each, str) else _timed(each) for each in found]


def _timed(info: dict[str, Any]) -> dict[str, Any]:
    return info | {"mtime": info["modification_time"] / 1000}


@cache
def _hdfs(server: str) -> FileSystem:
    host, _, port = server.partition(":")
    return PyFileSystem(FSSpecHandler(_Hdfs(host or None, int(port) if port else None)))
