"""The playground's project: the files that a user has, and the commands that a user may enter."""

import os
import shlex
import shutil
import sys
from pathlib import Path

import yaml

from cdc_assets_tests.mariadb import MariaDB

FEED = "shop"
_DAGSTER = Path(__file__).parents[2] / "dagster.yaml"


def write_project(folder: Path, server: MariaDB, servers: str, topic_pattern: str) -> None:
    """Write the feeds file and Dagster's file.

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
    shutil.copy(_DAGSTER, folder)


def shell_command(folder: Path, *arguments: str) -> str:
    """Return a command of `cdc-assets` as a shell takes it, with the variables that it needs."""
    program = os.path.relpath(Path(sys.executable).with_name("cdc-assets"))
    variables = {"CDC_FEEDS": folder / "feeds.yaml", "CDC_LAKEHOUSE": folder / "lake"}
    return " ".join([*(f"{name}={shlex.quote(str(path))}" for name, path in variables.items()), program, *arguments])
