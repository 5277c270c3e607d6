"""Azure's object store, with a hierarchical namespace (Data Lake Storage Gen2) or without.

Credentials are found in the environment in this order: an account's key, `AZURE_STORAGE_ACCOUNT_KEY`; a service principal,
`AZURE_TENANT_ID`, `AZURE_CLIENT_ID` and `AZURE_CLIENT_SECRET`, or in the place of the last the file of a pod's token,
`AZURE_FEDERATED_TOKEN_FILE`; else the managed identity of the machine that this runs on, `AZURE_CLIENT_ID`'s if there are
several.
"""

import contextlib
import os
import re
from functools import cache

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import AzureFileSystem, FileInfo, FileSelector, FileSystem, FileType

from cdc_assets.config import Storage
from cdc_assets.stores.base import ObjectStore, listed, plain
from cdc_assets.stores.jars import AZURE_JARS

_PLACE = re.compile(r"abfss?://(?P<container>[^@/]+)@(?P<account>[^./]+)[^/]*/*(?P<path>.*)")
_OAUTH = "fs.azure.account.oauth2"
_PROVIDERS = "org.apache.hadoop.fs.azurebfs.oauth2"
_LOGIN = "https://login.microsoftonline.com"


class _Azure(ObjectStore):
    schemes = ("abfs", "abfss")
    log_store = "AzureLogStore"
    own_jars = AZURE_JARS
    condition = "Put Blob with If-None-Match: *"

    def files(self, place: str, settings: Storage) -> tuple[FileSystem, str]:
        container, account, path = _parts(place)
        return _files(account, settings.endpoint), "/".join(filter(None, [container, path]))

    def log_options(self, place: str, settings: Storage) -> dict[str, str]:
        _, account, _ = _parts(place)
        return _object_store(account, settings.endpoint)

    def hadoop_settings(self, settings: Storage) -> dict[str, str]:
        scheme, _, host = (settings.endpoint or "").partition("://")
        if host and ":" not in host:  # Hadoop takes an endpoint with a port alone
            host += ":80" if scheme == "http" else ":443"
        return {
            # It counts for accounts without a hierarchical namespace alone.
            "fs.azure.fns.account.service.type": "BLOB",
            **_credentials(),
            **({"fs.azure.abfs.endpoint": host} if host else {}),
            **({"fs.azure.always.use.https": "false"} if scheme == "http" else {}),
        }


AZURE = _Azure()


def _parts(place: str) -> tuple[str, str, str]:
    """Container, account, and path in the container."""
    told = _PLACE.match(place)
    assert told, place  # noqa: S101 -- `canonical` lets no other pass
    return told["container"], told["account"], told["path"]


def _credentials() -> dict[str, str]:
    """How Hadoop finds the credentials that the environment has.

    Spark passes its settings to the JVM on the command line, where everyone on the machine reads them: so they name the
    variables that secrets are in, and Hadoop looks those up.
    """
    told = os.environ
    if "AZURE_STORAGE_ACCOUNT_KEY" in told:
        return {
            "fs.azure.account.auth.type": "SharedKey",
            "fs.azure.account.key": "${env.AZURE_STORAGE_ACCOUNT_KEY}",
        }
    tenant, client = told.get("AZURE_TENANT_ID"), told.get("AZURE_CLIENT_ID")
    known = {"fs.azure.account.auth.type": "OAuth", **({f"{_OAUTH}.client.id": client} if client else {})}
    login = told.get("AZURE_AUTHORITY_HOST", _LOGIN).rstrip("/")
    if tenant and client and "AZURE_CLIENT_SECRET" in told:
        return known | {
            "fs.azure.account.oauth.provider.type": f"{_PROVIDERS}.ClientCredsTokenProvider",
            f"{_OAUTH}.client.endpoint": f"{login}/{tenant}/oauth2/token",
            f"{_OAUTH}.client.secret": "${env.AZURE_CLIENT_SECRET}",
        }
    if tenant and client and "AZURE_FEDERATED_TOKEN_FILE" in told:
        return known | {
            "fs.azure.account.oauth.provider.type": f"{_PROVIDERS}.WorkloadIdentityTokenProvider",
            f"{_OAUTH}.msi.tenant": tenant,
            f"{_OAUTH}.msi.authority": f"{login}/",
            f"{_OAUTH}.token.file": told["AZURE_FEDERATED_TOKEN_FILE"],
        }
    return known | {"fs.azure.account.oauth.provider.type": f"{_PROVIDERS}.MsiTokenProvider"}


class _Files(AzureFileSystem):  # type: ignore[misc]
    """pyarrow's, but for what that one can only in accounts with a hierarchical namespace.

    Elsewhere it moves no file, and takes for a file what stands for a folder, as Hadoop's client makes it.
    """

    account: str
    endpoint: str | None

    def get_file_info(self, paths_or_selector: str | list[str] | FileSelector) -> FileInfo | list[FileInfo]:
        if not isinstance(paths_or_selector, FileSelector):
            found = super().get_file_info(paths_or_selector)
            return [self._true(i) for i in found] if isinstance(found, list) else self._true(found)
        if paths_or_selector.recursive:
            return super().get_file_info(paths_or_selector)
        container = paths_or_selector.base_dir.partition("/")[0]
        return listed(paths_or_selector, self._place(container), _object_store(self.account, self.endpoint))

    def move(self, src: str, dest: str) -> None:
        container, _, path = src.partition("/")
        self._other(container).move(path, dest.removeprefix(f"{container}/"))

    def delete_dir(self, path: str) -> None:
        super().delete_dir(path)
        container, _, folder = path.partition("/")
        with contextlib.suppress(FileNotFoundError):
            self._other(container).delete_file(folder)  # what stands for it

    def _true(self, info: FileInfo) -> FileInfo:
        if info.type == FileType.File and not info.size:
            folder = super().get_file_info(f"{info.path}/")
            if folder.type == FileType.Directory:
                return FileInfo(info.path, FileType.Directory)
        return info

    def _other(self, container: str) -> DeltaStorageHandler:
        """deltalake's, to whom paths begin below the container."""
        return DeltaStorageHandler(self._place(container), _object_store(self.account, self.endpoint))

    def _place(self, container: str) -> str:
        return f"abfss://{container}@{self.account}.dfs.core.windows.net"


@cache
def _files(account: str, endpoint: str | None) -> AzureFileSystem:
    scheme, _, host = (endpoint or "").partition("://")
    there: dict[str, str] = {}
    for service in ("blob", "dfs") if host else ():
        there |= {f"{service}_storage_authority": host, f"{service}_storage_scheme": scheme}
    key, client = os.environ.get("AZURE_STORAGE_ACCOUNT_KEY"), os.environ.get("AZURE_CLIENT_ID")
    # A service principal, and a pod's token, Azure's own library finds.
    if client and not key and not {"AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"} & os.environ.keys():
        there["client_id"] = client
    files = _Files(account, account_key=key, **there)
    files.account, files.endpoint = account, endpoint
    return files


def _object_store(account: str, endpoint: str | None) -> dict[str, str]:
    return plain(endpoint) | ({"azure_endpoint": f"{endpoint}/{account}"} if endpoint else {})
