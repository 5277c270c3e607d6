"""An S3 server of the tests' own: moto's, in a process of its own, with a note of what was asked, and faults on demand.

Of its own, as deltalake lets no other thread of its process run while it waits for some answers.
"""

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import requests

from cdc_assets.feeds import Storage

ACCESS_KEY, SECRET_KEY = "AKIDOFTHETESTS", "sk-9dQ2mVx7TzLw4"
_BUCKET = "lakehouse"
_COMMIT = re.compile(r"/_delta_log/\d{20}\.json$")
# Paths that no bucket has: for the tests.
_ASKED, _FAULTS, _HELD, _GO_ON = "/-/asked", "/-/faults", "/-/held", "/-/go-on"
_SECONDS = 60

Start = Callable[..., Any]


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
    """It has a port of its own from the beginning, and answers once it is started; `bucket` is there then."""

    bucket = _BUCKET

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self.settings = Storage(endpoint=self.endpoint, path_style=True)
        # Before the JVM is started, which gets them from here.
        os.environ |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}

    def start(self) -> None:
        command = [sys.executable, "-m", "cdc_assets_tests.s3", str(self._port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n"

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def requests(self) -> list[Request]:
        """Those that were answered."""
        return [Request(**each) for each in requests.get(self.endpoint + _ASKED, timeout=_SECONDS).json()]

    def faults(self, *, unconditional: bool = False, lose: int = 0, hold: str = "") -> None:
        """Set the faults from now on; without an argument there are none.

        Args:
            unconditional: whether conditions are passed over, as by stores that do not know them.
            lose: the number of commits that are carried out, and answered with an error.
            hold: the end of the path of a PUT that waits, once, until it is told to go on.
        """
        told: Any = {"unconditional": unconditional, "lose": lose, "hold": hold}
        requests.post(self.endpoint + _FAULTS, json=told, timeout=_SECONDS).raise_for_status()

    @property
    def left_to_lose(self) -> int:
        return int(requests.get(self.endpoint + _FAULTS, timeout=_SECONDS).json()["lose"])

    def when_asked(self, end: str, act: Callable[[], object]) -> Callable[[], None]:
        """Do something while a PUT to a path that ends so is on its way. Call what is returned to know that it was done."""
        self.faults(hold=end)
        failed: list[Exception] = []

        def wait() -> None:
            requests.get(self.endpoint + _HELD, timeout=_SECONDS).raise_for_status()
            try:
                act()
            except Exception as error:  # noqa: BLE001 -- told to the test
                failed.append(error)
            requests.post(self.endpoint + _GO_ON, timeout=_SECONDS).raise_for_status()

        waiting = threading.Thread(target=wait)
        waiting.start()

        def done() -> None:
            waiting.join(_SECONDS)
            assert not waiting.is_alive()
            assert not failed, failed

        return done


# --- the server's process


class _Answering:
    """moto's answers, but for faults."""

    def __init__(self, moto: Callable[..., Iterable[bytes]]) -> None:
        self.moto, self.asked = moto, list[Request]()
        self.faults: dict[str, Any] = {"unconditional": False, "lose": 0, "hold": ""}
        self.held, self.go_on = threading.Event(), threading.Event()

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path.startswith("/-/"):
            return self._told(method, path, environ, start)
        agent, condition = environ.get("HTTP_USER_AGENT", ""), environ.get("HTTP_IF_NONE_MATCH")
        if method == "PUT" and self.faults["hold"] and path.endswith(self.faults["hold"]):
            self.faults["hold"] = ""
            self.held.set()
            self.go_on.wait(_SECONDS)
        if self.faults["unconditional"]:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        status = 0

        def started(text: str, headers: Any, *more: Any) -> Any:
            nonlocal status
            status = int(text.split(maxsplit=1)[0])
            return start(text, headers, *more)

        if self.faults["lose"] and Request(method, path, agent, condition, 0).commits:
            self.faults["lose"] -= 1
            status = 503
            list(self.moto(environ, lambda *_: lambda _: None))
            start("503 Service Unavailable", [("Content-Length", "0")])
            body: Iterable[bytes] = [b""]
        else:
            body = self.moto(environ, started)
        self.asked.append(Request(method, path, agent, condition, status))
        return body

    def _told(self, method: str, path: str, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """Answer the tests."""
        answer: Any = None
        if path == _ASKED:
            answer = [asdict(each) for each in self.asked]
        elif path == _FAULTS and method == "POST":
            self.faults = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            self.held.clear()
            self.go_on.clear()
        elif path == _FAULTS:
            answer = self.faults
        elif path == _HELD:
            assert self.held.wait(_SECONDS)
        elif path == _GO_ON:
            self.go_on.set()
        body = json.dumps(answer).encode()
        start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]


def _serve(port: int) -> None:
    import boto3  # noqa: PLC0415 -- which only this process needs
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415
    from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: PLC0415

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, *_: Any) -> None:
            pass

    answering = _Answering(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", port, answering, threaded=True, request_handler=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{port}"
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=_BUCKET)
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
