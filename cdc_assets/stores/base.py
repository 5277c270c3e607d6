"""The interface of object stores."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, PyFileSystem

from cdc_assets.config import Storage
from cdc_assets.stores.jars import Jar, store_jars


class ObjectStore(ABC):
    """A kind of object store, with the settings that Spark (Hadoop), deltalake and pyarrow need to reach it.

    The settings contain no credentials: each library reads them from the environment or the platform, under the same names.

    Attributes:
        schemes: the schemes of its URIs.
        log_store: the Delta LogStore class of this package that writes commits there. Delta's own log stores check for a
            commit and then write it, which may overwrite a commit written meanwhile, or cannot recognise their own commit.
        own_jars: the jars that Spark needs for it.
        condition: the condition with which a file is written only if it is absent; for messages.
    """

    schemes: tuple[str, ...]
    log_store: str
    own_jars: Sequence[Jar]
    condition: str

    @abstractmethod
    def files(self, location: str, settings: Storage) -> tuple[FileSystem, str]:
        """Return the pyarrow file system of a location, and the location's path in it."""

    @abstractmethod
    def deltalake_options(self, location: str, settings: Storage) -> dict[str, str]:
        """Return deltalake's `storage_options` for a location."""

    @abstractmethod
    def hadoop_settings(self, settings: Storage) -> dict[str, str]:
        """Return the settings of Hadoop's file system for this store."""

    def jars(self) -> list[Path]:
        """Return the jars that Spark needs for this store; missing ones are fetched.

        Raises:
            RuntimeError: a jar could not be fetched, or has another checksum than the pinned one.
        """
        return store_jars(self.own_jars)


def list_folder(selector: FileSelector, bucket: str, options: dict[str, str]) -> list[FileInfo]:
    """Return the files and folders in a folder, listed by deltalake.

    Unlike pyarrow, deltalake finds folders that have files below them but no object of their own.

    Args:
        selector: the folder; its path begins with the bucket's name, as in pyarrow.
        bucket: the bucket's URI.
        options: deltalake's options.

    Raises:
        FileNotFoundError: the folder is empty or missing, and the selector does not allow that.
    """
    name, _, folder = selector.base_dir.partition("/")
    file_system = PyFileSystem(DeltaStorageHandler(bucket, options))
    entries = file_system.get_file_info(FileSelector(folder, allow_not_found=True))
    if not entries and not selector.allow_not_found:
        raise FileNotFoundError(selector.base_dir)
    # Leave out objects that stand for a folder and are listed as files.
    folders = {folder.rstrip("/"), *(i.path for i in entries if i.type == FileType.Directory)}
    kept = [i for i in entries if i.type == FileType.Directory or i.path not in folders]
    return [FileInfo(f"{name}/{i.path}", i.type, mtime_ns=i.mtime_ns, size=i.size) for i in kept]


def http_options(endpoint: str | None) -> dict[str, str]:
    """Return deltalake's options for an endpoint without TLS; nothing for another endpoint."""
    return {"allow_http": "true"} if endpoint and endpoint.startswith("http:") else {}
