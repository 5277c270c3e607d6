"""The feeds file: its rules, and the messages about broken rules."""

import json
import textwrap
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import ScheduleDefinition
from pydantic import ValidationError

from cdc_assets.config import Feed, FeedsError, FeedsFile, TableFilter, load_feeds, split_pattern
from cdc_assets.config.jdbc import ServerAddress
from cdc_assets_tests.support import tso

pytestmark = pytest.mark.fast

SECRET = "hunter2-squirrel"

VERIFY: dict[str, Any] = {"jdbc": "jdbc:mysql://db.example/", "cron": "0 4 * * *"}
JDBC_URLS = "jdbc:mysql://HOST:PORT/ or jdbc:mariadb://HOST:PORT/, without user and password"
SCHEDULES = 'five fields (minute, hour, day of month, month, day of week) in UTC, such as "0 4 * * *"'
CRON_PROBLEMS = {
    "": "it has 0 fields",
    "@daily": "it has 1 fields",
    "0 4 * *": "it has 4 fields",
    "0 0 4 * * *": "it has 6 fields",
    "60 * * * *": "minute 60: allowed are 0 to 59",
    "0 24 * * *": "hour 24: allowed are 0 to 23",
    "0 0 0 * *": "day of month 0: allowed are 1 to 31",
    "0 0 * jan-foo *": "month foo: allowed are 1 to 12",
    "0 0 * * 8": "day of week 8: allowed are 0 to 7",
    "5-1 * * * *": 'wrong minute "5-1"',
    "*/0 * * * *": 'wrong minute "*/0"',
    "5/10 * * * *": 'wrong minute "5/10"',
    "1, * * * *": 'wrong minute ""',
    "* * * * mon#1": 'wrong day of week "mon#1"',
    "0 0 30 2 *": "no month of 2 has a day 30",
    "0 0 31 4,jun *": "no month of 4,jun has a day 31",
}
VERIFY_PROBLEMS: list[tuple[dict[str, Any], str]] = [
    ({"jdbc": "jdbc:postgresql://db/"}, f"jdbc: found text; allowed: {JDBC_URLS}"),
    (
        {"jdbc": "jdbc:mysql://db/?sslMode=SOME"},
        f"jdbc: found text; allowed: {JDBC_URLS}; sslMode SOME: unknown; allowed: ",
    ),
    ({"jdbc": 5}, f"jdbc: found text; allowed: {JDBC_URLS}"),
    *[
        ({"cron": cron}, f'cron: found "{cron}"; allowed: {SCHEDULES}; {problem}')
        for cron, problem in CRON_PROBLEMS.items()
    ],
    ({"cron": 4}, f"cron: found 4; allowed: {SCHEDULES}; put it in quotes"),
    ({"tables": ["orders"]}, 'tables[0]: found "orders"; allowed: patterns database.table'),
    ({"tables": []}, "tables: found an empty list; allowed: a list of patterns database.table, at least one"),
    ({"settle_minutes": -1}, "settle_minutes: found -1; allowed: a whole number, 0 (no wait) or more"),
    ({"table": ["a.b"]}, "table: unknown key; did you mean tables?; known: jdbc, tables, cron, settle_minutes"),
]

Load = Callable[[str], FeedsFile]
Problems = Callable[[str], list[str]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load_text(text: str) -> FeedsFile:
        file = tmp_path / "feeds.yaml"
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return load_feeds(file)

    return load_text


@pytest.fixture
def problems(load: Load, tmp_path: Path) -> Problems:
    """Return a function that returns the lines of the error, after checks of the file's name."""

    def problems_of(text: str) -> list[str]:
        with pytest.raises(FeedsError) as caught:
            load(text)
        lines = str(caught.value).split("\n")
        prefix = f"{tmp_path / 'feeds.yaml'}: "
        assert all(line.startswith(prefix) for line in lines)
        return [line.removeprefix(prefix) for line in lines]

    return problems_of


def feed(**fields: Any) -> str:
    """Return a feeds file (JSON is YAML) with one feed `shop`, which has `fields`."""
    return json.dumps({"feeds": {"shop": {"protocol": "canal-json", "source": {"recorded": "snapshots"}, **fields}}})


def kafka(**fields: Any) -> str:
    return feed(source={"kafka": {"bootstrap_servers": "broker:9092", **fields}})


# Accepted files


def test_a_feed_of_three_lines_gets_the_defaults(load: Load, tmp_path: Path) -> None:
    file = load(
        """
        feeds:
          shop:
            protocol: canal-json
            source: {recorded: snapshots/shop}
        """
    )
    shop = file.feeds["shop"]
    assert shop.protocol == "canal-json"
    assert (shop.tidb_extension, shop.encoding, shop.time_zone, shop.gate_scope) == (False, "json", "UTC", "topic")
    assert shop.source.recorded == str((tmp_path / "snapshots/shop").resolve())
    assert shop.source.partitions is None
    assert shop.source.kafka is None
    assert (shop.tables.include, shop.tables.exclude) == (("*.*",), ())
    assert (shop.columns, shop.type_mapping, shop.owners, file.spark) == ({}, "block", (), {})
    assert shop.max_watermark_lead == timedelta(days=1)


def test_every_field_of_the_contract_is_read(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", SECRET)
    monkeypatch.setenv("HOST", "db.example")
    file = load(
        """
        spark: {spark.master: "local[2]", spark.sql.shuffle.partitions: 4, spark.ui.enabled: false, spark.x: 0.5}
        feeds:
          shop:
            protocol: canal-json
            tidb_extension: true
            time_zone: Europe/Berlin
            source: {recorded: snapshots, partitions: 3}
            gate_scope: feed
            tables: {include: ["shop.*"], exclude: ["shop.tmp_?"]}
            columns: {shop.orders.amount: "decimal(12,2)"}
            type_mapping: warn
            owners: [ann@example.com, team:data]
            max_watermark_lead: 36h
            verify: {jdbc: "jdbc:mysql://${HOST}:4000/?sslMode=REQUIRED", tables: ["shop.o*"], cron: "0 4 * * *"}
          live:
            protocol: simple
            encoding: avro
            source:
              kafka:
                bootstrap_servers: a:9092,b:9092
                topics: [one, two]
                options:
                  kafka.ssl.key.password: ${PASSWORD}
                  kafka.request.timeout.ms: 30000
                  kafka.enable.metrics.push: false
                client_options: {sasl.password: "${PASSWORD}", socket.keepalive.enable: true}
                starting_offsets: {one: {0: 17, 1: 0}}
                on_data_loss: skip
                max_records_per_run: 1000
          old:
            protocol: debezium
            source: {kafka: {bootstrap_servers: a:9092, topic_pattern: 'db\\..*'}}
        alerts: {webhook: "https://chat.example/hooks/${PASSWORD}"}
        """
    )
    assert file.alerts is not None
    assert str(file.alerts.webhook) == f"https://chat.example/hooks/{SECRET}"
    assert SECRET not in repr(file)
    assert file.spark == {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": 4,
        "spark.ui.enabled": False,
        "spark.x": 0.5,
    }
    shop, live, old = file.feeds.values()
    assert (shop.tidb_extension, shop.time_zone, shop.gate_scope, shop.type_mapping) == (
        True,
        "Europe/Berlin",
        "feed",
        "warn",
    )
    assert shop.source.partitions == 3
    assert (shop.tables.include, shop.tables.exclude) == (("shop.*",), ("shop.tmp_?",))
    assert shop.columns == {"shop.orders.amount": "decimal(12,2)"}
    assert shop.owners == ("ann@example.com", "team:data")
    assert shop.max_watermark_lead == timedelta(hours=36)
    assert shop.verify is not None
    assert shop.verify.jdbc == ServerAddress("db.example", 4000, "REQUIRED")
    assert (shop.verify.cron, shop.verify.settle_minutes) == ("0 4 * * *", 10)
    assert [shop.verify.takes(*name) for name in (("shop", "orders"), ("shop", "items"))] == [True, False]
    assert live.verify is None
    assert live.encoding == "avro"
    assert live.source.recorded is None
    assert live.source.kafka.topics == ("one", "two")
    assert {key: value.get_secret_value() for key, value in live.source.kafka.options.items()} == {
        "kafka.ssl.key.password": SECRET,
        "kafka.request.timeout.ms": "30000",
        "kafka.enable.metrics.push": "false",
    }
    assert {key: value.get_secret_value() for key, value in live.source.kafka.client_options.items()} == {
        "sasl.password": SECRET,
        "socket.keepalive.enable": "true",
    }
    assert old.source.kafka.topic_pattern == r"db\..*"
    assert (old.source.kafka.starting_offsets, old.source.kafka.on_data_loss) == ("earliest", "fail")
    assert old.source.kafka.max_records_per_run is None
    assert live.source.kafka.starting_offsets == {"one": {0: 17, 1: 0}}
    assert (live.source.kafka.on_data_loss, live.source.kafka.max_records_per_run) == ("skip", 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("2024-05-01T02:00:00+02:00", datetime(2024, 5, 1, tzinfo=UTC)),
        ("2024-05-01T00:00:00Z", datetime(2024, 5, 1, tzinfo=UTC)),
    ],
)
def test_starting_offsets(load: Load, text: str, expected: object) -> None:
    assert load(kafka(topics=["t"], starting_offsets=text)).feeds["shop"].source.kafka.starting_offsets == expected


def test_the_file_is_in_cdc_feeds_else_data_feeds_yaml_else_what_init_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "feeds.yaml").write_text(feed(time_zone="Asia/Tokyo"))
    (tmp_path / "other.yaml").write_text(feed(gate_scope="feed"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CDC_FEEDS", raising=False)
    assert load_feeds().feeds["shop"].time_zone == "Asia/Tokyo"
    (tmp_path / "data/feeds.yaml").write_text(feed())
    assert load_feeds().feeds["shop"].gate_scope == "topic"
    assert load_feeds().feeds["shop"].source.recorded == str((tmp_path / "data/snapshots").resolve())
    monkeypatch.setenv("CDC_FEEDS", "other.yaml")
    assert load_feeds().feeds["shop"].gate_scope == "feed"


@pytest.mark.parametrize(
    ("settings", "stopped", "blocked"),
    [
        ({}, [], ["a.x", "a.y", "b.x"]),
        ({"schema_changes": "stop", "type_mapping": "warn"}, ["a.x", "a.y", "b.x"], []),
        (
            {"schema_changes": {"a.x": "evolve", "a.*": "stop"}, "type_mapping": {"a.x": "block", "*.x": "warn"}},
            ["a.y"],
            ["a.x", "a.y"],
        ),
    ],
)
def test_the_first_matching_pattern_counts(
    load: Load, settings: dict[str, Any], stopped: list[str], blocked: list[str]
) -> None:
    loaded = load(feed(**settings)).feeds["shop"]
    tables = [("a", "x"), ("a", "y"), ("b", "x")]
    assert [".".join(t) for t in tables if loaded.stops_at_ddl(*t)] == stopped
    assert [".".join(t) for t in tables if loaded.blocks_types(*t)] == blocked


@pytest.mark.parametrize(
    "cron",
    [
        "0 4 * * *",
        "*/15 * * * *",
        "5,35 0-6/2 1-31 JAN,mar-dec *",
        "59 23 31 12 7",
        "0 0 29 2 *",
        "0 0 30,31 2-3 mon-fri",
        "* * * * 0",
        "0  4 * * sun",
    ],
)
def test_schedules_are_those_that_dagster_takes(load: Load, cron: str) -> None:
    verify = load(feed(verify=VERIFY | {"cron": cron})).feeds["shop"].verify
    assert verify is not None
    assert ScheduleDefinition(job_name="j", cron_schedule=verify.cron).cron_schedule == cron


def test_an_absolute_recorded_folder_stays(load: Load) -> None:
    assert load(feed(source={"recorded": "/srv/x"})).feeds["shop"].source.recorded == str(Path("/srv/x").resolve())


def test_models_are_frozen(load: Load) -> None:
    with pytest.raises(ValidationError):
        load(feed()).feeds["shop"].gate_scope = "feed"  # type: ignore[misc]


@pytest.mark.parametrize("zone", ["UTC", "+00:00", "+08:00", "-03:30", "+10:00", "+14:00", "Asia/Shanghai"])
def test_time_zones(load: Load, zone: str) -> None:
    # Unquoted: plain YAML 1.1 would read +10:00 as the number 600.
    text = f"feeds: {{shop: {{protocol: canal-json, source: {{recorded: x}}, time_zone: {zone}}}}}"
    assert load(text).feeds["shop"].time_zone == zone


@pytest.mark.parametrize("name", ["2024", "on", "null", "0x1F", "shop_2"])
def test_feed_names_that_yaml_reads_as_other_types_stay_text(load: Load, name: str) -> None:
    assert list(load(f"feeds: {{{name}: {{protocol: simple, source: {{recorded: x}}}}}}").feeds) == [name]


def test_anchors_and_merges_work_and_may_be_overridden(load: Load) -> None:
    file = load(
        """
        feeds:
          a: &a {protocol: canal-json, gate_scope: feed, source: {recorded: a}}
          b: &b {<<: *a, gate_scope: topic}
          c: {<<: *b, type_mapping: warn}
        """
    )
    assert [item.gate_scope for item in file.feeds.values()] == ["feed", "topic", "topic"]


@pytest.mark.parametrize(
    ("pattern", "database", "table", "taken"),
    [
        ("*.*", "shop", "orders", True),
        ("shop.*", "shop", "orders", True),
        ("shop.*", "shop2", "orders", False),
        ("sh?p.order?", "shop", "orders", True),
        ("sh?p.order?", "shp", "orders", False),
        ("shop.orders", "shop", "orders2", False),
        ("shop.orders", "Shop", "orders", False),
        ("shop.*", "shop", "a.b", True),
        ("shop.a.b", "shop", "a.b", True),
        ("shop.a.b", "shop.a", "b", False),
        ("*.b", "shop", "a.b", False),
        ("shop.[ab]", "shop", "a", False),
        ("shop.[ab]", "shop", "[ab]", True),
        ("shop.a+", "shop", "aa", False),
        ("shop.a*", "shop", "a\nb", True),
        ("shop.a", "shop", "a\n", False),
    ],
)
def test_table_patterns_match_database_and_table_separately(
    pattern: str, database: str, table: str, taken: bool
) -> None:
    assert TableFilter(include=(pattern,)).takes(database, table) is taken
    assert TableFilter(exclude=(pattern,)).takes(database, table) is not taken


def test_a_feed_takes_what_is_included_and_not_excluded(load: Load) -> None:
    shop = load(feed(tables={"include": ["shop.*", "crm.people"], "exclude": ["shop.tmp*"]})).feeds["shop"]
    tables = [("shop", "orders"), ("shop", "tmp1"), ("crm", "people"), ("crm", "calls")]
    assert [shop.takes(*table) for table in tables] == [True, False, True, False]


def test_a_pattern_splits_at_its_first_dot() -> None:
    assert split_pattern("shop.a.b*") == ("shop", "a.b*")


# Environment variables


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "one"),
        ("x-${A}-${B}${A}", "x-one-twoone"),
        ("$${A}", "${A}"),
        ("$A $", "$A $"),
        ("${EMPTY}x", "x"),
        ("${NESTED}", "${A}"),
        ("${YAML}", "a: {b: [c]}\nfeeds: x"),
    ],
)
def test_variables_are_expanded_as_text(load: Load, monkeypatch: pytest.MonkeyPatch, text: str, value: str) -> None:
    variables = {"A": "one", "B": "two", "EMPTY": "", "NESTED": "${A}", "YAML": "a: {b: [c]}\nfeeds: x"}
    for name, content in variables.items():
        monkeypatch.setenv(name, content)
    spark = {"spark.x": text}
    assert load(json.dumps({**json.loads(feed()), "spark": spark})).spark == {"spark.x": value}


def test_a_variable_may_give_a_number_and_an_item_of_a_list(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("N", "3")
    file = load(feed(source={"recorded": "x", "partitions": "${N}"}, tables={"include": ["shop_${N}.*"]}))
    assert file.feeds["shop"].source.partitions == 3
    assert file.feeds["shop"].tables.include == ("shop_3.*",)


def test_missing_variables_are_all_named_with_their_paths_beside_other_errors(
    problems: Problems, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH", raising=False)
    text = feed(source={"recorded": "${NO_SUCH}/x", "partitions": "${NO_SUCH}"}, time_zone="${UTC", gate_scope="all")
    assert sorted(problems(text)) == [
        'feeds.shop.gate_scope: found "all"; allowed: topic, feed',
        "feeds.shop.source.partitions: found ${NO_SUCH}; the environment variable NO_SUCH is not set",
        "feeds.shop.source.recorded: found ${NO_SUCH}; the environment variable NO_SUCH is not set",
        "feeds.shop.time_zone: ${ does not begin a ${NAME}; write $${ for a plain ${",
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"protocol": "${SECRET}"},
        {"tidb_extension": "${SECRET}"},
        {"time_zone": "${SECRET}"},
        {"source": {"recorded": "x", "partitions": "${SECRET}"}},
        {"source": "${SECRET}"},
        {"tables": {"include": ["${SECRET}"]}},
        {"columns": {"a.b.c": "${SECRET}"}},
        {"owners": ["${SECRET}"]},
        {"gate_scope": "x${SECRET}"},
        {"${SECRET}": "${SECRET}"},
        {"verify": VERIFY | {"jdbc": "${SECRET}"}},
    ],
)
def test_no_error_shows_the_value_of_an_environment_variable(
    load: Load, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    with pytest.raises(FeedsError) as caught:
        load(feed(**fields))
    shown = "".join(traceback.format_exception(caught.value))
    assert "${SECRET}" in str(caught.value)
    assert SECRET not in shown
    assert caught.value.__context__ is None


def test_no_suggestion_reveals_the_value_of_a_variable(problems: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZONE", "Europe/Berlim")
    assert "Berlim" not in (message := problems(feed(time_zone="${ZONE}"))[0])
    assert "did you mean" not in message


def test_no_error_shows_a_url_of_the_source_database(problems: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_JDBC", f"jdbc:mysql://root:{SECRET}@db/")
    for url, quoted in (
        ("${SHOP_JDBC}", '"${SHOP_JDBC}"'),
        (f"jdbc:mysql://root:{SECRET}@db/", "text"),
        (f"jdbc:mysql://db/?password={SECRET}", "text"),
    ):
        (line,) = problems(feed(verify=VERIFY | {"jdbc": url}))
        assert line.startswith(f"feeds.shop.verify.jdbc: found {quoted}; allowed: ")
        assert SECRET not in line


def test_passwords_are_kept_from_repr_and_from_errors(
    load: Load, problems: Problems, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    text = kafka(topics=["t"], options={"kafka.ssl.key.password": "${SECRET}"}, client_options={"x": "${SECRET}"})
    file = load(json.dumps({**json.loads(text), "spark": {"spark.hadoop.fs.s3a.secret.key": "${SECRET}"}}))
    assert SECRET not in repr(file) + str(file)
    assert SECRET not in str(problems(kafka(topics=["t"], options=f"kafka.password={SECRET}")))
    assert SECRET not in str(problems(kafka(topics=["t"], options={"password": SECRET})))
    assert SECRET not in str(problems(kafka(topics=["t"], client_options=f"sasl.password={SECRET}")))
    for login in (f'x.Y required password="{SECRET}";', f'x.Y maybe "{SECRET}";', SECRET, "${SECRET}"):
        assert SECRET not in str(problems(kafka(topics=["t"], options={"kafka.sasl.jaas.config": login})))


@pytest.mark.parametrize(
    "key",
    [
        "fs.s3a.access.key",
        "fs.s3a.bucket.lake.secret.key",
        "fs.s3a.proxy.password",
        "fs.gs.auth.service.account.private.key",
        "fs.gs.auth.client.secret",
        "fs.gs.encryption.key",
        "fs.azure.client-provided-encryption-key",
        "fs.azure.account.key.lake.dfs.core.windows.net",
        "fs.azure.account.oauth2.client.secret.lake.dfs.core.windows.net",
        "fs.azure.account.oauth2.refresh.token",
        "fs.azure.sas.fixed.token.lake.dfs.core.windows.net",
    ],
)
def test_credentials_of_stores_are_refused(key: str, problems: Problems) -> None:
    text = json.dumps({**json.loads(kafka(topics=["t"])), "storage": {"options": {key: SECRET}}})
    (problem,) = problems(text)
    assert "no credentials: they come from the environment" in problem
    assert SECRET not in problem


def test_settings_that_only_locate_credentials_are_accepted(load: Load) -> None:
    options = {
        "fs.azure.account.oauth2.refresh.token.endpoint": "https://login.example/token",
        "fs.azure.account.auth.type": "OAuth",
        "fs.gs.auth.service.account.json.keyfile": "/run/secrets/lake.json",
        "fs.s3a.encryption.key": "arn:aws:kms:eu-central-1:1:key/2",
    }
    file = load(json.dumps({**json.loads(kafka(topics=["t"])), "storage": {"options": options}}))
    assert {key: value.get_secret_value() for key, value in file.storage.options.items()} == options


# Refused files


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"protocol": "canal"},
            'feeds.shop.protocol: found "canal"; allowed: canal-json, open-protocol, simple, debezium',
        ),
        ({"protocol": True}, "feeds.shop.protocol: found true; allowed: canal-json, "),
        ({"protocol": None}, "feeds.shop.protocol: found nothing; allowed: canal-json, "),
        ({"tidb_extension": "maybe"}, 'feeds.shop.tidb_extension: found "maybe"; allowed: true, false'),
        (
            {"protocol": "debezium", "tidb_extension": True},
            "feeds.shop.tidb_extension: found true; allowed: tidb_extension only with protocol: canal-json",
        ),
        (
            {"protocol": "simple", "encoding": "protobuf"},
            'feeds.shop.encoding: found "protobuf"; allowed: json, avro',
        ),
        (
            {"bootstrap_interval": 60},
            "feeds.shop.bootstrap_interval: found 60; allowed: bootstrap_interval only with protocol: simple",
        ),
        (
            {"snapshots": "whole"},
            'feeds.shop.snapshots: found "whole"; allowed: snapshots only with protocol: debezium',
        ),
        (
            {"protocol": "debezium", "snapshots": "all"},
            'feeds.shop.snapshots: found "all"; allowed: partial, whole',
        ),
        (
            {"connector_settings": {"time.precision.mode": "connect"}},
            "feeds.shop.connector_settings: found a mapping; allowed: connector_settings only with protocol: debezium",
        ),
        (
            {"protocol": "debezium", "connector_settings": {"time.precision.mode": "seconds"}},
            (
                'feeds.shop.connector_settings["time.precision.mode"]: found "seconds"; allowed: '
                "adaptive_time_microseconds, adaptive, connect, isostring, microseconds, nanoseconds"
            ),
        ),
        (
            {"protocol": "debezium", "connector_settings": {"time_precision_mode": "connect"}},
            (
                "feeds.shop.connector_settings.time_precision_mode: unknown key; did you mean time.precision.mode?; known: "
                "time.precision.mode, decimal.handling.mode, binary.handling.mode"
            ),
        ),
        (
            {"protocol": "debezium", "connector_settings": "connect"},
            (
                'feeds.shop.connector_settings: found "connect"; allowed: a mapping with the keys time.precision.mode, '
                "decimal.handling.mode, binary.handling.mode"
            ),
        ),
        *[
            (
                {"protocol": "simple", "max_watermark_lead": wrong},
                f"feeds.shop.max_watermark_lead: found {json.dumps(wrong)}; allowed: a whole number and its unit, s, ",
            )
            for wrong in (1, True, "0d", "1.5h", "1 d", "-1d", "1w", "999999999d", "")
        ],
        (
            {"max_watermark_lead": "1d"},
            'feeds.shop.max_watermark_lead: found "1d"; allowed: max_watermark_lead only with watermarks',
        ),
        *[
            (
                {"protocol": "simple", "bootstrap_interval": wrong},
                (
                    f"feeds.shop.bootstrap_interval: found {json.dumps(wrong)}; "
                    "allowed: a whole number, 0 (none are sent) or more"
                ),
            )
            for wrong in (-1, True, "soon", 1.5)
        ],
        (
            {"encoding": "avro"},
            'feeds.shop.encoding: found "avro"; allowed: encoding only with protocol: simple, debezium',
        ),
        (
            {"protocol": "debezium", "encoding": "avro"},
            "feeds.shop.schema_registry: missing; allowed: a mapping with the keys url, options",
        ),
        *[
            (
                {"schema_registry": {"url": "http://r.example"}, **others},
                (
                    "feeds.shop.schema_registry: found a mapping; allowed: schema_registry only with protocol: debezium and "
                    "encoding: avro"
                ),
            )
            for others in ({"protocol": "debezium"}, {"protocol": "simple", "encoding": "avro"})
        ],
        *[
            (
                {"protocol": "debezium", "encoding": "avro", "schema_registry": {"url": wrong}},
                f'feeds.shop.schema_registry.url: found "{wrong}"; allowed: an http or https URL, such as https://',
            )
            for wrong in ("r.example:8081", "ftp://r.example", "http://", "http://r.example/x?y=1")
        ],
        (
            {
                "protocol": "debezium",
                "encoding": "avro",
                "schema_registry": {"url": "http://r.example", "options": {"basic.auth.user": "x"}},
            },
            (
                'feeds.shop.schema_registry.options["basic.auth.user"]: found "basic.auth.user"; allowed: the keys '
                "basic.auth.user.info, bearer.auth.token, ssl.ca.location, ssl.certificate.location, ssl.key.location, "
                "apicurio.registry.use-id; did you mean basic.auth.user.info?"
            ),
        ),
        (
            {
                "protocol": "debezium",
                "encoding": "avro",
                "schema_registry": {"url": "http://r.example", "options": {"apicurio.registry.use-id": "id"}},
            },
            "feeds.shop.schema_registry.options: found a mapping; allowed: apicurio.registry.use-id: globalId or contentId",
        ),
        (
            {"time_zone": "Europe/Berln"},
            (
                'feeds.shop.time_zone: found "Europe/Berln"; allowed: a time zone name such as UTC or Europe/Berlin, '
                "or an offset +HH:MM; did you mean Europe/Berlin?"
            ),
        ),
        ({"time_zone": "+15:00"}, 'feeds.shop.time_zone: found "+15:00"; allowed: a time zone name'),
        ({"time_zone": "America"}, 'feeds.shop.time_zone: found "America"; allowed: a time zone name'),
        ({"time_zone": "../UTC"}, 'feeds.shop.time_zone: found "../UTC"; allowed: a time zone name'),
        ({"time_zone": 8}, "feeds.shop.time_zone: found 8; allowed: a time zone name"),
        (
            {"source": {}},
            "feeds.shop.source: found neither; allowed: exactly one of recorded, kafka",
        ),
        (
            {"source": {"recorded": "x", "kafka": {"bootstrap_servers": "b:1", "topics": ["t"]}}},
            "feeds.shop.source: found both; allowed: exactly one of recorded, kafka",
        ),
        ({"source": "x"}, 'feeds.shop.source: found "x"; allowed: a mapping with the keys recorded, partitions, kafka'),
        ({"source": {"recorded": " "}}, 'feeds.shop.source.recorded: found " "; allowed: a folder, relative to'),
        ({"source": {"recorded": 5}}, "feeds.shop.source.recorded: found 5; allowed: a folder, relative to"),
        *[
            (
                {"source": {"recorded": "x", "partitions": wrong}},
                f"feeds.shop.source.partitions: found {json.dumps(wrong)}; allowed: a whole number, 1 or more",
            )
            for wrong in (0, -1, 1.5, True, "three")
        ],
        (
            {"source": {"partitions": 2, "kafka": {"bootstrap_servers": "b:1", "topics": ["t"]}}},
            "feeds.shop.source.partitions: found 2; allowed: partitions only beside recorded",
        ),
        ({"gate_scope": "table"}, 'feeds.shop.gate_scope: found "table"; allowed: topic, feed'),
        ({"type_mapping": "ignore"}, 'feeds.shop.type_mapping: found "ignore"; allowed: block, warn'),
        (
            {"schema_changes": "apply"},
            'feeds.shop.schema_changes: found "apply"; allowed: evolve, stop, or a mapping of',
        ),
        (
            {"schema_changes": {"shop.*": "apply"}},
            "feeds.shop.schema_changes: found a mapping; allowed: evolve, stop, or",
        ),
        ({"schema_changes": {}}, "feeds.shop.schema_changes: found an empty mapping; allowed: evolve, stop, or a"),
        ({"schema_changes": ["stop"]}, "feeds.shop.schema_changes: found a list; allowed: evolve, stop, or a mapping"),
        (
            {"schema_changes": {"shop": "stop"}},
            "feeds.shop.schema_changes: found a mapping; allowed: patterns database.table",
        ),
        (
            {"tables": {"include": "shop.*"}},
            'feeds.shop.tables.include: found "shop.*"; allowed: a list of patterns database.table, at least one',
        ),
        ({"tables": {"include": []}}, "feeds.shop.tables.include: found an empty list; allowed: a list of patterns"),
        (
            {"initial_load": {"path": "dump", "format": "dumpling-csv"}},
            "feeds.shop.initial_load: found a mapping; allowed: initial_load only where events have a TSO",
        ),
        (
            {"protocol": "debezium", "initial_load": {"path": "dump", "format": "dumpling-csv"}},
            "feeds.shop.initial_load: found a mapping; allowed: initial_load only with canal-json, open-protocol, simple",
        ),
        *[
            ({"protocol": "simple", "initial_load": {"path": "dump", "format": "parquet"} | wrong}, message)
            for wrong, message in (
                (
                    {"format": "csv"},
                    'feeds.shop.initial_load.format: found "csv"; allowed: dumpling-csv, dumpling-sql, parquet',
                ),
                (
                    {"position": 1_700_000_000_000},
                    "feeds.shop.initial_load.position: found 1700000000000; allowed: a TSO (milliseconds << 18) such as",
                ),
                (
                    {"position": True},
                    "feeds.shop.initial_load.position: found true; allowed: a TSO (milliseconds << 18) such as",
                ),
                ({"time_zone": "Mars"}, 'feeds.shop.initial_load.time_zone: found "Mars"; allowed: a time zone name'),
                ({"pth": "x"}, "feeds.shop.initial_load.pth: unknown key; did you mean path?"),
                (
                    {"tables": {"orders": {}}},
                    'feeds.shop.initial_load.tables.orders: found "orders"; allowed: keys database.table',
                ),
                (
                    {"tables": {"a.b": {"at": 1}}},
                    'feeds.shop.initial_load.tables["a.b"].at: unknown key; did you mean path?; known: path, format',
                ),
            )
        ],
        *[
            (
                {"tables": {"exclude": ["a.b", wrong]}},
                f'feeds.shop.tables.exclude[1]: found "{wrong}"; allowed: patterns database.table, with * and ?',
            )
            for wrong in ("orders", ".orders", "shop.", "")
        ],
        ({"tables": {"include": ["orders"]}}, 'feeds.shop.tables.include[0]: found "orders"; allowed: patterns'),
        ({"tables": None}, "feeds.shop.tables: found nothing; allowed: a mapping with the keys include, exclude"),
        *[
            (
                {"columns": {wrong: "int"}},
                f'feeds.shop.columns["{wrong}"]: found "{wrong}"; allowed: keys of three dotted parts',
            )
            for wrong in ("orders.amount", "a.b.c.d", "a..c")
        ],
        (
            {"columns": {"a.b.c": "decimole(1,2)"}},
            'feeds.shop.columns["a.b.c"]: found "decimole(1,2)"; allowed: a MySQL type such as decimal(12,2)',
        ),
        (
            {"columns": {"a.b.c": 12}},
            (
                'feeds.shop.columns["a.b.c"]: found 12; allowed: a mapping of database.table.column to a MySQL type; '
                "put it in quotes"
            ),
        ),
        *[
            (
                {"owners": ["a@b.org", wrong]},
                f'feeds.shop.owners[1]: found "{wrong}"; allowed: email addresses and team:name',
            )
            for wrong in ("ann", "team:", "a@b")
        ],
        *[({"verify": VERIFY | wrong}, f"feeds.shop.verify.{message}") for wrong, message in VERIFY_PROBLEMS],
        (
            {"verify": {"cron": "0 4 * * *"}},
            f"feeds.shop.verify.jdbc: missing; allowed: {JDBC_URLS}",
        ),
        (
            {"verify": True},
            "feeds.shop.verify: found true; allowed: a mapping with the keys jdbc, tables, cron, settle_minutes",
        ),
        (
            {"gate_scop": "topic"},
            (
                "feeds.shop.gate_scop: unknown key; did you mean gate_scope?; known: protocol, tidb_extension, "
                "encoding, schema_registry, bootstrap_interval, time_zone, source, gate_scope, tables, columns, "
                "type_mapping, "
            ),
        ),
        ({"zzz": SECRET}, "feeds.shop.zzz: unknown key; known: protocol, "),
        (
            {"source": {"recorded": "x", "partition": 3}},
            "feeds.shop.source.partition: unknown key; did you mean partitions?; known: recorded, partitions, kafka",
        ),
        (
            {"tables": {"includes": ["a.b"]}},
            "feeds.shop.tables.includes: unknown key; did you mean include?; known: include, exclude",
        ),
    ],
)
def test_wrong_fields(problems: Problems, fields: dict[str, Any], message: str) -> None:
    (line,) = problems(feed(**fields))
    assert line.startswith(message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "feeds.shop.source.kafka: found neither; allowed: exactly one of topics, topic_pattern"),
        (
            {"topics": ["t"], "topic_pattern": "t.*"},
            "feeds.shop.source.kafka: found both; allowed: exactly one of topics, topic_pattern",
        ),
        ({"topics": []}, "feeds.shop.source.kafka.topics: found an empty list; allowed: a list of topic names, at"),
        ({"topics": "t"}, 'feeds.shop.source.kafka.topics: found "t"; allowed: a list of topic names'),
        (
            {"topics": [7]},
            "feeds.shop.source.kafka.topics[0]: found 7; allowed: a list of topic names, at least one; put it in quo",
        ),
        (
            {"topic_pattern": "("},
            'feeds.shop.source.kafka.topic_pattern: found "("; allowed: a regular expression (Python\'s); missing ), unter',
        ),
        ({"topic_pattern": ""}, 'feeds.shop.source.kafka.topic_pattern: found ""; allowed: a regular expression'),
        (
            {"topics": ["t"], "bootstrap_servers": None},
            "feeds.shop.source.kafka.bootstrap_servers: found nothing; allowed: host:port",
        ),
        (
            {"topics": ["t"], "options": {"security.protocol": "SSL"}},
            (
                'feeds.shop.source.kafka.options["security.protocol"]: found "security.protocol"; '
                "allowed: keys that begin with kafka."
            ),
        ),
        (
            {"topics": ["t"], "options": {"kafka.": "x"}},
            'feeds.shop.source.kafka.options["kafka."]: found "kafka."; allowed: keys that begin with kafka.',
        ),
        (
            {"topics": ["t"], "options": {"kafka.x": {"y": 1}}},
            'feeds.shop.source.kafka.options["kafka.x"]: found a mapping; allowed: a mapping of kafka.* settings',
        ),
        (
            {"topics": ["t"], "option": {}},
            (
                "feeds.shop.source.kafka.option: unknown key; did you mean options?; known: bootstrap_servers, topics, "
                "topic_pattern, client_options, options"
            ),
        ),
        *[
            (
                {"topics": ["t"], "starting_offsets": wrong},
                "feeds.shop.source.kafka.starting_offsets: found "
                + shown
                + "; allowed: earliest, latest, an instant such",
            )
            for wrong, shown in [
                ("first", '"first"'),
                ("2024-05-01T00:00:00", '"2024-05-01T00:00:00"'),  # in which zone?
                (5, "5"),
                ({}, "an empty mapping"),
                ({"t": 5}, "a mapping"),
                ({"t": {"x": 5}}, "a mapping"),
                ({"t": {"0": -1}}, "a mapping"),
                ({"t": {"0": True}}, "a mapping"),
            ]
        ],
        (
            {"topics": ["t"], "on_data_loss": "ignore"},
            'feeds.shop.source.kafka.on_data_loss: found "ignore"; allowed: fail, skip',
        ),
        (
            {"topics": ["t"], "max_records_per_run": 0},
            "feeds.shop.source.kafka.max_records_per_run: found 0; allowed: a whole number, 1 or more",
        ),
        (
            {"topics": ["t"], "options": {"kafka.bootstrap.servers": "b:1"}},
            'feeds.shop.source.kafka.options["kafka.bootstrap.servers"]: found "kafka.bootstrap.servers"; allowed: keys',
        ),
        (
            {"topics": ["t"], "client_options": {"bootstrap.servers": "b:1"}},
            (
                'feeds.shop.source.kafka.client_options["bootstrap.servers"]: found "bootstrap.servers"; allowed: keys '
                "other than bootstrap.servers, isolation.level, and callbacks (*_cb)"
            ),
        ),
        (
            {"topics": ["t"], "options": {"kafka.isolation.level": "none"}},
            (
                'feeds.shop.source.kafka.options["kafka.isolation.level"]: found "none"; '
                "allowed: read_committed, read_uncommitted"
            ),
        ),
        (
            {"topics": ["t"], "options": {"kafka.default.api.timeout.ms": "a minute"}},
            (
                'feeds.shop.source.kafka.options["kafka.default.api.timeout.ms"]: found "a minute"; '
                "allowed: a whole number of milliseconds"
            ),
        ),
        (
            {"topics": ["t"], "options": {"kafka.client.idd": "x"}},
            (
                'feeds.shop.source.kafka.options["kafka.client.idd"]: found "kafka.client.idd"; '
                "allowed: kafka.allow.auto.create.topics, "
            ),
        ),
    ],
)
def test_wrong_fields_of_a_broker(problems: Problems, fields: dict[str, Any], message: str) -> None:
    (line,) = problems(kafka(**fields))
    assert line.startswith(message)


LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("options", "named", "counterpart"),
    [
        ({"ssl.truststore.location": "/t.jks", "ssl.truststore.password": SECRET}, 0, "ssl.ca.location"),
        ({"ssl.truststore.type": "JKS", "ssl.truststore.location": "/t.jks"}, 1, "ssl.ca.location"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "/both.pem"}, 1, "ssl.certificate.location"),
        ({"ssl.keystore.password": SECRET}, 0, "ssl.keystore.location"),
        # Java's names of the suites are not OpenSSL's.
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, 0, "ssl.cipher.suites"),
        ({"sasl.login.callback.handler.class": "x.Y"}, 0, "sasl.oauthbearer.method"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://x"}, 0, "sasl.oauthbearer.method"),
        ({"sasl.kerberos.service.name": "kafka"}, 0, "sasl.kerberos.principal"),
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, 0, "sasl.kerberos.principal"),
        (
            {"sasl.jaas.config": f'{LOGIN_MODULE} required username="a" password="p"'},
            0,
            "sasl.username",
        ),  # no semicolon
        ({"sasl.jaas.config": f'{LOGIN_MODULE} required username="a" password="p" x="y";'}, 0, "sasl.username"),
        ({"sasl.jaas.config": f'{LOGIN_MODULE} required username="a";'}, 0, "sasl.username"),
        # Without a login of its own, Java's client takes one of the JVM.
        ({"security.protocol": "SASL_SSL"}, 0, "sasl.username"),
    ],
)
def test_options_that_librdkafka_lacks(
    problems: Problems, load: Load, options: dict[str, str], named: int, counterpart: str
) -> None:
    """The error names the counterparts; with a counterpart in client_options, only Spark gets the option."""
    with_prefix = {f"kafka.{name}": value for name, value in options.items()}
    name = list(with_prefix)[named]
    (line,) = problems(kafka(topics=["t"], options=with_prefix))
    assert line.startswith(f'feeds.shop.source.kafka.options["{name}"]: found "{name}"; allowed: with ')
    allowed = line.partition("allowed: with ")[2].partition(" in client_options")[0]
    assert counterpart in allowed.split(" or ")
    assert SECRET not in line
    load(kafka(topics=["t"], options=with_prefix, client_options={counterpart: "x"}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "feeds: {shop: {protocol: simple, source: {recorded: x}}}\nalerts: {webhook: chat}",
            'alerts.webhook: found "chat"; allowed: an http or https URL, which takes JSON with a text',
        ),
        ("feeds: {shop: {source: {recorded: x}}}", "feeds.shop.protocol: missing; allowed: canal-json, open-protocol"),
        (
            "feeds: {shop: {protocol: simple}}",
            "feeds.shop.source: missing; allowed: a mapping with the keys recorded, partitions, kafka",
        ),
        ("spark: {}", "feeds: missing; allowed: a mapping of feed names to feeds, at least one"),
        ("feeds: {}", "feeds: found an empty mapping; allowed: a mapping of feed names to feeds, at least one"),
        ("feeds:", "feeds: found nothing; allowed: a mapping of feed names"),
        ("feeds: [shop]", "feeds: found a list; allowed: a mapping of feed names"),
        ("feeds: {shop: }", "feeds.shop: found nothing; allowed: a mapping with the keys protocol, tidb_extension, "),
        ("", "is empty; allowed: a mapping with the keys feeds, spark"),
        ("# only a comment", "is empty; allowed: a mapping with the keys feeds, spark"),
        ("[shop]", "found a list; allowed: a mapping with the keys feeds, spark"),
        ("shop", 'found "shop"; allowed: a mapping with the keys feeds, spark'),
        (feed()[:-1] + ', "sprak": {}}', "sprak: unknown key; did you mean spark?; known: feeds, spark"),
        (
            feed()[:-1] + ', "spark": {"master": "local"}}',
            'spark.master: found "master"; allowed: keys that begin with spark.',
        ),
        (
            feed()[:-1] + ', "spark": {"spark.master": ["local"]}}',
            'spark["spark.master"]: found a list; allowed: text, a number, true or false',
        ),
        (
            feed()[:-1] + ', "spark": {"spark.master": null}}',
            'spark["spark.master"]: found nothing; allowed: text, a number, true or false',
        ),
        (feed()[:-1] + ', "spark": 5}', "spark: found 5; allowed: a mapping of spark.* settings to values"),
    ],
)
def test_wrong_files(problems: Problems, text: str, message: str) -> None:
    (line,) = problems(text)
    assert line.startswith(message)


@pytest.mark.parametrize("name", ["my-shop", "my shop", "a/b", "..", "", "é", "shop\n", "a.b"])
def test_wrong_feed_names(problems: Problems, name: str) -> None:
    (line,) = problems(feed().replace('"shop"', json.dumps(name)))
    shown = json.dumps(name, ensure_ascii=False)
    where = "feeds.my-shop" if name == "my-shop" else "feeds.é" if name == "é" else f"feeds[{shown}]"
    assert line.startswith(f"{where}: found {shown}; allowed: a feed name of letters A-Z a-z, digits and _ only")


def test_each_wrong_field_has_a_line(problems: Problems) -> None:
    text = feed(protocol="canal", gate_scop=1, source={"recorded": "x", "partitions": 0}, owners=["ann"])
    assert [line.split(": ")[0] for line in problems(text)] == [
        "feeds.shop.protocol",
        "feeds.shop.source.partitions",
        "feeds.shop.owners[0]",
        "feeds.shop.gate_scop",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("feeds:\n  shop: {}\n  shop: {}\n", "line 3: not usable as YAML: duplicate key shop"),
        ("feeds:\n  a: [1\n  b: 2\n", "line 3: not usable as YAML: "),
        ("feeds:\n\tshop: 1\n", "line 2: not usable as YAML: "),
        ("feeds:\n  ? [a]\n  : 1\n", "line 2: not usable as YAML: a key must be plain text"),
        ("feeds: 1\n---\nfeeds: 2\n", "line 2: not usable as YAML: "),
        ("feeds: *none\n", "line 1: not usable as YAML: "),
        ("feeds:\n  a: !!python/object:os.system {}\n", "line 2: not usable as YAML: "),
        ("feeds:\n  a: !!set {b}\n", "line 2: not usable as YAML: the tag tag:yaml.org,2002:set has no use here"),
        ("feeds:\n  a: 0x_\n", "line 2: not usable as YAML: not a value of type int"),
        ("feeds:\n  a: !!bool x\n", "line 2: not usable as YAML: not a value of type bool"),
        ("feeds:\n  a: \x07\n", "line 2: not usable as YAML: control character"),
        ("feeds: &a\n  b: *a\n", "nested too deeply, or an alias that refers to itself"),
    ],
)
def test_unusable_yaml(problems: Problems, text: str, message: str) -> None:
    (line,) = problems(text)
    assert line.startswith(message)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FeedsError) as missing:
        load_feeds(tmp_path / "none.yaml")
    assert str(missing.value) == f"{tmp_path}/none.yaml: no such file; name the feeds file in CDC_FEEDS"
    with pytest.raises(FeedsError) as folder:
        load_feeds(tmp_path)
    assert str(folder.value) == f"{tmp_path}: cannot be read: Is a directory"


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "feeds.yaml").write_bytes(b"feeds:\n  a: \xe9\n")
    with pytest.raises(FeedsError, match="line 2: not UTF-8 text"):
        load_feeds(tmp_path / "feeds.yaml")


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "feeds.yaml").write_text(feed(), encoding="utf-8-sig")
    assert isinstance(load_feeds(tmp_path / "feeds.yaml").feeds["shop"], Feed)


def test_the_folders_of_an_initial_load_are_relative_to_the_file_unless_they_are_uris(
    load: Load, tmp_path: Path
) -> None:
    tables = {"shop.orders": {"path": "s3://dumps/orders", "position": tso(7)}}
    text = feed(protocol="simple", initial_load={"path": "dump", "format": "parquet", "tables": tables})
    initial_load = load(text).feeds["shop"].initial_load
    assert (initial_load.path, initial_load.position, initial_load.time_zone) == (str(tmp_path / "dump"), None, "UTC")
    table = initial_load.tables["shop.orders"]
    assert (table.path, table.format, table.position) == ("s3a://dumps/orders", None, tso(7))
