"""Check that every protocol and dialect gives the same typed history: recorded streams against the recorded truth.

With commit_ts in the messages, the versions are compared, interval for interval. Without, the sequence of versions
of each key, and the open rows. In tables without a key equal rows are interchangeable, so the rows at every
commit_ts are compared.
"""

import base64
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.assets.checks.audit import all_events_placed, all_records_decoded, each_record_once
from cdc_assets.history import open_versions, table_plan
from cdc_assets.lakehouse.lakehouse import history_tables
from cdc_assets.mysql_types.descriptors import SPATIAL
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import Watermarks
from cdc_assets.spark import session
from cdc_assets.stages.release import run as release
from cdc_assets_tests.laws.conservation import conserved
from cdc_assets_tests.laws.text_of_mysql import same
from cdc_assets_tests.support import RECORDED, Chain, Record, Reports, bytes_of, histories, read_lines, rows_in

TICDC, MYSQL = RECORDED / "ticdc", RECORDED / "mysql"
Row = dict[str, Any]

GATED = [
    ("canal-json_ext", "nopk_raw"),
    ("canal-json_ext", "types"),
    ("canal-json_ext_only-updated", "orders"),
    ("canal-json_ext", "large"),
    ("canal-json_ext_only-updated", "nopk"),
    ("canal-json_ext_only-updated", "nopk_raw"),
    ("canal-json_ext_only-updated", "tz"),
    ("canal-json_ext_content-compatible", "nopk"),
    ("canal-json_ext_content-compatible", "types"),
    ("canal-json_ext_content-compatible", "tz"),
    ("canal-json_ext_delete-handle-only", "nopk"),
    ("canal-json_ext_claim-check", "large"),
    ("canal-json_ext_lz4", "large"),
    ("open-protocol", "orders"),
    ("open-protocol", "nopk"),
    ("open-protocol", "nopk_raw"),
    ("open-protocol", "types"),
    ("open-protocol", "large"),
    ("open-protocol_batch1", "tz"),
    ("open-protocol_batch1", "nopk"),
    ("open-protocol_only-updated", "orders"),
    ("open-protocol_only-updated", "nopk"),
    ("open-protocol_only-updated", "nopk_raw"),
    ("open-protocol_only-updated", "types"),
    ("open-protocol_delete-handle-only", "nopk"),
    ("open-protocol_claim-check", "large"),
    ("simple-json", "nopk_raw"),
    ("simple-json_checksum", "nopk"),
    ("simple-json_claim-check", "large"),
    ("simple-avro", "nopk_raw"),
    ("simple-avro_checksum", "nopk"),
    ("simple-avro_claim-check", "large"),
    ("debezium_ext_noschema", "nopk"),
    ("debezium_ext_noschema", "types"),
    ("debezium_ext_noschema", "tz"),
]
UNGATED = [
    ("canal-json", "orders"),
    ("canal-json", "nopk"),
    ("canal-json", "types"),
    ("canal-json", "tz"),
    ("debezium", "nopk"),
    ("debezium", "tz"),
]
KEYLESS = [
    ("canal-json_ext", "nokey"),
    ("canal-json_ext_content-compatible", "nokey"),
    ("canal-json_ext_only-updated", "nokey"),
    ("open-protocol", "nokey"),
    ("open-protocol_only-updated", "nokey"),
    ("debezium_ext_noschema", "nokey"),
]
KEY_ONLY = [
    ("canal-json_ext_handle-key-only", b"onlyHandleKey", "value", b'"type":"DELETE"'),
    ("open-protocol_handle-key-only", b"ohk", "key", b'{"d":'),
    ("simple-json_handle-key-only", b"handleKeyOnly", "value", b'"type":"DELETE"'),
]
CANAL = [
    ("canal117-flat", "customers"),
    ("canal117-flat", "composite"),
    ("canal117-flat", "bulk"),
    ("canal117-flat", "extra"),
    ("canal117-flat", "types"),
    ("canal117-flat", "types-rowmeta-minimal"),
    ("canal117-flat-gtid", "customers"),
    ("canal117-flat-dyn3-shanghai", "customers"),
    ("canal117-flat-dyn3-shanghai", "composite"),
    ("canal117-flat-dyn3-shanghai", "bulk"),
    ("canal117-flat-dyn3-shanghai", "extra"),
    ("canal117-flat-dyn3-shanghai", "types"),
]
# Canal reads texts of these character sets as UTF-8 and loses them; the truth has rounded values of (15,4).
NOT_ON_THE_WIRE = ("latin1", "sjis", "gbk", "ucs2", "(15,4)")
# A JSON column of MariaDB, which has no binary JSON: Canal takes its text for bytes.
TAKEN_FOR_BYTES = ("docs_json", "j")


def settings_of(stream: Path) -> dict[str, Any]:
    """Return the settings that a recorded stream needs in the feeds file."""
    config, scenario = stream.parent.name, stream.name
    protocols = {name: name for name in ("open-protocol", "simple", "debezium")} | {"dbz": "debezium"}
    named = (protocol for name, protocol in protocols.items() if config.startswith(name))
    settings: dict[str, Any] = {"protocol": next(named, "canal-json")}
    if config.startswith("simple-avro"):
        settings["encoding"] = "avro"
    if config.startswith("canal-json_ext"):
        settings["tidb_extension"] = True
    if scenario == "tz":
        settings["time_zone"] = "Asia/Tokyo"
    if config.endswith("shanghai"):
        settings["time_zone"] = "Asia/Shanghai"
    if "claim" in config:
        settings["claim_check"] = str(TICDC / "claimcheck-files")
    return settings


# These scenarios have TIMESTAMP in another zone, or tables that another scenario also has.
APART = {"tz", "nopk_raw", "types-rowmeta-minimal"}


@pytest.fixture(scope="module")
def scenario_of(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Chain]:
    """Return the chain that ran a recorded scenario.

    The scenarios of one configuration are topics of one feed, unless they share tables.
    """
    done: dict[tuple[str, bool], Chain] = {}

    def made(config: str, scenario: str) -> Chain:
        apart = scenario in APART
        if (config, apart) not in done:
            listed = GATED + UNGATED + KEYLESS + CANAL
            together = sorted({s for c, s in listed if c == config and (s in APART) == apart})
            streams = {s: (MYSQL if config.startswith("canal117") else TICDC) / config / s for s in together}
            settings: dict[str, Any] = {}
            for stream in streams.values():
                settings |= settings_of(stream)
            chain = Chain(spark, tmp_path_factory.mktemp(config), **settings)
            for path in streams.values():
                chain.add(records_of(path))
            report = chain.run()
            sound(report)
            events = report.decode.records * protocol_of(chain.feed).events_a_record
            assert evaluation(spark, events) == "NO_CODEGEN"  # `test_compiled` compares with these histories
            accounted_for(chain, config)
            done[config, apart] = chain
        return done[config, apart]

    return made


def evaluation(spark: SparkSession, rows: int) -> str | None:
    """Return Spark's code generation mode for plans over this many rows."""
    return session.session_for(spark, rows).conf.get(session._CODEGEN_MODE)


def records_of(stream: Path) -> list[Record]:
    """Return a scenario's records; its topics get other names, because all scenarios have the same ones."""
    return [r | {"topic": f"{stream.name}.{r['topic']}"} for r in read_lines(stream)]


def run(spark: SparkSession, folder: Path, stream: Path, cuts: int = 1, **settings: Any) -> Chain:
    made = Chain(spark, folder, **(settings_of(stream) | settings))
    records = records_of(stream)
    for n in range(cuts):
        made.add(records[len(records) * n // cuts : len(records) * (n + 1) // cuts])
        sound(made.run())
    accounted_for(made, stream.parent.name)
    return made


def sound(report: Reports) -> None:
    """Assert that the messages of real encoders follow the rules, and that no check fails without a reason."""
    assert report.types.wrong == []
    assert [row for table in report.history for row in table.breaks.sample] == [], "no event is lost"
    assert report.release.late_sample == []


def accounted_for(made: Chain, config: str) -> None:
    """Assert the conservation law, from the tables if the feed has watermarks, else by the audits."""
    if protocol_of(made.feed).watermarks(made.feed) is Watermarks.ALWAYS or "debezium_ext" in config:
        conserved(made.lake, made.feed)
    else:
        assert_nothing_left(made)


def assert_nothing_left(made: Chain) -> None:
    """Assert that every record and every row event is accounted for."""
    for verdict in (
        all_records_decoded(made.lake),
        all_events_placed(made.lake, made.feed),
        each_record_once(made.lake),
    ):
        assert verdict.passed, verdict.description


def truth(folder: Path, scenario: str, what: str) -> list[dict[str, Any]]:
    return read_lines(folder / "truth" / f"{scenario}.{what}")


def ticdc_types(scenario: str) -> dict[tuple[str, str], dict[str, str]]:
    types: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for shape in truth(TICDC, scenario, "tables"):
        types[shape["schema"], shape["table"]] |= {c["name"]: c["type"] for c in shape["columns"]}
    return types


def with_defaults(scenario: str, version: dict[str, Any]) -> Row:
    """Return the values of a version of the truth, with the defaults of columns that were added while it was open."""
    values = dict(version["values"])
    shapes = [s for s in truth(TICDC, scenario, "tables") if s["table"] == version["table"]]
    for before, after in itertools.pairwise(shapes):
        if version["valid_from"] < after["since_commit_ts"] < (version["valid_to"] or math.inf):
            old_names = {c["name"] for c in before["columns"]}
            values |= {c["name"]: c["default"] for c in after["columns"] if c["name"] not in old_names}
    return values


def row_same(
    want: Row,
    got: Row,
    types: dict[str, str],
    *,
    lossy: bool = False,
    defaults: dict[str, str] | None = None,
    **more: Any,
) -> bool:
    """Return whether a version holds the values of the truth, and no others but defaults unless the source is `lossy`."""
    # Most pairs that are compared differ in their first column.
    if not all(c in got and same(v, types[c], got[c], **more) for c, v in want.items()):
        return False
    given = defaults or {}
    rest = {c: v for c, v in got.items() if not c.startswith("_cdc_") and c not in want and v is not None}
    return lossy or all(c in given and same(given[c], types[c], v, **more) for c, v in rest.items())


def take(want: Row, candidates: list[Row], types: dict[str, str], **more: Any) -> bool:
    """Remove the candidate that is `want`, and return whether there was one."""
    hit = next((n for n, c in enumerate(candidates) if row_same(want, c, types, **more)), None)
    if hit is not None:
        candidates.pop(hit)
    return hit is not None


@pytest.mark.parametrize(("config", "scenario"), GATED)
def test_versions_are_the_recorded_truth(config: str, scenario: str, scenario_of: Callable[[str, str], Chain]) -> None:
    made = scenario_of(config, scenario)
    # TiCDC's Debezium encoder writes decimals as JSON numbers.
    compared = check_versions(made, scenario, double_decimals=config.startswith("debezium"))
    assert compared
    reasons = {row["reason"] for row in made.quarantine() if row["topic"].startswith(f"{scenario}.")}
    assert reasons <= ({"zero_date"} if scenario == "types" else set())


def check_versions(made: Chain, scenario: str, **more: Any) -> int:
    """Compare the versions of a scenario's tables with the truth, interval for interval; return their number."""
    versions: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    types = ticdc_types(scenario)
    for database, table in set(history_tables(made.lake.root, made.lake.feed)) & types.keys():
        for row in made.history(table, database):
            versions[database, table, row["_cdc_from_ts"], row["_cdc_to_ts"]].append(row)
    recorded = [w for w in truth(TICDC, scenario, "history") if w["kind"] == "version"]
    for w in recorded:
        place = (w["schema"], w["table"], w["valid_from"], w["valid_to"])
        zone = {"zone": "Asia/Tokyo"} if scenario == "tz" else {}
        hit = take(with_defaults(scenario, w), versions[place], types[place[:2]], **zone, **more)
        assert hit, (place, w["values"], versions[place])
    assert not any(versions.values()), "versions that the truth does not have"
    return len(recorded)


@pytest.mark.parametrize(("config", "scenario"), UNGATED)
def test_without_the_extension_each_key_has_the_versions_of_the_truth(
    config: str, scenario: str, scenario_of: Callable[[str, str], Chain]
) -> None:
    made = scenario_of(config, scenario)
    types = ticdc_types(scenario)
    sequences: dict[tuple[Any, ...], list[Row | None]] = defaultdict(list)
    for event in truth(TICDC, scenario, "events"):
        if event["op"] != "ddl" and not (event["op"] == "update" and event["before"] == event["after"]):
            place = (event["schema"], event["table"], *(event["key"][c] for c in event["key_cols"]))
            # A delete and an insert of one commit are one update: it closes a version and opens one.
            sequences[place].append(event["after"])
    # A row from before the ADD COLUMN has the default from the statement on, unless it ended before.
    zone = {"zone": "Asia/Tokyo", "defaults": {"added": "2020-02-02 02:02:02"}} if scenario == "tz" else {}
    checked = compare_sequences(made, sequences, types, **zone)
    assert checked == sum(after is not None for images in sequences.values() for after in images)


@pytest.mark.parametrize(("config", "scenario"), KEYLESS)
def test_equal_rows_of_a_table_without_a_key_are_counted(
    config: str, scenario: str, scenario_of: Callable[[str, str], Chain]
) -> None:
    check_states(scenario_of(config, scenario), scenario)


def check_states(made: Chain, scenario: str, since: int = 0) -> None:
    """Compare the rows of a scenario's table without a key with the truth at every commit_ts; copies are numbered.

    `since`: the position at which the history begins, with the rows that the table had already.
    """
    recorded = [w for w in truth(TICDC, scenario, "history") if w["kind"] == "version"]
    ((place, types),) = ticdc_types(scenario).items()
    got = made.history(place[1], place[0])
    points = sorted({max(p, since) for w in recorded for p in (w["valid_from"], w["valid_to"]) if p})

    def at(versions: Iterable[Row], point: int, start: str, end: str) -> list[Row]:
        return [v for v in versions if v[start] <= point and (v[end] is None or point < v[end])]

    for point in points:
        actual = at(got, point, "_cdc_from_ts", "_cdc_to_ts")
        for w in at(recorded, point, "valid_from", "valid_to"):
            assert take(w["values"], actual, types), (point, w["values"])
        assert not actual, point
    copies = defaultdict(set)
    for row in got:
        copies[row["_cdc_key"]].add(row["_cdc_copy"])
    assert all(numbers == set(range(1, len(numbers) + 1)) for numbers in copies.values())
    assert max(len(numbers) for numbers in copies.values()) > 1, "the scenario has equal rows"


def test_replays_of_a_table_without_a_key_are_no_copies(spark: SparkSession, tmp_path: Path) -> None:
    """A changefeed that starts again sends the same rows at new offsets."""
    records = [r for r in read_lines(TICDC / "canal-json_ext/nokey") if r["partition"] == 0]
    again = [r | {"offset": n} for n, r in enumerate([*records[:20], *records])]
    made = Chain(spark, tmp_path / "again", tidb_extension=True)
    made.add(again)
    made.run()
    plain = Chain(spark, tmp_path / "plain", tidb_extension=True)
    plain.add(records)
    plain.run()

    def without_place(chain: Chain) -> list[str]:
        rows = next(iter(histories(chain.lake).values()))
        return sorted(repr({k: v for k, v in r.items() if k != "_cdc_offset"}) for r in rows)

    assert without_place(made) == without_place(plain)
    assert without_place(plain)


@pytest.mark.parametrize(("config", "scenario"), CANAL)
def test_official_canal(config: str, scenario: str, scenario_of: Callable[[str, str], Chain]) -> None:
    made = scenario_of(config, scenario)
    columns, keys = canal_columns(scenario)
    sequences: dict[tuple[Any, ...], list[Row | None]] = defaultdict(list)
    for event in canal_events(scenario):
        place = (event["db"], event["table"])
        key = keys[place[1]]
        before, after = (only(event[image], columns[place[1]]) for image in ("before", "after"))
        if not key or event["before"] == event["after"]:
            continue
        # Canal sends one UPDATE for a changed key, which ends one row and begins another.
        if before and (after is None or any(before[c] != after[c] for c in key)):
            sequences[*place, *(before[c] for c in key)].append(None)
        if after:
            sequences[*place, *(after[c] for c in key)].append(after)
    types = {(db, t): columns[t] for (db, t, *_) in sequences}
    checked = compare_sequences(made, sequences, types, hexadecimal_bits=True, lossy=True)
    assert checked == sum(after is not None for images in sequences.values() for after in images)


@pytest.mark.extended
def test_official_canal_without_a_key_counts_copies(scenario_of: Callable[[str, str], Chain]) -> None:
    """Rows from before the capture are not in the stream: a delete of one closes nothing."""
    made = scenario_of("canal117-flat", "composite")
    types = canal_columns("composite")[0]["audit_log"]
    state: list[Row] = []
    for event in canal_events("composite"):
        if event["table"] == "audit_log":
            if event["before"] in state:
                state.remove(event["before"])
            if event["after"]:
                state.append(event["after"])
    current = [r for r in made.history("audit_log", "dbz_multi") if r["_cdc_is_current"]]
    for row in state:
        assert take(row, current, types), row
    assert state
    assert not current


@pytest.mark.parametrize(
    ("stream", "settings"),
    [
        (TICDC / "canal-json/orders", {}),
        (TICDC / "canal-json_ext/nokey", {"partitions": 2}),
        (TICDC / "open-protocol/orders", {"partitions": 3}),
        (MYSQL / "canal117-flat/customers", {}),
        # A run may precede the first watermark, which shows that the feed has watermarks.
        (TICDC / "debezium_ext_noschema/nopk", {"partitions": 2}),
    ],
    ids=lambda given: given.parent.name if isinstance(given, Path) else None,
)
def test_chop(
    stream: Path,
    settings: dict[str, Any],
    spark: SparkSession,
    tmp_path: Path,
    scenario_of: Callable[[str, str], Chain],
) -> None:
    """However the stream is cut into runs, the histories are equal, row for row."""
    undivided = histories(scenario_of(stream.parent.name, stream.name).lake)
    cut = histories(run(spark, tmp_path, stream, cuts=2, **settings).lake)
    assert cut == {table: undivided[table] for table in cut}
    assert any(cut.values())


def test_chop_between_partitions(spark: SparkSession, tmp_path: Path, scenario_of: Callable[[str, str], Chain]) -> None:
    """Cut inside a second between an UPDATE in one partition and the change of its row's key in another.

    The UPDATE of row 1009 is in partition 2 at offset 21, after the cut. The change of its key to 1047 is in partition 0 at
    offset 34, before the cut, and has the updated row as its row before the change. The first run reports that row; a
    version may be missing, and the same rows are open in the end.
    """
    config, scenario = "canal117-flat-dyn3-shanghai", "customers"
    stream = MYSQL / config / scenario
    made = Chain(spark, tmp_path, **settings_of(stream))
    records = records_of(stream)
    made.add(records[: len(records) // 2])
    breaks = [row for table in made.run().history for row in table.breaks.sample]
    assert [(row["op"], row["partition"], row["offset"], row["columns"]) for row in breaks] == [
        ("delete", 0, 34, ["last_name"])
    ]
    made.add(records[len(records) // 2 :])
    made.run()
    assert_nothing_left(made)
    undivided, cut = histories(scenario_of(config, scenario).lake), histories(made.lake)
    open_rows = {table: [row for row in rows if row["_cdc_is_current"]] for table, rows in cut.items()}
    assert open_rows == {table: [row for row in undivided[table] if row["_cdc_is_current"]] for table in cut}
    assert any(open_rows.values())


@pytest.mark.parametrize(
    "stream",
    [
        TICDC / "canal-json_ext/types",
        pytest.param(TICDC / "open-protocol/types", marks=pytest.mark.soak),
        pytest.param(TICDC / "simple-avro/nopk_raw", marks=pytest.mark.soak),
        pytest.param(TICDC / "debezium_ext_noschema/types", marks=pytest.mark.soak),
    ],
    ids=lambda stream: stream.parent.name,
)
def test_compiled(
    stream: Path,
    spark: SparkSession,
    tmp_path: Path,
    scenario_of: Callable[[str, str], Chain],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark gives the same histories whether it compiles the plans, as for many rows, or interprets them."""
    interpreted = histories(scenario_of(stream.parent.name, stream.name).lake)
    for module in (session, release):
        monkeypatch.setattr(module, "INTERPRETED_ROW_LIMIT", -1)
    assert evaluation(spark, 0) == "FALLBACK"
    compiled = histories(run(spark, tmp_path, stream).lake)
    assert compiled == {table: interpreted[table] for table in compiled}
    assert any(compiled.values())


@pytest.mark.parametrize("is_interpreted", [True, False], ids=["few changes", "many changes"])
@pytest.mark.extended
def test_large_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_interpreted: bool
) -> None:
    """If open versions are closed by deletion vectors, the histories are still the truth."""
    for limit in ("REWRITTEN", "REWRITTEN_A_CHANGE"):
        monkeypatch.setattr(table_plan, limit, -1)
    for module in (session, open_versions) if not is_interpreted else ():
        monkeypatch.setattr(module, "INTERPRETED_ROW_LIMIT", -1)
    made = run(spark, tmp_path, TICDC / "canal-json_ext/orders", cuts=2)
    assert check_versions(made, "orders")
    (name,) = made.lake.histories()
    log = made.lake.history(*name).log()
    assert log is not None
    assert log.may_have_deletion_vectors
    assert not log.has_plain_files


@pytest.mark.parametrize(("config", "mark", "field", "delete"), KEY_ONLY)
def test_rows_that_hold_only_their_key_are_quarantined(
    config: str, mark: bytes, field: str, delete: bytes, spark: SparkSession, tmp_path: Path
) -> None:
    """A DELETE needs no more than its key."""
    stream = TICDC / config / "large"
    made = run(spark, tmp_path, stream)
    # A record of Open Protocol may hold several such rows.
    marked = {(r["partition"], r["offset"]): (r, bytes_of(r, field).count(mark)) for r in read_lines(stream)}
    deletes = {place: bytes_of(r).count(delete) for place, (r, count) in marked.items() if count}
    assert sum(deletes.values()) == 1
    assert [r["op"] for r in rows_in(made.lake.released_changes, spark)].count("delete") == 1
    expected = [place for place, (_, count) in marked.items() for _ in range(count - deletes.get(place, 0))]
    held = [(r["partition"], r["offset"]) for r in made.quarantine()]
    assert sorted(held) == sorted(expected)
    assert {r["reason"] for r in made.quarantine()} == {"handle_key_only"}


@pytest.mark.parametrize(
    ("config", "named"),
    [
        *[(c, n) for c in ("canal-json_ext_claim-check", "open-protocol_claim-check") for n in (False, True)],
        ("simple-json_claim-check", False),
        ("simple-avro_claim-check", True),
    ],
)
def test_a_missing_claim_is_quarantined(config: str, named: bool, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    claims: dict[str, Any] = {"claim_check": str(tmp_path / "empty") if named else None}
    made = run(spark, tmp_path / "run", TICDC / config / "large", **claims)
    assert [r["reason"] for r in made.quarantine()] == ["claim_check"] * 3


@pytest.mark.parametrize("config", ["canal-json_ext_claim-check", "simple-avro_claim-check"])
def test_a_claim_check_file_may_be_the_message_itself(config: str, spark: SparkSession, tmp_path: Path) -> None:
    """The changefeed has `claim-check-raw-value=true`."""
    (tmp_path / "raw").mkdir()
    for file in (TICDC / "claimcheck-files").iterdir():
        (tmp_path / "raw" / file.name).write_bytes(base64.b64decode(json.loads(file.read_bytes())["value"]))
    made = run(spark, tmp_path / "run", TICDC / config / "large", claim_check=str(tmp_path / "raw"))
    usual = run(spark, tmp_path / "usual", TICDC / config / "large", claim_check=str(TICDC / "claimcheck-files"))
    assert made.quarantine() == []
    tables = usual.lake.histories()
    assert made.lake.histories() == tables
    assert tables
    for database, table in tables:
        rows, expected = ([*map(str, chain.history(table, database))] for chain in (made, usual))
        assert sorted(rows) == sorted(expected)


def compare_sequences(
    made: Chain, sequences: dict[tuple[Any, ...], list[Row | None]], types: dict[Any, dict[str, str]], **more: Any
) -> int:
    """Compare the versions of each key, in order, with the images of the truth; return the number of versions."""
    checked = 0
    for place, columns in types.items():
        rest = made.history(place[1], place[0])
        rest.sort(key=lambda r: (r["_cdc_from_ts"], r["_cdc_to_ts"] is None, r["_cdc_to_ts"] or 0, r["_cdc_offset"]))
        for sequence in (s for key, s in sequences.items() if key[:2] == place):
            images = [after for after in sequence if after is not None]
            previous_end = -1
            for n, after in enumerate(images):
                position = next((i for i, r in enumerate(rest) if row_same(after, r, columns, **more)), None)
                assert position is not None, (place, after)
                hit = rest.pop(position)
                assert hit["_cdc_from_ts"] >= previous_end
                previous_end = hit["_cdc_to_ts"] if hit["_cdc_to_ts"] is not None else 2**63
                assert hit["_cdc_is_current"] == (n == len(images) - 1 and sequence[-1] is not None)
                checked += 1
        assert not rest, (place, rest[:2])
    return checked


def canal_columns(scenario: str) -> tuple[dict[str, dict[str, str]], dict[str, list[str]]]:
    """Return table -> column -> type of the columns that Canal can send, and table -> primary key."""
    tables = json.loads((MYSQL / "truth" / f"{scenario}.schema.json").read_text())
    columns = {
        name: {
            c["name"]: c["column_type"] if c["data_type"] != "longtext" or "json" not in c["name"] else "json"
            for c in table["columns"]
            if c["data_type"] not in SPATIAL and (name, c["name"]) != TAKEN_FOR_BYTES and not lost(c, table["create"])
        }
        for name, table in tables.items()
    }
    return columns, {name: table["pk"] for name, table in tables.items()}


def lost(column: dict[str, str], create: str) -> bool:
    line = next((x for x in create.splitlines() if x.strip().startswith(f"`{column['name']}`")), "")
    return any(word in line for word in NOT_ON_THE_WIRE)


def canal_events(scenario: str) -> list[dict[str, Any]]:
    events = truth(MYSQL, scenario, "events")
    return [
        e
        for e in events
        if e["op"] in {"insert", "update", "delete"} and e["phase"] == "stream" and e.get("in_binlog", True)
    ]


def only(image: Row | None, columns: dict[str, str]) -> Row | None:
    return None if image is None else {c: v for c, v in image.items() if c in columns}
