"""Post failed checks and runs to a webhook, a server of the test."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetExecutionContext,
    AssetKey,
    DagsterInstance,
    ExecuteInProcessResult,
    RunStatusSensorDefinition,
    asset,
    build_run_status_sensor_context,
    materialize,
)

from cdc_assets.assets import alerts
from cdc_assets.assets.common import build_evaluation

KEY = AssetKey(["shop", "history"])


@asset(key=KEY)
def checked(context: AssetExecutionContext) -> None:
    for severity in (AssetCheckSeverity.ERROR, AssetCheckSeverity.WARN):
        result = AssetCheckResult(
            check_name=severity.value.lower(), passed=False, severity=severity, description="broke"
        )
        context.log_event(build_evaluation(KEY, result))


@asset(key=["shop", "quiet"])
def quiet() -> None:
    pass


@asset(key=["shop", "broken"])
def broken() -> None:
    raise RuntimeError("do this\nand a stack")


class Webhook(HTTPServer):
    """Records the posts, and answers with `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: list[dict[str, Any]] = []
        self.status = 200

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/secret"


class Handler(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append({"path": self.path, "body": json.loads(body)})
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing to the output of the tests."""


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    server = Webhook()
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def tick(address: str, instance: DagsterInstance, done: ExecuteInProcessResult) -> None:
    """Evaluate the sensor of a run's status, as the daemon does after the run."""
    sensors = {sensor.name: sensor for sensor in alerts.build(address)}
    event = done.get_run_success_event() if done.success else done.get_run_failure_event()
    name = "alert_on_failed_checks" if done.success else "alert_on_failed_runs"
    context = build_run_status_sensor_context(
        sensor_name=name, dagster_event=event, dagster_instance=instance, dagster_run=done.dagster_run
    )
    sensor = sensors[name]
    assert isinstance(sensor, RunStatusSensorDefinition)
    sensor(context if done.success else context.for_run_failure())


def test_only_failed_checks_and_failed_runs_are_posted(webhook: Webhook) -> None:
    with DagsterInstance.ephemeral() as instance:
        runs = [materialize([each], instance=instance, raise_on_error=False) for each in (checked, quiet, broken)]
        for done in runs:
            tick(webhook.address, instance, done)
    assert [each["path"] for each in webhook.received] == ["/secret", "/secret"]
    first, second = (each["body"]["text"].splitlines() for each in webhook.received)
    assert first[0] == f"1 checks failed in the run {runs[0].run_id} of __ephemeral_asset_job__."
    assert first[1:] == ["shop/history: error: broke"]
    assert second[0] == f"The run {runs[2].run_id} of __ephemeral_asset_job__ failed."
    assert second[1:] == ["shop__broken: RuntimeError: do this"]


def test_a_refused_post_fails_the_tick_and_hides_the_address(webhook: Webhook) -> None:
    webhook.status = 500
    with DagsterInstance.ephemeral() as instance:
        done = materialize([broken], instance=instance, raise_on_error=False)
        for address, why in ((webhook.address, "HTTP 500"), ("http://127.0.0.1:1/secret", "ConnectionError")):
            with pytest.raises(Exception, match="did not accept the alert") as raised:
                tick(address, instance, done)
            chain: list[BaseException] = [raised.value]
            while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
                chain.append(cause)
            chain_text = " ".join(map(str, chain))
            assert why in chain_text
            assert "secret" not in chain_text
