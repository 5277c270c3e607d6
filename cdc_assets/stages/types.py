"""The stage type_observations: check what new events state of their columns' types against the protocol's tables.

The stage stops no feed. Its cursor says from which position on the events of a table break a mapping, and the gate holds
that table there.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.lakehouse.change_events import Kind
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.lakehouse.type_observations import TYPE_OBSERVATIONS, Doubted, Refused, TypesCursor
from cdc_assets.protocols import protocol_of
from cdc_assets.protocols.base import UnprovenSetting
from cdc_assets.release.tables import taken_tables
from cdc_assets.spark.session import session_for
from cdc_assets.stages.type_verdicts import (
    IDENTITY,
    PASSING_VERDICTS,
    VERDICTS,
    advice_on,
    breaks_any_mapping,
    breaks_mapping,
    check_event_types,
    find_unproven_settings,
    identity_of,
)
from cdc_assets.type_checks.occurrences import merge_occurrences
from cdc_assets.type_checks.row_images import Name, Observation

# A new version of the rules checks again what an earlier one refused.
_RULES_VERSION = 1
# A table of at least `_COMPACTION_FILES` files is rewritten as one file when its rows have doubled since the last rewrite,
# and with `_MOST_FILES` files in any case.
_COMPACTION_FILES, _MOST_FILES = 16, 64
# Reports show at most this many observations, so that the cost of a run does not grow with the observations of all runs.
SHOWN = 500


@dataclass(frozen=True)
class TypesReport:
    """What one run of the stage did, and which observations break a mapping.

    Attributes:
        after: the run checked the raw batches in (after, through].
        through: see `after`.
        codes_called: what the protocol calls the codes beside the MySQL types.
        distinct: the number of different observations of all runs.
        observations: at most `SHOWN` of them, each with all its events, those that break a mapping first.
        events_by_identity: `identity_of` an observation -> the number of this run's events that show it.
        new: the observations of this run that no earlier run made.
        wrong: the observations that break a mapping: of blocked tables, and of the newest run that checked any events.
        refused: the tables that the gate must hold.
        unproven: the connector's settings by which values of any run may have been read wrongly.
    """

    after: int
    through: int
    codes_called: str
    distinct: int = 0
    observations: list[Observation] = field(default_factory=list)
    events_by_identity: Mapping[tuple[Any, ...], int] = field(default_factory=dict)
    new: list[Observation] = field(default_factory=list)
    wrong: list[Observation] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    unproven: list[UnprovenSetting] = field(default_factory=list)


class Types:
    """The stage that checks the types of new events, and of tables to be checked again."""

    name = "type_observations"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Return whether new events, or tables to be checked again, exist, or settings of the verdicts have changed."""
        decoded, cursor = lake.change_events.cursor(), _cursor(lake)
        return decoded is not None and (
            decoded.batch > cursor.batch
            or cursor.settings != _settings(feed)
            or bool(_tables_to_recheck(lake, feed, cursor))
        )

    def run(self, lake: Lakehouse, feed: Feed) -> TypesReport:
        """Check these events, and commit the observations and the blocked tables at once.

        Raises:
            ConcurrentRunError: another run checked them meanwhile.
        """
        cursor, decoded = _cursor(lake), lake.change_events.cursor()
        span = _Span(cursor.batch, _tables_to_recheck(lake, feed, cursor))
        table = lake.type_observations.at_current_version()
        stored = _fetch_observations(table)
        is_current = cursor.settings == _settings(feed) and not span.rechecked
        if decoded is None or (decoded.batch <= cursor.batch and is_current):
            return _make_report(feed, cursor.batch, cursor, stored, [])
        files, schema_rows = _list_files(lake, feed, span), lake.schema_rows()
        # A batch may hold watermarks alone.
        events = _read_events(lake, feed, files, span, decoded.batch) if files else None
        before = partial(_select_earlier, stored, span)
        observations = [] if events is None else check_event_types(events, schema_rows, feed, before)
        new = [o | {"batch": decoded.batch} for o in observations if feed.tables.takes(*_name(o))]
        refused = _add_record_times(lake, files, _refuse_tables(cursor, span, [o for o in new if _blocks(feed, o)]))
        doubted = {(r.database, r.table) for r in refused} | _tables_without_schema(lake, feed, files, schema_rows)
        schemas_cursor = lake.table_schemas.cursor()
        advanced = TypesCursor(
            sequence=cursor.sequence + 1,
            batch=decoded.batch,
            settings=_settings(feed),
            refused=refused,
            doubted=_doubt_tables(cursor, span, doubted, schema_rows),
            schemas=schemas_cursor.sequence if schemas_cursor else 0,
        )
        replaces = bool(span.rechecked) or _is_compaction_due(table)
        if replaces:
            # The new observations of a table that is checked again replace the earlier ones.
            kept = [o for o in stored.to_pylist() if o["batch"] <= span.after(_name(o))]
            stored, rows = pa.Table.from_pylist(kept, stored.schema), _merge_by_identity([*kept, *new], advanced)
            advanced = replace(advanced, distinct=_count_distinct(rows))
        else:
            rows, of_same_tables = new, _select_tables(stored, map(_name, new))
            added = _count_distinct([*of_same_tables, *new]) - _count_distinct(of_same_tables)
            advanced = replace(advanced, distinct=cursor.distinct + added)
        table = lake.type_observations
        table.commit(table.stage_rows(rows), advanced, replaces=replaces)
        return _make_report(feed, cursor.batch, advanced, stored, new)


def make_audit_report(observations: list[Observation], codes_called: str) -> TypesReport:
    """Return a report of observations that no run of the stage made, such as the audit's."""
    wrong = [o for o in observations if breaks_any_mapping(o)]
    return TypesReport(0, 0, codes_called, distinct=len(observations), observations=observations, wrong=wrong)


def _cursor(lake: Lakehouse) -> TypesCursor:
    return lake.type_observations.cursor() or TypesCursor(sequence=0)


def _settings(feed: Feed) -> str:
    """Return the settings that the verdicts depend on, and the version of the rules, as the cursor stores them."""
    settings = feed.model_dump_json(
        include={"type_mapping", "tidb_extension", "columns", "tables", "connector_settings"}
    )
    return json.dumps([_RULES_VERSION, json.loads(settings)])


def _name(row: Mapping[str, Any]) -> Name:
    return row["database"], row["table"]


# --- which events a run checks


@dataclass(frozen=True)
class _Span:
    """The events that a run checks.

    Attributes:
        batch: the events of later raw batches are checked.
        rechecked: tables that are checked again -> the raw batch after which their events are checked.
    """

    batch: int
    rechecked: Mapping[Name, int]

    def after(self, name: Name) -> int:
        """Return the raw batch after which a table's events are checked."""
        return self.rechecked.get(name, self.batch)

    @property
    def lowest(self) -> int:
        """The lowest raw batch after which events are checked."""
        return min([self.batch, *self.rechecked.values()])

    def contains_event(self) -> Column:
        """Return BOOLEAN: whether an event of change_events is in the span. In: database, table, batch."""
        starts: Column = F.lit(self.batch)
        if self.rechecked:
            starts_by_name = json.dumps({"\0".join(name): after for name, after in self.rechecked.items()})
            parsed = F.from_json(F.lit(starts_by_name), "MAP<STRING, BIGINT>")
            starts = F.coalesce(F.try_element_at(parsed, F.concat_ws("\0", "database", "table")), starts)
        return F.col("batch") > starts


def _tables_to_recheck(lake: Lakehouse, feed: Feed, cursor: TypesCursor) -> dict[Name, int]:
    """Return the tables to check again, because settings, rules or their schemas changed: name -> after which batch."""
    names: set[Name] = set()
    if cursor.settings != _settings(feed):
        names |= {(r.database, r.table) for r in cursor.refused}
    schemas_cursor = lake.table_schemas.cursor() if cursor.doubted else None
    if schemas_cursor is not None and schemas_cursor.sequence > cursor.schemas:
        counts = _count_schemas(lake.schema_rows({(d.database, d.table) for d in cursor.doubted}))
        names |= {(d.database, d.table) for d in cursor.doubted if counts[d.database, d.table] != d.schemas}
    return {(d.database, d.table): d.after for d in cursor.doubted if (d.database, d.table) in names}


def _count_schemas(schema_rows: Iterable[Mapping[str, Any]]) -> Counter[Name]:
    return Counter(map(_name, schema_rows))


def _list_files(lake: Lakehouse, feed: Feed, span: _Span) -> list[DataFile]:
    """Return the files of change_events that may hold events to check."""
    kinds = {str(Kind.ROW), str(Kind.DDL)} if protocol_of(feed).carries_schemas else {str(Kind.ROW)}
    return [f for f in lake.change_events.files() if f.partition["kind"] in kinds and f.high["batch"] > span.lowest]


def _read_events(lake: Lakehouse, feed: Feed, files: list[DataFile], span: _Span, through: int) -> DataFrame:
    """Return the events of these files that the run checks; rows of change_events."""
    events = lake.change_events.read_files(session_for(lake.spark, sum(f.rows for f in files)), files)
    return events.where((F.col("batch") <= through) & span.contains_event() & taken_tables(feed))


def _tables_without_schema(
    lake: Lakehouse, feed: Feed, files: list[DataFile], schema_rows: Sequence[Mapping[str, Any]]
) -> set[Name]:
    """Return the tables with row events whose schema, by its number, has not come."""
    if not protocol_of(feed).numbers_schemas:
        return set()
    names = ["database", "table", "schema_version"]
    events = lake.change_events.fetch([f for f in files if f.partition["kind"] == Kind.ROW], *names)
    schemas = {tuple(row[name] for name in names) for row in schema_rows}
    used = events.group_by(names).aggregate([]).to_pylist()
    missing = [_name(row) for row in used if tuple(row[name] for name in names) not in schemas]
    return {name for name in missing if feed.tables.takes(*name)}


# --- the table of observations


def _fetch_observations(table: LakeTable[TypesCursor]) -> pa.Table:
    """Return the observations of earlier runs; one observation may have several rows."""
    # An Arrow table takes much less memory than Python objects.
    return table.fetch(table.files(), *TYPE_OBSERVATIONS.columns.names)


def _is_compaction_due(table: LakeTable[TypesCursor]) -> bool:
    """Return whether to rewrite the table as one file: rewriting then costs no more than a few times the writes since."""
    rows = sorted(f.rows for f in table.files())
    return len(rows) >= _MOST_FILES or (len(rows) >= _COMPACTION_FILES and sum(rows[:-1]) >= rows[-1])


def _have_values(rows: pa.Table, values_by_column: Mapping[str, Iterable[str]]) -> pa.Array:
    """Return BOOLEAN for each row: whether every one of these columns has one of its values."""
    if not rows.num_rows:
        return pa.array([], pa.bool_())  # the columns of a missing table have no types
    tests = (
        pc.is_in(rows[name], pa.array(sorted(set(values)), pa.string())) for name, values in values_by_column.items()
    )
    return reduce(pc.and_, tests)


def _select_tables(rows: pa.Table, names: Iterable[Name]) -> list[Observation]:
    """Return the observations of these tables."""
    tables = set(names)
    values = {"database": (database for database, _ in tables), "table": (table for _, table in tables)}
    return [o for o in rows.filter(_have_values(rows, values)).to_pylist() if _name(o) in tables]


def _select_earlier(stored: pa.Table, span: _Span, names: Iterable[Name]) -> list[Observation]:
    """Return what earlier runs observed of these tables, without the events that this run checks again."""
    return [o for o in _select_tables(stored, names) if o["batch"] <= span.after(_name(o))]


def _merge_by_identity(rows: Iterable[Observation], cursor: TypesCursor) -> list[Observation]:
    """Merge the rows of one observation, apart from rows of events that may be checked again."""
    after = {(d.database, d.table): d.after for d in cursor.doubted}
    merged: dict[tuple[Any, ...], Observation] = {}
    for row in rows:
        key = (*identity_of(row), row["batch"] > after.get(_name(row), cursor.batch))
        other = merged.get(key)
        merged[key] = max(other, row, key=lambda o: o["batch"]) | merge_occurrences(other, row) if other else row
    return list(merged.values())


def _count_distinct(observations: Iterable[Observation]) -> int:
    return len({identity_of(o) for o in observations})


# --- blocked tables


def _blocks(feed: Feed, observation: Observation) -> bool:
    """Return whether an observation blocks its table."""
    return breaks_any_mapping(observation) and feed.blocks_types(*_name(observation))


def _refuse_tables(cursor: TypesCursor, span: _Span, wrong: Iterable[Observation]) -> list[Refused]:
    """Return the tables to block: those blocked before that are not checked again, and those of `wrong`."""
    refused = {(r.database, r.table): r for r in cursor.refused if (r.database, r.table) not in span.rechecked}
    for o in wrong:
        name, place = _name(o), dict(o["first"])
        commit_ts = place.pop("commit_ts")
        errors = "; ".join(o[verdict] for verdict in VERDICTS if breaks_mapping(o, verdict))
        first = (
            place
            | {"column": o["column"], "problem": errors}
            | ({"advice": advice} if (advice := advice_on(o)) else {})
        )
        of_observation = Refused(*name, commit_ts, o["first_batch"], first)
        other = refused.get(name, of_observation)
        lowest = min(other, of_observation, key=_position)
        refused[name] = Refused(*name, lowest.commit_ts, min(other.batch, of_observation.batch), lowest.first)
    return sorted(refused.values(), key=lambda r: (r.database, r.table))


def _add_record_times(lake: Lakehouse, files: list[DataFile], refused: list[Refused]) -> list[Refused]:
    """Add `record_ms`, Kafka's time of the first record, to the tables that lack it."""
    records = {_record(r.first) for r in refused if "record_ms" not in r.first}
    if not records:
        return refused
    rows = lake.change_events.fetch(files, "topic", "partition", "offset", "record_timestamp")
    at_offsets = pc.is_in(rows["offset"], pa.array([offset for *_, offset in records], pa.int64()))
    times = {_record(r): r["record_timestamp"] for r in rows.filter(at_offsets).to_pylist()}

    def add_time(first: dict[str, Any]) -> dict[str, Any]:
        time = times.get(_record(first))
        return {"record_ms": None if time is None else round(time.timestamp() * 1000)} | first

    return [replace(r, first=add_time(r.first)) for r in refused]


def _record(place: Mapping[str, Any]) -> tuple[str, int, int]:
    return place["topic"], place["partition"], place["offset"]


def _position(refused: Refused) -> tuple[Any, ...]:
    """Return a total order, so that cutting the stream into other runs changes no choice between equal commit_ts."""
    return refused.commit_ts, *(refused.first[name] for name in ("topic", "partition", "offset", "column"))


def _doubt_tables(
    cursor: TypesCursor, span: _Span, names: Iterable[Name], schema_rows: Iterable[Mapping[str, Any]]
) -> list[Doubted]:
    """Return the tables that later runs may check again, each with the batch after which its events are checked.

    Args:
        cursor: the cursor before this run; a table that it has keeps its batch, and stays unless this run checked it again.
        span: the events that this run checked.
        names: the tables that this run blocks or has no schema for.
        schema_rows: rows of table_schemas.
    """
    counts, before = _count_schemas(schema_rows), {(d.database, d.table): d.after for d in cursor.doubted}
    waiting = {name for name in before if name not in span.rechecked}
    return [Doubted(*name, before.get(name, span.batch), counts[name]) for name in sorted({*names, *waiting})]


# --- the report


def _make_report(feed: Feed, after: int, cursor: TypesCursor, stored: pa.Table, new: list[Observation]) -> TypesReport:
    """Return the report of a run.

    Args:
        feed: the feed.
        after: the raw batch after which the run checked events.
        cursor: the cursor after the run.
        stored: the observations of earlier runs.
        new: the observations of this run.
    """
    refused = {(r.database, r.table) for r in cursor.refused}
    since = {(d.database, d.table): d.after for d in cursor.doubted if (d.database, d.table) in refused}
    lowest = min([cursor.batch - 1, *since.values()])
    is_wrong = pc.invert(_have_values(stored, dict.fromkeys(VERDICTS, PASSING_VERDICTS)))
    breaking = stored.filter(is_wrong)
    recent = breaking.filter(pc.greater(breaking["batch"], lowest)).to_pylist()
    wrong = [o for o in [*recent, *new] if o["batch"] > since.get(_name(o), cursor.batch - 1) and breaks_any_mapping(o)]
    # An observation has at most one row in each file.
    ordered = pa.concat_tables([breaking, stored.filter(pc.invert(is_wrong))])[: SHOWN * _MOST_FILES]
    first = ordered.group_by(list(IDENTITY), use_threads=False).aggregate([])[:SHOWN].to_pylist()
    of_shown_tables = _select_tables(stored, map(_name, [*first, *new]))
    earlier = {identity_of(o) for o in of_shown_tables}
    without_doubted = TypesCursor(sequence=0, batch=cursor.batch)
    merged = _merge_by_identity([*of_shown_tables, *new], without_doubted)
    return TypesReport(
        after=after,
        through=cursor.batch,
        codes_called=protocol_of(feed).codes_called,
        distinct=cursor.distinct,
        observations=sorted(merged, key=lambda o: not breaks_any_mapping(o))[:SHOWN],
        events_by_identity={identity_of(o): o["events"] for o in new},
        new=[o for o in new if identity_of(o) not in earlier],
        wrong=_merge_by_identity(wrong, without_doubted),
        refused=cursor.refused,
        unproven=find_unproven_settings(feed, stored, new),
    )
