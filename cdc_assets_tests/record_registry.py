"""Records `recorded/mysql/dbz350m-registry` again: the records of `dbz350m-schemas` in Avro, and the registry's answers.

usage: python -m cdc_assets_tests.record_registry CONVERTERS REGISTRY

CONVERTERS is a folder with the jars of io.apicurio:apicurio-registry-utils-converter:2.6.13.Final,
org.apache.kafka:connect-json:3.9.1 and connect-api:3.9.1, and of their dependencies (Maven's dependency:copy-dependencies
gathers them); REGISTRY one with the content of io.apicurio:apicurio-registry-app:2.6.13.Final:tar.gz:all.

JSON with schemas has all of Connect's data. Connect's converter reads it and Apicurio's converter writes it, as in a worker.
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc_assets_tests.ports import free_port
from cdc_assets_tests.support import RECORDED

JSON_SET = RECORDED / "mysql/dbz350m-schemas"
SET = RECORDED / "mysql/dbz350m-registry"
# Wire format -> the scenarios that are recorded in it, and the converter's settings.
FORMATS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "confluent": (
        ("customers", "composite", "extra", "bulk", "types", "ddl"),
        {
            "apicurio.registry.headers.enabled": "false",
            "apicurio.registry.as-confluent": "true",
            "apicurio.registry.use-id": "contentId",
        },
    ),
    "native": (("composite", "extra"), {"apicurio.registry.headers.enabled": "false"}),
    "headers": (("composite", "extra"), {"apicurio.registry.headers.enabled": "true"}),
}
_MOST_IDS = 200  # of contents; not every number is used
# API -> the paths below it of schemas by id.
APIS = {"/apis/ccompat/v7": ("/schemas/ids/{}",), "/apis/registry/v2": ("/ids/globalIds/{}", "/ids/contentIds/{}")}
_PROGRAM = Path(__file__).parent / "RegistryRecords.java"
_PATIENCE = 120  # seconds


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Run Apicurio's registry, which keeps its schemas in memory; yield its address."""
    port = free_port()
    jar = next(folder.glob("apicurio-registry-app-*-runner.jar"))
    with tempfile.TemporaryFile() as log:
        command = ["java", f"-Dquarkus.http.port={port}", "-jar", str(jar)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(_PATIENCE):
                if answer(f"{url}/apis/registry/v2/system/info")[0] == 200:
                    break
                assert process.poll() is None, (log.seek(0), log.read().decode()[-3000:])[1]
                time.sleep(1)
            yield url
        finally:
            process.kill()
            process.wait()


def answer(url: str) -> tuple[int, str]:
    """Return the status and the body of the answer to a GET; status 0 if no server runs yet."""
    try:
        with urllib.request.urlopen(url) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return 0, ""


def converted(lines: bytes, converters: Path, settings: dict[str, str]) -> bytes:
    """Return lines of recorded records with keys and values in Avro."""
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.write("".join(f"{k}={v}\n" for k, v in settings.items()))
        file.flush()
        command = ["java", "-cp", f"{converters}{os.sep}*", str(_PROGRAM), file.name]
        done = subprocess.run(command, input=lines, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.stdout


def answers(url: str) -> dict[str, str]:
    """Return path -> body of all schemas, and API -> body for an id without a schema."""
    bodies = {}
    for api, paths in APIS.items():
        for path in paths:
            for number in range(1, _MOST_IDS):
                status, body = answer(url + api + path.format(number))
                bodies[api + path.format(number) if status == 200 else api] = body
    return bodies


def main() -> int:
    """Record each wire format, all with one registry."""
    SET.mkdir(parents=True, exist_ok=True)
    with registry(Path(sys.argv[2])) as url:
        for wire_format, (scenarios, settings) in FORMATS.items():
            for scenario in scenarios:
                lines = gzip.decompress((JSON_SET / f"{scenario}.jsonl.gz").read_bytes())
                made = converted(
                    lines,
                    Path(sys.argv[1]),
                    {
                        "apicurio.registry.url": f"{url}/apis/registry/v2",
                        "apicurio.registry.auto-register": "true",
                        "apicurio.registry.if-exists": "RETURN_OR_UPDATE",
                    }
                    | settings,
                )
                (SET / f"{scenario}-{wire_format}.jsonl.gz").write_bytes(gzip.compress(made, mtime=0))
        text = json.dumps(answers(url), indent=0, sort_keys=True)
    (SET / "registry.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
