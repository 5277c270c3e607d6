"""Compares a history as of a position with the source's own rows, chunk by chunk.

A row's chunk comes from a hash of its key, as servers and Delta sort texts by different collations. For equal chunks only
counts and sums of digests travel; for differing ones their rows' digests; for the samples the values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cdc_assets.config import Feed
from cdc_assets.config.jdbc import ServerAddress
from cdc_assets.lakehouse.history import history_name, source_columns
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.query import Engine, engine_for
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.mysql_types.canonical import canonical_form
from cdc_assets.operations.diff import DEFAULT_SAMPLES
from cdc_assets.operations.finality import describe_position_not_final
from cdc_assets.operations.keys import encode_key, encode_row_key, find_key_columns
from cdc_assets.operations.verify.differences import RowImages, find_differing_chunks, find_differing_rows
from cdc_assets.operations.verify.digests import ComparedColumn, RowDigests
from cdc_assets.operations.verify.sides import CanonicalRow, HistorySide, SourceSide
from cdc_assets.operations.verify.verification import DIFFERENCE_KINDS, ColumnTexts, DifferingRow, Verification
from cdc_assets.operations.why.explain import explain_row
from cdc_assets.sources.mysql import DatabaseSnapshot, SourceError, open_snapshot, qualified_name
from cdc_assets.version import software_versions

_ROWS_A_CHUNK = 1000  # about
_MAX_CHUNKS = 1 << 16
_READ_AS_IT_IS_NOW = (
    "The source is read as it is now: what it did after the position shows as a difference, and a difference that it has "
    "undone since does not show."
)


class ColumnsChangedError(RuntimeError):
    """The table no longer has the columns that a comparison of it began with."""


@dataclass(frozen=True)
class Comparison:
    """A comparison of a history with one snapshot of the source.

    Attributes:
        name: database and table.
        digests: how rows become digests.
        is_at_position: whether the source was read as of the position.
        images: row id -> what both sides hold of a row that differs.
        verification: the outcome if all of them count, without samples.
    """

    name: tuple[str, str]
    digests: RowDigests
    is_at_position: bool
    images: Mapping[bytes, RowImages]
    verification: Verification

    def history_side(self, lake: Lakehouse) -> HistorySide:
        """Return the history as it is now.

        Raises:
            ColumnsChangedError: it lacks a compared column, or has another type for it.
        """
        table = lake.history(*self.name)
        engine = engine_for(lake.session, table)
        schema = _read_schema(table, engine)
        if not all(
            column.history_name in schema.names and column.form.accepts(schema.field(column.history_name).type)
            for column in self.digests.columns
        ):
            raise ColumnsChangedError
        return HistorySide(table, engine, self.verification.position, self.digests)

    def source_side(self, snapshot: DatabaseSnapshot) -> SourceSide:
        """Return the source's table in a snapshot.

        Raises:
            ColumnsChangedError: it lacks a compared column.
        """
        columns = {column.name for column in snapshot.columns(*self.name)}
        if not all(column.name in columns for column in self.digests.columns):
            raise ColumnsChangedError
        return SourceSide(snapshot, qualified_name(*self.name), self.digests)


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
    with open_snapshot(address, position) as snapshot:
        comparison = compare_rows(lake, name, snapshot, position, samples)
        rows = read_samples(lake, feed, comparison, snapshot, comparison.images, samples)
        caveats = [] if comparison.is_at_position else [_READ_AS_IT_IS_NOW]
        verification = comparison.verification
        return replace(verification, samples=rows, caveats=[*verification.caveats, *caveats])


def compare_rows(
    lake: Lakehouse, name: tuple[str, str], snapshot: DatabaseSnapshot, position: int, most: int
) -> Comparison:
    """Compare a history as of a position with a snapshot of the source.

    Args:
        lake: the feed's tables.
        name: database and table; the history must exist.
        snapshot: the source.
        position: a commit_ts.
        most: of how many rows of each kind of difference to keep the images.

    Raises:
        MissingTableError: the source lacks the table.
        SourceError: the source does not answer, or no column or not the whole key can be compared.
    """
    compared_at = datetime.now(UTC).isoformat(timespec="seconds")
    digests, not_compared, lost_key = _choose_columns(lake, name, snapshot)
    table = lake.history(*name)
    history = HistorySide(table, engine_for(lake.session, table), position, digests)
    source = SourceSide(snapshot, qualified_name(*name), digests)
    rows, source_rows = history.count_rows(), source.count_rows()
    if lost_key and (rows or source_rows):  # a table that was created anew, and has no row yet, has its old columns
        raise SourceError(
            f"{'.'.join(name)}: its rows cannot be matched, as {', '.join(lost_key)} of its key cannot be compared."
        )
    chunks = min(_MAX_CHUNKS, max(rows, source_rows) // _ROWS_A_CHUNK + 1)
    sums, source_sums = history.sum_chunks(chunks), source.sum_chunks(chunks)
    differing = find_differing_chunks(sums, source_sums)
    counts, images = find_differing_rows(history, source, differing, chunks, most)
    verification = Verification(
        table=".".join(name),
        position=position,
        compared_at=compared_at,
        source=snapshot.description,
        server=snapshot.version,
        rows=rows,
        source_rows=source_rows,
        chunks=chunks,
        differing_chunks=len(differing),
        digest=sums.digest,
        source_digest=source_sums.digest,
        counts=counts,
        samples=[],
        compared=[column.name for column in digests.columns],
        not_compared=not_compared,
        caveats=describe_position_not_final(lake, *name, position),
        versions=software_versions(),
    )
    return Comparison(name, digests, snapshot.is_at_position, images, verification)


def read_samples(
    lake: Lakehouse,
    feed: Feed,
    comparison: Comparison,
    snapshot: DatabaseSnapshot,
    images: Mapping[bytes, RowImages],
    samples: int,
) -> list[DifferingRow]:
    """Return some differing rows of each kind, those with the lowest ids, each with its life.

    Args:
        lake: the feed's tables.
        feed: the feed's settings.
        comparison: what differs.
        snapshot: the source, in which the rows still are as they were compared.
        images: the rows to choose from.
        samples: how many of each kind to return.
    """
    ids = {
        kind: sorted(row_id for row_id, row in images.items() if row.kind == kind)[:samples]
        for kind in DIFFERENCE_KINDS
    }
    keys, rows = comparison.history_side(lake).read_rows([*ids["extra"], *ids["changed"]])
    source_rows = comparison.source_side(snapshot).read_rows([*ids["missing"], *ids["changed"]])
    digests = comparison.digests
    differing = []
    for kind, row_id in [(each, row_id) for each in DIFFERENCE_KINDS for row_id in ids[each]]:
        own, origin = rows.get(row_id), source_rows.get(row_id)
        row = own or origin
        if row is None:
            continue  # A run has changed the history since its digests were read.
        columns = [c for c in digests.columns if own is None or origin is None or own[c.name] != origin[c.name]]
        key = {column.name: column.format_value(row[column.name]) for column in digests.id_columns}
        given = _encode_source_key(digests, key) if own is None else keys[row_id]
        life = explain_row(lake, feed, comparison.verification.table, [given])
        differing.append(DifferingRow(kind, key, _format_columns(own, columns), _format_columns(origin, columns), life))
    return differing


def _choose_columns(
    lake: Lakehouse, name: tuple[str, str], source: DatabaseSnapshot
) -> tuple[RowDigests, dict[str, str], list[str]]:
    """Return the columns that both sides hold in comparable types, column -> why for the others, and the key's of these.

    Raises:
        SourceError: no column can be compared.
    """
    history = lake.history(*name)
    schema = _read_schema(history, engine_for(lake.session, history))
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
    if not columns:
        raise SourceError(f"{'.'.join(name)}: it has no column that can be compared.")
    lost_key = [column for column in key if column not in columns]
    digests = RowDigests(list(columns.values()), [columns[column] for column in key if column in columns])
    return digests, not_compared, lost_key


def _read_schema(table: LakeTable[Any], engine: Engine[Any]) -> pa.Schema:
    return engine.fetch("SELECT * FROM h LIMIT 0", {"h": table}).schema


def _encode_source_key(digests: RowDigests, key: ColumnTexts) -> str:
    """Return a key that only the source has as JSON, as one of its values could be taken for JSON itself."""
    return encode_key(list(key.values())) if digests.key else encode_row_key(key)


def _format_columns(row: CanonicalRow | None, columns: Sequence[ComparedColumn]) -> ColumnTexts | None:
    return None if row is None else {column.name: column.format_value(row[column.name]) for column in columns}
