"""An S3 server of the tests' own: moto's, in a process of its own, with a note of what was asked, and faults on demand.

Of its own, as deltalake lets no other thread of its process run while it waits for some answers.
"""

import itertools
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
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


@dataclass
class Faults:
    """What goes wrong at the server.

    Attributes:
        unconditional: whether conditions are passed over, as by stores that do not know them.
        lose: the number of commits that are carried out, and answered with an error.
        hold: the end of the path of a PUT that waits, once, until it is told to go on.
        every: of so many requests one fails, in each of `WAYS` by turns; 0: none does.
        hang: the number of requests whose answer does not come, before one fails in another way.
        slow: the seconds that a listing takes.
    """

    unconditional: bool = False
    lose: int = 0
    hold: str = ""
    every: int = 0
    hang: int = 0
    slow: float = 0


# How requests fail: with an answer, and nothing is done; with none, before or after they are carried out.
WAYS = ("503", "500", "cut", "lost")
# Seconds for which no answer comes, more than Hadoop's client waits if it is told to wait as short as it may.
_HANGING = 8
_WAITING = {"fs.s3a.connection.timeout": "5s"}


class S3Server:
    """It has a port of its own from the beginning, and answers once it is started; `bucket` is there then."""

    bucket = _BUCKET

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self.told = {"endpoint": self.endpoint, "path_style": True, "options": _WAITING}
        self.settings = Storage.model_validate(self.told)
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

    def faults(self, **faults: Any) -> None:
        """Set the faults from now on, the fields of `Faults`; without an argument there are none."""
        told = asdict(Faults(**faults))
        requests.post(self.endpoint + _FAULTS, json=told, timeout=_SECONDS).raise_for_status()

    def left(self, fault: str) -> int:
        """Of a fault that is counted, how many are still to come."""
        return int(requests.get(self.endpoint + _FAULTS, timeout=_SECONDS).json()[fault])

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
        self.faults, self.ways = Faults(), itertools.cycle(WAYS)
        self.held, self.go_on = threading.Event(), threading.Event()

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        method, path, faults = environ["REQUEST_METHOD"], environ["PATH_INFO"], self.faults
        if path.startswith("/-/"):
            return self._told(method, path, environ, start)
        asked = Request(method, path, environ.get("HTTP_USER_AGENT", ""), environ.get("HTTP_IF_NONE_MATCH"), status=0)
        if method == "PUT" and faults.hold and path.endswith(faults.hold):
            faults.hold = ""
            self.held.set()
            self.go_on.wait(_SECONDS)
        if faults.unconditional:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if "list-type=2" in environ["QUERY_STRING"]:
            time.sleep(faults.slow)
        way = self._failing(asked)
        if way in {"", "lost"}:
            body = self._done(asked, environ, start if way == "" else lambda *_: None)
        if way:
            body = self._failed(asked, way, environ, start)
        return body

    def _failing(self, asked: Request) -> str:
        """How the request is to fail; "": it is not."""
        faults = self.faults
        if faults.lose and asked.commits:
            faults.lose -= 1
            return "lost"
        if not faults.every or len(self.asked) % faults.every != faults.every - 1:
            return ""
        if faults.hang:
            faults.hang -= 1
            return "hanging"
        return next(self.ways)

    def _done(self, asked: Request, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        def started(text: str, headers: Any, *more: Any) -> Any:
            self.asked.append(replace(asked, status=int(text.split(maxsplit=1)[0])))
            return start(text, headers, *more)

        return list(self.moto(environ, started))

    def _failed(self, asked: Request, way: str, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        status = 500 if way == "500" else 503
        if way != "lost":
            self.asked.append(replace(asked, status=status))
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if way == "hanging":
            time.sleep(_HANGING)
        if way in {"cut", "hanging"}:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        start(f"{status} Failed", [("Content-Length", "0")])
        return [b""]

    def _told(self, method: str, path: str, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """Answer the tests."""
        answer: Any = None
        if path == _ASKED:
            answer = [asdict(each) for each in self.asked]
        elif path == _FAULTS and method == "POST":
            self.faults = Faults(**json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))))
            self.held.clear()
            self.go_on.clear()
        elif path == _FAULTS:
            answer = asdict(self.faults)
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
