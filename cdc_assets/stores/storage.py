"""Access to locations: local folders, HDFS and object stores.

Spark reaches a location through Hadoop's file systems, deltalake and pyarrow reach it without a JVM. This module and the
modules of the object stores translate the section `storage:` of the feeds file into the settings of each of these libraries.
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

# Scheme -> the LogStore class of this package that writes Delta's commits at such locations.
LOG_STORES = {
    "file": "cdc_assets.LinkingLogStore",
    **{scheme: f"cdc_assets.{store.log_store}" for store in OBJECT_STORES for scheme in store.schemes},
}


@dataclass(frozen=True, eq=False)
class Store:
    """Access to the locations of a lakehouse and its sources.

    Attributes:
        settings: the section `storage:` of the feeds file.
        locations: all locations that Spark may read or write; the lakehouse's root is the first.
    """

    settings: Storage = field(default_factory=Storage)
    locations: tuple[str, ...] = ()

    @classmethod
    def of(cls, file: FeedsFile, root: str) -> "Store":
        """Return access to the lakehouse below `root`, and to the sources and dumps of a feeds file."""
        others = [p for f in file.feeds.values() for p in (f.source.recorded, f.claim_check)]
        loads = [f.initial_load for f in file.feeds.values() if f.initial_load is not None]
        others += [p for load in loads for p in (load.path, *(table.path for table in load.tables.values()))]
        return cls(file.storage, (root, *(p for p in others if p)))

    # --- without a JVM

    def files(self, location: str) -> tuple[FileSystem, str]:
        """Return the pyarrow file system of a location, and the location's path in it."""
        scheme = scheme_of(location)
        if not scheme:
            return LocalFileSystem(), location
        if store := store_of(location):
            return store.files(location, self._settings_for(store))
        if scheme == HDFS:
            server, _, path = location.partition("://")[2].partition("/")
            return _hdfs(server), f"/{path}"
        file_system: tuple[FileSystem, str] = FileSystem.from_uri(location)
        return file_system

    def deltalake_options(self, location: str) -> dict[str, str]:
        """Return deltalake's `storage_options` for a location."""
        store = store_of(location)
        return store.deltalake_options(location, self._settings_for(store)) if store else {}

    # --- for Spark

    def spark_settings(self) -> dict[str, str]:
        """Return Spark's settings for these locations; they may hold secrets."""
        stores = {f"spark.delta.logStore.{scheme}.impl": name for scheme, name in LOG_STORES.items()}
        hadoop = {k: v for store in self._stores for k, v in store.hadoop_settings(self._settings_for(store)).items()}
        hadoop |= {key: value.get_secret_value() for key, value in self.settings.options.items()}
        return stores | {f"spark.hadoop.{key}": value for key, value in hadoop.items()}

    def jars(self) -> list[Path]:
        """Return the jars that Spark needs for these locations beside its usual ones; missing jars are fetched.

        Raises:
            RuntimeError: a jar could not be fetched, or has another checksum than the pinned one.
        """
        return list(dict.fromkeys(jar for store in self._stores for jar in store.jars()))

    @cached_property
    def _stores(self) -> list[ObjectStore]:
        """The object stores of these locations."""
        return [each for each in OBJECT_STORES if any(store_of(location) is each for location in self.locations)]

    def _settings_for(self, store: ObjectStore) -> Storage:
        """Return the settings for one store: only the first of the stores that have locations gets the endpoint."""
        if store is next(iter(self._stores), store):
            return self.settings
        return self.settings.model_copy(update={"endpoint": None})


LOCAL = Store()


def has_folders(files: FileSystem) -> bool:
    """Return whether a file system has folders, which must exist before files in them; object stores have none."""
    return not isinstance(files, S3FileSystem | GcsFileSystem | AzureFileSystem)


def make_folder(files: FileSystem, path: str) -> None:
    """Create a folder for new files, unless the file system has none."""
    if has_folders(files):
        files.create_dir(path)


class _Hdfs(HdfsFileSystem):
    """hdfs-native's file system, which gives modification times as pyarrow reads them: as `mtime`, in seconds."""

    def info(self, path: str, **more: object) -> dict[str, Any]:
        return _with_mtime(super().info(path, **more))

    def ls(self, path: str, detail: bool = True, **more: object) -> list[str | dict[str, Any]]:  # noqa: FBT001, FBT002 -- as fsspec has it
        entries = super().ls(path, detail, **more)
        return [each if isinstance(each, str) else _with_mtime(each) for each in entries]


def _with_mtime(info: dict[str, Any]) -> dict[str, Any]:
    return info | {"mtime": info["modification_time"] / 1000}


@cache
def _hdfs(server: str) -> FileSystem:
    host, _, port = server.partition(":")
    return PyFileSystem(FSSpecHandler(_Hdfs(host or None, int(port) if port else None)))
