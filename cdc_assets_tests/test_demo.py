"""What `make demo` reads out of Dagster: why a run failed, and the counts of a feed. (The demo itself: test_as_a_user.)"""

import contextlib
from pathlib import Path

import pytest
from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    DagsterInstance,
    asset,
    materialize,
)

from cdc_assets import demo
from cdc_assets.assets.common import evaluation
from cdc_assets.assets.verdicts import BlockingCheckFailed
from cdc_assets.stores.storage import LOCAL
from cdc_assets_tests.support import make_feed

BAD = ("blocking", "mild", "remark")


@asset(key=["shop", "one"])
def one(context: AssetExecutionContext) -> None:
    key = AssetKey(["shop", "one"])
    for name in BAD:
        severity = AssetCheckSeverity.WARN if name == "remark" else AssetCheckSeverity.ERROR
        result = AssetCheckResult(check_name=name, passed=False, severity=severity, description=f"{name} broke")
        context.log_event(evaluation(key, result, blocking=name == "blocking"))
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
    """The instance that the demo asks."""
    made = DagsterInstance.ephemeral()
    # Leaving the context would end an instance that is held in memory only.
    monkeypatch.setattr(DagsterInstance, "get", staticmethod(lambda: contextlib.nullcontext(made)))
    return made


def test_the_reasons_are_the_blocking_check_and_what_a_step_raised(instance: DagsterInstance) -> None:
    done = materialize([one, two, three], instance=instance, raise_on_error=False)
    assert not done.success
    assert demo._newest_run() == done.run_id
    assert sorted(demo._why(done.run_id)) == [
        "shop/one: blocking: blocking broke",
        "shop__three: RuntimeError: Could not read: do this.",
    ]


def test_a_job_that_did_not_begin_is_told_by_its_last_line(
    instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "demo.log").write_text("a notice\nthe reason\n")
    monkeypatch.setattr(demo, "_LOG", tmp_path / "demo.log")
    assert demo._newest_run() is None
    assert demo._why(None) == ["the reason"]


def test_counts_before_anything_has_been_seen(instance: DagsterInstance) -> None:
    instance.report_runless_asset_event(
        AssetMaterialization(AssetKey(["shop", "released_changes"]), metadata={"watermarks": "none", "pending": 3})
    )
    counts = demo._counts(instance, "shop", make_feed(Path()))
    assert counts["watermark"] == "none yet"
    assert counts["pending"] == 3
    assert {name: n for name, n in counts.items() if name not in {"watermark", "pending"}} == {
        "records taken in": 0,
        "row events decoded": 0,
        "quarantined": 0,
        "released": 0,
        "duplicate": 0,
        "late": 0,
    }


def test_counts_of_an_asset_that_was_never_materialised(instance: DagsterInstance) -> None:
    assert demo._counts(instance, "shop", make_feed(Path()))["watermark"] == "none yet"


def test_a_feed_without_watermarks_waits_for_none(instance: DagsterInstance) -> None:
    told = demo._counts(instance, "shop", make_feed(Path(), protocol="debezium"))["watermark"]
    assert told == "none: a run releases what it takes in"


def test_commits_of_all_tables_are_counted_and_nothing_else(tmp_path: Path) -> None:
    for name in ("a/x/_delta_log/0.json", "a/x/_delta_log/1.json", "h/d/t/_delta_log/0.json", "a/x/other.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "a/x/_delta_log/0.crc").write_text("")
    assert demo._commits(str(tmp_path), LOCAL) == 3
    assert demo._commits(str(tmp_path / "nowhere"), LOCAL) == 0
