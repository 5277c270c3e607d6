"""What a person sees in a real browser: what `make ui-test` runs; `make test` has a short form in test_as_a_user.py.

One story: a first run; a second, on the next day in the source, whose last change has a type code of no document; a third
without news. On the way the picture of the graph in docs/ is made anew.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from cdc_assets_tests.assets.test_as_a_user import JOB, ORDERS, PROJECT, WRONG, Story, coded, serve
from cdc_assets_tests.support import Stream, ddl, tso

pytestmark = pytest.mark.extended

NEXT_DAY = 2 * 60 * 60 * 1000  # the story begins at 22:13
_GRAPH = PROJECT / "docs/asset-graph.png"
_STAGES = [
    "raw_records",
    "change_events",
    "table_schemas",
    "type_observations",
    "released_changes",
    "history",
    "quarantine",
]


@pytest.fixture(scope="module")
def story(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The web server, over what the runs have told."""
    story = Story(tmp_path_factory.mktemp("project"))
    (story.home / "dagster.yaml").write_text((PROJECT / "dagster.yaml").read_text())
    story.feeds("block")
    stream = Stream(partitions=2)
    create = "CREATE TABLE `shop`.`orders` (`id` BIGINT PRIMARY KEY, `v` VARCHAR(20))"
    stream.send(ddl(create, tso(5), table="orders"), 0)
    stream.send(coded(ORDERS.insert(tso(10), 1, "a")), 0)
    stream.send(coded(ORDERS.insert(tso(20), 2, "b")), 1)
    stream.watermark(tso(100))
    story.snapshot("1.jsonl", stream.records)
    story.execute("first", JOB)
    with serve(story):
        page.goto(f"{story.server}/locations/cdc_assets/asset-groups/shop")
        for name in [*_STAGES, "orders"]:
            expect(page.get_by_text(name, exact=True).first).to_be_visible()
        expect(page.get_by_text("7 / 7 Passed").first).to_be_visible()
        page.screenshot(path=_GRAPH, clip={"x": 300, "y": 190, "width": 2065, "height": 640})
        before = len(stream.records)
        stream.send(coded(ORDERS.update(tso(NEXT_DAY), 2, "c", old="b")), 1)
        stream.send(coded(ORDERS.insert(tso(NEXT_DAY + 10), 4, "wrong code"), WRONG), 1)
        stream.watermark(tso(NEXT_DAY + 100))
        story.snapshot("2.jsonl", stream.records[before:])
        story.execute("held", JOB)
        story.execute("idle", JOB)
        assert list(story.codes.values()) == [0, 0, 0]
        yield story


def open_asset(page: Page, story: Story, path: str, view: str) -> None:
    page.goto(f"{story.server}/assets/shop/{path}?view={view}")


def test_a_check_that_failed_shows_what_broke_it_and_what_to_do(story: Story, page: Page) -> None:
    open_asset(page, story, "type_observations", "checks")
    page.get_by_text("jdbc_type_mapping").first.click()
    expect(page.get_by_text("Failed").first).to_be_visible()
    expect(page.get_by_text("violations").first).to_be_visible()
    expect(page.get_by_text("not a code of this type").first).to_be_visible()


def test_an_asset_after_a_run_without_new_records_shows_the_last_change(story: Story, page: Page) -> None:
    open_asset(page, story, "raw_records", "overview")
    row = page.get_by_role("row").filter(has_text="records_taken_in")
    expect(row.get_by_text("4", exact=True)).to_be_visible()  # two changes, and a watermark to each of two partitions


def test_the_gate_says_first_what_is_held_up_and_why(story: Story, page: Page) -> None:
    open_asset(page, story, "released_changes", "overview")
    expect(page.get_by_text("held tables: 1").first).to_be_visible()
    expect(page.get_by_text("breaks the type mapping").first).to_be_visible()
    expect(page.get_by_text("give its type under columns: in the feeds file").first).to_be_visible()
    page.get_by_text("[Show Markdown]").first.click()
    expect(page.get_by_role("img", name="Seconds from the released watermark")).to_be_visible()


def test_a_table_shows_its_versions_by_day(story: Story, page: Page) -> None:
    open_asset(page, story, "history/shop/orders", "overview")
    page.get_by_text("[Show Markdown]").first.click()
    expect(page.get_by_role("img", name="Versions that the changes of each day opened")).to_be_visible()


def test_the_automation_page_has_sensor_and_schedules(story: Story, page: Page) -> None:
    page.goto(f"{story.server}/automation")
    for name in ("new_records", "cdc_pipeline_hourly", "maintenance_nightly", "audit_weekly"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()


def test_the_page_that_runs_make_says_what_needs_somebody(story: Story, page: Page) -> None:
    page.goto((story.home / ".cdc_state/shop.html").as_uri())
    expect(page.get_by_text("shop.orders: the table is blocked ").first).to_be_visible()
    assert page.locator("svg").count() >= 3
    assert Path(page.url.removeprefix("file://")).is_file()
