"""The stage type_observations: what new events say of their columns' types, held against the protocol's tables."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.feeds import Feed
from cdc_assets.gate.tables import taken_tables
from cdc_assets.protocols import protocol_of
from cdc_assets.session import SMALL, gathered, session_for
from cdc_assets.tables.change_events import Kind
from cdc_assets.tables.lakehouse import Lakehouse
from cdc_assets.tables.log import DataFile
from cdc_assets.tables.type_observations import TYPE_OBSERVATIONS, TypesCursor

if TYPE_CHECKING:
    from cdc_assets.checks.observations import Rules

Observation = dict[str, Any]  # the columns of the table

_IDENTITY = ("database", "table", "column", "mysql_type", "told")
_VERDICTS = ("mysql_type_verdict", "code_verdict")
_OK, _ACCEPTED = "ok", "accepted: the feeds file gives the column's type"
# A table of so many files is written anew, as one.
_FILES = 16


@dataclass(frozen=True)
class TypesReport:
    """What one run of the stage did, and how the mappings stand.

    Attributes:
        after: the raw batches in (after, through] were judged.
        through: see `after`.
        observations: all different ones, of every run, each with how often it was made.
        wrong: those that break a mapping, of the newest run that judged any, or since when they are refused.
        refused: whether they hold the feed up.
        called: what the protocol calls the codes beside the MySQL types.
    """

    after: int
    through: int
    called: str
    observations: list[Observation] = field(default_factory=list)
    wrong: list[Observation] = field(default_factory=list)
    refused: bool = False


class Types:
    """Judges the events that are not judged yet."""

    name = "type_observations"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Whether there are such events; or refused ones under other settings; or some whose schema may have come."""
        decoded = lake.change_events.cursor()
        return decoded is not None and _start(lake, feed, _cursor(lake)) < decoded.batch

    def run(self, lake: Lakehouse, feed: Feed) -> TypesReport:
        """Judge them: one commit with what was observed.

        Raises:
            ConcurrentRunError: another run judged them meanwhile.
        """
        cursor, decoded = _cursor(lake), lake.change_events.cursor()
        after = _start(lake, feed, cursor)
        if decoded is None or decoded.batch <= after:
            return _report(feed, cursor.batch, cursor, _rows(lake))
        rules, files = protocol_of(feed).type_rules(feed), _files(lake, feed, after)
        known = lake.schema_rows()
        # A batch may hold watermarks alone.
        found = judged(_events(lake, feed, files, after), known, rules) if files else []
        new = [_accepted(o, feed) | {"batch": decoded.batch} for o in found]
        again = after < cursor.batch
        refused = None if cursor.settings != _settings(feed) else cursor.refused_after
        if refused is None and feed.type_mapping == "block" and any(map(_wrong, new)):
            refused = after
        unknown = None if again else cursor.unknown_after
        if unknown is None and protocol_of(feed).numbers_schemas and _schemaless(lake, files, known):
            unknown = after
        learnt = lake.table_schemas.cursor()
        advanced = TypesCursor(
            sequence=cursor.sequence + 1,
            batch=decoded.batch,
            settings=_settings(feed),
            refused_after=refused,
            unknown_after=unknown,
            schemas=learnt.sequence if learnt else 0,
        )
        rows = [*(o for o in _rows(lake) if o["batch"] <= after), *new]
        table = lake.type_observations
        # What is judged once more replaces what was found before; and while something is refused, its rows are told from
        # those before by their batch.
        anew = again or (refused is None and unknown is None and len(table.files()) >= _FILES)
        table.commit(
            table.stage_rows(rows if again else _together(rows) if anew else new), advanced, over={} if anew else None
        )
        return _report(feed, after, advanced, rows)


def judged(events: DataFrame, known: Sequence[dict[str, Any]], rules: "Rules") -> list[Observation]:
    """Hold events against the rules of their protocol.

    Args:
        events: rows of change_events.
        known: rows of table_schemas.
        rules: the protocol's.

    Returns:
        The columns of type_observations but `batch`.
    """
    # pandera, which a run without events does not need, is slow to import.
    from cdc_assets.checks.observations import SEEN, as_rows, broken_rules, mysql_type_schema  # noqa: PLC0415

    observed = rules.observe(events, known)
    if observed.empty:
        return []
    verdicts = [broken_rules(observed, schema) for schema in (mysql_type_schema(), rules.codes)]
    rows = as_rows(observed, rules)
    own = [name for name in rules.what if name not in _IDENTITY]
    kept = ("database", "table", "column", "mysql_type", "expected", *SEEN)
    return [
        {name: row[name] for name in kept}
        | {"told": json.dumps({name: row[name] for name in own})}
        | dict(zip(_VERDICTS, told, strict=True))
        for row, *told in zip(rows, *verdicts, strict=True)
    ]


def shown(observation: Observation, verdict: str) -> dict[str, Any]:
    """An observation as people read it: what it is, what is said in the column `verdict`, then where it was seen."""
    what = {name: observation[name] for name in ("database", "table", "column", "mysql_type")}
    seen = {name: observation[name] for name in ("events", "topic", "partition", "offset", "sample_value")}
    told = {k: v for k, v in json.loads(observation["told"]).items() if v is not None}
    return what | told | {"expected": observation["expected"], "verdict": observation[verdict]} | seen


def report_of(found: list[Observation], called: str) -> TypesReport:
    """The report over observations that no run has made, such as the audit's; `called` as in the report."""
    return TypesReport(after=0, through=0, called=called, observations=found, wrong=[o for o in found if _wrong(o)])


def _cursor(lake: Lakehouse) -> TypesCursor:
    return lake.type_observations.cursor() or TypesCursor(sequence=0)


def _settings(feed: Feed) -> str:
    return json.dumps([feed.type_mapping, feed.tidb_extension, dict(sorted(feed.columns.items()))])


def _start(lake: Lakehouse, feed: Feed, cursor: TypesCursor) -> int:
    """After which raw batch the events are to be judged."""
    starts = [cursor.batch]
    if cursor.refused_after is not None and cursor.settings != _settings(feed):
        starts.append(cursor.refused_after)
    if cursor.unknown_after is not None:
        learnt = lake.table_schemas.cursor()
        if learnt is not None and learnt.sequence > cursor.schemas:
            starts.append(cursor.unknown_after)
    return min(starts)


def _files(lake: Lakehouse, feed: Feed, after: int) -> list[DataFile]:
    kinds = {str(Kind.ROW), str(Kind.DDL)} if protocol_of(feed).carries_schemas else {str(Kind.ROW)}
    return [f for f in lake.change_events.files() if f.partition["kind"] in kinds and f.high["batch"] > after]


def _events(lake: Lakehouse, feed: Feed, files: list[DataFile], after: int) -> DataFrame:
    rows = sum(f.rows for f in files)
    found = lake.change_events.scan(session_for(lake.spark, rows), files)
    events = found.where((F.col("batch") > after) & taken_tables(feed))
    return gathered(events) if rows <= SMALL else events


def _schemaless(lake: Lakehouse, files: list[DataFile], known: Sequence[dict[str, Any]]) -> bool:
    """Whether there are row events whose schema is not known."""
    names = ["database", "table", "schema_version"]
    rows = lake.change_events.fetch([f for f in files if f.partition["kind"] == Kind.ROW], *names)
    there = {tuple(s[name] for name in names) for s in known}
    return any(tuple(r[name] for name in names) not in there for r in rows.group_by(names).aggregate([]).to_pylist())


def _rows(lake: Lakehouse) -> list[Observation]:
    table = lake.type_observations
    rows: list[Observation] = table.fetch(table.files(), *TYPE_OBSERVATIONS.columns.names).to_pylist()
    return rows


def _accepted(observation: Observation, feed: Feed) -> Observation:
    """A verdict on a column whose type the feeds file gives is not held against it."""
    if ".".join(observation[name] for name in ("database", "table", "column")) not in feed.columns:
        return observation
    return observation | {name: _ACCEPTED for name in _VERDICTS if observation[name] != _OK}


def breaks(observation: Observation, verdict: str) -> bool:
    """Whether an observation breaks the mapping that the column `verdict` is about."""
    return observation[verdict] not in {_OK, _ACCEPTED}


def _wrong(observation: Observation) -> bool:
    return any(breaks(observation, verdict) for verdict in _VERDICTS)


def _together(rows: Iterable[Observation]) -> list[Observation]:
    """Each observation once, with all its events, as it was made last."""
    found: dict[tuple[Any, ...], Observation] = {}
    for row in sorted(rows, key=lambda r: r["batch"]):
        identity = tuple(row[name] for name in _IDENTITY)
        before = found.get(identity)
        found[identity] = row | {"events": row["events"] + (before["events"] if before else 0)}
    return list(found.values())


def _report(feed: Feed, after: int, cursor: TypesCursor, rows: list[Observation]) -> TypesReport:
    refused = cursor.refused_after
    since = cursor.batch - 1 if refused is None else refused
    wrong = [o for o in rows if o["batch"] > since and _wrong(o)]
    return TypesReport(
        after=after,
        through=cursor.batch,
        called=protocol_of(feed).codes_called,
        observations=_together(rows),
        wrong=_together(wrong),
        refused=refused is not None,
    )
