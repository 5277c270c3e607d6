"""Digests of rows, computed alike on both sides: in the source's SQL, and of Arrow batches of the history.

A row's id tells it from other rows; its digest stands for all its values. Both are hashes of the values' canonical texts.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.lakehouse.schema import quoted
from cdc_assets.mysql_types.canonical import CanonicalForm

Numbers = npt.NDArray[np.uint64]
CanonicalValues = Mapping[str, pa.Array]  # column -> LARGE_BINARY

ROW_ID = pa.binary(16)
_DIGEST_BITS = 60  # 15 hexadecimal digits fit a BIGINT


@dataclass(frozen=True)
class ComparedColumn:
    """A column that both sides have.

    Attributes:
        name: its name in the source.
        history_name: its name in the history.
        form: how its values become canonical texts.
    """

    name: str
    history_name: str
    form: CanonicalForm

    @property
    def value_sql(self) -> str:
        """The source's SQL for the canonical bytes of a value."""
        return f"CAST({self.form.sql.format(quoted(self.name))} AS BINARY)"

    def build_part_sql(self, *, is_of_key: bool) -> str:
        """Return the source's SQL for what a value adds to the text that is hashed; a long value outside a key its MD5."""
        value = f"MD5({self.value_sql})" if self.form.long and not is_of_key else self.value_sql
        return f"COALESCE(CONCAT(LENGTH({value}), ':', {value}), 'N')"

    def build_parts(self, values: pa.Array, *, is_of_key: bool) -> pa.Array:
        """Return the same as `build_part_sql` for canonical values of the history: LARGE_BINARY."""
        parts = values
        if self.form.long and not is_of_key:
            digests = [None if value is None else _hash(value).hex().encode() for value in values.to_pylist()]
            parts = pa.array(digests, pa.large_binary())
        lengths = pc.binary_length(parts).cast(pa.large_string()).cast(pa.large_binary())
        return pc.binary_join_element_wise(lengths, parts, pa.scalar(b":", pa.large_binary())).fill_null(b"N")

    def format_value(self, value: bytes | None) -> str | None:
        """Return a canonical value for people; binary values as `0x` and hexadecimal digits."""
        if value is None:
            return None
        return f"0x{value.hex()}" if self.form.sql == "{0}" else value.decode(errors="replace")


@dataclass(frozen=True)
class RowDigests:
    """How rows become ids and digests.

    Attributes:
        columns: the compared columns.
        key: those of them that make the table's key; empty: the table has none, and all columns make a row's id.
    """

    columns: Sequence[ComparedColumn]
    key: Sequence[ComparedColumn]

    @property
    def id_sql(self) -> str:
        """The source's SQL for a row's id: 32 hexadecimal digits."""
        parts = ", ".join(column.build_part_sql(is_of_key=bool(self.key)) for column in self.id_columns)
        return f"MD5(CONCAT({parts}))"

    @property
    def digest_sql(self) -> str:
        """The source's SQL for a row's digest: a number of 60 bits."""
        parts = ", ".join(column.build_part_sql(is_of_key=False) for column in self.columns)
        return f"CAST(CONV(LEFT(MD5(CONCAT({parts})), {_DIGEST_BITS // 4}), 16, 10) AS UNSIGNED)"

    def build_chunk_sql(self, chunks: int) -> str:
        """Return the source's SQL for a row's chunk: a number below `chunks`."""
        return f"CAST(CONV(LEFT({self.id_sql}, 8), 16, 10) AS UNSIGNED) % {chunks}"

    @property
    def id_columns(self) -> Sequence[ComparedColumn]:
        """The columns that make a row's id."""
        return self.key or self.columns

    def compute_ids(self, values: CanonicalValues) -> pa.Array:
        """Return the ids of rows, from the canonical values of `id_columns`: BINARY(16), in their order."""
        return _hash_rows(
            [column.build_parts(values[column.name], is_of_key=bool(self.key)) for column in self.id_columns]
        )

    def compute_digests(self, values: CanonicalValues) -> Numbers:
        """Return the digests of rows, from the canonical values of `columns`, in their order."""
        hashes = _hash_rows([column.build_parts(values[column.name], is_of_key=False) for column in self.columns])
        return _read_leading_bytes(hashes, 8) >> np.uint64(64 - _DIGEST_BITS)


def encode_values(batch: pa.RecordBatch, columns: Sequence[ComparedColumn]) -> dict[str, pa.Array]:
    """Return the canonical values of rows of the history, by the source's names of these columns."""
    return {column.name: column.form.text(batch[column.history_name]) for column in columns}


def compute_chunks(ids: pa.Array, chunks: int) -> Numbers:
    """Return the chunk of each row, a number below `chunks`; `ids`: BINARY(16)."""
    return _read_leading_bytes(ids, 4) % np.uint64(chunks)


def _hash_rows(parts: Sequence[pa.Array]) -> pa.Array:
    texts = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary())).to_pylist()
    hashes = b"".join(map(_hash, texts))
    return pa.FixedSizeBinaryArray.from_buffers(ROW_ID, len(texts), [None, pa.py_buffer(hashes)])


def _read_leading_bytes(hashes: pa.Array, count: int) -> Numbers:
    """Return the first `count` bytes of each hash as a number."""
    words = np.frombuffer(hashes.buffers()[1], f">u{count}", len(hashes) * 16 // count)
    return words[:: 16 // count].astype(np.uint64)


def _hash(value: bytes) -> bytes:
    return hashlib.md5(value, usedforsecurity=False).digest()
