"""The stage type_observations: what new events say of their columns' types, held against the protocol's tables.

It refuses no feed: it tells from where on the events of a table break a mapping, and the gate holds that table.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from cdc_assets.mysql_types.reference import jdbc_text
from cdc_assets.protocols import protocol_of
from cdc_assets.release.tables import taken_tables
from cdc_assets.spark.session import session_for
from cdc_assets.type_checks.occurrences import OCCURRENCE_FIELDS, merge_occurrences
from cdc_assets.type_checks.row_images import (
    ADVICE,
    LACKING,
    LEFT_OUT_OF_ALL,
    columns_in_rows,
    incomplete,
    lacks_column,
)

Observation = dict[str, Any]  # the columns of the table
Name = tuple[str, str]  # database, table

# What one version of the rules refuses is judged again by the next.
_RULES_VERSION = 1
_IDENTITY = ("database", "table", "column", "mysql_type", "told")
_VERDICTS = ("mysql_type_verdict", "code_verdict")
_OK, _ACCEPTED = "ok", "accepted: the feeds file gives the column's type"
_FINE = {_OK, _ACCEPTED, LEFT_OUT_OF_ALL}
# A table of so many files is written anew, as one, as soon as it has doubled since, and at the latest with `_MOST_FILES`.
_FILES, _MOST_FILES = 16, 64
# People are shown so many observations at most: what a run costs does not follow what was ever observed.
SHOWN = 500


@dataclass(frozen=True)
class TypesReport:
    """What one run of the stage did, and how the mappings stand.

    Attributes:
        after: the raw batches in (after, through] were judged.
        through: see `after`.
        called: what the protocol calls the codes beside the MySQL types.
        distinct: how many different observations all runs have made.
        observations: no more than `SHOWN` of them, each with all its events, those that break a mapping first.
        here: by `identity`: in how many events this run made an observation.
        new: those of them that no run before had made.
        wrong: those that break a mapping: in tables that are refused, and of the newest run that judged any.
        refused: these tables.
    """

    after: int
    through: int
    called: str
    distinct: int = 0
    observations: list[Observation] = field(default_factory=list)
    here: Mapping[tuple[Any, ...], int] = field(default_factory=dict)
    new: list[Observation] = field(default_factory=list)
    wrong: list[Observation] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


class Types:
    """Judges the events that are not judged yet."""

    name = "type_observations"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Whether there are such events, or tables to be judged again."""
        decoded, cursor = lake.change_events.cursor(), _cursor(lake)
        return decoded is not None and (decoded.batch > cursor.batch or bool(_again(lake, feed, cursor)))

    def run(self, lake: Lakehouse, feed: Feed) -> TypesReport:
        """Judge them: one commit with what was observed.

        Raises:
            ConcurrentRunError: another run judged them meanwhile.
        """
        cursor, decoded = _cursor(lake), lake.change_events.cursor()
        span = _Span(cursor.batch, _again(lake, feed, cursor))
        table = lake.type_observations.at_current_version()
        standing = _standing(table)
        if decoded is None or (decoded.batch <= cursor.batch and not span.again):
            return _report(feed, cursor.batch, cursor, standing, [])
        files, known = _files(lake, feed, span), lake.schema_rows()
        # A batch may hold watermarks alone.
        events = _events(lake, feed, files, span, decoded.batch) if files else None
        before = partial(_before, standing, span)
        found = [] if events is None else judged(events, known, feed, before)
        new = [o | {"batch": decoded.batch} for o in found if feed.tables.takes(*_name(o))]
        refused = _timed(lake, files, _refused(cursor, span, [o for o in new if _blocks(feed, o)]))
        learnt = lake.table_schemas.cursor()
        advanced = TypesCursor(
            sequence=cursor.sequence + 1,
            batch=decoded.batch,
            settings=_settings(feed),
            refused=refused,
            doubted=_doubted(
                cursor, span, {(r.database, r.table) for r in refused} | _schemaless(lake, feed, files, known), known
            ),
            schemas=learnt.sequence if learnt else 0,
        )
        anew = bool(span.again) or _scattered(table)
        if anew:
            # What is judged once more replaces what was found before.
            kept = [o for o in standing.to_pylist() if o["batch"] <= span.after(_name(o))]
            standing, rows = pa.Table.from_pylist(kept, standing.schema), _together([*kept, *new], advanced)
            advanced = replace(advanced, distinct=_distinct(rows))
        else:
            rows, near = new, _of_tables(standing, map(_name, new))
            advanced = replace(advanced, distinct=cursor.distinct + _distinct([*near, *new]) - _distinct(near))
        table = lake.type_observations
        table.commit(table.stage_rows(rows), advanced, replaces=rows is not new)
        return _report(feed, cursor.batch, advanced, standing, new)


def judged(
    events: DataFrame,
    known: Sequence[Mapping[str, Any]],
    feed: Feed,
    before: Callable[[Iterable[Name]], list[Observation]] = lambda _: [],
) -> list[Observation]:
    """Hold events against the rules of their protocol.

    Args:
        events: rows of change_events.
        known: rows of table_schemas.
        feed: whose events they are.
        before: the names of tables -> what earlier runs have observed of them.

    Returns:
        The columns of type_observations but `batch`.
    """
    # pandera, which a run without events does not need, is slow to import.
    from cdc_assets.type_checks.observations import MySQLTypes  # noqa: PLC0415
    from cdc_assets.type_checks.validation import find_broken_rules  # noqa: PLC0415
    from cdc_assets.type_checks.values import ValueClass  # noqa: PLC0415

    rules, columns = protocol_of(feed).type_rules(feed), feed.columns
    observed = rules.observe(events, known, columns, lambda names: columns_in_rows(before(names)))
    found = [row for row in observed if row["value_class"] not in LACKING]
    verdicts = [find_broken_rules(found, model) for model in (MySQLTypes, rules.model)]
    own = [name for name in rules.fields if name not in _IDENTITY]

    def accepted(row: Observation, verdict: str) -> str:
        """What the feeds file gives counts more than what messages say; but it, too, has to hold the value."""
        given = ".".join(row[name] for name in ("database", "table", "column")) in columns
        return _ACCEPTED if given and verdict != _OK and row["value_class"] not in set(ValueClass) else verdict

    def stated(row: Observation) -> Observation:
        told = json.dumps({name: row.get(name) for name in own})
        return {name: row[name] for name in ("database", "table", "column", "mysql_type", *OCCURRENCE_FIELDS)} | {
            "told": told
        }

    of_values = [
        stated(row)
        | {"expected": rules.expected(row)}
        | {name: accepted(row, verdict) for name, verdict in zip(_VERDICTS, told, strict=True)}
        for row, *told in zip(found, *verdicts, strict=True)
    ]
    lacking = [
        stated(row) | {"expected": "whole rows"} | dict(zip(_VERDICTS, (_OK, LACKING[row["value_class"]]), strict=True))
        for row in observed
        if row["value_class"] in LACKING
    ]
    return incomplete([*of_values, *lacking], known, before)


def shown(observation: Observation, verdict: str, here: int = 0) -> dict[str, Any]:
    """An observation as people read it: what it is, what is said in the column `verdict`, where it was seen first and last.

    A JDBC code has its name beside it.

    `here`: in how many events of this run.
    """
    what = {name: observation[name] for name in ("database", "table", "column", "mysql_type")}
    told = {k: v for k, v in json.loads(observation["told"]).items() if v is not None}
    if "jdbc_code" in told:
        told["jdbc_code"] = jdbc_text(told["jdbc_code"])
    first, last = observation["first"], observation["last"]
    return (
        what
        | told
        | {"expected": observation["expected"], "verdict": observation[verdict]}
        | {"events": observation["events"], "events_in_this_run": here}
        | {name: first[name] for name in ("topic", "partition", "offset", "commit_ts")}
        | {"sample_value": observation["sample_value"]}
        | {f"last_{name}": last[name] for name in ("topic", "partition", "offset", "commit_ts")}
    )


def identity(observation: Observation) -> tuple[Any, ...]:
    """What tells an observation from others."""
    return tuple(observation[name] for name in _IDENTITY)


def _before(standing: pa.Table, span: "_Span", names: Iterable[Name]) -> list[Observation]:
    """What earlier runs have observed of these tables, but for what is judged once more."""
    return [o for o in _of_tables(standing, names) if o["batch"] <= span.after(_name(o))]


def _distinct(observations: Iterable[Observation]) -> int:
    return len({identity(o) for o in observations})


def report_of(found: list[Observation], called: str) -> TypesReport:
    """The report over observations that no run has made, such as the audit's; `called` as in the report."""
    wrong = [o for o in found if _wrong(o)]
    return TypesReport(after=0, through=0, called=called, distinct=len(found), observations=found, wrong=wrong)


def _cursor(lake: Lakehouse) -> TypesCursor:
    return lake.type_observations.cursor() or TypesCursor(sequence=0)


def _settings(feed: Feed) -> str:
    told = feed.model_dump_json(include={"type_mapping", "tidb_extension", "columns", "tables"})
    return json.dumps([_RULES_VERSION, json.loads(told)])


@dataclass(frozen=True)
class _Span:
    """The events that a run judges: of raw batches after `batch`, and of some tables again, after an earlier one."""

    batch: int
    again: Mapping[Name, int]

    def after(self, name: Name) -> int:
        """The raw batch after which a table's events are judged."""
        return self.again.get(name, self.batch)

    @property
    def lowest(self) -> int:
        """The lowest of them."""
        return min([self.batch, *self.again.values()])

    def holds(self) -> Column:
        """Whether an event of change_events is in it."""
        starts: Column = F.lit(self.batch)
        if self.again:
            told = json.dumps({"\0".join(name): after for name, after in self.again.items()})
            by_name = F.from_json(F.lit(told), "MAP<STRING, BIGINT>")
            starts = F.coalesce(F.try_element_at(by_name, F.concat_ws("\0", "database", "table")), starts)
        return F.col("batch") > starts


def _again(lake: Lakehouse, feed: Feed, cursor: TypesCursor) -> dict[Name, int]:
    """The tables to be judged again, as others settings, or rules, or more of their schemas hold now."""
    anew: set[Name] = set()
    if cursor.settings != _settings(feed):
        anew |= {(r.database, r.table) for r in cursor.refused}
    learnt = lake.table_schemas.cursor() if cursor.doubted else None
    if learnt is not None and learnt.sequence > cursor.schemas:
        names = {(d.database, d.table) for d in cursor.doubted}
        counts = _counted(lake.schema_rows(names))
        anew |= {(d.database, d.table) for d in cursor.doubted if counts[d.database, d.table] != d.schemas}
    return {(d.database, d.table): d.after for d in cursor.doubted if (d.database, d.table) in anew}


def _counted(known: Iterable[Mapping[str, Any]]) -> Counter[Name]:
    return Counter(map(_name, known))


def _name(row: Mapping[str, Any]) -> Name:
    return row["database"], row["table"]


def _files(lake: Lakehouse, feed: Feed, span: _Span) -> list[DataFile]:
    kinds = {str(Kind.ROW), str(Kind.DDL)} if protocol_of(feed).carries_schemas else {str(Kind.ROW)}
    return [f for f in lake.change_events.files() if f.partition["kind"] in kinds and f.high["batch"] > span.lowest]


def _events(lake: Lakehouse, feed: Feed, files: list[DataFile], span: _Span, through: int) -> DataFrame:
    found = lake.change_events.read_files(session_for(lake.spark, sum(f.rows for f in files)), files)
    return found.where((F.col("batch") <= through) & span.holds() & taken_tables(feed))


def _schemaless(lake: Lakehouse, feed: Feed, files: list[DataFile], known: Sequence[Mapping[str, Any]]) -> set[Name]:
    """The tables that have row events whose schema is not known."""
    if not protocol_of(feed).numbers_schemas:
        return set()
    names = ["database", "table", "schema_version"]
    rows = lake.change_events.fetch([f for f in files if f.partition["kind"] == Kind.ROW], *names)
    there = {tuple(s[name] for name in names) for s in known}
    found = rows.group_by(names).aggregate([]).to_pylist()
    return {_name(r) for r in found if tuple(r[name] for name in names) not in there and feed.tables.takes(*_name(r))}


def _standing(table: LakeTable[TypesCursor]) -> pa.Table:
    """What runs before have observed; some of it in several rows. Of each row there are 100 bytes, and no Python object."""
    return table.fetch(table.files(), *TYPE_OBSERVATIONS.columns.names)


def _scattered(table: LakeTable[TypesCursor]) -> bool:
    """Whether the table is to be written anew: that costs no more than a few times what was written since."""
    rows = sorted(f.rows for f in table.files())
    return len(rows) >= _MOST_FILES or (len(rows) >= _FILES and sum(rows[:-1]) >= rows[-1])


def _where(rows: pa.Table, *, among: Mapping[str, Iterable[str]]) -> pa.Array:
    """Of each row, whether the values of these columns are among those told. BOOLEAN."""
    if not rows.num_rows:
        return pa.array([], pa.bool_())  # the columns of a table that is not there have no types
    return reduce(
        pc.and_, (pc.is_in(rows[name], pa.array(sorted(set(told)), pa.string())) for name, told in among.items())
    )


def _of_tables(rows: pa.Table, names: Iterable[Name]) -> list[Observation]:
    """The rows about these tables."""
    wanted = set(names)
    near = {"database": (d for d, _ in wanted), "table": (t for _, t in wanted)}
    return [o for o in rows.filter(_where(rows, among=near)).to_pylist() if _name(o) in wanted]


def _breaking(rows: pa.Table) -> pa.Array:
    """Of each row, whether it breaks a mapping. BOOLEAN."""
    return pc.invert(_where(rows, among=dict.fromkeys(_VERDICTS, _FINE)))


def breaks(observation: Observation, verdict: str) -> bool:
    """Whether an observation breaks the mapping that the column `verdict` is about."""
    return observation[verdict] not in _FINE


def _wrong(observation: Observation) -> bool:
    return any(breaks(observation, verdict) for verdict in _VERDICTS)


def _blocks(feed: Feed, observation: Observation) -> bool:
    """Whether an observation refuses its table."""
    return _wrong(observation) and feed.blocks_types(*_name(observation))


def _refused(cursor: TypesCursor, span: _Span, wrong: Iterable[Observation]) -> list[Refused]:
    """The tables that are refused from now on: those that were, but what is judged again, and those with wrong events."""
    found = {(r.database, r.table): r for r in cursor.refused if (r.database, r.table) not in span.again}
    for o in wrong:
        name, place = _name(o), dict(o["first"])
        commit_ts = place.pop("commit_ts")
        told = "; ".join(o[verdict] for verdict in _VERDICTS if breaks(o, verdict))
        first = place | {"column": o["column"], "told": told} | ({"advice": ADVICE} if lacks_column(o) else {})
        here = Refused(*name, commit_ts, o["first_batch"], first)
        before = found.get(name, here)
        lowest = min(before, here, key=_position)
        found[name] = Refused(*name, lowest.commit_ts, min(before.batch, here.batch), lowest.first)
    return sorted(found.values(), key=lambda r: (r.database, r.table))


def _timed(lake: Lakehouse, files: list[DataFile], refused: list[Refused]) -> list[Refused]:
    """The refused with Kafka's time of their first records, which is looked up where it is not known."""
    wanted = {_record(r.first) for r in refused if "record_ms" not in r.first}
    if not wanted:
        return refused
    rows = lake.change_events.fetch(files, "topic", "partition", "offset", "record_timestamp")
    there = rows.filter(pc.is_in(rows["offset"], pa.array([offset for *_, offset in wanted], pa.int64()))).to_pylist()
    times = {_record(r): r["record_timestamp"] for r in there}

    def timed(first: dict[str, Any]) -> dict[str, Any]:
        time = times.get(_record(first))
        return {"record_ms": None if time is None else round(time.timestamp() * 1000)} | first

    return [replace(r, first=timed(r.first)) for r in refused]


def _record(place: Mapping[str, Any]) -> tuple[str, int, int]:
    return place["topic"], place["partition"], place["offset"]


def _position(refused: Refused) -> tuple[Any, ...]:
    """So that of two that begin at one commit_ts it is the same however the stream is cut into runs."""
    return refused.commit_ts, *(refused.first[name] for name in ("topic", "partition", "offset", "column"))


def _doubted(
    cursor: TypesCursor, span: _Span, names: Iterable[Name], known: Iterable[Mapping[str, Any]]
) -> list[Doubted]:
    """These tables: each after what it was doubted after already, or what this run has judged it after."""
    counts, before = _counted(known), {(d.database, d.table): d.after for d in cursor.doubted}
    waiting = {name for name in before if name not in span.again}
    return [Doubted(*name, before.get(name, span.batch), counts[name]) for name in sorted({*names, *waiting})]


def _together(rows: Iterable[Observation], cursor: TypesCursor) -> list[Observation]:
    """Each observation once, with all its events; apart what may be judged again."""
    after = {(d.database, d.table): d.after for d in cursor.doubted}
    found: dict[tuple[Any, ...], Observation] = {}
    for row in rows:
        key = (*identity(row), row["batch"] > after.get(_name(row), cursor.batch))
        found[key] = (
            max(found[key], row, key=lambda o: o["batch"]) | merge_occurrences(found[key], row) if key in found else row
        )
    return list(found.values())


def _report(feed: Feed, after: int, cursor: TypesCursor, standing: pa.Table, new: list[Observation]) -> TypesReport:
    """The report of a run that found `standing` in the table, and observed `new`."""
    refused = {(r.database, r.table) for r in cursor.refused}
    since = {(d.database, d.table): d.after for d in cursor.doubted if (d.database, d.table) in refused}
    lowest = min([cursor.batch - 1, *since.values()])
    broken = _breaking(standing)
    breaking = standing.filter(broken)
    recent = breaking.filter(pc.greater(breaking["batch"], lowest)).to_pylist()
    wrong = [o for o in [*recent, *new] if o["batch"] > since.get(_name(o), cursor.batch - 1) and _wrong(o)]
    # An observation has a row in each file at most.
    ordered = pa.concat_tables([breaking, standing.filter(pc.invert(broken))])[: SHOWN * _MOST_FILES]
    first = ordered.group_by(list(_IDENTITY), use_threads=False).aggregate([])[:SHOWN].to_pylist()
    near = _of_tables(standing, map(_name, [*first, *new]))
    known = {identity(o) for o in near}
    once = TypesCursor(sequence=0, batch=cursor.batch)
    return TypesReport(
        after=after,
        through=cursor.batch,
        called=protocol_of(feed).codes_called,
        distinct=cursor.distinct,
        observations=sorted(_together([*near, *new], once), key=lambda o: not _wrong(o))[:SHOWN],
        here={identity(o): o["events"] for o in new},
        new=[o for o in new if identity(o) not in known],
        wrong=_together(wrong, once),
        refused=cursor.refused,
    )
