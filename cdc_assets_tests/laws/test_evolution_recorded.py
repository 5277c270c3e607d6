"""Compare recorded streams of real encoders, with DDL of every kind, with the recorded truth.

TiCDC's streams have a commit_ts: the versions are compared, interval for interval. For the others, the rows that
the source had in the end are compared. `EVOLUTION_ALL=1` runs every recorded configuration, not only one of each
kind.
"""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc_assets import read
from cdc_assets.assets.checks.history import reload_required
from cdc_assets.lakehouse.lakehouse import history_tables
from cdc_assets.operations.diff import DiffSide, compare_rows
from cdc_assets.operations.why.explain import explain_row
from cdc_assets.operations.why.life import Fate
from cdc_assets_tests.laws.test_dialects import (
    MYSQL,
    TICDC,
    Row,
    assert_nothing_left,
    settings_of,
    take,
    ticdc_types,
    truth,
)
from cdc_assets_tests.support import Chain, Reports, read_lines

ALL = bool(os.environ.get("EVOLUTION_ALL"))
RECORDED_DDL = [Path(str(path).partition(".jsonl")[0]) for path in MYSQL.parent.glob("*/*/ddl*.jsonl*")]


def chosen(recorded: Iterable[Path], *some: str) -> list[Any]:
    """Return the recorded streams, or those of some configurations."""
    selected = sorted(path for path in recorded if ALL or path.parent.name in some)
    assert {path.parent.name for path in selected} >= set(some)
    return [pytest.param(path, id=path.parent.name) for path in selected]


def run(chain: Callable[..., Chain], stream: Path) -> tuple[Chain, Reports]:
    made = chain(**settings_of(stream))
    made.add(read_lines(stream))
    report = made.run()
    assert report.types.wrong == []
    assert_nothing_left(made)
    return made, report


def open_rows(made: Chain) -> dict[tuple[str, str], list[Row]]:
    tables = history_tables(made.lake.root, made.lake.feed)
    return {name: [r for r in made.history(name[1], name[0]) if r["_cdc_is_current"]] for name in tables}


# --- TiCDC

TIMED = [p for p in RECORDED_DDL if p.is_relative_to(TICDC) and p.parent.name not in {"truth", "canal-json"}]
UNTIMED = [TICDC / "canal-json/ddl"]
# `rename table product to product_v2`; `drop table product_v2`, then CREATE TABLE with another type of `price`.
RENAMED, DROPPED = 470590943200804873, 470590949760434182
TYPES_ASIDE = {f"price__until_{DROPPED}": "decimal(10,2)"}


def versions() -> Iterator[Row]:
    """Return the versions of the truth; a RENAME ends an open version, which goes on in the other history."""
    for v in truth(TICDC, "ddl", "history"):
        if v["kind"] != "version":
            continue
        if v["table"] == "product" and v["valid_from"] < RENAMED < (v["valid_to"] or RENAMED + 1):
            yield v | {"valid_to": RENAMED}
            v |= {"table": "product_v2", "valid_from": RENAMED}
        yield v


def column_of(version: Row, name: str) -> str:
    """Return the name that a column of a version has in the history."""
    if name == "price" and version["table"] == "product_v2" and version["valid_from"] < DROPPED:
        return f"price__until_{DROPPED}"
    return "full_name" if name == "name" else name


@pytest.mark.parametrize("stream", chosen(TIMED, "canal-json_ext_only-updated", "debezium_ext_noschema"))
def test_versions_are_the_recorded_truth(stream: Path, chain: Callable[..., Chain]) -> None:
    made, _ = run(chain, stream)
    got: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for table in ("product", "product_v2", "keyed"):
        for row in made.history(table):
            got[table, row["_cdc_from_ts"], row["_cdc_to_ts"]].append(row)
    types = ticdc_types("ddl")
    for v in versions():
        expected = {column_of(v, name): value for name, value in v["values"].items()}
        version_rows = got[v["table"], v["valid_from"], v["valid_to"]]
        of_columns = types["shop", "product"] | types["shop", v["table"]] | TYPES_ASIDE
        # A version that was open when a column was added has its default.
        assert take(expected, version_rows, of_columns, lossy=True), (v, version_rows)
    assert not any(got.values()), "versions that the truth does not have"
    assert_asked_across_the_rename(made)


def assert_asked_across_the_rename(made: Chain) -> None:
    """Assert that `why`, `read` and `diff` under both names of the table agree about the moved rows."""
    ended = [v for v in versions() if v["valid_from"] < RENAMED == v["valid_to"] and v["table"] == "product"]
    moved = {str(v["key"]["id"]): v["valid_from"] for v in ended}
    assert len(moved) > 5
    for key, since in sorted(moved.items())[:2]:
        end, version, *_ = explain_row(made.lake, made.feed, "shop.product", [key]).steps
        assert (end.fate, end.commit_ts, end.op, end.record) == (Fate.END, RENAMED, "rename", None)
        assert end.statement is not None
        assert end.statement.text.lower().startswith("rename table")
        assert (version.fate, version.commit_ts, version.until) == (Fate.VERSION, since, RENAMED)
        *_, first = explain_row(made.lake, made.feed, "shop.product_v2", [key]).steps
        assert (first.fate, first.commit_ts, first.op, first.statement) == (
            Fate.VERSION,
            RENAMED,
            "ddl",
            end.statement,
        )
    old, new = (
        read.table("f", f"shop.{t}", root=made.lake.root, spark=made.lake.spark) for t in ("product", "product_v2")
    )
    for position, holder, other in ((RENAMED - 1, old, new), (RENAMED, new, old)):
        assert {str(r["id"]) for r in holder.as_of(position, ["id"]).collect()} == moved.keys()
        assert other.as_of(position).count() == 0
    for table, op in ((old, "delete"), (new, "ddl")):
        changes = table.changes_between(RENAMED - 1, RENAMED).collect()
        assert {(c["op"], c["key"]) for c in changes} == {(op, json.dumps([key])) for key in moved}
    for table, counts in ((old, (0, len(moved), 0)), (new, (len(moved), 0, 0))):
        before, after = (DiffSide(made.lake, table.database, table.table, at) for at in (RENAMED - 1, RENAMED))
        difference = compare_rows(before, after)
        assert (difference.inserted, difference.deleted, difference.updated) == counts


@pytest.mark.parametrize("stream", chosen(UNTIMED, "canal-json"))
def test_open_rows_are_the_recorded_truth(stream: Path, chain: Callable[..., Chain]) -> None:
    made, _ = run(chain, stream)
    rows, types = open_rows(made), ticdc_types("ddl")
    for line in truth(TICDC, "ddl", "snapshot_end"):
        place = line["schema"], line["table"]
        assert take(line["row"], rows[place], types[place], lossy=True), (line, rows[place])
    assert not any(rows.values()), "rows that the truth does not have"


# --- the connectors of a MariaDB server

# Values that encoders have lost: Canal reads latin1 as UTF-8; Debezium 1.9 reads latin1 even after CONVERT TO.
LOST = {"canal1": {("K0", "ref"), ("K2", "ref"), ("K3", "ref")}, "dbz195": {("K10", "ref")}}
# Its statements and rows of one second are in several topics and partitions, so their order is unknown.
UNORDERED = "canal117-flat-dyn3-shanghai"
OF_SERVERS = [p for p in RECORDED_DDL if p.is_relative_to(MYSQL) and p.parent.name not in {"truth", UNORDERED}]


@pytest.mark.parametrize("stream", chosen(OF_SERVERS, "canal117-flat", "dbz195-schemas-trunc", "dbz350m-schemas"))
def test_open_rows_are_what_the_server_held(stream: Path, chain: Callable[..., Chain]) -> None:
    made, report = run(chain, stream)
    lost = LOST.get(stream.parent.name[:6], set())
    shapes = json.loads((MYSQL / "truth/ddl.schema.json").read_text())
    types = {table: {c["name"]: c["column_type"] for c in shape["columns"]} for table, shape in shapes.items()}
    rows = open_rows(made)
    for line in truth(MYSQL, "ddl", "final"):
        table_rows = rows[line["db"], line["table"]]
        expected = {name: v for name, v in line["row"].items() if (line["row"].get("id"), name) not in lost}
        # The history has earlier columns, too.
        assert take(expected, table_rows, types[line["table"]], lossy=True), (line, table_rows)
    assert not any(rows.values()), "rows that the truth does not have"
    (orders,) = [each for each in report.history if each.table == "orders"]
    assert not reload_required(orders).passed
