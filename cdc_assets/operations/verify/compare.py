"""Compares a history as of a position with the source's own rows, chunk by chunk.

A row's chunk comes from a hash of its key, as servers and Delta sort texts by different collations. For equal chunks only
counts and sums of digests travel; for differing ones their rows' digests; for the samples the values.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.config import Feed
from cdc_assets.lakehouse.history import history_name, source_columns
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.query import engine_for
from cdc_assets.mysql_types.canonical import canonical_form
from cdc_assets.operations.diff import DEFAULT_SAMPLES
from cdc_assets.operations.finality import describe_position_not_final, find_final_position
from cdc_assets.operations.keys import encode_key, encode_row_key, find_key_columns
from cdc_assets.operations.verify.digests import ComparedColumn, RowDigests
from cdc_assets.operations.verify.sides import CanonicalRow, HistorySide, SourceSide
from cdc_assets.operations.verify.verification import DIFFERENCE_KINDS, ColumnTexts, DifferingRow, Verification
from cdc_assets.operations.why.explain import explain_row
from cdc_assets.sources.mysql import DatabaseSnapshot, ServerAddress, SourceError, open_snapshot, qualified_name

_ROWS_A_CHUNK = 1000  # about
_MAX_CHUNKS = 1 << 16
_MAX_ROWS_IN_MEMORY = 1_000_000  # of differing chunks, whose digests are compared at once


def verify_history(
    lake: Lakehouse,
    feed: Feed,
    name: tuple[str, str],
    address: ServerAddress,
    position: int,
    samples: int = DEFAULT_SAMPLES,
) -> Verification:
    """Compare a history as of a position with the source's own rows.

    Args:
        lake: the feed's tables.
        feed: the feed's settings.
        name: database and table; the history must exist.
        address: the source's server.
        position: a commit_ts. TiDB is read as of it; MySQL and MariaDB are read as they are now.
        samples: how many rows of each kind of difference to return.

    Raises:
        SourceError: the source does not answer, lacks the table, or no column or not the whole key can be compared.
    """
    with open_snapshot(address, position) as source:
        digests, not_compared = _choose_columns(lake, name, source)
        table = lake.history(*name)
        history = HistorySide(table, engine_for(lake.session, table), position, digests)
        origin = SourceSide(source, qualified_name(*name), digests)
        rows, source_rows = history.count_rows(), origin.count_rows()
        chunks = min(_MAX_CHUNKS, max(rows, source_rows) // _ROWS_A_CHUNK + 1)
        differing = _find_differing_chunks(history, origin, chunks)
        differences = _find_differing_rows(history, origin, differing, chunks, samples)
        return Verification(
            table=".".join(name),
            position=position,
            source=source.description,
            rows=rows,
            source_rows=source_rows,
            chunks=chunks,
            differing_chunks=len(differing),
            counts=differences.counts,
            samples=list(_read_samples(lake, feed, name, history, origin, differences.ids)),
            compared=[column.name for column in digests.columns],
            not_compared=not_compared,
            caveats=_list_caveats(lake, name, position, source),
        )


@dataclass(frozen=True)
class _RowDifferences:
    """The rows that differ: kind of difference -> their number, and the lowest ids among them."""

    counts: dict[str, int]
    ids: dict[str, list[bytes]]


def _choose_columns(
    lake: Lakehouse, name: tuple[str, str], source: DatabaseSnapshot
) -> tuple[RowDigests, dict[str, str]]:
    """Return the columns that both sides hold in comparable types, and column -> why for the others.

    Raises:
        SourceError: no column can be compared, or a column of the key cannot.
    """
    history = lake.history(*name)
    schema = engine_for(lake.session, history).fetch("SELECT * FROM h LIMIT 0", {"h": history}).schema
    in_history = {column.lower(): column for column in source_columns(schema.names)}
    columns: dict[str, ComparedColumn] = {}
    not_compared: dict[str, str] = {}
    for column in source.columns(*name):
        own_name = in_history.pop(history_name(column.name).lower(), None)
        if own_name is None:
            not_compared[column.name] = "only the source has it"
            continue
        form = canonical_form(column.type, schema.field(own_name).type)
        if isinstance(form, str):
            not_compared[column.name] = form
        else:
            columns[column.name.lower()] = ComparedColumn(column.name, own_name, form)
    not_compared |= dict.fromkeys(in_history.values(), "only the history has it")
    keys = find_key_columns(lake, *name)
    key = [column.lower() for column in keys[0]] if keys else []
    table = ".".join(name)
    if missing := [column for column in key if column not in columns]:
        raise SourceError(
            f"{table}: its rows cannot be matched, as {', '.join(missing)} of its key cannot be compared."
        )
    if not columns:
        raise SourceError(f"{table}: it has no column that can be compared.")
    return RowDigests(list(columns.values()), [columns[column] for column in key]), not_compared


def _find_differing_chunks(history: HistorySide, source: SourceSide, chunks: int) -> list[tuple[int, int]]:
    """Return the chunks that differ: number, and the larger side's number of rows."""
    counts, sums = history.sum_chunks(chunks)
    source_counts, source_sums = source.sum_chunks(chunks)
    differing = np.flatnonzero((counts != source_counts) | (sums != source_sums))
    return [(int(chunk), int(max(counts[chunk], source_counts[chunk]))) for chunk in differing]


def _find_differing_rows(
    history: HistorySide, source: SourceSide, differing: Sequence[tuple[int, int]], chunks: int, samples: int
) -> _RowDifferences:
    """Return the rows that differ in the differing chunks, with at most `samples` ids of each kind."""
    differences = _RowDifferences(dict.fromkeys(DIFFERENCE_KINDS, 0), {kind: [] for kind in DIFFERENCE_KINDS})
    low, high = pc.field("n_sum_min"), pc.field("n_sum_max")
    conditions = {"missing": high < 0, "extra": low > 0, "changed": (low < 0) & (high > 0)}
    for selected in _group_chunks(differing):
        # Equal rows of both sides have counts of 1 and -1, which cancel out.
        rows = pa.concat_tables([*history.read_digests(selected, chunks), *source.read_digests(selected, chunks)])
        rows = rows.group_by(["id", "digest"]).aggregate([("n", "sum")]).filter(pc.field("n_sum") != 0)
        by_id = rows.group_by("id").aggregate([("n_sum", "min"), ("n_sum", "max"), ("n_sum", "sum")])
        for kind, condition in conditions.items():
            of_kind = by_id.filter(condition)
            count = of_kind.num_rows if kind == "changed" else abs(pc.sum(of_kind["n_sum_sum"]).as_py() or 0)
            differences.counts[kind] += count
            lowest = of_kind.sort_by("id")["id"].slice(0, samples).to_pylist()
            differences.ids[kind][:] = sorted([*differences.ids[kind], *lowest])[:samples]
    return differences


def _group_chunks(differing: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Yield groups of chunks, each with few enough rows to hold their digests in memory."""
    group: list[int] = []
    rows_in_group = 0
    for chunk, rows in differing:
        if group and rows_in_group + rows > _MAX_ROWS_IN_MEMORY:
            yield group
            group, rows_in_group = [], 0
        group.append(chunk)
        rows_in_group += rows
    if group:
        yield group


def _read_samples(
    lake: Lakehouse,
    feed: Feed,
    name: tuple[str, str],
    history: HistorySide,
    source: SourceSide,
    ids: Mapping[str, Sequence[bytes]],
) -> Iterator[DifferingRow]:
    """Yield the rows with these ids, by kind of difference, each with its life."""
    keys, rows = history.read_rows([*ids["extra"], *ids["changed"]])
    source_rows = source.read_rows([*ids["missing"], *ids["changed"]])
    digests = history.digests
    for kind, row_id in [(each, row_id) for each in DIFFERENCE_KINDS for row_id in ids[each]]:
        own, origin = rows.get(row_id), source_rows.get(row_id)
        row = own or origin
        if row is None:
            continue  # A run has changed the history since its digests were read.
        columns = [c for c in digests.columns if own is None or origin is None or own[c.name] != origin[c.name]]
        key = {column.name: column.format_value(row[column.name]) for column in digests.key or digests.columns}
        given = _encode_source_key(digests, key) if own is None else keys[row_id]
        life = explain_row(lake, feed, ".".join(name), [given])
        yield DifferingRow(kind, key, _format_columns(own, columns), _format_columns(origin, columns), life)


def _encode_source_key(digests: RowDigests, key: ColumnTexts) -> str:
    """Return a key that only the source has as JSON, as one of its values could be taken for JSON itself."""
    return encode_key(list(key.values())) if digests.key else encode_row_key(key)


def _format_columns(row: CanonicalRow | None, columns: Sequence[ComparedColumn]) -> ColumnTexts | None:
    return None if row is None else {column.name: column.format_value(row[column.name]) for column in columns}


def _list_caveats(lake: Lakehouse, name: tuple[str, str], position: int, source: DatabaseSnapshot) -> list[str]:
    """Return why a difference may be none, or a missing one may be one."""
    caveats = describe_position_not_final(position, find_final_position(lake, *name))
    if not source.is_at_position:
        caveats.append(
            "The source is read as it is now: what it did after the position shows as a difference, and a difference that "
            "it has undone since does not show."
        )
    return caveats
