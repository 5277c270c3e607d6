"""The run: the load, the disturbances, the comparisons, and the counts."""

import json
import os
import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from cdc_assets.config.jdbc import PASSWORD as VERIFY_PASSWORD
from cdc_assets.config.jdbc import USER as VERIFY_USER
from cdc_assets.config.jdbc import ServerAddress
from cdc_assets.stages.history.progress_file import list_holds
from cdc_assets_tests.broker import TestBroker
from cdc_assets_tests.live.canal import TOPIC, Canal, canal_settings, readable_by_canal
from cdc_assets_tests.live.catalog import Name, Table, read_tables
from cdc_assets_tests.live.changes import any_change, touch
from cdc_assets_tests.live.compare import Difference, compare_tables, table_of, text_of, unexpected
from cdc_assets_tests.live.connect import PREFIX, Connect
from cdc_assets_tests.live.counts import Counts
from cdc_assets_tests.live.pipeline import Cuts, Pipeline
from cdc_assets_tests.live.reader import Reader
from cdc_assets_tests.live.records import save, wait_for_marker
from cdc_assets_tests.live.schema_changes import DATABASES, HIDDEN, ODD, PRODUCTIONS, State, choose_production
from cdc_assets_tests.live.sessions import Sessions, Statement, Step
from cdc_assets_tests.live.shrink import in_other_databases, linked_steps, shrink
from cdc_assets_tests.mariadb import OLDER_VERSION, PASSWORD, USER, VERSION, MariaDB

READERS = ("debezium", "canal")
_MARKER = ("lq_marker", "marker")
_TABLES = range(4, 10)  # how many tables there are
_OF_ODD_TYPES = {"type_mapping", "mysql_type_mapping", "jdbc_type_mapping"}
# Of a table that is dropped after its comparison. A replay of its history compares its earlier changes once more.
_OF_DROPPED = {"reload_required", "ddl_applied", "type_mapping", "late_events_seen_before", "changes_continue"}
_SHRINK_SECONDS = 300
# The connector's settings that messages with and without schemas do not state.
_BINARY_MODE = ("binary.handling.mode",)
_UNSTATED_MODES = (*_BINARY_MODE, "decimal.handling.mode", "time.precision.mode")
_BURST = "several statements of one second"


class ReaderError(Exception):
    """Debezium or Canal has failed, and sends nothing any more."""


class Live:
    """The servers, the load and the pipeline."""

    def __init__(self, folder: Path, seed: int, reader: str, counts: Counts) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.seed, self.rng = folder, seed, random.Random(seed)
        self.reads_with_canal = reader == "canal"
        os.environ |= {VERIFY_USER: USER, VERIFY_PASSWORD: PASSWORD}
        self.settings = canal_settings(self.rng) if self.reads_with_canal else _connector_settings(self.rng)
        # Without them, all row events of a transaction state the position of its beginning.
        self.legacy_positions = None if self.reads_with_canal else self.rng.choice(["ON", "OFF"])
        self.counts = counts
        self.allowed: dict[Name, set[str]] = defaultdict(set)
        self.exempt: set[Name] = set()
        self.to_report: dict[Name, tuple[str, ...]] = {}  # table -> the checks of which one must fail
        self.replays = 0
        self.compared = 0  # the number of steps before the last comparison
        self.markers = 0

    def run(self, end: float) -> list[Difference]:
        """Run until a difference, or until `end`, a time of `time.monotonic`.

        Raises:
            ReaderError: the reader of the binlog has failed.
        """
        print(
            f"seed {self.seed}, binlog_legacy_event_pos {self.legacy_positions}, settings: {self.settings}", flush=True
        )
        self.server = MariaDB(self.folder / "mariadb", OLDER_VERSION if self.reads_with_canal else VERSION)
        self.broker = TestBroker(self.folder / "broker")
        try:
            self.address = ServerAddress("127.0.0.1", self.server.port, "DISABLED")
            self.sessions = _begin(self.server, self.legacy_positions)
            self.reader, topics, settings = self._choose_reader()
            self.reader.start()
            settings["tables"] = {"exclude": [f"{HIDDEN}*.*"]}
            self.pipeline = Pipeline(self.folder / "pipeline", self.broker.servers, topics, settings)
            self._catch_up()
            differences = self._loop(end)
            if differences:
                self._report(differences)
        finally:
            self._stop()
        return differences

    def _stop(self) -> None:
        """Stop the servers, and add to the counts."""
        sums = self.counts.sums
        if hasattr(self, "pipeline"):
            sums["runs of the job"] += self.pipeline.runs
            sums["steps"] += len(self.sessions.executed)
            sums["statements"] += sum(len(done.step.statements) for done in self.sessions.executed)
        if hasattr(self, "reader"):
            self.reader.kill()
            sums["restarts"] += self.reader.restarts
            sums["moves back"] += self.reader.moves_back
        self.broker.kill()
        self.server.stop()

    def _choose_reader(self) -> tuple[Reader, str, dict[str, Any]]:
        """Return what reads the binlog, the pattern of its topics, and the feed's settings for its messages."""
        if self.reads_with_canal:
            excluded = {"canal.instance.filter.black.regex": rf"{HIDDEN}.*\\..*"}
            canal = Canal(self.folder / "canal", self.server, self.broker.servers, self.settings | excluded)
            return canal, TOPIC, {"protocol": "canal-json"}
        # With schemas, messages do not state how bytes are written if the connector writes them as texts.
        has_schemas = self.settings["value.converter.schemas.enable"] == "true"
        unstated = {name: self.settings[name] for name in (_BINARY_MODE if has_schemas else _UNSTATED_MODES)}
        connect = Connect(self.folder / "connect", self.server, self.broker.servers, self.settings)
        return connect, rf"{PREFIX}([.].*)?", {"protocol": "debezium", "connector_settings": unstated}

    def _loop(self, end: float) -> list[Difference]:
        while time.monotonic() < end:
            cuts = Cuts(self.pipeline, random.Random(self.rng.random()))
            cuts.start()
            try:
                self._load(min(end, time.monotonic() + self.rng.uniform(10, 40)))
            finally:
                cuts.stop()
            if differences := self._compare():
                return differences
        return []

    # --- load

    def _load(self, end: float) -> None:
        """Execute steps, and disturb the reader now and then."""
        while time.monotonic() < end:
            for step in range(self.rng.randint(1, 6)):
                if step or self.rng.random() < 0.5:
                    self._change_schema()
                for _ in range(self.rng.randint(1, 5)):
                    self._change_rows()
            self.counts.productions[_BURST] += 1
            chance = self.rng.random()
            if chance < 0.06:
                self.reader.restart()
            elif chance < 0.12:
                self.reader.move_back()
            elif chance < 0.25:
                self.reader.save()
            time.sleep(self.rng.choice([0, 0.3, 1]))

    def _tables(self) -> dict[Name, Table]:
        with self.sessions.cursor() as cursor:
            return read_tables(cursor, (*DATABASES, HIDDEN))

    def _change_schema(self) -> None:
        tables = self._tables()
        own = [name for name in tables if name[0] in DATABASES]
        state = State(self.rng, tables, self.exempt)
        if len(own) < _TABLES.start:
            made = PRODUCTIONS_BY_ROW["CREATE TABLE"]
        elif len(own) >= _TABLES.stop:
            made = PRODUCTIONS_BY_ROW["DROP TABLE"]
        else:
            made = choose_production(self.rng, self.counts.productions)
        step = made.make(state)
        if step and self.reads_with_canal:
            step = readable_by_canal(step)
        if step is None:
            return
        done = self.sessions.run(step)
        if done.errors:
            self.counts.refused[made.row] += 1
        for row in step.productions if not done.errors else ():
            self.counts.productions[row] += 1
        for name in step.tables:
            self.allowed[name] |= made.allowed
            self.to_report.pop(name, None)
        if made.row not in step.productions:
            return
        if made.ends_comparison:
            self.exempt |= set(step.tables)
        if made.reported and not done.errors:
            self.to_report[step.tables[0]] = made.reported

    def _change_rows(self) -> None:
        tables = [t for n, t in self._tables().items() if n[0] in DATABASES and t.columns]
        if not tables:
            return
        step = any_change(self.rng, tables)
        done = self.sessions.run(step)
        if len(done.errors) < len(step.statements):
            named = {table.name: table for table in tables}
            for name in step.tables:
                self.counts.types.update(kind for c in named[name].columns if (kind := c.kind))

    # --- comparisons

    def _catch_up(self) -> None:
        """Have the reader send and the pipeline ingest everything that the server has."""
        self.markers += 1
        self.sessions.query(f"INSERT INTO {'.'.join(_MARKER)} VALUES ({self.markers})")
        try:
            topic = TOPIC if self.reads_with_canal else f"{PREFIX}.{'.'.join(_MARKER)}"
            wait_for_marker(self.broker.servers, topic, _MARKER[1], self.markers)
        except TimeoutError as error:
            raise ReaderError(f"{error}:\n{self.reader.failure()}") from error
        time.sleep(1)  # what else was sent with the marker
        self.pipeline.run()

    def _compare(self) -> list[Difference]:
        began = time.monotonic()
        self._catch_up()
        self._exempt_linked()
        of_exempt = {name: {check.check_name for check in self.pipeline.failed} for name in self.exempt}
        failing = {name for check in self.pipeline.failed if (name := table_of(check))}
        odd = {name: _OF_ODD_TYPES for name in failing if name[0] == ODD}
        differences = unexpected(self.pipeline.failed, self.allowed | of_exempt | odd)
        unknown = failing - self.exempt
        self.counts.reported.update(text_of(check)[:300] for check in self.pipeline.failed)
        tables = self._tables()
        # A RENAME may have moved rows of which a statement's values are not known.
        unknown = self._linked(unknown) - self.exempt
        if touched := [t for name, t in tables.items() if name in unknown]:
            for table in touched:
                self.sessions.run(touch(table))
            self._catch_up()
        differences += [Difference(None, "error", error) for error in self.pipeline.errors]
        reported = {(table_of(check), check.check_name) for check in self.pipeline.failed}
        waiting = {(hold.database, hold.table) for hold in list_holds(self.pipeline.lake)}
        silent = {
            name: checks
            for name, checks in self.to_report.items()
            if not any((name, check) in reported for check in checks) and (name in tables or name[0] == ODD)
            if (name in self.pipeline.lake.histories() and name not in waiting) or name[0] == ODD
        }
        if self.reads_with_canal:
            # Rows are not compared across a statement of the same run, so a later change may have mended all of them.
            self.exempt -= silent.keys()
            silent = {name: checks for name, checks in silent.items() if name[0] == ODD}
        differences += [
            Difference(name, "silent", f"{' or '.join(checks)} does not fail, though the rows are not known")
            for name, checks in silent.items()
        ]
        own = [name for name in tables if name[0] in DATABASES]
        differences += compare_tables(self.pipeline, self.address, DATABASES, own, self.exempt)
        self.compared = len(self.sessions.executed)
        self.counts.sums["comparisons"] += 1
        self.pipeline.failed.clear()
        self.allowed.clear()
        for name in self.exempt & tables.keys():
            self.sessions.run(Step((), (name,), (Statement(f"DROP TABLE {tables[name].sql}"),)))
            self.allowed[name] |= _OF_DROPPED
        self.exempt.clear()
        self.to_report.clear()
        print(
            f"comparison {self.counts.sums['comparisons']}: {len(own)} tables, {len(self.sessions.executed)} steps, "
            f"{self.pipeline.runs} runs, {len(differences)} differences, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        return differences

    def _exempt_linked(self) -> None:
        """Exempt tables that RENAMEs since the last comparison link to exempt ones, which may block them."""
        self.exempt = self._linked(self.exempt)

    def _linked(self, names: set[Name]) -> set[Name]:
        """Return tables, and those that statements since the last comparison link to them."""
        recent = [set(done.step.tables) for done in self.sessions.executed[self.compared :] if done.step.productions]
        result = set(names)
        for _ in recent:
            linked = {name for tables in recent if tables & result for name in tables}
            if linked <= result:
                break
            result |= linked
        return result

    # --- what came out

    def _report(self, differences: list[Difference]) -> None:
        concerned = {d.table for d in differences if d.table}
        for difference in differences:
            print(f"\nDIFFERENCE of {difference.table}: {difference.text}")
        (self.folder / "steps.jsonl").write_text(
            "".join(json.dumps(done.as_json(), ensure_ascii=False) + "\n" for done in self.sessions.executed)
        )
        for done in self.sessions.executed:
            if concerned & set(done.step.tables):
                print(f"{done.number} at {done.position}: " + "; ".join(s.sql[:400] for s in done.step.statements))
        count = save(self.broker.servers, PREFIX, self.folder / "records.jsonl")
        print(f"{count} records and the steps are in {self.folder}", flush=True)
        self._shrink(differences)

    def _shrink(self, differences: list[Difference]) -> None:
        """Print the fewest statements that are found to have such a difference."""
        kinds, tables = {d.kind for d in differences}, {d.table for d in differences if d.table}
        steps = linked_steps([done.step for done in self.sessions.executed], tables)
        if not tables or not self._fail([steps], kinds)[0]:
            print("Its statements alone do not make the difference: it depends on times, cuts or repeats.")
            return
        left = shrink(steps, lambda tried: self._fail(tried, kinds), _SHRINK_SECONDS)
        print(f"\n{len(left)} of {len(steps)} steps make such a difference:")
        for statement in (statement for step in left for statement in step.statements):
            print(f"  {'waits ' if statement.waits else ''}session {statement.session}: {statement.sql}")

    def _fail(self, tried: list[list[Step]], kinds: set[str]) -> list[bool]:
        """Return which lists of steps, each executed in databases of its own, have differences of these kinds."""
        self.pipeline.failed.clear()
        endings = [f"_r{self.replays + n}" for n in range(len(tried))]
        self.replays += len(tried)
        for ending, steps in zip(endings, tried, strict=True):
            for database in (*DATABASES, HIDDEN):
                self.sessions.query(f"CREATE DATABASE {database}{ending} CHARACTER SET utf8mb4")
            for step in steps:
                self.sessions.run(in_other_databases(step, ending, (*DATABASES, HIDDEN)), log=False)
        self._catch_up()
        failed = []
        for ending in endings:
            databases = [database + ending for database in DATABASES]
            with self.sessions.cursor() as cursor:
                tables = read_tables(cursor, databases)
            remaining = compare_tables(self.pipeline, self.address, databases, tables, ())
            remaining += [d for d in unexpected(self.pipeline.failed, {}) if d.table and d.table[0] in databases]
            failed.append(any(difference.kind in kinds for difference in remaining))
        return failed


PRODUCTIONS_BY_ROW = {made.row: made for made in PRODUCTIONS}
RULES = PRODUCTIONS_BY_ROW.keys() | {_BURST}


def _begin(server: MariaDB, legacy_positions: str | None) -> Sessions:
    """Set the server up, and make the table of markers."""
    server.run(
        "SET GLOBAL binlog_format = 'ROW'",
        "SET GLOBAL time_zone = '+00:00'",  # as the feed's: a MODIFY of a TIMESTAMP converts in the session's zone
        *([f"SET GLOBAL binlog_legacy_event_pos = {legacy_positions}"] if legacy_positions else ()),
    )
    sessions = Sessions(server)
    for database in (*DATABASES, HIDDEN, ODD, _MARKER[0]):
        sessions.query(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    sessions.query(f"CREATE TABLE {'.'.join(_MARKER)} (id int PRIMARY KEY)")
    return sessions


def _connector_settings(rng: random.Random) -> dict[str, str]:
    """Return settings of the connector and its converters by chance, of those that lose nothing."""
    return {
        "database.exclude.list": f"{HIDDEN}.*",
        "value.converter.schemas.enable": rng.choice(["true", "false"]),
        "key.converter.schemas.enable": rng.choice(["true", "false"]),
        "value.converter.decimal.format": rng.choice(["BASE64", "NUMERIC"]),
        "decimal.handling.mode": rng.choice(["precise", "string"]),
        "bigint.unsigned.handling.mode": rng.choice(["precise", "long"]),
        "binary.handling.mode": rng.choice(["bytes", "base64", "hex"]),
        "time.precision.mode": rng.choice(["adaptive_time_microseconds", "microseconds"]),
        "provide.transaction.metadata": rng.choice(["false", "true"]),
        "tombstones.on.delete": rng.choice(["false", "true"]),
        "enable.time.adjuster": "false",
        "event.converting.failure.handling.mode": "fail",  # else a value that Debezium cannot convert becomes NULL
        "topic.creation.default.partitions": rng.choice(["1", "3"]),
    }
