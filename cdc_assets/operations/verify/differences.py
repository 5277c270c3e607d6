"""The rows in which a history and its source differ, by the rows' digests."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.operations.verify.sides import ChunkSums, HistorySide, SourceSide
from cdc_assets.operations.verify.verification import DIFFERENCE_KINDS

_MAX_ROWS_IN_MEMORY = 1_000_000  # of differing chunks, whose digests are compared at once

# What a side holds of a row: digest -> number of rows. Empty: it lacks the row. More than one row: copies, in a table
# without a key.
Image = Mapping[int, int]


@dataclass(frozen=True)
class RowImages:
    """A row that differs: what both sides hold of it."""

    kind: str
    history: Image
    source: Image

    @property
    def rows(self) -> int:
        """How many rows the difference counts for."""
        return 1 if self.kind == "changed" else abs(sum(self.history.values()) - sum(self.source.values()))


def count_by_kind(images: Iterable[RowImages]) -> dict[str, int]:
    """Return kind of difference -> number of rows."""
    counts = dict.fromkeys(DIFFERENCE_KINDS, 0)
    for each in images:
        counts[each.kind] += each.rows
    return counts


def find_differing_chunks(history: ChunkSums, source: ChunkSums) -> list[tuple[int, int]]:
    """Return the chunks that differ: number, and the larger side's number of rows."""
    differing = np.flatnonzero((history.counts != source.counts) | (history.sums != source.sums))
    return [(int(chunk), int(max(history.counts[chunk], source.counts[chunk]))) for chunk in differing]


def find_differing_rows(
    history: HistorySide, source: SourceSide, differing: Sequence[tuple[int, int]], chunks: int, most: int
) -> tuple[dict[str, int], dict[bytes, RowImages]]:
    """Compare the rows of the differing chunks.

    Args:
        history: the history.
        source: the source.
        differing: the chunks, as `find_differing_chunks` returns them.
        chunks: the number of all chunks.
        most: of how many rows of each kind of difference to return the images.

    Returns:
        Kind of difference -> number of rows; and row id -> what both sides hold of the row, of each kind those with the
        lowest ids.
    """
    counts = dict.fromkeys(DIFFERENCE_KINDS, 0)
    by_kind: dict[str, dict[bytes, RowImages]] = {kind: {} for kind in DIFFERENCE_KINDS}
    low, high = pc.field("surplus_min"), pc.field("surplus_max")
    conditions = {"missing": high < 0, "extra": low > 0, "changed": (low < 0) & (high > 0)}
    for selected in _group_chunks(differing):
        digests = _sum_digests([*history.read_digests(selected, chunks), *source.read_digests(selected, chunks)])
        surplus = pc.subtract(digests["in_history_sum"], digests["in_source_sum"])
        by_digest = digests.append_column("surplus", surplus).filter(pc.field("surplus") != 0)
        by_id = by_digest.group_by("id").aggregate([("surplus", "min"), ("surplus", "max"), ("surplus", "sum")])
        for kind, condition in conditions.items():
            of_kind = by_id.filter(condition)
            counts[kind] += of_kind.num_rows if kind == "changed" else abs(pc.sum(of_kind["surplus_sum"]).as_py() or 0)
            lowest = of_kind.sort_by("id")["id"].slice(0, most)
            images = _read_images(digests.filter(pc.is_in(digests["id"], value_set=lowest)))
            rows = by_kind[kind] | {row_id: RowImages(kind, *sides) for row_id, sides in images.items()}
            by_kind[kind] = {row_id: rows[row_id] for row_id in sorted(rows)[:most]}
    return counts, {row_id: row for rows in by_kind.values() for row_id, row in rows.items()}


def read_source_images(source: SourceSide, ids: Sequence[bytes]) -> dict[bytes, Image]:
    """Return what the source holds of the rows with these ids, at least one, by id; rows that it lacks are left out."""
    digests = list(source.read_digests_of_rows(ids))
    images = _read_images(_sum_digests(digests)) if digests else {}
    return {row_id: source for row_id, (_, source) in images.items()}


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


def _sum_digests(parts: Sequence[pa.Table]) -> pa.Table:
    """Return one row an id and digest: id, digest, in_history_sum, in_source_sum."""
    rows = pa.concat_tables(parts)
    return rows.group_by(["id", "digest"]).aggregate([("in_history", "sum"), ("in_source", "sum")])


def _read_images(digests: pa.Table) -> dict[bytes, tuple[Image, Image]]:
    """Return the images of history and source in rows of `_sum_digests`, by row id."""
    images: dict[bytes, tuple[dict[int, int], dict[int, int]]] = {}
    for row in digests.to_pylist():
        sides = images.setdefault(row["id"], ({}, {}))
        for image, count in zip(sides, (row["in_history_sum"], row["in_source_sum"]), strict=True):
            if count:
                image[row["digest"]] = count
    return dict(images)
