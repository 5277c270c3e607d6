"""The settings of Spark and deltalake for object stores, and the jars that a location needs.

The names of Hadoop's settings are those of its documentation of ABFS, and of the documentation of Google's connector.
"""

import runpy
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest
from pyspark.sql import SparkSession

from cdc_assets.config import Storage
from cdc_assets.config.locations import LocationError, canonical_location
from cdc_assets.stores import base
from cdc_assets.stores.storage import LOCAL, Store

AZURE = "abfss://lake@account.dfs.core.windows.net/cdc"
SECRET = "s3cr3t-0f-th3-t3sts"
NAMES = ("STORAGE_ACCOUNT_KEY", "TENANT_ID", "CLIENT_ID", "CLIENT_SECRET", "FEDERATED_TOKEN_FILE", "AUTHORITY_HOST")


def hadoop(location: str, **settings: Any) -> dict[str, str]:
    """Return Hadoop's settings for a location, without Delta's log stores."""
    all_settings = Store(Storage.model_validate(settings), (location,)).spark_settings()
    prefix = "spark.hadoop."
    return {key.removeprefix(prefix): value for key, value in all_settings.items() if key.startswith(prefix)}


@pytest.mark.parametrize(
    ("locations", "modules"),
    [
        (("/data/lake",), set()),
        (("hdfs://names/lake",), set()),
        (("gs://lake/cdc",), {"gcs-connector"}),
        ((AZURE,), {"hadoop-azure"}),
        (("/data/lake", "gs://dumps/shop", AZURE), {"gcs-connector", "hadoop-azure"}),
    ],
)
def test_the_jars_of_the_locations_stores_are_fetched(
    locations: tuple[str, ...], modules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "store_jars", lambda jars: [Path(jar.module) for jar in jars])
    assert {jar.name for jar in Store(locations=locations).jars()} == modules


@pytest.mark.parametrize("name", ["s3", "gs", "abfss"])
def test_the_jars_of_a_store_can_be_fetched_by_its_scheme(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For an image: `python -m cdc_assets.stores s3`."""
    fetched: list[str] = []
    monkeypatch.setattr(base, "store_jars", lambda jars: fetched.append(jars[0].module))
    monkeypatch.setattr(sys, "argv", ["jars", name])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_module("cdc_assets.stores", run_name="__main__")
    assert fetched == [{"s3": "hadoop-aws", "gs": "gcs-connector", "abfss": "hadoop-azure"}[name]]


def test_every_scheme_has_a_log_store_that_is_safe_for_many_drivers() -> None:
    settings = LOCAL.spark_settings()
    classes = {
        scheme: settings[f"spark.delta.logStore.{scheme}.impl"] for scheme in ("file", "s3a", "gs", "abfs", "abfss")
    }
    assert classes == {
        "file": "cdc_assets.LinkingLogStore",
        "s3a": "cdc_assets.S3LogStore",
        "gs": "cdc_assets.GcsLogStore",
        "abfs": "cdc_assets.AzureLogStore",
        "abfss": "cdc_assets.AzureLogStore",
    }


TOKEN = b'{"access_token": "the-token", "expires_in": "3600", "token_type": "Bearer"}'
PRINCIPAL = {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c"}
OAUTH, PROVIDERS = "fs.azure.account.oauth2", "org.apache.hadoop.fs.azurebfs.oauth2"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (
            {"AZURE_STORAGE_ACCOUNT_KEY": SECRET} | PRINCIPAL,
            {
                "fs.azure.account.auth.type": "SharedKey",
                "fs.azure.account.key": "${env.AZURE_STORAGE_ACCOUNT_KEY}",
            },
        ),
        (
            {"AZURE_CLIENT_SECRET": SECRET} | PRINCIPAL,
            {
                "fs.azure.account.auth.type": "OAuth",
                "fs.azure.account.oauth.provider.type": f"{PROVIDERS}.ClientCredsTokenProvider",
                f"{OAUTH}.client.endpoint": "https://login.microsoftonline.com/t/oauth2/token",
                f"{OAUTH}.client.id": "c",
                f"{OAUTH}.client.secret": "${env.AZURE_CLIENT_SECRET}",
            },
        ),
        (
            {"AZURE_FEDERATED_TOKEN_FILE": "/run/token", "AZURE_AUTHORITY_HOST": "https://login.example/"} | PRINCIPAL,
            {
                "fs.azure.account.auth.type": "OAuth",
                "fs.azure.account.oauth.provider.type": f"{PROVIDERS}.WorkloadIdentityTokenProvider",
                f"{OAUTH}.msi.tenant": "t",
                f"{OAUTH}.msi.authority": "https://login.example/",
                f"{OAUTH}.client.id": "c",
                f"{OAUTH}.token.file": "/run/token",
            },
        ),
        (
            {},
            {
                "fs.azure.account.auth.type": "OAuth",
                "fs.azure.account.oauth.provider.type": f"{PROVIDERS}.MsiTokenProvider",
            },
        ),
    ],
    ids=["key", "principal", "pod", "machine"],
)
def test_settings_name_the_variables_of_azures_credentials_only(
    environment: dict[str, str], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        monkeypatch.delenv(f"AZURE_{name}", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = hadoop(AZURE)
    assert settings == {"fs.azure.fns.account.service.type": "BLOB"} | expected
    assert SECRET not in str(settings)
    assert Store(locations=(AZURE,)).deltalake_options(AZURE) == {}  # deltalake reads the same variables


@pytest.fixture
def login() -> Iterator[tuple[str, list[tuple[str, dict[str, list[str]]]]]]:
    """A server that issues tokens: its address, and the paths and forms of its requests."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            requests.append((self.path, form))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(TOKEN)))
            self.end_headers()
            self.wfile.write(TOKEN)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()


@pytest.mark.parametrize("way", ["principal", "pod"])
def test_hadoop_requests_a_token_with_the_settings(
    way: str,
    login: tuple[str, list[tuple[str, dict[str, list[str]]]]],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, requests = login
    (tmp_path / "token").write_text("of-the-pod")
    credentials = (
        {"AZURE_CLIENT_SECRET": SECRET} if way == "principal" else {"AZURE_FEDERATED_TOKEN_FILE": f"{tmp_path}/token"}
    )
    for name in NAMES:
        monkeypatch.delenv(f"AZURE_{name}", raising=False)
    for name, value in ({"AZURE_AUTHORITY_HOST": host} | PRINCIPAL | credentials).items():
        monkeypatch.setenv(name, value)
    jvm: Any = spark._jvm
    conf = jvm.org.apache.hadoop.conf.Configuration(False)
    for key, value in hadoop(AZURE).items():
        # The JVM was started before, without this environment variable.
        conf.set(key, value.replace("${env.AZURE_CLIENT_SECRET}", SECRET))
    dfs = jvm.org.apache.hadoop.fs.azurebfs.constants.AbfsServiceType.DFS
    abfs = jvm.org.apache.hadoop.fs.azurebfs.AbfsConfiguration(conf, "account.dfs.core.windows.net", dfs)
    assert abfs.getAuthType("account").toString() == "OAuth"
    jvm.org.apache.hadoop.fs.azurebfs.oauth2.AzureADAuthenticator.init(abfs)
    assert abfs.getTokenProvider().getToken().getAccessToken() == "the-token"
    ((path, form),) = requests
    assert path.startswith("/t/oauth2/")
    assert form["client_id"] == ["c"]
    if way == "principal":
        assert form["client_secret"] == [SECRET]
    else:
        assert form["client_assertion"] == ["of-the-pod"]


def test_the_endpoint_and_the_users_options() -> None:
    options = {"fs.gs.auth.type": "COMPUTE_ENGINE"}
    location, endpoint = "gs://lake/cdc", "http://storage.example:4443"
    settings = hadoop(location, endpoint=endpoint, options=options)
    assert (settings["fs.gs.storage.root.url"], settings["fs.gs.auth.type"]) == (f"{endpoint}/", "COMPUTE_ENGINE")
    store = Store(Storage(endpoint=endpoint), (location,))
    assert store.deltalake_options(location) == {"allow_http": "true", "google_base_url": endpoint}
    settings = hadoop(AZURE, endpoint=endpoint)
    assert (settings["fs.azure.abfs.endpoint"], settings["fs.azure.always.use.https"]) == (
        "storage.example:4443",
        "false",
    )
    assert hadoop(AZURE, endpoint="https://storage.example")["fs.azure.abfs.endpoint"] == "storage.example:443"
    store = Store(Storage(endpoint=endpoint), (AZURE,))
    assert store.deltalake_options(AZURE) == {"allow_http": "true", "azure_endpoint": f"{endpoint}/account"}


def test_only_one_of_two_kinds_of_store_has_the_endpoint() -> None:
    store = Store(Storage(endpoint="https://minio.example"), ("gs://lake/cdc", "s3a://dumps/shop"))
    assert store.deltalake_options("gs://lake/cdc") == {}
    assert store.deltalake_options("s3a://dumps/shop")["aws_endpoint_url"] == "https://minio.example"


@pytest.mark.parametrize(
    "location",
    [
        "abfss://lake",
        "abfss://lake/cdc",
        "abfss://account.dfs.core.windows.net/cdc",
        "abfss://lake@account.blob.core.windows.net/cdc",
        "abfss://lake@account.dfs.core.windows.net.example/cdc",
        "abfs://lake:key@account.dfs.core.windows.net/cdc",
    ],
)
def test_a_location_in_azure_names_container_and_account(location: str) -> None:
    with pytest.raises(LocationError, match=r"allowed is abfss://container@account\.dfs\.core\.windows\.net/folder$"):
        canonical_location(location)
    assert canonical_location(f"{AZURE}/") == AZURE
