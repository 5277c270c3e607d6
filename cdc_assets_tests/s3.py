"""An S3 server of the tests' own: moto's, over HTTP, with a note of what was asked, and faults on demand."""

import os
import re
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cdc_assets.feeds import Storage

ACCESS_KEY, SECRET_KEY = "AKIDOFTHETESTS", "sk-9dQ2mVx7TzLw4"
_COMMIT = re.compile(r"/_delta_log/\d{20}\.json$")

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True)
class Request:
    """What a client asked for, and how it ended."""

    method: str
    path: str  # with the bucket
    agent: str  # the client
    condition: str | None  # If-None-Match
    status: int

    @property
    def commits(self) -> bool:
        """Whether it was to write a commit of a Delta table."""
        return self.method == "PUT" and bool(_COMMIT.search(self.path))


class S3Server:
    """It has a port of its own from the beginning, and answers once it is started; `bucket` is there then.

    Attributes:
        requests: those that were answered.
        unconditional: whether conditions are passed over, as by stores that do not know them.
        before: called with method and path before a request is looked at.
        lose: the number of commits that are carried out, and answered with an error.
    """

    bucket = "lakehouse"

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.settings = Storage(endpoint=self.endpoint, path_style=True)
        self.requests: list[Request] = []
        self.calm()
        # Before the JVM is started, which gets them from here.
        os.environ |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}

    def calm(self) -> None:
        """No faults any more."""
        self.unconditional, self.lose = False, 0
        self.before: Callable[[str, str], None] = lambda _method, _path: None

    def start(self) -> None:
        # Here, as they take seconds to load, and few test processes need them.
        import boto3  # noqa: PLC0415
        from moto.server import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415
        from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: PLC0415

        class Handler(WSGIRequestHandler):
            protocol_version = "HTTP/1.1"

            def log(self, *_: Any) -> None:
                pass

        self._socket.listen()
        host, port = self._socket.getsockname()
        answering = self._answering(DomainDispatcherApplication(create_backend_app))
        self._server = make_server(
            host, port, answering, threaded=True, request_handler=Handler, fd=self._socket.fileno()
        )
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1").create_bucket(Bucket=self.bucket)

    def stop(self) -> None:
        self._server.shutdown()
        self._socket.close()

    def _answering(self, moto: Any) -> Application:
        def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            agent, condition = environ.get("HTTP_USER_AGENT", ""), environ.get("HTTP_IF_NONE_MATCH")
            self.before(method, path)
            if self.unconditional:
                environ.pop("HTTP_IF_NONE_MATCH", None)
            status = 0

            def started(text: str, headers: Any, *more: Any) -> Any:
                nonlocal status
                status = int(text.split(maxsplit=1)[0])
                return start(text, headers, *more)

            lost = self.lose and Request(method, path, agent, condition, 0).commits
            if lost:
                self.lose -= 1
                status = 503
                list(moto(environ, lambda *_: lambda _: None))
                start("503 Service Unavailable", [("Content-Length", "0")])
                body: Iterable[bytes] = [b""]
            else:
                body = moto(environ, started)
            self.requests.append(Request(method, path, agent, condition, status))
            return body

        return answer
