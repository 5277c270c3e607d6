"""What an object store is to the rest of the package."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, PyFileSystem

from cdc_assets.config import Storage
from cdc_assets.stores.jars import Jar, store_jars


class ObjectStore(ABC):
    """A kind of object store: what Spark (Hadoop), deltalake and pyarrow want to be told of places in it.

    Nobody is told credentials by settings: each takes them from the environment or the platform, by the same names.

    Attributes:
        schemes: of the places' URIs.
        log_store: this package's class that writes Delta's commits there: Delta's own looks whether a commit is there, and
            then writes it, whoever wrote it meanwhile, or cannot tell its own commit from another's.
        own_jars: what Spark needs beside it.
        condition: the condition by which a file is written only if it is absent, as it is told to people.
    """

    schemes: tuple[str, ...]
    log_store: str
    own_jars: Sequence[Jar]
    condition: str

    @abstractmethod
    def files(self, place: str, settings: Storage) -> tuple[FileSystem, str]:
        """The file system that has a place, as pyarrow reaches it, and the place's path there."""

    @abstractmethod
    def log_options(self, place: str, settings: Storage) -> dict[str, str]:
        """What deltalake wants to be told of a place, as its `storage_options`."""

    @abstractmethod
    def hadoop_settings(self, settings: Storage) -> dict[str, str]:
        """What Hadoop's file system wants to be told."""

    def jars(self) -> list[Path]:
        """The jars that Spark needs, fetched if they are missing.

        Raises:
            RuntimeError: one could not be fetched, or is not the one that is pinned.
        """
        return store_jars(self.own_jars)


def listed(selector: FileSelector, bucket: str, options: dict[str, str]) -> list[FileInfo]:
    """What is in a folder, as deltalake's object_store lists it, which asks the store for the folders in it.

    Args:
        selector: the folder; its path begins with the bucket, as pyarrow has it.
        bucket: its URI.
        options: for deltalake.

    Raises:
        FileNotFoundError: there is none, and that is not allowed.
    """
    name, _, folder = selector.base_dir.partition("/")
    found = PyFileSystem(DeltaStorageHandler(bucket, options)).get_file_info(FileSelector(folder, allow_not_found=True))
    if not found and not selector.allow_not_found:
        raise FileNotFoundError(selector.base_dir)
    # What stands for a folder is not a file in it, or beside it.
    folders = {folder.rstrip("/"), *(i.path for i in found if i.type == FileType.Directory)}
    kept = [i for i in found if i.type == FileType.Directory or i.path not in folders]
    return [FileInfo(f"{name}/{i.path}", i.type, mtime_ns=i.mtime_ns, size=i.size) for i in kept]


def plain(endpoint: str | None) -> dict[str, str]:
    """What object_store, by which deltalake reaches all stores, wants to be told of an endpoint without TLS."""
    return {"allow_http": "true"} if endpoint and endpoint.startswith("http:") else {}
