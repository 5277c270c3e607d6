"""The two sides of a comparison: the rows of a history, and those of its source. Neither is ever in memory as a whole."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.lakehouse.history import covers
from cdc_assets.lakehouse.query import Engine
from cdc_assets.lakehouse.table import LakeTable
from cdc_assets.operations.verify.digests import ROW_ID, CanonicalValues, Numbers, RowDigests, compute_chunks
from cdc_assets.sources.mysql import DatabaseSnapshot, decode_text

CanonicalRow = dict[str, bytes | None]  # column -> canonical value
ChunkSums = tuple[Numbers, Numbers]  # by chunk: the number of rows, and the sum of their digests modulo 2^64

_ROWS_A_FETCH = 10_000


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
        sql = f"SELECT count(*) AS n FROM h WHERE {covers(self.position)}"
        return int(self.engine.fetch(sql, {"h": self.table})["n"][0].as_py())

    def sum_chunks(self, chunks: int) -> ChunkSums:
        """Return count and sum of digests of each chunk."""
        counts, sums = np.zeros(chunks, np.uint64), np.zeros(chunks, np.uint64)
        for _, values in self._read_batches():
            numbers = compute_chunks(self.digests.compute_ids(values), chunks)
            np.add.at(counts, numbers, 1)
            np.add.at(sums, numbers, self.digests.compute_digests(values))
        return counts, sums

    def read_digests(self, selected: Sequence[int], chunks: int) -> Iterator[pa.Table]:
        """Yield the rows of the selected chunks: id BINARY(16), digest UINT64, n BIGINT 1."""
        is_selected = np.zeros(chunks, bool)
        is_selected[selected] = True
        for _, values in self._read_batches():
            ids = self.digests.compute_ids(values)
            mask = pa.array(is_selected[compute_chunks(ids, chunks)])
            kept = {name: column.filter(mask) for name, column in values.items()}
            yield _count_each(ids.filter(mask), pa.array(self.digests.compute_digests(kept)), 1)

    def read_rows(self, ids: Sequence[bytes]) -> tuple[dict[bytes, str], dict[bytes, CanonicalRow]]:
        """Return `_cdc_key` and canonical values of the rows with these ids, by id."""
        keys: dict[bytes, str] = {}
        rows: dict[bytes, CanonicalRow] = {}
        selected = pa.array(ids, ROW_ID)
        for batch_keys, values in self._read_batches() if ids else ():
            batch_ids = self.digests.compute_ids(values)
            mask = pc.is_in(batch_ids, value_set=selected)
            kept = batch_ids.filter(mask).to_pylist()
            keys |= zip(kept, batch_keys.filter(mask).to_pylist(), strict=True)
            rows |= zip(kept, pa.table(dict(values)).filter(mask).to_pylist(), strict=True)
        return keys, rows

    def _read_batches(self) -> Iterator[tuple[pa.Array, CanonicalValues]]:
        """Yield the rows a batch at a time: `_cdc_key`, and the canonical values."""
        columns = ["_cdc_key", *(column.history_name for column in self.digests.columns)]
        sql = f"SELECT {', '.join(map(self.engine.name, columns))} FROM h WHERE {covers(self.position)}"
        for batch in self.engine.batches(sql, {"h": self.table}):
            yield batch["_cdc_key"], self.digests.encode_values(batch)


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
        return counts, sums

    def read_digests(self, selected: Sequence[int], chunks: int) -> Iterator[pa.Table]:
        """Yield the rows of the selected chunks: id BINARY(16), digest UINT64, n BIGINT -1."""
        in_chunks = f"{self.digests.build_chunk_sql(chunks)} IN ({', '.join(map(str, selected))})"
        rows = self.snapshot.rows(
            f"SELECT {self.digests.id_sql}, {self.digests.digest_sql} FROM {self.table} WHERE {in_chunks}"
        )
        while part := list(islice(rows, _ROWS_A_FETCH)):
            ids = pa.array([bytes.fromhex(decode_text(row_id)) for row_id, _ in part], ROW_ID)
            yield _count_each(ids, pa.array([int(digest) for _, digest in part], pa.uint64()), -1)

    def read_rows(self, ids: Sequence[bytes]) -> dict[bytes, CanonicalRow]:
        """Return the canonical values of the rows with these ids, by id."""
        if not ids:
            return {}
        listed = ", ".join(f"'{row_id.hex()}'" for row_id in ids)
        columns = ", ".join([self.digests.id_sql, *(column.value_sql for column in self.digests.columns)])
        rows = self.snapshot.rows(f"SELECT {columns} FROM {self.table} WHERE {self.digests.id_sql} IN ({listed})")
        names = [column.name for column in self.digests.columns]
        return {bytes.fromhex(decode_text(row[0])): dict(zip(names, row[1:], strict=True)) for row in rows}


def _count_each(ids: pa.Array, digests: pa.Array, count: int) -> pa.Table:
    return pa.table({"id": ids, "digest": digests, "n": pa.array(np.full(len(ids), count, np.int64))})
