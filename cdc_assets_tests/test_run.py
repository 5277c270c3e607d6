"""What `cdc-assets run` reads from Dagster: why a run failed, and the counts of a feed. (The command: test_as_a_user.)"""

import contextlib
import io
from pathlib import Path

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    DagsterInstance,
    asset,
    materialize,
)

from cdc_assets import run
from cdc_assets.assets.common import build_evaluation
from cdc_assets.assets.verdicts import BlockingCheckFailed, list_failing_checks
from cdc_assets.stores.storage import LOCAL
from cdc_assets_tests.support import make_feed

BAD = ("blocking", "mild", "remark")


@asset(key=["shop", "one"])
def one(context: AssetExecutionContext) -> None:
    key = AssetKey(["shop", "one"])
    for name in BAD:
        severity = AssetCheckSeverity.WARN if name == "remark" else AssetCheckSeverity.ERROR
        result = AssetCheckResult(check_name=name, passed=False, severity=severity, description=f"{name} broke")
        context.log_event(build_evaluation(key, result, blocking=name == "blocking"))
    raise BlockingCheckFailed("shop/one: blocking: blocking broke", allow_retries=False)


@asset(key=["shop", "two"], deps=[one])
def two() -> None:
    raise AssertionError("never reached")


@asset(key=["shop", "three"])
def three() -> None:
    try:
        Path("/nowhere/at/all").read_text()
    except OSError as error:
        raise RuntimeError("Could not read: do this.\nand a long stack") from error


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> DagsterInstance:
    """The instance that the command asks."""
    made = DagsterInstance.ephemeral()
    # Leaving the context would end an instance that is held in memory only.
    monkeypatch.setattr(DagsterInstance, "get", staticmethod(lambda: contextlib.nullcontext(made)))
    return made


def test_the_reasons_are_the_blocking_check_and_what_a_step_raised(instance: DagsterInstance) -> None:
    done = materialize([one, two, three], instance=instance, raise_on_error=False)
    assert not done.success
    assert sorted(run._list_reasons(done.run_id, io.StringIO())) == [
        "shop/one: blocking: blocking broke",
        "shop__three: RuntimeError: Could not read: do this.",
    ]


def test_the_reason_of_a_job_that_did_not_begin_is_the_last_line_of_its_log(instance: DagsterInstance) -> None:
    assert run._list_reasons(None, io.StringIO("a notice\nthe reason\n")) == ["the reason"]


def test_a_check_fails_as_long_as_its_last_verdict_is_a_failure(instance: DagsterInstance) -> None:
    done = materialize([one], instance=instance, raise_on_error=False)
    runs = [done.run_id, done.run_id]
    both = ["shop/one: blocking: blocking broke", "shop/one: mild: mild broke"]
    assert list_failing_checks(instance, runs, ["shop"]) == both
    assert list_failing_checks(instance, runs, ["crm"]) == []
    instance.report_runless_asset_event(
        AssetCheckEvaluation(AssetKey(["shop", "one"]), "mild", passed=True, metadata={})
    )
    assert list_failing_checks(instance, runs, ["shop"]) == both[:1]


def test_counts_before_anything_has_been_seen(instance: DagsterInstance) -> None:
    instance.report_runless_asset_event(
        AssetMaterialization(AssetKey(["shop", "released_changes"]), metadata={"watermarks": "none", "pending": 3})
    )
    counts = run._read_counts(instance, "shop", make_feed(Path()))
    assert counts["watermark"] == "none yet"
    assert counts["pending"] == 3
    assert {name: n for name, n in counts.items() if name not in {"watermark", "pending"}} == {
        "records ingested": 0,
        "row events decoded": 0,
        "quarantined": 0,
        "released": 0,
        "duplicate": 0,
        "late": 0,
    }


def test_counts_of_an_asset_that_was_never_materialised(instance: DagsterInstance) -> None:
    assert run._read_counts(instance, "shop", make_feed(Path()))["watermark"] == "none yet"


def test_a_feed_without_watermarks_waits_for_none(instance: DagsterInstance) -> None:
    watermark = run._read_counts(instance, "shop", make_feed(Path(), protocol="debezium"))["watermark"]
    assert watermark == "none: a run releases all events that it ingests"


def test_commits_of_all_tables_are_counted_and_nothing_else(tmp_path: Path) -> None:
    for name in ("a/x/_delta_log/0.json", "a/x/_delta_log/1.json", "h/d/t/_delta_log/0.json", "a/x/other.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "a/x/_delta_log/0.crc").write_text("")
    assert run._count_commits(str(tmp_path), LOCAL) == 3
    assert run._count_commits(str(tmp_path / "nowhere"), LOCAL) == 0
