"""Comparison of binlog coordinates, for rows with `source` (STRUCT<server_id, file, position, ...>)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F


def file_number() -> Column:
    """Return the number at the end of the binlog file's name, which may have more than six digits.

    Returns:
        BIGINT; NULL where the name ends in no number.
    """
    return _file_suffix().try_cast("bigint")


def is_at_or_after(number: int | None, position: int) -> Column:
    """Return whether a row's binlog coordinates are at or after those given; both must be of one log.

    Args:
        number: the number of the binlog file.
        position: the position in that file.

    Returns:
        BOOLEAN; NULL where a file has no number.
    """
    row_file, given_file = file_number(), F.lit(number).cast("bigint")
    return (row_file > given_file) | ((row_file == given_file) & (F.col("source.position") >= position))


class BinlogPlace(NamedTuple):
    """The coordinates of a statement in a binlog.

    Attributes:
        server_id: the id of the server that wrote the log; 0: a connector's snapshot states the place, and no server.
        file: the name of the log's file.
        position: the position in that file.
    """

    server_id: int
    file: str
    position: int

    @property
    def number(self) -> int | None:
        """The number at the end of the file's name; None without one."""
        suffix = self.file.rpartition(".")[2]
        return int(suffix) if suffix.isdecimal() else None

    @property
    def is_of_snapshot(self) -> bool:
        """Whether a connector's snapshot states the place."""
        return self.server_id == 0


def read_place(source: Mapping[str, Any] | None) -> BinlogPlace | None:
    """Return the place in the `source` of a statement; None: it states none."""
    return BinlogPlace(source["server_id"] or 0, source["file"], source["position"]) if source else None


def is_after_place(place: BinlogPlace) -> Column:
    """Return whether a row's coordinates are after a place. BOOLEAN; NULL without them, or in another server's log.

    A connector's snapshot reads the rows at the place at which it describes their table.
    """
    own_length = 0 if place.is_of_snapshot else 1
    return F.when(_is_in_log(place), is_at_or_after(place.number, place.position + own_length))


def is_before_place(place: BinlogPlace) -> Column:
    """Return whether a row's coordinates are before a place. BOOLEAN; NULL without them, or in another server's log."""
    return F.when(_is_in_log(place), ~is_at_or_after(place.number, place.position))


def _is_in_log(place: BinlogPlace) -> Column:
    return F.lit(True) if place.is_of_snapshot else F.col("source.server_id").isin(0, place.server_id)


def log_hash() -> Column:
    """Return a hash of the server's id and its log's base name. BIGINT.

    Only coordinates with the same hash can be compared.
    """
    file = F.col("source.file")
    base_name = F.substring(file, F.lit(1), F.length(file) - F.length(_file_suffix()))
    return F.xxhash64("source.server_id", base_name)


def _file_suffix() -> Column:
    return F.substring_index("source.file", ".", -1)
