"""Check what users read: links, the README's list of pages, examples, and the list of checks.

The examples that ask tables are run by operations/test_read_diff_why.py.
"""

import re
import textwrap
from pathlib import Path

import pytest

from cdc_assets.config import load_feeds
from cdc_assets.definitions import build_definitions
from cdc_assets_tests.laws.evolution_cases import CASES
from cdc_assets_tests.test_definitions import keep

pytestmark = pytest.mark.fast

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
EXAMPLES = [(page, at) for page in PAGES for at in range(len(re.findall(r"```yaml\n", page.read_text("utf-8"))))]
TESTS = PROJECT / "cdc_assets_tests"
FOLDERS = {path.parent.name for path in TESTS.glob("cases/*/expected.json")}
_NAMED = "feeds: {shop: {protocol: simple, source: {recorded: x}}}\n"


def links(page: Path) -> list[tuple[Path, str]]:
    """Return the files to which a page links, each with the heading in it, "" without one."""
    targets = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text("utf-8"))
    return [
        ((page.parent / name).resolve() if name else page, heading) for name, heading in targets if "://" not in name
    ]


def headings(page: Path) -> set[str]:
    """Return the headings of a page as links name them."""
    texts = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("document", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(document: Path) -> None:
    for file, heading in links(document):
        assert file.is_file(), file
        assert not heading or heading in headings(file), heading


def test_every_page_can_be_reached_from_the_readme() -> None:
    assert {file for file, _ in links(PAGES[0])} >= set(PAGES[1:])


@pytest.mark.parametrize(
    ("document", "at"), EXAMPLES, ids=lambda part: part.name if isinstance(part, Path) else str(part)
)
def test_feeds_files_in_examples_are_right(
    document: Path, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = re.findall(r"```yaml\n(.*?)```", document.read_text("utf-8"), re.DOTALL)[at]
    for variable in re.findall(r"\$\{(\w+)\}", text):
        monkeypatch.setenv(
            variable, "jdbc:mysql://db.example/" if variable.endswith("JDBC") else "https://example.com/x"
        )
    if not text.startswith(" "):
        text = text if text.startswith("feeds:") else _NAMED + text
    else:  # settings of one feed
        source = "" if "source:" in text else "    source: {recorded: x}\n"
        text = "feeds:\n  shop:\n    protocol: simple\n" + source + textwrap.indent(textwrap.dedent(text), "    ")
    (tmp_path / "feeds.yaml").write_text(text, "utf-8")
    assert "shop" in load_feeds(tmp_path / "feeds.yaml").feeds


# Together these feeds have every check.
FEEDS = """
feeds:
  snapshots:
    protocol: canal-json
    source: {recorded: snapshots}
    verify: {jdbc: "jdbc:mysql://db.example/", cron: "0 4 * * *"}
  debezium:
    protocol: debezium
    source: {recorded: debezium}
  live:
    protocol: simple
    freshness_minutes: 30
    source: {kafka: {bootstrap_servers: "127.0.0.1:1", topics: [t]}}
"""


def test_the_page_of_checks_has_every_check_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "feeds.yaml").write_text(FEEDS, "utf-8")
    monkeypatch.setenv("CDC_FEEDS", str(tmp_path / "feeds.yaml"))
    monkeypatch.setenv("CDC_LAKEHOUSE", str(tmp_path / "lake"))
    keep(tmp_path, "snapshots", str(tmp_path / "lake"), [("shop", "orders")])
    page = (PROJECT / "docs/checks.md").read_text("utf-8")
    names = {key.name for key in build_definitions(load_feeds()).resolve_asset_graph().asset_check_keys}
    assert set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE)) == names


def has_test(test: str) -> bool:
    """Return whether a test exists, named as docs/schema-evolution.md does: `file::function`, or `file[case]`."""
    file, function, case = re.fullmatch(r"([\w/]+\.py)(?:::(\w+)|\[(\w+)\])", test).groups()
    text = (TESTS / file).read_text("utf-8")
    if function:
        return f"\ndef {function}(" in text
    return case in {"test_cases.py": FOLDERS, "laws/test_evolution.py": {c.name for c in CASES}}[file]


def test_each_statement_form_has_its_test() -> None:
    page = (PROJECT / "docs" / "schema-evolution.md").read_text("utf-8")
    forms = page.partition("\n## Statement by statement\n")[2].partition("\n## ")[0].splitlines()
    rows = [line for line in forms if line.startswith("| ") and not line.endswith("| Test |")]
    assert rows
    for row in rows:
        tests = re.findall(r"`([^`]+)`", row.rpartition(" | ")[2])
        assert tests, row
        assert [test for test in tests if not has_test(test)] == [], row
