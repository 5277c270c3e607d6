"""Places in a binlog, of rows with `source` (STRUCT<server_id, file, position, ...>)."""

from pyspark.sql import Column
from pyspark.sql import functions as F


def file_number() -> Column:
    """The number of the file; it may have more than six digits. BIGINT, NULL where a file has none."""
    return _suffix().try_cast("bigint")


def at_or_after(number: int | None, position: int) -> Column:
    """Whether a place does not lie before one of the same log. BOOLEAN, NULL where a file has no number."""
    file, of = file_number(), F.lit(number).cast("bigint")
    return (file > of) | ((file == of) & (F.col("source.position") >= position))


def log_of() -> Column:
    """A hash of the server and the name of its log. BIGINT."""
    file = F.col("source.file")
    name = F.substring(file, F.lit(1), F.length(file) - F.length(_suffix()))
    return F.xxhash64("source.server_id", name)


def _suffix() -> Column:
    return F.substring_index("source.file", ".", -1)
