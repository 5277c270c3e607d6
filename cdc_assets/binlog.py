"""Comparison of binlog coordinates, for rows with `source` (STRUCT<server_id, file, position, ...>)."""

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


def is_after_place(file: str, position: int) -> Column:
    """Return whether a row's binlog coordinates are after those given, both of one server. BOOLEAN; NULL without a file."""
    in_file = (F.col("source.file") == file) & (F.col("source.position") > position)
    return (F.col("source.file") > file) | in_file


def is_before_place(file: str, position: int) -> Column:
    """Return whether a row's binlog coordinates are before those given, both of one server. BOOLEAN; NULL without a file."""
    in_file = (F.col("source.file") == file) & (F.col("source.position") < position)
    return (F.col("source.file") < file) | in_file


def log_hash() -> Column:
    """Return a hash of the server's id and its log's base name. BIGINT.

    Only coordinates with the same hash can be compared.
    """
    file = F.col("source.file")
    base_name = F.substring(file, F.lit(1), F.length(file) - F.length(_file_suffix()))
    return F.xxhash64("source.server_id", base_name)


def _file_suffix() -> Column:
    return F.substring_index("source.file", ".", -1)
