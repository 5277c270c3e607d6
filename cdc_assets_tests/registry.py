"""A schema registry that answers as the recorded one did (`record_registry`)."""

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
    """Path -> body, of each schema under each API; and API -> body, of an id that it has not."""
    found: dict[str, str] = json.loads(gzip.decompress((SET / "registry.json.gz").read_bytes()))
    return found


@dataclass
class Registry:
    """A running registry: its address, what it is asked, and what it answers."""

    url: str
    answers: dict[str, str]
    status: int | None = None  # of all answers, whatever is asked
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        """The paths that were asked for."""
        return [path for path, _ in self.asked]


@contextmanager
def running_registry(answers: Mapping[str, str]) -> Iterator[Registry]:
    """Serve the bodies of `answers` by path; under other paths that of their API, with 404."""

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
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry = Registry(f"http://127.0.0.1:{server.server_port}", dict(answers))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
