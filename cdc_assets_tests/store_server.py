"""Run an object store for the tests in a process of its own, with a record of its requests and with faults on demand.

The process is separate because deltalake lets no other thread of its process run while it waits for some answers.
The answers come from an emulator: see `s3.py`, `gcs.py` and `azure.py`.
"""

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import requests

from cdc_assets.config import Storage
from cdc_assets_tests.ports import free_port

BUCKET = "lakehouse"
_COMMIT = re.compile(r"/_delta_log/\d{20}\.json$")
# Paths that no bucket has: for the tests.
_ASKED, _FAULTS, _HELD, _GO_ON = "/-/asked", "/-/faults", "/-/held", "/-/go-on"
_SECONDS = 60
_PATIENCE = 300  # for a driver that has to start first

Environ = dict[str, Any]
Start = Callable[..., Any]
App = Callable[[Environ, Start], Iterable[bytes]]


@dataclass(frozen=True)
class Request:
    """A client's request, and how it ended."""

    method: str
    path: str  # with the bucket
    agent: str  # the client
    condition: str | None  # that the file must not be there
    status: int

    @property
    def commits(self) -> bool:
        """Whether the request writes a commit of a Delta table."""
        return self.method == "PUT" and bool(_COMMIT.search(self.path))

    @property
    def client(self) -> str:
        """The client: deltalake, pyarrow or Hadoop."""
        return next((client for name, client in _CLIENTS.items() if name in self.agent), "Hadoop")


# Parts of the clients' User-Agent: object_store, and the C++ libraries of Amazon, Google and Azure. Others are Hadoop's.
_CLIENTS = {"object_store": "deltalake", "aws-sdk-cpp": "pyarrow", "gl-cpp": "pyarrow", "azsdk-cpp": "pyarrow"}


@dataclass
class Faults:
    """Faults of the server.

    Attributes:
        unconditional: whether the server ignores conditions, as stores without conditional writes do.
        lose: the number of commits that are carried out, but answered with an error.
        hold: the end of the path of a PUT that waits once until the test releases it.
        fail: client -> the ways in which its next requests fail, one after the other.
        every: client -> one of this many of its requests fails, as long as there are ways.
        slow: the seconds that a listing takes.
    """

    unconditional: bool = False
    lose: int = 0
    hold: str = ""
    fail: dict[str, list[str]] = field(default_factory=dict)
    every: dict[str, int] = field(default_factory=dict)
    slow: float = 0


# The ways in which requests fail: with an error and no effect; without an answer, before or after the effect.
WAYS = ("503", "500", "cut", "lost")
# Also without an answer for longer than Hadoop's shortest timeout.
HANGING = "hanging"
HEADERS = "cdc_assets_tests.headers"
# seconds; longer than each client's timeout
_HANGING = 30
_CONTENT = 2  # seconds until the content of a request has come


class StoreServer:
    """A store's server: it has a port from the beginning, and after `start` it answers and has the bucket.

    Attributes:
        module: the module whose `main` runs in the server's process, with the port.
        root: a place in the store, below which the tests' lakehouses lie.
        options: Hadoop's settings for the store.
        absent: the condition that a file does not exist.
        no_bucket: the store's error for a missing bucket.
    """

    module: str
    root: str
    absent = "*"
    no_bucket: str
    options: ClassVar[dict[str, str]]

    def __init__(self) -> None:
        self._port = free_port()
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self.store_settings: dict[str, Any] = {"endpoint": self.endpoint, "path_style": True, "options": self.options}
        self.settings = Storage.model_validate(self.store_settings)

    def start(self) -> None:
        command = [sys.executable, "-m", self.module, str(self._port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n"

    def stop(self) -> None:
        """End the process and its children by closing its input."""
        self._process.communicate()

    @property
    def requests(self) -> list[Request]:
        """Return the answered requests."""
        return [Request(**each) for each in requests.get(self.endpoint + _ASKED, timeout=_SECONDS).json()]

    def faults(self, **faults: Any) -> None:
        """Set the faults from now on, by the fields of `Faults`; without an argument there are none."""
        changes = asdict(Faults(**faults))
        requests.post(self.endpoint + _FAULTS, json=changes, timeout=_SECONDS).raise_for_status()

    def left(self, fault: str) -> Any:
        """Return what is left of a counted fault, or of those in `fail`."""
        return requests.get(self.endpoint + _FAULTS, timeout=_SECONDS).json()[fault]

    def when_asked(self, end: str, act: Callable[[], object]) -> Callable[[], None]:
        """Act while a PUT to a path with this end is on its way; return a function that waits for the action."""
        self.faults(hold=end)
        failed: list[Exception] = []

        def wait() -> None:
            requests.get(self.endpoint + _HELD, timeout=_PATIENCE).raise_for_status()
            try:
                act()
            except Exception as error:  # noqa: BLE001 -- told to the test
                failed.append(error)
            requests.post(self.endpoint + _GO_ON, timeout=_SECONDS).raise_for_status()

        waiting = threading.Thread(target=wait)
        waiting.start()

        def done() -> None:
            waiting.join(_PATIENCE)
            assert not waiting.is_alive()
            assert not failed, failed

        return done


# --- the server's process


class Answers:
    """A store's answers: an emulator's, with what is particular to requests of that store."""

    def __init__(self, app: App) -> None:
        self.app = app

    def asked(self, environ: Environ) -> Request:
        """Return the request, so that a write is a PUT to the path of the file."""
        return Request(
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"],
            environ.get("HTTP_USER_AGENT", ""),
            environ.get("HTTP_IF_NONE_MATCH"),
            status=0,
        )

    def lists(self, environ: Environ) -> bool:
        """Return whether the request lists files."""
        return "list-type=2" in environ["QUERY_STRING"]

    def forget_condition(self, environ: Environ) -> None:
        """Remove the condition of a write, so that the store replaces an existing file."""
        environ.pop("HTTP_IF_NONE_MATCH", None)


class _Answering:
    """The store's answers, with faults."""

    def __init__(self, answers: Answers) -> None:
        self.answers, self.noted = answers, list[Request]()
        self.faults, self.counted, self.counting = Faults(), Counter[str](), threading.Lock()
        self.held, self.go_on = threading.Event(), threading.Event()

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        faults = self.faults
        if environ["PATH_INFO"].startswith("/-/"):
            return self._answer_tests(environ["REQUEST_METHOD"], environ["PATH_INFO"], environ, start)
        asked = self.answers.asked(environ)
        if asked.method == "PUT" and faults.hold and asked.path.endswith(faults.hold):
            faults.hold = ""
            self.held.set()
            self.go_on.wait(_SECONDS)
        if faults.unconditional:
            self.answers.forget_condition(environ)
        if self.answers.lists(environ):
            time.sleep(faults.slow)
        way = self._failing(asked)
        if way in {"", "lost"}:
            body = self._done(asked, environ, start if way == "" else lambda *_: None)
        if way:
            body = self._failed(asked, way, environ, start)
        return body

    def _failing(self, asked: Request) -> str:
        """Return how the request fails; "" if it does not."""
        faults = self.faults
        if faults.lose and asked.commits:
            faults.lose -= 1
            return "lost"
        ways = faults.fail.get(asked.client)
        with self.counting:
            self.counted[asked.client] += 1
            return ways.pop(0) if ways and self.counted[asked.client] % faults.every[asked.client] == 0 else ""

    def _done(self, asked: Request, environ: Environ, start: Start) -> Iterable[bytes]:
        def started(text: str, headers: Any, *more: Any) -> Any:
            self.noted.append(replace(asked, status=int(text.split(maxsplit=1)[0])))
            return start(text, headers, *more)

        return list(self.answers.app(environ, started))

    def _failed(self, asked: Request, way: str, environ: Environ, start: Start) -> Iterable[bytes]:
        status = 500 if way == "500" else 503
        if way != "lost":
            self.noted.append(replace(asked, status=status))
            body(environ)
        if way == HANGING:
            time.sleep(_HANGING)
        if way in {"cut", HANGING}:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        start(f"{status} Failed", [("Content-Length", "0")])
        return [b""]

    def _answer_tests(self, method: str, path: str, environ: Environ, start: Start) -> Iterable[bytes]:
        """Answer the tests."""
        answer: Any = None
        if path == _ASKED:
            answer = [asdict(each) for each in self.noted]
        elif path == _FAULTS and method == "POST":
            self.faults, self.counted = Faults(**json.loads(body(environ))), Counter[str]()
            self.held.clear()
            self.go_on.clear()
        elif path == _FAULTS:
            answer = asdict(self.faults)
        elif path == _HELD:
            assert self.held.wait(_PATIENCE)
        elif path == _GO_ON:
            self.go_on.set()
        text = json.dumps(answer).encode()
        start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(text)))])
        return [text]


def body(environ: Environ) -> bytes:
    """Return the content of a request; a client that does not send it is disconnected.

    Azure's C++ client repeats a request whose connection was cut without its content, and waits for a minute.
    """
    length = int(environ.get("CONTENT_LENGTH") or 0)
    chunked = environ.get("wsgi.input_terminated", False)
    if not (length or chunked):
        return b""
    cutting = threading.Timer(_CONTENT, environ["werkzeug.socket"].shutdown, [socket.SHUT_RDWR])
    cutting.start()
    read: bytes = environ["wsgi.input"].read(*([] if chunked else [length]))
    cutting.cancel()
    if len(read) < length:
        raise ConnectionResetError
    return read


def serve(port: int, answers: Answers, begin: Callable[[], object]) -> None:
    """Serve until the standard input ends; `begin` is called when the server answers, and makes the bucket."""
    from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: PLC0415 -- which only this process needs

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_expect_100(self) -> bool:
            return True  # werkzeug answers this, too

        def make_environ(self) -> Environ:
            # WSGI changes header names, so that `_` and `-` are the same.
            return super().make_environ() | {HEADERS: dict(self.headers.items())}

        def log(self, *_: Any) -> None:
            pass

    server = make_server("127.0.0.1", port, _Answering(answers), threaded=True, request_handler=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    begin()
    print("ready", flush=True)
    sys.stdin.read()


class Emulator:
    """A program that emulates a store at a port of its own."""

    def __init__(self, command: Callable[[int], list[str]]) -> None:
        self.port = free_port()
        self.process = subprocess.Popen(command(self.port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + _SECONDS
        while not self._answers():
            assert self.process.poll() is None, command(self.port)
            assert time.monotonic() < end, command(self.port)
            time.sleep(0.05)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        """Forward a request as it is."""
        status, headers, content = self.ask(
            environ["REQUEST_METHOD"], environ["RAW_URI"], environ[HEADERS], body(environ)
        )
        start(status, headers)
        return [content]

    def ask(
        self, method: str, uri: str, headers: dict[str, str], content: bytes
    ) -> tuple[str, list[tuple[str, str]], bytes]:
        """Return the answer: the status and its text, the headers, the content."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        sent = {k: v for k, v in headers.items() if k.lower() not in _OF_THE_CONNECTION}
        # An empty content also has a length.
        sent |= {"Content-Length": str(len(content))} if content or method in {"PUT", "POST"} else {}
        connection.request(method, uri, body=content or None, headers=sent)
        answer = connection.getresponse()
        got = answer.read()
        answered = [(k, v) for k, v in answer.getheaders() if k.lower() not in _OF_THE_CONNECTION]
        length = answer.getheader("Content-Length") if method == "HEAD" else str(len(got))
        connection.close()
        answered += [("Content-Length", length)] if length else []
        return f"{answer.status} {answer.reason}", answered, got


_OF_THE_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}
