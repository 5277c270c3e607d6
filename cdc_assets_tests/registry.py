"""A schema registry with the answers of the recorded registry (`record_registry`)."""

import gzip
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cdc_assets_tests.support import RECORDED

SET = RECORDED / "mysql/dbz350m-registry"
CONFLUENT, NATIVE = "/apis/ccompat/v7", "/apis/registry/v2"


def recorded_answers() -> dict[str, str]:
    """Return path -> body of each schema under each API, and API -> body for an id without a schema."""
    answers: dict[str, str] = json.loads(gzip.decompress((SET / "registry.json.gz").read_bytes()))
    return answers


@dataclass
class Registry:
    """A running registry: its address, the requests that it got, and its answers."""

    url: str
    answers: dict[str, str]
    status: int | None = None  # of all answers, if it is set
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        """The paths of the requests."""
        return [path for path, _ in self.asked]


@contextmanager
def running_registry(answers: Mapping[str, str]) -> Iterator[Registry]:
    """Serve the bodies of `answers` by path; for other paths the body of their API, with 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append((self.path, dict(self.headers)))
            body = registry.answers.get(self.path)
            missing = next(
                (registry.answers[api] for api in (CONFLUENT, NATIVE) if self.path.startswith(api)), "no page"
            )
            self.send_response(registry.status or (404 if body is None else 200))
            self.end_headers()
            self.wfile.write((missing if body is None else body).encode())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry = Registry(f"http://127.0.0.1:{server.server_port}", dict(answers))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
