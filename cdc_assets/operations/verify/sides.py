"""The two sides of a comparison: the rows of a history, and those of its source. Neither is ever in memory as a whole."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.lakehouse.history import covers
from cdc_assets.lakehouse.query import Engine
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.operations.verify.digests import ROW_ID, Numbers, RowDigests, compute_chunks, encode_values
from cdc_assets.sources.mysql import DatabaseSnapshot, decode_text

CanonicalRow = dict[str, bytes | None]  # column -> canonical value

_ROWS_A_FETCH = 10_000


class ChunkSums(NamedTuple):
    """By chunk: the number of rows, and the sum of their digests modulo 2^64."""

    counts: Numbers
    sums: Numbers

    @property
    def digest(self) -> str:
        """One digest over all chunks in their order: SHA-256, in hexadecimal digits."""
        return hashlib.sha256(b"".join(each.astype(">u8").tobytes() for each in self)).hexdigest()


class RowVersion(NamedTuple):
    """A version of a row: the row's id and digest, and its validity as in the history."""

    row_id: bytes
    digest: int
    from_ts: int
    to_ts: int | None


@dataclass(frozen=True)
class HistorySide:
    """The rows of a history as of a position.

    Attributes:
        table: the history.
        engine: what reads it.
        position: the commit_ts.
        digests: how its rows become digests.
    """

    table: LakeTable[Any]
    engine: Engine[Any]
    position: int
    digests: RowDigests

    def count_rows(self) -> int:
        """Return the number of rows."""
        return count_rows(self.table, self.engine, self.position)

    def sum_chunks(self, chunks: int) -> ChunkSums:
        """Return count and sum of digests of each chunk."""
        counts, sums = np.zeros(chunks, np.uint64), np.zeros(chunks, np.uint64)
        for batch in self._read_batches():
            values = encode_values(batch, self.digests.columns)
            numbers = compute_chunks(self.digests.compute_ids(values), chunks)
            np.add.at(counts, numbers, 1)
            np.add.at(sums, numbers, self.digests.compute_digests(values))
        return ChunkSums(counts, sums)

    def read_digests(self, selected: Sequence[int], chunks: int) -> Iterator[pa.Table]:
        """Yield the rows of the selected chunks: id BINARY(16), digest UINT64, in_history BIGINT 1, in_source BIGINT 0."""
        is_selected = np.zeros(chunks, bool)
        is_selected[selected] = True
        for ids, batch in self._select_rows(lambda ids: pa.array(is_selected[compute_chunks(ids, chunks)])):
            yield _mark_side(ids, self._compute_digests(batch), in_history=1)

    def read_rows(self, ids: Iterable[bytes]) -> tuple[dict[bytes, str], dict[bytes, CanonicalRow]]:
        """Return `_cdc_key` and canonical values of the rows with these ids, by id."""
        keys: dict[bytes, str] = {}
        rows: dict[bytes, CanonicalRow] = {}
        for row_ids, batch in self._select_ids(ids):
            kept = row_ids.to_pylist()
            keys |= zip(kept, batch["_cdc_key"].to_pylist(), strict=True)
            rows |= zip(kept, pa.table(encode_values(batch, self.digests.columns)).to_pylist(), strict=True)
        return keys, rows

    def read_versions(self, ids: Iterable[bytes]) -> Iterator[RowVersion]:
        """Yield the versions of the rows with these ids that are valid at the position or later, or begin there."""
        valid = f"_cdc_to_ts IS NULL OR _cdc_to_ts > {self.position} OR _cdc_from_ts >= {self.position}"
        for row_ids, batch in self._select_ids(ids, valid):
            validity = (batch[name].to_pylist() for name in ("_cdc_from_ts", "_cdc_to_ts"))
            yield from map(RowVersion, row_ids.to_pylist(), self._compute_digests(batch).to_pylist(), *validity)

    def _compute_digests(self, batch: pa.RecordBatch) -> pa.Array:
        return pa.array(self.digests.compute_digests(encode_values(batch, self.digests.columns)))

    def _select_ids(self, ids: Iterable[bytes], where: str | None = None) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        selected = pa.array(list(ids), ROW_ID)
        if len(selected):
            yield from self._select_rows(lambda row_ids: pc.is_in(row_ids, value_set=selected), where)

    def _select_rows(
        self, is_selected: Callable[[pa.Array], pa.Array], where: str | None = None
    ) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """Yield the rows whose ids are selected, a batch at a time, with their ids."""
        for batch in self._read_batches(where):
            ids = self.digests.compute_ids(encode_values(batch, self.digests.id_columns))
            mask = is_selected(ids)
            yield ids.filter(mask), batch.filter(mask)

    def _read_batches(self, where: str | None = None) -> Iterator[pa.RecordBatch]:
        """Yield versions a batch at a time, by default those that are valid at the position."""
        columns = ["_cdc_key", "_cdc_from_ts", "_cdc_to_ts", *(column.history_name for column in self.digests.columns)]
        sql = f"SELECT {', '.join(map(self.engine.name, columns))} FROM h WHERE {where or covers(self.position)}"
        return self.engine.batches(sql, {"h": self.table})


@dataclass(frozen=True)
class SourceSide:
    """The rows of a source table in a snapshot.

    Attributes:
        snapshot: the open snapshot.
        table: the table's name in SQL.
        digests: how its rows become digests.
    """

    snapshot: DatabaseSnapshot
    table: str
    digests: RowDigests

    def count_rows(self) -> int:
        """Return the number of rows."""
        ((count,),) = self.snapshot.rows(f"SELECT COUNT(*) FROM {self.table}")
        return int(count)

    def sum_chunks(self, chunks: int) -> ChunkSums:
        """Return count and sum of digests of each chunk."""
        counts, sums = np.zeros(chunks, np.uint64), np.zeros(chunks, np.uint64)
        rows = f"SELECT {self.digests.build_chunk_sql(chunks)} AS c, {self.digests.digest_sql} AS d FROM {self.table}"
        for chunk, count, total in self.snapshot.rows(f"SELECT c, COUNT(*), SUM(d) FROM ({rows}) AS t GROUP BY c"):
            # The history's sums are UINT64, which wrap around.
            counts[int(chunk)], sums[int(chunk)] = int(count), int(total) % (1 << 64)
        return ChunkSums(counts, sums)

    def read_digests(self, selected: Sequence[int], chunks: int) -> Iterator[pa.Table]:
        """Yield the rows of the selected chunks: id BINARY(16), digest UINT64, in_history BIGINT 0, in_source BIGINT 1."""
        return self._read_digests(f"{self.digests.build_chunk_sql(chunks)} IN ({', '.join(map(str, selected))})")

    def read_digests_of_rows(self, ids: Iterable[bytes]) -> Iterator[pa.Table]:
        """Yield the rows with these ids in the same form."""
        return self._read_digests(self._match_ids(ids))

    def read_rows(self, ids: Sequence[bytes]) -> dict[bytes, CanonicalRow]:
        """Return the canonical values of the rows with these ids, by id."""
        if not ids:
            return {}
        columns = ", ".join([self.digests.id_sql, *(column.value_sql for column in self.digests.columns)])
        rows = self.snapshot.rows(f"SELECT {columns} FROM {self.table} WHERE {self._match_ids(ids)}")
        names = [column.name for column in self.digests.columns]
        return {bytes.fromhex(decode_text(row[0])): dict(zip(names, row[1:], strict=True)) for row in rows}

    def _match_ids(self, ids: Iterable[bytes]) -> str:
        listed = ", ".join(f"'{row_id.hex()}'" for row_id in ids)
        return f"{self.digests.id_sql} IN ({listed})"

    def _read_digests(self, where: str) -> Iterator[pa.Table]:
        rows = self.snapshot.rows(
            f"SELECT {self.digests.id_sql}, {self.digests.digest_sql} FROM {self.table} WHERE {where}"
        )
        while part := list(islice(rows, _ROWS_A_FETCH)):
            ids = pa.array([bytes.fromhex(decode_text(row_id)) for row_id, _ in part], ROW_ID)
            yield _mark_side(ids, pa.array([int(digest) for _, digest in part], pa.uint64()), in_history=0)


def count_rows(table: LakeTable[Any], engine: Engine[Any], position: int) -> int:
    """Return the number of rows of a history as of a position."""
    return int(engine.fetch(f"SELECT count(*) AS n FROM h WHERE {covers(position)}", {"h": table})["n"][0].as_py())


def _mark_side(ids: pa.Array, digests: pa.Array, *, in_history: int) -> pa.Table:
    sides = {
        name: pa.array(np.full(len(ids), count, np.int64))
        for name, count in (("in_history", in_history), ("in_source", 1 - in_history))
    }
    return pa.table({"id": ids, "digest": digests, **sides})
