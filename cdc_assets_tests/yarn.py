"""Run a YARN for the tests: a resource manager and two node managers, each in a process of its own, from pinned jars."""

import os
from pathlib import Path

from cdc_assets.stores.jars import Jar, ensure_jars
from cdc_assets_tests.cluster import HOST, SMALL, Cluster, java_path, wait_for
from cdc_assets_tests.hdfs import JAR
from cdc_assets_tests.ports import free_port

_CASTLE, _VERSION = "org.bouncycastle", "1.78.1"
# The jars that Hadoop's jar does not contain.
_JARS = [
    JAR,
    Jar(_CASTLE, "bcprov-jdk18on", _VERSION, "add5915e6acfc6ab5836e1fd8a5e21c6488536a8c1f21f386eeb3bf280b702d7"),
    Jar(_CASTLE, "bcpkix-jdk18on", _VERSION, "4b48ea084e5232b9d79ebca1887b9de037b124931807cd60710748c2aee08cc9"),
    Jar(_CASTLE, "bcutil-jdk18on", _VERSION, "d9fa56f97b0f761ce3bc8d9d74c5d7137a987bf5bd3abfe1003f9bafa45a1d2f"),
    Jar("javax.xml.bind", "jaxb-api", "2.3.1", "88b955a0df57880a26a74708bc34f74dcaf8ebf4e78843a28b50eae945732b06"),
]
_SERVER = "org.apache.hadoop.yarn.server"
_MANAGER, _NODE = f"{_SERVER}.resourcemanager.ResourceManager", f"{_SERVER}.nodemanager.NodeManager"
_PARTS = ("", "scheduler.", "resource-tracker.", "admin.", "webapp.")


class Yarn(Cluster):
    """A YARN whose node managers start executors with no environment but YARN's and Spark's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        port = free_port()
        manager = {f"yarn.resourcemanager.{part}address": f"{HOST}:{free_port()}" for part in _PARTS[1:]}
        manager |= {
            "yarn.resourcemanager.address": f"{HOST}:{port}",
            "yarn.resourcemanager.scheduler.class": f"{_SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "100",
            "yarn.scheduler.minimum-allocation-mb": "128",
        }
        home = str(Path(os.path.realpath(java_path())).parents[1])
        self._start("manager", _MANAGER, manager, {})
        for name in ("first", "second"):
            node = {f"yarn.nodemanager.{part}address": f"{HOST}:0" for part in ("", "localizer.", "webapp.")}
            node |= {f"yarn.nodemanager.{what}-dirs": str(folder / name / what) for what in ("local", "log")}
            node |= {
                "yarn.nodemanager.resource.memory-mb": "2048",
                "yarn.nodemanager.resource.cpu-vcores": "2",
                # Node managers also start on a full disk.
                "yarn.nodemanager.disk-health-checker.enable": "false",
            }
            self._start(name, _NODE, manager | node, {"JAVA_HOME": home, "PATH": os.defpath})
        wait_for(port)
        self.environment = {"HADOOP_CONF_DIR": str(folder / "manager-conf")}
        self.spark = {
            "spark.master": "yarn",
            "spark.executor.instances": "2",
            "spark.executor.maxNumFailures": "20",
            "spark.yarn.am.memory": "256m",
            "spark.yarn.am.extraJavaOptions": " ".join(SMALL[1:]),
            "spark.yarn.jars": f"local:{self.jars}/*",
            "spark.yarn.stagingDir": (folder / "staging").as_uri(),
            "spark.yarn.scheduler.heartbeat.interval-ms": "200",
        }

    def _start(self, name: str, part: str, settings: dict[str, str], environment: dict[str, str]) -> None:
        conf = self.folder / f"{name}-conf"
        conf.mkdir()
        properties = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items())
        (conf / "yarn-site.xml").write_text(f"<configuration>{properties}</configuration>")
        path = os.pathsep.join([str(conf), *map(str, ensure_jars(_JARS)), f"{self.jars}/*"])
        opened = "--add-opens=java.base/java.lang=ALL-UNNAMED"
        command = [java_path(), *SMALL, opened, f"-Dhadoop.log.dir={self.folder / name}", "-cp", path, part]
        self.start(name, command, environment)
