"""What rows come to: one digest that tells a row from others, and one of all its values.

Source and history make them of the same texts, the one in SQL, the other of Arrow batches as they are read.
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

ID = pa.binary(16)
BITS = 60  # of a row's digest: 15 hexadecimal digits, which fit a BIGINT
_COLON, _NOTHING = (pa.scalar(text, pa.large_binary()) for text in (b":", b""))


@dataclass(frozen=True)
class Column:
    """A column that is compared: its name in the source and in the history."""

    name: str
    held_as: str
    form: CanonicalForm

    @property
    def value(self) -> str:
        """Its canonical bytes, in the source's SQL."""
        return f"CAST({self.form.sql.format(quoted(self.name))} AS BINARY)"

    def part(self, *, whole: bool) -> str:
        """What it adds to the text of a row, or of its key, which has values whole; in the source's SQL."""
        said = f"MD5({self.value})" if self.form.long and not whole else self.value
        return f"COALESCE(CONCAT(LENGTH({said}), ':', {said}), 'N')"

    def parts(self, values: pa.Array, *, whole: bool) -> pa.Array:
        """The same of canonical values."""
        said = values
        if self.form.long and not whole:
            hexadecimal = [None if v is None else _md5(v).hex().encode() for v in values.to_pylist()]
            said = pa.array(hexadecimal, pa.large_binary())
        lengths = pc.binary_length(said).cast(pa.large_string()).cast(pa.large_binary())
        return pc.binary_join_element_wise(lengths, said, _COLON).fill_null(b"N")

    def shown(self, value: bytes | None) -> str | None:
        """A value for people: bytes as 0x and hex digits."""
        if value is None:
            return None
        return f"0x{value.hex()}" if self.form.sql == "{0}" else value.decode(errors="replace")


@dataclass(frozen=True)
class Digests:
    """How rows become digests.

    Attributes:
        columns: that are compared.
        key: those of them that tell rows apart; empty: the table has no key, and only all of them do.
    """

    columns: Sequence[Column]
    key: Sequence[Column]

    @property
    def id_sql(self) -> str:
        """What tells a row from others, as 32 hexadecimal digits, in the source's SQL."""
        return f"MD5(CONCAT({', '.join(c.part(whole=bool(self.key)) for c in self.key or self.columns)}))"

    def chunk_sql(self, chunks: int) -> str:
        """Which of so many chunks it falls into, in the source's SQL."""
        return f"CAST(CONV(LEFT({self.id_sql}, 8), 16, 10) AS UNSIGNED) % {chunks}"

    @property
    def value_sql(self) -> str:
        """What a row comes to, as a number, in the source's SQL."""
        parts = ", ".join(c.part(whole=False) for c in self.columns)
        return f"CAST(CONV(LEFT(MD5(CONCAT({parts})), {BITS // 4}), 16, 10) AS UNSIGNED)"

    def canonical(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """The canonical values of rows of the history, column by column."""
        return {c.name: c.form.text(batch[c.held_as]) for c in self.columns}

    def ids(self, canonical: Mapping[str, pa.Array]) -> pa.Array:
        """What tells each of these rows from others: BINARY(16), in their order."""
        parts = [c.parts(canonical[c.name], whole=bool(self.key)) for c in self.key or self.columns]
        return _digested(parts)

    def values(self, canonical: Mapping[str, pa.Array]) -> Numbers:
        """What each of these rows comes to."""
        digests = _digested([c.parts(canonical[c.name], whole=False) for c in self.columns])
        return _leading(digests, 8) >> np.uint64(64 - BITS)


def chunk_of(ids: pa.Array, chunks: int) -> Numbers:
    """Which of so many chunks each falls into."""
    return _leading(ids, 4) % np.uint64(chunks)


def _digested(parts: Sequence[pa.Array]) -> pa.Array:
    texts = pc.binary_join_element_wise(*parts, _NOTHING).to_pylist()
    return pa.FixedSizeBinaryArray.from_buffers(ID, len(texts), [None, pa.py_buffer(b"".join(map(_md5, texts)))])


def _leading(digests: pa.Array, count: int) -> Numbers:
    """The first bytes of each, as numbers."""
    words = np.frombuffer(digests.buffers()[1], f">u{count}", len(digests) * 16 // count)
    return words[:: 16 // count].astype(np.uint64)


def _md5(value: bytes) -> bytes:
    return hashlib.md5(value, usedforsecurity=False).digest()
