"""The playground's project: the feeds file and Dagster's files, as a user has them, and the process of the UI."""

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import yaml

from cdc_assets.config.jdbc import PASSWORD as VERIFY_PASSWORD
from cdc_assets.config.jdbc import USER as VERIFY_USER
from cdc_assets_tests.mariadb import PASSWORD, USER, MariaDB
from cdc_assets_tests.ports import free_port
from cdc_assets_tests.support import users_environment

FEED = "shop"
_PROJECT = Path(__file__).parents[2]
_SECONDS = 300


def write_project(folder: Path, server: MariaDB, servers: str, topic_pattern: str) -> None:
    """Write the three files.

    Args:
        folder: in which to write them.
        server: the source database.
        servers: the broker's address.
        topic_pattern: of the connector's topics.
    """
    feed = {
        "protocol": "debezium",
        "source": {"kafka": {"bootstrap_servers": servers, "topic_pattern": topic_pattern}},
        "verify": {
            "jdbc": f"jdbc:mariadb://127.0.0.1:{server.port}/?sslMode=DISABLED",
            "cron": "*/5 * * * *",
            "settle_minutes": 5,
        },
    }
    text = yaml.safe_dump({"feeds": {FEED: feed}, "automation": "running"}, sort_keys=False)
    (folder / "feeds.yaml").write_text(text)
    for name in ("dagster.yaml", "workspace.yaml"):
        shutil.copy(_PROJECT / name, folder / name)


def start_ui(folder: Path) -> tuple[str, "subprocess.Popen[bytes]"]:
    """Start web server and daemon, in the folder of the project, and return the address once it answers.

    Raises:
        RuntimeError: the process ends, or does not answer; the message has the end of its log.
    """
    environment = users_environment(folder, **{VERIFY_USER: USER, VERIFY_PASSWORD: PASSWORD})
    address = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "cdc_assets", "ui", "--port", str(port)]
    log_file = folder / "ui.log"
    with log_file.open("wb") as log:
        # A session of its own: Ctrl-C is for the playground, which ends the others.
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    end = time.monotonic() + _SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(f"{address}/server_info", timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return address, process
    raise RuntimeError(f"The UI does not answer. The end of {log_file}:\n{log_file.read_text()[-3000:]}")


def command(folder: Path, *arguments: str) -> str:
    """Return a command of `cdc-assets` as a shell takes it, with the variables that it needs."""
    program = os.path.relpath(Path(sys.executable).with_name("cdc-assets"))
    variables = f"CDC_FEEDS={folder / 'feeds.yaml'} CDC_LAKEHOUSE={folder / 'lake'}"
    return " ".join([variables, program, *arguments])
