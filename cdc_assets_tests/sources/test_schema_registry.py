"""The answers of the recorded registry, and of servers that are not registries."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from cdc_assets.config import SchemaRegistry
from cdc_assets.lakehouse.registry_schemas import IdKind, SchemaId
from cdc_assets.sources.schema_registry import RegistryError, default_id_kind, fetch_schema
from cdc_assets_tests.registry import CONFLUENT, NATIVE, Registry, recorded_answers, running_registry

_OLD = "http://registry.example"


def settings(url: str, **options: str) -> SchemaRegistry:
    return SchemaRegistry.model_validate({"url": url, "options": options})


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry(recorded_answers()) as running:
        yield running


@pytest.mark.parametrize(
    ("api", "kind", "path"),
    [
        (CONFLUENT, IdKind.SCHEMA, "/schemas/ids/1"),
        (NATIVE, IdKind.GLOBAL, "/ids/globalIds/1"),
        (NATIVE, IdKind.CONTENT, "/ids/contentIds/1"),
    ],
)
def test_each_api_gives_the_schema_of_an_id(registry: Registry, api: str, kind: IdKind, path: str) -> None:
    schema = fetch_schema(settings(registry.url + api), SchemaId(kind, 1))
    assert schema == registry.answers[f"{NATIVE}/ids/globalIds/1"]
    assert registry.paths == [api + path]
    assert fetch_schema(settings(registry.url + api), SchemaId(kind, 900)) is None


def test_an_id_of_the_other_api_is_unknown(registry: Registry) -> None:
    assert fetch_schema(settings(registry.url + CONFLUENT), SchemaId(IdKind.GLOBAL, 1)) is None
    assert fetch_schema(settings(registry.url + NATIVE), SchemaId(IdKind.SCHEMA, 1)) is None
    assert not registry.paths


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_an_error_is_no_answer(registry: Registry, status: int) -> None:
    registry.status = status
    with pytest.raises(RegistryError, match=str(status)):
        fetch_schema(settings(registry.url + CONFLUENT), SchemaId(IdKind.SCHEMA, 1))


def test_a_404_of_another_server_is_no_answer(registry: Registry) -> None:
    """Otherwise a wrong URL would bring every record into quarantine."""
    with pytest.raises(RegistryError, match="404"):
        fetch_schema(settings(registry.url), SchemaId(IdKind.SCHEMA, 1))


def test_a_page_without_a_schema_is_no_answer(registry: Registry) -> None:
    registry.answers["/schemas/ids/1"] = "<html>Welcome</html>"
    with pytest.raises(RegistryError, match="has no schema"):
        fetch_schema(settings(registry.url), SchemaId(IdKind.SCHEMA, 1))


def test_a_registry_that_does_not_run_is_an_error() -> None:
    with running_registry({}) as stopped:
        url = stopped.url
    with pytest.raises(RegistryError, match=r"refused.*nothing is lost"):
        fetch_schema(settings(url), SchemaId(IdKind.SCHEMA, 1))


@pytest.mark.parametrize(
    ("options", "header"),
    [
        ({"basic.auth.user.info": "me:secret"}, f"Basic {base64.b64encode(b'me:secret').decode()}"),
        ({"bearer.auth.token": "secret"}, "Bearer secret"),
    ],
)
def test_credentials_are_sent_and_not_shown(registry: Registry, options: dict[str, Any], header: str) -> None:
    registry.status = 500
    with pytest.raises(RegistryError) as failed:
        fetch_schema(settings(registry.url, **options), SchemaId(IdKind.SCHEMA, 1))
    assert registry.asked[0][1]["Authorization"] == header
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize(
    ("url", "options", "kind"),
    [
        (_OLD, {}, IdKind.SCHEMA),
        (f"{_OLD}/apis/ccompat/v7", {}, IdKind.SCHEMA),
        (f"{_OLD}/apis/registry/v2", {}, IdKind.GLOBAL),
        (f"{_OLD}/apis/registry/v3", {}, IdKind.CONTENT),
        (f"{_OLD}/apis/registry/v2", {"apicurio.registry.use-id": "contentId"}, IdKind.CONTENT),
        (f"{_OLD}/apis/registry/v3", {"apicurio.registry.use-id": "globalId"}, IdKind.GLOBAL),
    ],
)
def test_ids_without_a_kind_have_the_default_kind(url: str, options: dict[str, str], kind: IdKind) -> None:
    assert default_id_kind(settings(url, **options)) is kind
