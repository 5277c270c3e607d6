"""Azure Blob Storage, with a hierarchical namespace (Data Lake Storage Gen2) or without.

Credentials come from the environment, in this order:

1. an account key: `AZURE_STORAGE_ACCOUNT_KEY`;
2. a service principal: `AZURE_TENANT_ID`, `AZURE_CLIENT_ID`, and `AZURE_CLIENT_SECRET` or, in a pod, the token file
   `AZURE_FEDERATED_TOKEN_FILE`;
3. the machine's managed identity; `AZURE_CLIENT_ID` selects one of several.
"""

import contextlib
import os
import re
from functools import cache

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import AzureFileSystem, FileInfo, FileSelector, FileSystem, FileType

from cdc_assets.config import Storage
from cdc_assets.stores.base import ObjectStore, http_options, list_folder
from cdc_assets.stores.jars import AZURE_JARS

_LOCATION = re.compile(r"abfss?://(?P<container>[^@/]+)@(?P<account>[^./]+)[^/]*/*(?P<path>.*)")
_OAUTH = "fs.azure.account.oauth2"
_PROVIDERS = "org.apache.hadoop.fs.azurebfs.oauth2"
_LOGIN = "https://login.microsoftonline.com"


class _Azure(ObjectStore):
    schemes = ("abfs", "abfss")
    log_store = "AzureLogStore"
    own_jars = AZURE_JARS
    condition = "Put Blob with If-None-Match: *"

    def files(self, location: str, settings: Storage) -> tuple[FileSystem, str]:
        container, account, path = _split(location)
        return _file_system(account, settings.endpoint), "/".join(filter(None, [container, path]))

    def deltalake_options(self, location: str, settings: Storage) -> dict[str, str]:
        _, account, _ = _split(location)
        return _deltalake_options(account, settings.endpoint)

    def hadoop_settings(self, settings: Storage) -> dict[str, str]:
        scheme, _, host = (settings.endpoint or "").partition("://")
        if host and ":" not in host:  # Hadoop requires a port in the endpoint
            host += ":80" if scheme == "http" else ":443"
        return {
            # Hadoop reads this setting for accounts without a hierarchical namespace only.
            "fs.azure.fns.account.service.type": "BLOB",
            **_credentials(),
            **({"fs.azure.abfs.endpoint": host} if host else {}),
            **({"fs.azure.always.use.https": "false"} if scheme == "http" else {}),
        }


AZURE = _Azure()


def _split(location: str) -> tuple[str, str, str]:
    """Return the container, the account, and the path in the container of a location."""
    match = _LOCATION.match(location)
    assert match, location  # noqa: S101 -- `canonical_location` refuses other forms
    return match["container"], match["account"], match["path"]


def _credentials() -> dict[str, str]:
    """Return Hadoop's settings for the credentials in the environment.

    Spark passes its settings to the JVM on the command line, which every user of the machine can read. So the settings name
    the environment variables that hold secrets, and Hadoop reads these variables.
    """
    environment = os.environ
    if "AZURE_STORAGE_ACCOUNT_KEY" in environment:
        return {
            "fs.azure.account.auth.type": "SharedKey",
            "fs.azure.account.key": "${env.AZURE_STORAGE_ACCOUNT_KEY}",
        }
    tenant, client = environment.get("AZURE_TENANT_ID"), environment.get("AZURE_CLIENT_ID")
    oauth = {"fs.azure.account.auth.type": "OAuth", **({f"{_OAUTH}.client.id": client} if client else {})}
    login = environment.get("AZURE_AUTHORITY_HOST", _LOGIN).rstrip("/")
    if tenant and client and "AZURE_CLIENT_SECRET" in environment:
        return oauth | {
            "fs.azure.account.oauth.provider.type": f"{_PROVIDERS}.ClientCredsTokenProvider",
            f"{_OAUTH}.client.endpoint": f"{login}/{tenant}/oauth2/token",
            f"{_OAUTH}.client.secret": "${env.AZURE_CLIENT_SECRET}",
        }
    if tenant and client and "AZURE_FEDERATED_TOKEN_FILE" in environment:
        return oauth | {
            "fs.azure.account.oauth.provider.type": f"{_PROVIDERS}.WorkloadIdentityTokenProvider",
            f"{_OAUTH}.msi.tenant": tenant,
            f"{_OAUTH}.msi.authority": f"{login}/",
            f"{_OAUTH}.token.file": environment["AZURE_FEDERATED_TOKEN_FILE"],
        }
    return oauth | {"fs.azure.account.oauth.provider.type": f"{_PROVIDERS}.MsiTokenProvider"}


class _AzureFileSystem(AzureFileSystem):  # type: ignore[misc]
    """pyarrow's file system, corrected for accounts without a hierarchical namespace.

    In these accounts, pyarrow's cannot move files, and treats the objects with which Hadoop marks folders as files.
    """

    account: str
    endpoint: str | None

    def get_file_info(self, paths_or_selector: str | list[str] | FileSelector) -> FileInfo | list[FileInfo]:
        if not isinstance(paths_or_selector, FileSelector):
            infos = super().get_file_info(paths_or_selector)
            return [self._corrected(i) for i in infos] if isinstance(infos, list) else self._corrected(infos)
        if paths_or_selector.recursive:
            return super().get_file_info(paths_or_selector)
        container = paths_or_selector.base_dir.partition("/")[0]
        return list_folder(paths_or_selector, self._uri(container), _deltalake_options(self.account, self.endpoint))

    def move(self, src: str, dest: str) -> None:
        container, _, path = src.partition("/")
        self._deltalake_files(container).move(path, dest.removeprefix(f"{container}/"))

    def delete_dir(self, path: str) -> None:
        super().delete_dir(path)
        container, _, folder = path.partition("/")
        with contextlib.suppress(FileNotFoundError):
            self._deltalake_files(container).delete_file(folder)  # the object that marks the folder

    def _corrected(self, info: FileInfo) -> FileInfo:
        """Return a folder's info in place of that of the empty object that marks the folder."""
        if info.type == FileType.File and not info.size:
            folder = super().get_file_info(f"{info.path}/")
            if folder.type == FileType.Directory:
                return FileInfo(info.path, FileType.Directory)
        return info

    def _deltalake_files(self, container: str) -> DeltaStorageHandler:
        """Return deltalake's file system of a container; its paths begin below the container."""
        return DeltaStorageHandler(self._uri(container), _deltalake_options(self.account, self.endpoint))

    def _uri(self, container: str) -> str:
        return f"abfss://{container}@{self.account}.dfs.core.windows.net"


@cache
def _file_system(account: str, endpoint: str | None) -> AzureFileSystem:
    scheme, _, host = (endpoint or "").partition("://")
    options: dict[str, str] = {}
    for service in ("blob", "dfs") if host else ():
        options |= {f"{service}_storage_authority": host, f"{service}_storage_scheme": scheme}
    key, client = os.environ.get("AZURE_STORAGE_ACCOUNT_KEY"), os.environ.get("AZURE_CLIENT_ID")
    # Azure's library finds a service principal and a pod's token itself.
    if client and not key and not {"AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"} & os.environ.keys():
        options["client_id"] = client
    files = _AzureFileSystem(account, account_key=key, **options)
    files.account, files.endpoint = account, endpoint
    return files


def _deltalake_options(account: str, endpoint: str | None) -> dict[str, str]:
    return http_options(endpoint) | ({"azure_endpoint": f"{endpoint}/{account}"} if endpoint else {})
