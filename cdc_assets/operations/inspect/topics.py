"""What a sample of a topic's records shows: its protocol and settings, its tables, and problems."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from cdc_assets.lakehouse.raw_records import RecordPlace
from cdc_assets.operations.inspect.facts import (
    CANAL_JSON,
    CLAIM_CHECK,
    DEBEZIUM,
    HANDLE_KEY_ONLY,
    OPEN_PROTOCOL,
    SIMPLE,
    MessageFacts,
    TableFacts,
)
from cdc_assets.operations.inspect.messages import facts_of
from cdc_assets.operations.inspect.samples import SampledRecord, TopicSample

# What a protocol's messages do not state; docs/protocols.md explains it.
_ZONE = "the zone in which the source prints TIMESTAMP values (`time_zone`)"
_CASCADES = (
    "rows of MySQL before 9.6 or MariaDB that CASCADE, SET NULL or SET DEFAULT of a foreign key changes: they are not in "
    "the binlog, and the check `parents_exist` reports them"
)
_CANNOT_TELL = {
    CANAL_JSON: (
        _ZONE,
        "parameters of types that `mysqlType` lacks: they come from the CREATE TABLE or `columns:`",
        _CASCADES,
    ),
    OPEN_PROTOCOL: (
        _ZONE,
        "parameters of types, such as the length of a decimal: they come from the DDL or `columns:`",
    ),
    SIMPLE: (_ZONE, "how often BOOTSTRAP messages come (`bootstrap_interval`)"),
    DEBEZIUM: (
        _CASCADES,
        "NULL in a column with a DEFAULT, if the converter writes the default in its place",
        "zero and invalid dates of DATE and DATETIME columns",
    ),
}
_NO_WATERMARKS = (
    "Messages state neither a commit_ts nor watermarks: each run releases what it read, and a replay of a table without a "
    "key looks like new rows. Set enable-tidb-extension=true in the changefeed's sink URI."
)
_REGISTRY_ADVICE = (
    "If a Debezium connector writes this topic in Avro, give the registry's address, `--schema-registry URL`, to see what "
    "the records state. Protobuf and JSON Schema are not read: let the connector write Avro, or JSON with "
    "value.converter=org.apache.kafka.connect.json.JsonConverter."
)
_SHOWN = 3

RecordFacts = tuple[SampledRecord, MessageFacts]
Formats = Counter[tuple[str, str]]  # (protocol, encoding) -> number of records


@dataclass(frozen=True)
class Problem:
    """Something that prevents a feed, or that needs a decision.

    Attributes:
        problem: what it is, with coordinates where one record shows it.
        advice: what to do.
    """

    problem: str
    advice: str


@dataclass(frozen=True)
class TopicReport:
    """What a sample of one topic shows.

    Attributes:
        topic: its name.
        protocol: as in the feeds file; None where the records are of no protocol, or of several.
        dialect: the program that writes such messages, for people.
        evidence: what in the records shows the protocol.
        settings: further settings of the feeds file that the records show.
        switches: settings of the sender that the records show.
        partitions: how many the topic has.
        records: how many records were read.
        kinds: kinds of messages -> how many of these records.
        watermarks: partition -> newest watermark, a commit_ts.
        source: name of Debezium's connector; "" where there is none.
        tables: tables by name, with key and columns, as dictionaries of plain values.
        cannot_tell: what messages of this protocol do not state.
        problems: what prevents a feed on the topic, or needs a decision.
    """

    topic: str
    protocol: str | None
    dialect: str
    evidence: str
    settings: dict[str, Any]
    switches: list[str]
    partitions: int
    records: int
    kinds: dict[str, int]
    watermarks: dict[int, int]
    source: str
    tables: list[dict[str, Any]]
    cannot_tell: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def inspect_topics(
    samples: Iterable[TopicSample],
    avro: Mapping[RecordPlace, MessageFacts] = MappingProxyType({}),
    schema_registry: Mapping[str, Any] | None = None,
) -> list[TopicReport]:
    """Return a report of each topic, with the problems that only several topics together show (Debezium's).

    Args:
        samples: the records of the topics.
        avro: what the records state that a schema registry's schemas decode.
        schema_registry: the setting `schema_registry` of these records' feed.
    """
    stated = [
        (sample, [(record, avro.get(record.place) or facts_of(record)) for record in sample.records])
        for sample in samples
    ]
    altered = {each.protocol for _, facts in stated for _, each in facts if each.kind == "ddl"}
    reports = [_make_report(sample, facts, altered) for sample, facts in stated]
    for each, (sample, _) in zip(reports, stated, strict=True):
        if each.protocol and any(record.place in avro for record in sample.records):
            each.settings["schema_registry"] = schema_registry
    with_schemas = {each.source for each in reports if "schema-change topic" in each.switches}
    for each in reports:
        if "row" in each.kinds and each.source not in {"", *with_schemas} and not each.dialect.startswith("TiCDC"):
            each.problems.append(
                Problem(
                    f"The schema-change topic of the connector {each.source} is not among the topics.",
                    f"Take the topic {each.source} into the feed: it alone states which integers are unsigned, which texts "
                    "hold bytes, and all types if schemas.enable=false.",
                )
            )
    return reports


def _make_report(sample: TopicSample, facts: Sequence[RecordFacts], altered: Collection[str | None]) -> TopicReport:
    """Return the report of one topic.

    Args:
        sample: its records.
        facts: these records, with what each states.
        altered: protocols that have, in any topic, a message that changes a table; rows may then have other columns.
    """
    # Tombstones have no protocol of their own.
    unrecognised = [(record, each) for record, each in facts if each.protocol is None and each.kind != "tombstone"]
    formats = Counter((each.protocol, each.encoding) for _, each in facts if each.protocol is not None)
    protocol, encoding = next(iter(formats)) if len(formats) == 1 and not unrecognised else (None, "")
    messages = [each for _, each in facts if protocol and each.protocol]
    claims = sorted({each.claim.rpartition("/")[0] for each in messages if each.claim})
    tables = _tables(messages)
    dialects = Counter(each.dialect for each in messages)
    return TopicReport(
        topic=sample.topic,
        protocol=protocol,
        dialect=", ".join(name for name, _ in dialects.most_common()),
        evidence=", ".join(dict.fromkeys(each.evidence for each in messages)),
        settings=_settings(protocol, encoding, messages, claims),
        switches=_switches(protocol, facts, messages, tables),
        partitions=sample.partitions,
        records=len(sample.records),
        kinds=dict(Counter(each.kind for _, each in facts).most_common()),
        watermarks=_newest_watermarks(facts) if protocol else {},
        source=next((each.source for each in messages if each.source), ""),
        tables=[
            {
                "database": t.database,
                "table": t.table,
                "key": None if t.key is None else list(t.key),
                "columns": t.columns,
            }
            for t in tables
        ],
        cannot_tell=list(_CANNOT_TELL.get(protocol or "", ())),
        problems=[
            *_unreadable_lines(sample),
            *([] if protocol else [_unclear_protocol(formats, unrecognised)]),
            *_problems(protocol, messages, tables, claims),
            *(_row_images(messages) if protocol in {CANAL_JSON, DEBEZIUM} and protocol not in altered else ()),
        ],
    )


def _unreadable_lines(sample: TopicSample) -> Iterator[Problem]:
    """Yield the problem of lines that hold no record, if there are any."""
    if sample.unreadable:
        yield Problem(
            f"{len(sample.unreadable)} lines of the folder hold no record, the first {sample.unreadable[0]}.",
            "Mend or remove these lines: the pipeline puts each of them into quarantine.",
        )


def _unclear_protocol(formats: Formats, unrecognised: Sequence[RecordFacts]) -> Problem:
    """Return why the records show no protocol, or several."""
    if formats:
        parts = [f"{count} of {protocol} ({encoding})" for (protocol, encoding), count in formats.most_common()]
        parts += [f"{len(unrecognised)} of no known protocol"] if unrecognised else []
        examples = ", ".join(
            f"partition {r.partition} offset {r.offset}: {e.evidence}" for r, e in unrecognised[:_SHOWN]
        )
        return Problem(
            f"The records are of several kinds: {'; '.join(parts)}.{' ' + examples + '.' if examples else ''}",
            "Give each changefeed or connector topics of its own; the feeds file has one protocol a feed.",
        )
    if not unrecognised:
        return Problem(
            "No record shows the protocol: the topic is empty, or has tombstones only.",
            "Inspect it when it has records.",
        )
    reasons = Counter(each.evidence for _, each in unrecognised)
    record, first = unrecognised[0]
    other_advice = "Leave this topic out of `topics`, or see docs/protocols.md for what is read."
    return Problem(
        f"No known protocol: {reasons.most_common(1)[0][0]} (partition {record.partition} offset {record.offset}).",
        _REGISTRY_ADVICE if "schema registry" in first.evidence else other_advice,
    )


def _newest_watermarks(facts: Iterable[RecordFacts]) -> dict[int, int]:
    """Return partition -> its newest watermark, a commit_ts, ordered by partition."""
    watermarks: dict[int, int] = {}
    for record, each in facts:
        if each.watermark:
            watermarks[record.partition] = max(each.watermark, watermarks.get(record.partition, 0))
    return dict(sorted(watermarks.items()))


def _switches(
    protocol: str | None,
    facts: Iterable[RecordFacts],
    messages: Sequence[MessageFacts],
    tables: Sequence[TableFacts],
) -> list[str]:
    """Return the settings of the sender that the records show."""
    switches = {switch for each in messages for switch in each.switches}
    if any(each.kind == "tombstone" for _, each in facts) and protocol:
        switches.add("tombstones")
    if _has_key_only_deletes(messages, tables):
        switches.add("delete-only-output-handle-key-columns")
    return sorted(switches)


def _settings(
    protocol: str | None, encoding: str, facts: Sequence[MessageFacts], claims: Sequence[str]
) -> dict[str, Any]:
    """Return further settings of the feeds file that the records show; `claims`: folders of claim-check files."""
    settings: dict[str, Any] = {}
    if protocol == CANAL_JSON:
        settings["tidb_extension"] = any("enable-tidb-extension" in each.switches for each in facts)
    if protocol == SIMPLE or encoding == "avro":
        settings["encoding"] = encoding
    if len(claims) == 1:
        settings["claim_check"] = claims[0]
    return settings


def _tables(facts: Sequence[MessageFacts]) -> list[TableFacts]:
    """Return each table once: with the columns of all its complete rows, the newest type of each, and its key."""
    tables: dict[tuple[str, str], TableFacts] = {}
    for each in (table for one in facts for table in one.tables):
        before = tables.setdefault((each.database, each.table), each)
        types = {c: t for c, t in each.columns.items() if t or c not in before.columns}
        columns = {**before.columns, **types}
        tables[each.database, each.table] = replace(before, key=each.key or before.key, columns=columns)
    return [tables[name] for name in sorted(tables)]


def _has_key_only_deletes(facts: Iterable[MessageFacts], tables: Iterable[TableFacts]) -> bool:
    """Return whether DELETEs come with their key alone, while other rows of the table have further columns."""
    keys = {(t.database, t.table): set(t.key) for t in tables if t.key and set(t.key) < t.columns.keys()}
    return any(
        not table.has_complete_row and set(table.columns) == keys.get((table.database, table.table))
        for each in facts
        if each.kind == "row" and not each.switches & {CLAIM_CHECK, HANDLE_KEY_ONLY}
        for table in each.tables
    )


def _problems(
    protocol: str | None, facts: Sequence[MessageFacts], tables: Sequence[TableFacts], claims: Sequence[str]
) -> Iterator[Problem]:
    """Yield the problems of a topic whose records have one protocol; `claims`: folders of claim-check files."""
    switches = {switch for each in facts for switch in each.switches}
    is_ticdc = any(each.dialect.startswith("TiCDC") for each in facts)
    if protocol == CANAL_JSON and is_ticdc and "enable-tidb-extension" not in switches:
        yield Problem("A changefeed of TiCDC without the extension.", _NO_WATERMARKS)
    has_rows = any(each.kind == "row" for each in facts)
    if protocol == DEBEZIUM and not is_ticdc and has_rows and "schemas.enable=false" in switches:
        yield Problem(
            "Messages without a schema do not state how times, decimals and bytes are written.",
            "State the connector's time.precision.mode, decimal.handling.mode and binary.handling.mode under "
            "`connector_settings` of the feed.",
        )
    if claims:
        yield Problem(
            f"Values of large rows lie in files: {', '.join(claims)}.",
            "Set `claim_check` to a folder or URI under which the pipeline can read these files.",
        )
    if HANDLE_KEY_ONLY in switches:
        yield Problem(
            "Large rows come with their key alone (handle-key-only): they are quarantined.",
            "Use claim-check, or a larger max-message-bytes, in the changefeed's sink URI.",
        )
    keyless = [f"{t.database}.{t.table}" for t in tables if t.key == ()]
    if keyless:
        yield Problem(
            f"No key is stated for {', '.join(keyless[:_SHOWN])}{' and others' if len(keyless) > _SHOWN else ''}.",
            "Give these tables a primary key if you can: equal rows without a key are only counted.",
        )


def _row_images(facts: Iterable[MessageFacts]) -> Iterator[Problem]:
    """Yield the tables whose rows come with several sets of columns, in topics without schema changes."""
    sets: dict[str, set[frozenset[str]]] = {}
    for table in (table for one in facts if one.kind == "row" for table in one.tables if table.has_complete_row):
        sets.setdefault(f"{table.database}.{table.table}", set()).add(frozenset(table.columns))
    for name, seen in sets.items():
        if len(seen) > 1:
            yield Problem(
                f"Rows of {name} come with {len(seen)} sets of columns: row images are not complete.",
                "Set binlog_row_image=FULL at the source, then load the table again.",
            )
