"""Dagster's web server and daemon in processes of their own, as `make ui` starts them."""

import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from cdc_assets_tests.ports import free_port
from cdc_assets_tests.support import users_environment

_WORKSPACE = Path(__file__).parents[1] / "workspace.yaml"
_SECONDS = 300
LOG = "server.log"


def start_web_server(home: Path, **more: str) -> tuple[str, "subprocess.Popen[bytes]"]:
    """Start them on a free port of the loopback address, and wait for an answer.

    Args:
        home: the folder of the project, which gets the log.
        more: what to add to a user's environment.

    Returns:
        The address, and the process, which leads a group that has all that it starts.

    Raises:
        RuntimeError: it ends, or does not answer; the message has the end of its log.
    """
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    environment = users_environment(home, PYTHONWARNINGS="ignore:Function", CDC_WEBSERVER=address, **more)
    command = [sys.executable, "-m", "dagster", "dev", "--workspace", str(_WORKSPACE)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with (home / LOG).open("wb") as log:
        process = subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=log, start_new_session=True)
    end = time.monotonic() + _SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(f"{address}/server_info", timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return address, process
    raise RuntimeError(f"The web server does not answer. The end of its log:\n{(home / LOG).read_text()[-3000:]}")
