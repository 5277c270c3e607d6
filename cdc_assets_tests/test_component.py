"""Load a feed as a component, as `dg` does: it has the same definitions, and settings can be changed."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import AssetKey, AssetSpec, Definitions
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing import create_defs_folder_sandbox

from cdc_assets import definitions
from cdc_assets.component import CdcFeedComponent
from cdc_assets.config import load_feeds
from cdc_assets_tests.test_definitions import TWO_FEEDS, VERIFIED, keep

# Dagster's, of parts of its own.
pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")

TABLES = [("sales", "orders"), ("sales", "customers")]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the feeds file, and a lakehouse without tables."""
    (tmp_path / "feeds.yaml").write_text(TWO_FEEDS)
    monkeypatch.setenv("CDC_FEEDS", str(tmp_path / "feeds.yaml"))
    monkeypatch.setenv("CDC_LAKEHOUSE", str(tmp_path / "lake"))
    return tmp_path


def component(**attributes: Any) -> dict[str, Any]:
    return {"type": "cdc_assets.component.CdcFeedComponent", "attributes": attributes}


@contextmanager
def loaded(*components: dict[str, Any]) -> Iterator[Definitions]:
    with create_defs_folder_sandbox() as sandbox:
        for each in components:
            sandbox.scaffold_component(CdcFeedComponent, scaffold_params={"feed": "x"}, defs_yaml_contents=each)
        with sandbox.build_all_defs() as defs:
            yield defs


def specs_of(defs: Definitions) -> dict[AssetKey, AssetSpec]:
    """Return the specs without their metadata, in which Dagster states the file of the definition."""
    return {spec.key: spec.replace_attributes(metadata={}) for spec in defs.resolve_all_asset_specs()}


def test_feeds_are_those_of_the_definitions(home: Path) -> None:
    keep(home, "shop", str(home / "lake"), TABLES)
    all_feeds = definitions.build_definitions(load_feeds())
    with loaded(component(feed="shop"), component(feed="crm")) as defs:
        assert AssetKey(["shop", "history", "sales", "orders"]) in specs_of(defs)
        assert specs_of(defs) == specs_of(all_feeds)
        assert defs.resolve_asset_graph().asset_check_keys == all_feeds.resolve_asset_graph().asset_check_keys
        repository = defs.get_repository_def()
        assert {"cdc_pipeline_shop", "cdc_pipeline_crm"} <= {job.name for job in repository.get_all_jobs()}
        assert {sensor.name for sensor in repository.sensor_defs} == {"new_records_shop", "new_records_crm"}


def test_a_feed_with_verify_has_its_job_and_schedule(home: Path) -> None:
    (home / "feeds.yaml").write_text(VERIFIED)
    keep(home, "shop", str(home / "lake"), TABLES)
    with loaded(component(feed="shop"), component(feed="crm")) as defs:
        repository = defs.get_repository_def()
        assert [schedule.name for schedule in repository.schedule_defs] == ["verify_shop_schedule"]
        assert repository.has_job("verify_shop")


class OfTheLake(CdcFeedComponent):
    """As a project would write it."""

    def get_asset_spec(self, spec: AssetSpec) -> AssetSpec:
        return spec.replace_attributes(group_name=f"crm_{spec.key.path[-1]}").merge_attributes(tags={"of": self.feed})


def test_one_feed_is_taken_alone_and_a_subclass_changes_its_assets(home: Path) -> None:
    changed = component(feed="crm") | {"type": f"{OfTheLake.__module__}.{OfTheLake.__name__}"}
    with loaded(changed) as defs:
        specs = specs_of(defs)
        assert {key.path[0] for key in specs} == {"crm"}
        raw = specs[AssetKey(["crm", "raw_records"])]
        assert (raw.group_name, raw.tags["of"]) == ("crm_raw_records", "crm")
        assert raw.description == specs_of(definitions.build_definitions(load_feeds()))[raw.key].description


def test_a_missing_feed_is_reported(home: Path) -> None:
    with pytest.raises(ComponentTreeException) as failed, loaded(component(feed="shp")):
        pass
    message = str(failed.value.__cause__)
    assert message.endswith(
        f"defs.yaml: attributes.feed: 'shp' is not in {home}/feeds.yaml; allowed: shop, crm, or any name with settings"
    )


SETTINGS = {"protocol": "open-protocol", "source": {"recorded": "records"}}


def test_a_feed_has_its_settings_in_its_own_file(home: Path) -> None:
    with loaded(component(feed="billing", settings=SETTINGS), component(feed="crm")) as defs:
        keys = specs_of(defs).keys()
        assert {key.path[0] for key in keys} == {"billing", "crm"}
        # Its stages are those of a feed of the feeds file.
        assert {tuple(k.path[1:]) for k in keys if k.path[0] == "billing"} == {
            tuple(k.path[1:]) for k in keys if k.path[0] == "crm"
        }
        assert "new_records_billing" in {sensor.name for sensor in defs.get_repository_def().sensor_defs}


@pytest.mark.parametrize(
    ("feed", "settings", "message"),
    [
        (
            "shop",
            SETTINGS,
            "attributes.settings: the feed 'shop' is in {home}/feeds.yaml, too; allowed: settings in one",
        ),
        (
            "billing",
            SETTINGS | {"protocol": "canal"},
            'defs.yaml: attributes.settings.protocol: found "canal"; allowed: canal-json',
        ),
        ("billing", SETTINGS | {"zone": "UTC"}, "defs.yaml: attributes.settings.zone: unknown"),
    ],
)
def test_wrong_settings_of_a_component(home: Path, feed: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ComponentTreeException) as failed, loaded(component(feed=feed, settings=settings)):
        pass
    assert message.format(home=home) in str(failed.value.__cause__)


def test_dg_finds_it_and_writes_its_file(tmp_path: Path) -> None:
    (point,) = entry_points(group="dagster_dg_cli.registry_modules", name="cdc_assets")
    assert point.load().CdcFeedComponent is CdcFeedComponent
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(CdcFeedComponent, scaffold_params={"feed": "shop"})
        assert yaml.safe_load((path / "defs.yaml").read_text()) == component(feed="shop")
