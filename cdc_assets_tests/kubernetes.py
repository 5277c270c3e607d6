"""Imitate what Spark needs of Kubernetes: a server that accepts pods, and starts each as a process of its own.

There is no cluster and there are no containers. The API has pods and config maps, which a polling driver creates,
lists and deletes; it has no watches, limits or credentials. A pod is the process that the entry point of Spark's
image starts for an executor, with only the pod's environment, and a folder of its own instead of its volumes.

usage: python -m cdc_assets_tests.kubernetes PORT FOLDER JARS
"""

import json
import re
import subprocess
import sys
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cdc_assets_tests.cluster import HOST, Cluster, java_path, wait_for
from cdc_assets_tests.ports import free_port

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_KINDS = {"pods": "Pod", "configmaps": "ConfigMap"}
_LOCAL = "SPARK_LOCAL_DIRS"  # an empty volume

Item = dict[str, Any]
Labels = tuple[dict[str, str], dict[str, str]]


class Kubernetes(Cluster):
    """The server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        port = free_port()
        command = [sys.executable, "-m", __name__, str(port), str(folder / "pods"), str(self.jars)]
        self.start("server", command, {"PYTHONPATH": str(Path(__file__).parents[1])})
        wait_for(port)
        self.spark = {
            "spark.master": f"k8s://http://{HOST}:{port}",
            "spark.executor.instances": "2",
            "spark.kubernetes.container.image": "spark",
            "spark.kubernetes.executor.enableApiWatcher": "false",
            "spark.kubernetes.executor.apiPollingInterval": "300ms",
            "spark.kubernetes.allocation.batch.delay": "300ms",
        }


# --- the server's process


class _Pods:
    """The items that exist, by kind and name, and the process of each pod."""

    def __init__(self, folder: Path, jars: str) -> None:
        self._folder, self._jars = folder, jars
        self._items: dict[str, dict[str, Item]] = {kind: {} for kind in _KINDS}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock, self._version = threading.Lock(), 0

    def make(self, kind: str, item: Item) -> Item:
        with self._lock:
            self._version += 1
            meta = item["metadata"]
            meta |= {"uid": meta["name"], "namespace": "default", "resourceVersion": str(self._version)}
            meta |= {"creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
            self._items[kind][meta["name"]] = item
            if kind == "pods":
                self._processes[meta["name"]] = self._start(item)
        return self._with_status(kind, item)

    def named(self, kind: str, labels: Labels) -> list[Item]:
        """Return the items with the first labels, and without the second."""
        required, unwanted = labels
        with self._lock:
            labelled = [(item, item["metadata"].get("labels", {}).items()) for item in self._items[kind].values()]
        return [
            self._with_status(kind, i) for i, has in labelled if required.items() <= has and not unwanted.items() & has
        ]

    def one(self, kind: str, name: str) -> Item | None:
        item = self._items[kind].get(name)
        return self._with_status(kind, item) if item else None

    def delete(self, kind: str, name: str) -> None:
        with self._lock:
            self._items[kind].pop(name, None)
            if kind == "pods" and name in self._processes:
                self._processes.pop(name).kill()

    def _start(self, pod: Item) -> "subprocess.Popen[bytes]":
        name, (container,) = pod["metadata"]["name"], pod["spec"]["containers"]
        fields = {"status.podIP": HOST, "metadata.name": name}
        environment = {}
        for each in container["env"]:
            field = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            environment[each["name"]] = fields[field] if field else each.get("value", "")
        folder = self._folder / name
        folder.mkdir(parents=True)
        environment[_LOCAL] = str(folder / "volume")
        options = [environment[key] for key in sorted(environment) if key.startswith("SPARK_JAVA_OPT_")]
        memory = environment["SPARK_EXECUTOR_MEMORY"]
        arguments = {
            "driver-url": "SPARK_DRIVER_URL",
            "executor-id": "SPARK_EXECUTOR_ID",
            "cores": "SPARK_EXECUTOR_CORES",
            "app-id": "SPARK_APPLICATION_ID",
            "hostname": "SPARK_EXECUTOR_POD_IP",
            "resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
            "podName": "SPARK_EXECUTOR_POD_NAME",
        }
        command = [java_path(), *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", f"{self._jars}/*", _BACKEND]
        command += [text for key, variable in arguments.items() for text in (f"--{key}", environment[variable])]
        with (folder / "log").open("wb") as log:
            return subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)

    def _with_status(self, kind: str, item: Item) -> Item:
        """Return the item with its present status: a pod runs, or its process has ended."""
        kept = {"apiVersion": "v1", "kind": _KINDS[kind], **item}
        process = self._processes.get(item["metadata"]["name"])
        if kind != "pods" or process is None:
            return kept
        code = process.poll()
        phase = "Running" if code is None else "Failed" if code else "Succeeded"
        state = {"running": {}} if code is None else {"terminated": {"exitCode": code % 256, "reason": phase}}
        (container,) = item["spec"]["containers"]
        container_status = {
            "name": container["name"],
            "state": state,
            "ready": code is None,
            "image": "",
            "imageID": "",
        }
        return kept | {"status": {"phase": phase, "podIP": HOST, "containerStatuses": [container_status]}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    pods: _Pods

    def do_GET(self) -> None:
        kind, name, labels = self._asked()
        if not kind:
            self._answer(404, {"kind": "Status", "status": "Failure", "code": 404})
        elif name:
            item = self.pods.one(kind, name)
            self._answer(200 if item else 404, item or {"kind": "Status", "status": "Failure", "code": 404})
        else:
            pod_list = {"kind": f"{_KINDS[kind]}List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}}
            self._answer(200, pod_list | {"items": self.pods.named(kind, labels)})

    def do_POST(self) -> None:
        kind, _, _ = self._asked()
        item = json.loads(self._body())
        self._answer(201 if kind else 404, self.pods.make(kind, item) if kind else {"kind": "Status", "code": 404})

    def do_DELETE(self) -> None:
        kind, name, labels = self._asked()
        self._body()
        for each in [name] if name else [i["metadata"]["name"] for i in self.pods.named(kind, labels)] if kind else []:
            self.pods.delete(kind, each)
        self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success", "metadata": {}})

    def _asked(self) -> tuple[str, str, Labels]:
        """Return the kind and the name of a request, "" without one, and the required and excluded labels."""
        url = urlsplit(self.path)
        kind, _, name = url.path.partition("/namespaces/default/")[2].partition("/")
        (selector,) = parse_qs(url.query).get("labelSelector", [""])
        labels: Labels = ({}, {})
        for label, no, value in re.findall(r"([^,=!]+)(!?)=([^,]*)", selector):
            labels[bool(no)][label] = value
        return kind if kind in _KINDS else "", name, labels

    def log_message(self, *_: Any) -> None:
        pass

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, answer: Item) -> None:
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


if __name__ == "__main__":
    _Handler.pods = _Pods(Path(sys.argv[2]), sys.argv[3])
    ThreadingHTTPServer((HOST, int(sys.argv[1])), _Handler).serve_forever()
