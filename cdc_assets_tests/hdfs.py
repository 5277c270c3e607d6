"""Run an HDFS for the tests: a name node and two data nodes, each in a process of its own, from a pinned jar.

With two data nodes a file is closed at once: the name node must have heard of the last block from one of them. The
block goes through the first node to the second, so the second has reported it before the first confirms it to the
writer. With one node, the writer is faster than the report, and hdfs-native then waits half a second.
"""

import subprocess
import time
from pathlib import Path

import pyspark
from hdfs_native import Client, WriteOptions

from cdc_assets.stores.jars import Jar, ensure_jars, java
from cdc_assets_tests.cluster import SMALL
from cdc_assets_tests.ports import free_port

JAR = Jar(
    "org.apache.hadoop",
    "hadoop-client-minicluster",
    "3.4.2",
    "ae2406c544825b7734b8aad4f87eff60d9ec422284f0b16c2856032083b63c77",
)
_NAMES, _DATA = ("org.apache.hadoop.hdfs.server." + each for each in ("namenode.NameNode", "datanode.DataNode"))
_DATA_NODES = 2
_ANY_PORT = "127.0.0.1:0"
_SECONDS = 60


class Hdfs:
    """A running HDFS, which accepts files as soon as the object exists."""

    def __init__(self, folder: Path) -> None:
        self.root = f"hdfs://127.0.0.1:{free_port()}"
        settings = {
            "fs.defaultFS": self.root,
            "dfs.replication": str(_DATA_NODES),
            "dfs.namenode.name.dir": str(folder / "names"),
            "dfs.namenode.http-address": _ANY_PORT,
            **{f"dfs.datanode.{each}": _ANY_PORT for each in ("address", "ipc.address", "http.address")},
        }
        properties = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items())
        (folder / "hdfs-site.xml").write_text(f"<configuration>{properties}</configuration>")
        (jar,) = ensure_jars([JAR])
        spark = Path(pyspark.__file__).parent / "jars"
        command = [java(), *SMALL, "-cp", f"{folder}:{jar}:{spark}/*"]
        with (folder / "log").open("wb") as log:
            # The data nodes retry until the name node answers.
            data = [[_DATA, f"-Ddfs.datanode.data.dir={folder}/data{n}"] for n in range(_DATA_NODES)]
            self._servers = [subprocess.Popen([*command, *each], stdout=log, stderr=log) for each in data]
            subprocess.run([*command, _NAMES, "-format", "-nonInteractive"], stdout=log, stderr=log, check=True)
            self._servers.append(subprocess.Popen([*command, _NAMES], stdout=log, stderr=log))
        end = time.monotonic() + _SECONDS
        while not self._takes_files():
            assert time.monotonic() < end, (folder / "log").read_text()[-3000:]
            time.sleep(0.2)

    def _takes_files(self) -> bool:
        try:
            with Client(self.root).create("/ready", WriteOptions(overwrite=True)) as file:
                file.write(b"1")
        except Exception:  # noqa: BLE001 -- there are many, until both are up
            return False
        return True

    def stop(self) -> None:
        for each in self._servers:
            each.kill()
        for each in self._servers:
            each.wait()
