"""Google Cloud Storage.

Credentials are Google's application default credentials: the file that `GOOGLE_APPLICATION_CREDENTIALS` names, else those
that `gcloud` has left, else the service account of the machine or pod that this runs on.
"""

import contextlib
from functools import cache

from pyarrow.fs import FileInfo, FileSelector, FileSystem, GcsFileSystem

from cdc_assets.config import Storage
from cdc_assets.stores.base import ObjectStore, listed, plain
from cdc_assets.stores.jars import GCS_JARS


class _Gcs(ObjectStore):
    schemes = ("gs",)
    log_store = "GcsLogStore"
    own_jars = GCS_JARS
    condition = "an upload with ifGenerationMatch=0"

    def files(self, place: str, settings: Storage) -> tuple[FileSystem, str]:
        return _files(settings.endpoint), place.partition("://")[2]

    def log_options(self, place: str, settings: Storage) -> dict[str, str]:  # noqa: ARG002 -- of any place
        return _object_store(settings.endpoint)

    def hadoop_settings(self, settings: Storage) -> dict[str, str]:
        return {
            "fs.gs.auth.type": "APPLICATION_DEFAULT",
            # Nobody here needs folders without files.
            "fs.gs.implicit.dir.repair.enable": "false",
            **({"fs.gs.storage.root.url": f"{settings.endpoint}/"} if settings.endpoint else {}),
        }


GCS = _Gcs()


class _Files(GcsFileSystem):  # type: ignore[misc]
    """pyarrow's, but for folders, which that one finds only where they are objects of their own: nobody makes those here."""

    endpoint: str | None = None

    def get_file_info(self, paths_or_selector: str | list[str] | FileSelector) -> FileInfo | list[FileInfo]:
        if not isinstance(paths_or_selector, FileSelector) or paths_or_selector.recursive:
            return super().get_file_info(paths_or_selector)
        bucket = paths_or_selector.base_dir.partition("/")[0]
        return listed(paths_or_selector, f"gs://{bucket}", _object_store(self.endpoint))

    def delete_dir(self, path: str) -> None:
        # When all that is in it is gone, an object that stands for the folder is not there to be deleted.
        with contextlib.suppress(FileNotFoundError):
            super().delete_dir(path)


@cache
def _files(endpoint: str | None) -> GcsFileSystem:
    scheme, _, host = (endpoint or "https://").partition("://")
    files = _Files(endpoint_override=host or None, scheme=scheme)
    files.endpoint = endpoint
    return files


def _object_store(endpoint: str | None) -> dict[str, str]:
    return plain(endpoint) | ({"google_base_url": endpoint} if endpoint else {})
