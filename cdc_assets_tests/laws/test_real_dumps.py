"""Read and load dumps that the real tools took of recorded tables (`record_dumps`), and go on with the streams.

The expected values are the recorded truth, never the output of a tool or of this package.
"""

import json
import struct
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.assets.checks.audit import all_events_placed
from cdc_assets.assets.checks.history import history_complete
from cdc_assets.ddl.apply import apply_ddl
from cdc_assets.initial_load.dumps import DumpedTable, DumpError, find_dumped_tables, read_dump_position
from cdc_assets.initial_load.rows import read_rows
from cdc_assets.mysql_types.types import parse_type
from cdc_assets.stores.storage import LOCAL
from cdc_assets_tests.laws.test_dialects import TICDC, check_states, records_of, settings_of, take, ticdc_types, truth
from cdc_assets_tests.record_dumps import DUMPS, ODD, POSITIONS, rows_at_position, types_of
from cdc_assets_tests.support import Chain, Record, bytes_of

pytestmark = pytest.mark.extended

# Recorded dump -> its format, and the time zone of its TIMESTAMP values: the server's own, or UTC.
RECORDED_DUMPS = {
    "dumpling-5.3.0/csv": ("dumpling-csv", "+09:00"),
    "dumpling-5.3.0/sql": ("dumpling-sql", "UTC"),
}
# Recorded stream -> its scenarios that follow a dump -> the dump.
STREAMS = {
    "canal-json_ext": {"types": "dumpling-5.3.0/sql", "nokey": "dumpling-5.3.0/sql"},
    "open-protocol": {"orders": "dumpling-5.3.0/csv"},
    "simple-json": {"nopk": "dumpling-5.3.0/sql"},
}


def read_table(spark: SparkSession, table: DumpedTable, dump_format: str, zone: str) -> tuple[list[Any], list[Any]]:
    """Return the rows of a dumped table, and the lines that are no rows."""
    schema = apply_ddl({}, table.statement, table.database).tables[table.database, table.table]
    columns = [(c.name, parse_type(c.type or "")) for c in schema.columns if not c.generated]
    rows = read_rows(spark, LOCAL, dump_format, table.files, columns, zone).collect()
    return [r["values"].asDict() for r in rows if r["bad"] is None], [r["bad"] for r in rows if r["bad"]]


def parse_value(text: str | None, mysql_type: str, *, is_rounded: bool = False) -> Any:
    """Return the value of a text of the truth or of a dump; `is_rounded`: FLOAT has MariaDB's six digits."""
    if text is None:
        return None
    base = mysql_type.partition("(")[0].partition(" ")[0]
    if base == "float" and is_rounded:
        return float(f"{struct.unpack('f', struct.pack('f', float(text)))[0]:.6g}")
    if base in {"float", "double"}:
        return float(text)
    if base == "json":
        return json.loads(text)
    if base == "timestamp":
        seconds, _, fraction = text.partition(".")
        return seconds, fraction.ljust(6, "0")
    if "zerofill" in mysql_type:
        return int(text)
    return text.removeprefix("0x").upper() if base.endswith(("binary", "blob")) else text


@pytest.mark.parametrize("name", RECORDED_DUMPS)
def test_every_value_is_read_as_the_truth_has_it(name: str, spark: SparkSession) -> None:
    dump_format, zone = RECORDED_DUMPS[name]
    table = find_dumped_tables(LOCAL, str(DUMPS / name), dump_format)["shop", "all_types"]
    types = types_of("types")["all_types"]
    rows, bad_lines = read_table(spark, table, dump_format, zone)
    assert bad_lines == []
    expected = {r["id"]: r for r in rows_at_position("types")["all_types"]}
    assert len(expected) == 6
    assert sorted(r["id"] for r in rows) == sorted(expected)
    wrong = {
        (row["id"], c): (row[c], text)
        for row in rows
        for c, text in expected[row["id"]].items()
        if parse_value(row[c], types[c]) != parse_value(text, types[c], is_rounded=True)
    }
    assert wrong == {}


@pytest.mark.parametrize("name", RECORDED_DUMPS)
def test_dumped_tables_keep_their_names(name: str) -> None:
    dumped = find_dumped_tables(LOCAL, str(DUMPS / name), RECORDED_DUMPS[name][0])
    tables = {table for scenario in POSITIONS for table in rows_at_position(scenario)}
    assert dumped.keys() == {("shop", name) for name in tables | {ODD}}, "no view is a table"
    assert {t.damage for t in dumped.values()} == {""}
    assert all(t.files for t in dumped.values())


@pytest.mark.parametrize("name", RECORDED_DUMPS)
def test_the_position_of_a_server_s_binlog_is_no_tso(name: str) -> None:
    with pytest.raises(DumpError, match=r"is of a MySQL server, at binlog[.]000001:[0-9]+ of its binlog"):
        read_dump_position(LOCAL, str(DUMPS / name))


def load_of(folder: Path, dumps: Mapping[str, str]) -> dict[str, Any]:
    """Return `initial_load` with the tables of some scenarios, by the dump of each scenario.

    Each table is named, because a dump has tables of other scenarios, too.
    """
    (folder / "none").mkdir()
    load: dict[str, Any] = {"path": str(folder / "none"), "format": "dumpling-sql", "tables": {}}
    for scenario, name in dumps.items():
        for table in rows_at_position(scenario):
            own = {"path": str(DUMPS / name), "format": RECORDED_DUMPS[name][0], "position": POSITIONS[scenario]}
            load["tables"][f"shop.{table}"] = own
    return load


def records_after(records: list[Record], position: int) -> list[Record]:
    """Return the Canal-JSON records that a changefeed sends if it begins at a position."""
    numbers = Counter[tuple[str, int]]()
    later = []
    for line in records:
        extension = json.loads(bytes_of(line))["_tidb"]
        if extension.get("commitTs", extension.get("watermarkTs")) > position:
            place = line["topic"], line["partition"]
            later.append(line | {"offset": numbers[place]})
            numbers[place] += 1
    return later


@pytest.mark.parametrize("stream", STREAMS)
def test_a_real_dump_and_the_recorded_stream_after_it_give_the_truth(
    stream: str, spark: SparkSession, tmp_path: Path
) -> None:
    dumps = STREAMS[stream]
    settings = settings_of(TICDC / stream / "orders")
    made = Chain(spark, tmp_path / "feed", initial_load=load_of(tmp_path, dumps), **settings)
    for scenario in dumps:
        records = records_of(TICDC / stream / scenario)
        made.add(records_after(records, POSITIONS[scenario]) if stream == "canal-json_ext" else records)
    report = made.run()
    loaded = {each.table: each.rows for each in report.release.loaded}
    assert loaded == {table: len(rows) for scenario in dumps for table, rows in rows_at_position(scenario).items()}
    assert (report.release.covered == 0) == (stream == "canal-json_ext")
    assert report.release.late_unseen == 0
    assert report.types.wrong == []
    assert {row["reason"] for row in made.quarantine()} == ({"zero_date"} if "types" in dumps else set())
    assert all_events_placed(made.lake, made.feed).passed
    assert [r.table for r in report.history if not history_complete(r).passed] == []
    for scenario in dumps:
        if scenario == "nokey":
            check_states(made, scenario, since=POSITIONS[scenario])
        else:
            check_versions_since(made, scenario, POSITIONS[scenario])


def cut_into_runs(records: list[Record], runs: int, random: Random) -> list[list[Record]]:
    """Return the records of each of some runs: each partition is cut at random offsets, so that a part may be empty."""
    places: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for line in records:
        places[line["topic"], line["partition"]].append(line)
    parts: list[list[Record]] = [[] for _ in range(runs)]
    for lines in places.values():
        lines.sort(key=lambda line: line["offset"])
        cuts = sorted(random.randint(0, len(lines)) for _ in range(runs - 1))
        for part, start, end in zip(parts, [0, *cuts], [*cuts, len(lines)], strict=True):
            part.extend(lines[start:end])
    return parts


def send_again(records: list[Record]) -> list[Record]:
    """Return the same records at the offsets after those of their partitions."""
    sizes = Counter((line["topic"], line["partition"]) for line in records)
    return [line | {"offset": line["offset"] + sizes[line["topic"], line["partition"]]} for line in records]


@pytest.mark.parametrize("seed", range(2))
def test_a_load_and_a_stream_in_any_runs_and_sent_again_give_the_recorded_truth(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    stream, scenario, random = "open-protocol", "orders", Random(seed)
    load = load_of(tmp_path, {scenario: STREAMS[stream][scenario]})
    made = Chain(spark, tmp_path / "feed", initial_load=load, **settings_of(TICDC / stream / scenario))
    records = records_of(TICDC / stream / scenario)
    for part in [*cut_into_runs(records, 4, random), random.sample(send_again(records), len(records))]:
        made.add(part)
        assert made.run().release.late_unseen == 0
    assert made.quarantine() == []
    assert all_events_placed(made.lake, made.feed).passed
    check_versions_since(made, scenario, POSITIONS[scenario])


def check_versions_since(made: Chain, scenario: str, at: int) -> None:
    """Check that the histories of tables loaded at a position are the truth from there on."""
    types = ticdc_types(scenario)
    versions: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for database, table in types:
        for row in made.history(table, database):
            versions[table, row["_cdc_from_ts"], row["_cdc_to_ts"]].append(row)
    for true in truth(TICDC, scenario, "history"):
        if true["kind"] != "version" or (true["valid_to"] or at + 1) <= at:
            continue
        place = true["table"], max(true["valid_from"], at), true["valid_to"]
        # A dump has no generated columns.
        values = {c: v for c, v in true["values"].items() if true["valid_from"] > at or not c.startswith("g_")}
        assert take(values, versions[place], types[true["schema"], true["table"]]), (place, values, versions[place])
    assert not any(versions.values()), "versions that the truth does not have"
