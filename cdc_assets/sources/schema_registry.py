"""A schema registry: fetches the schema of an id, by Confluent's HTTP API or Apicurio's own."""

import base64
import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus

from cdc_assets.config import SchemaRegistry
from cdc_assets.config.values import USE_ID
from cdc_assets.lakehouse.registry_schemas import IdKind, SchemaId

_TIMEOUT = 30  # seconds
_APICURIO = re.compile(r"/apis/registry/v(\d+)$")


class RegistryError(RuntimeError):
    """The registry does not answer, or not as a registry does. The run fails, and the next run asks again."""


def default_id_kind(settings: SchemaRegistry) -> IdKind:
    """Return the kind of the ids for which a record states no kind."""
    version = _APICURIO.search(settings.url)
    if version is None:
        return IdKind.SCHEMA
    if given := settings.options.get(USE_ID):
        return IdKind(given.get_secret_value())
    # The defaults of Apicurio's converters.
    return IdKind.GLOBAL if version[1] == "2" else IdKind.CONTENT


def fetch_schema(settings: SchemaRegistry, schema_id: SchemaId) -> str | None:
    """Return the text of a schema; None if the registry has no schema of this id.

    Raises:
        RegistryError: the registry does not answer, or its answer does not say whether it has the schema.
    """
    is_apicurio = bool(_APICURIO.search(settings.url))
    if is_apicurio != (schema_id.kind is not IdKind.SCHEMA):
        return None  # each API has only its own kinds of ids
    path = f"/ids/{schema_id.kind}s/{schema_id.number}" if is_apicurio else f"/schemas/ids/{schema_id.number}"
    text = _get(settings, path)
    if text is None or is_apicurio:
        return text
    answer = _object(text)
    if not isinstance(answer.get("schema"), str):
        raise RegistryError(f"{settings.url}{path}: the answer has no schema: is this the URL of a schema registry?")
    return str(answer["schema"])


def _get(settings: SchemaRegistry, path: str) -> str | None:
    url, options = settings.url + path, {key: each.get_secret_value() for key, each in settings.options.items()}
    request = urllib.request.Request(url, headers=_headers(options))  # noqa: S310 -- the settings allow http and https only
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT, context=_context(options)) as response:  # noqa: S310
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        # Only a registry's 404 has one of these fields: a proxy, or a server under a wrong path, answers 404 without them.
        if error.code == HTTPStatus.NOT_FOUND and _object(error.read().decode(errors="replace")).keys() & {
            "error_code",
            "status",
        }:
            return None
        problem = f"{error.code} {error.reason}"
    except (OSError, ValueError, http.client.HTTPException) as error:  # URLError is an OSError
        problem = f"{type(error).__name__}: {error}"
    raise RegistryError(
        f"{url}: the schema registry gave no schema ({problem}). Nothing was decoded, and nothing is lost: the next run "
        "asks again. Check that the registry runs, and compare schema_registry in the feeds file."
    )


def _headers(options: Mapping[str, str]) -> dict[str, str]:
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json, */*"}
    if user := options.get("basic.auth.user.info"):
        headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    if token := options.get("bearer.auth.token"):
        headers["Authorization"] = f"Bearer {token}"
    return headers


def _context(options: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("ssl.ca.location"))
    if certificate := options.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, options.get("ssl.key.location"))
    return context


def _object(text: str) -> dict[str, object]:
    """Return the JSON object of a text; an empty one if the text is not a JSON object."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
