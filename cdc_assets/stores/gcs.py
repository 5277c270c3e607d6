"""Google Cloud Storage.

Credentials are Google's application default credentials: the file that `GOOGLE_APPLICATION_CREDENTIALS` names, else the
credentials that `gcloud` has stored, else the service account of the machine or pod.
"""

import contextlib
from functools import cache

from pyarrow.fs import FileInfo, FileSelector, FileSystem, GcsFileSystem

from cdc_assets.config import Storage
from cdc_assets.stores.base import ObjectStore, http_options, list_folder
from cdc_assets.stores.jars import GCS_JARS


class _Gcs(ObjectStore):
    schemes = ("gs",)
    log_store = "GcsLogStore"
    own_jars = GCS_JARS
    condition = "an upload with ifGenerationMatch=0"

    def files(self, location: str, settings: Storage) -> tuple[FileSystem, str]:
        return _file_system(settings.endpoint), location.partition("://")[2]

    def deltalake_options(self, location: str, settings: Storage) -> dict[str, str]:  # noqa: ARG002 -- the same everywhere
        return _deltalake_options(settings.endpoint)

    def hadoop_settings(self, settings: Storage) -> dict[str, str]:
        return {
            "fs.gs.auth.type": "APPLICATION_DEFAULT",
            # Without repair Hadoop creates no objects for folders; nothing here reads them.
            "fs.gs.implicit.dir.repair.enable": "false",
            **({"fs.gs.storage.root.url": f"{settings.endpoint}/"} if settings.endpoint else {}),
        }


GCS = _Gcs()


class _GcsFileSystem(GcsFileSystem):  # type: ignore[misc]
    """pyarrow's file system, corrected for folders: pyarrow's finds a folder only if an object marks it."""

    endpoint: str | None = None

    def get_file_info(self, paths_or_selector: str | list[str] | FileSelector) -> FileInfo | list[FileInfo]:
        if not isinstance(paths_or_selector, FileSelector) or paths_or_selector.recursive:
            return super().get_file_info(paths_or_selector)
        bucket = paths_or_selector.base_dir.partition("/")[0]
        return list_folder(paths_or_selector, f"gs://{bucket}", _deltalake_options(self.endpoint))

    def delete_dir(self, path: str) -> None:
        # pyarrow deletes the files of the folder, and then fails if no object marks the folder.
        with contextlib.suppress(FileNotFoundError):
            super().delete_dir(path)


@cache
def _file_system(endpoint: str | None) -> GcsFileSystem:
    scheme, _, host = (endpoint or "https://").partition("://")
    files = _GcsFileSystem(endpoint_override=host or None, scheme=scheme)
    files.endpoint = endpoint
    return files


def _deltalake_options(endpoint: str | None) -> dict[str, str]:
    return http_options(endpoint) | ({"google_base_url": endpoint} if endpoint else {})
