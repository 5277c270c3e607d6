r"""The rows of a dump's files, each value as the text that `protocols.loaded` describes; with native expressions only.

Dumpling escapes line feeds, so each line has one row. Text has double quotes in CSV and single quotes in SQL, and a
backslash before each character that cannot stand for itself. Numbers have no quotes. NULL is `\N` in CSV and `NULL` in SQL.
Bytes are raw in CSV and `x'...'` in SQL.

There are two ways to split a line into fields. Spark's CSV parser is faster and splits most lines; for it, escaped
backslashes and quotes are replaced by marks first. The parser accepts too much, so its result counts only if its fields,
joined again, are the line: such a line is *plain*. A regular expression splits all other lines.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, DataType, TimestampNTZType, TimestampType

from cdc_assets.initial_load.dumps import DumpError, DumpFile, read_line
from cdc_assets.lakehouse.schema import quoted
from cdc_assets.mysql_types.casting import occurs_once
from cdc_assets.mysql_types.descriptors import TYPES, Family
from cdc_assets.mysql_types.types import MySQLType
from cdc_assets.stores.storage import Store

DumpColumns = Sequence[tuple[str, MySQLType]]  # a table's columns: name and type

_BYTES = frozenset({Family.BINARY, Family.SPATIAL, Family.BIT})
_TEXTS = frozenset({Family.TEXT, Family.ENUM, Family.SET, Family.JSON})
# Dumpling writes these without quotes.
_NUMBERS = frozenset({Family.INTEGER, Family.DECIMAL, Family.FLOAT})
_LATIN1 = "ISO-8859-1"
# A field: quoted text, or characters other than quotes up to the next comma. The possessive quantifiers (`*+`) keep Java
# from backtracking, which would need a deep stack.
_CSV_FIELD = r'(?s)(?:^|,)("[^"\\]*+(?:\\.[^"\\]*+)*+"|[^,"]*+)'
_SQL_FIELD = r"(?s)(?:^|,)((?:x)?'[^'\\]*+(?:\\.[^'\\]*+)*+'|[^,'()]*+)"
_SQL_BYTES = r"^x'[0-9A-Fa-f]*+'\z"
_CSV_NULL, _SQL_NULL = r"\N", "NULL"
# The character after a backslash -> what both stand for.
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "Z": "\x1a", '"': '"', "'": "'"}
_INSERT = "INSERT INTO "
_IDENTIFIER = "`[^`]*+(?:``[^`]*+)*+`"
_INSERT_COLUMNS = re.compile(rf"{_INSERT}{_IDENTIFIER}(?: \(((?:{_IDENTIFIER},?)++)\))? VALUES")
_NAME_IN_BACKTICKS = re.compile(r"`((?:[^`]|``)*)`")
_SHOWN_CHARACTERS = 200
# Spark's parser reserves memory for `maxColumns`, and fails on a line with more, so longer lines are left to the regular
# expression: no line of this length has more columns.
_MAX_PARSED_BYTES = 1 << 16
_PARSER_OPTIONS = {"escape": "\\", "maxColumns": str(_MAX_PARSED_BYTES + 1)}
# Marks in place of an escaped backslash and an escaped quote while Spark's parser splits a line. Lines that contain a mark
# themselves are left to the regular expression.
_BACKSLASH_MARK, _QUOTE_MARK = "\ue000", "\ue001"
_BAD_LINE = "struct<checksum: bigint, line: string>"
_DATETIME_FORMAT = "yyyy-MM-dd HH:mm:ss.SSSSSS"


def read_rows(
    spark: SparkSession,
    store: Store,
    dump_format: str,
    files: Sequence[DumpFile],
    columns: DumpColumns,
    time_zone: str,
    *,
    without_plain: bool = False,
) -> DataFrame:
    """Return the rows of the files of one table.

    Args:
        spark: the session.
        store: how the files are reached without Spark.
        dump_format: as `format` in the feeds file.
        files: at least one.
        columns: of the table, without generated ones, which dumps leave out.
        time_zone: in which the dump prints TIMESTAMP.
        without_plain: leave out the plain lines, which `read_plain_rows` returns.

    Returns:
        `values` STRUCT: a STRING a column. `bad` STRUCT<checksum BIGINT, line STRING>: where a line is no row of the table,
        the CRC-32 of its bytes and its beginning; else NULL.

    Raises:
        DumpError: the files have other columns.
    """
    if dump_format == "parquet":
        return _read_parquet_rows(spark, files, columns, time_zone)
    is_raw = _has_raw_bytes(dump_format, columns)
    table = _FORMATS[dump_format](store, files[0], _read_lines(spark, files, columns, is_raw=is_raw), columns)
    lines = table.lines
    if without_plain:
        lines = _parse_lines(table, time_zone, is_raw=is_raw).where(~F.col("plain"))
    fields = F.regexp_extract_all("row", F.lit(table.field_pattern), F.lit(1))
    split = lines.select("line", table.row.alias("row")).withColumn("fields", fields)
    # One expression over the array of fields: an expression a field makes plans of wide tables slow.
    texts = split.withColumn("texts", F.transform("fields", table.to_text))
    is_complete = (F.array_join("fields", ",") == F.col("row")) & (F.size("fields") == len(table.columns))
    is_row = is_complete & (F.lit(True) if is_raw else F.is_valid_utf8("line"))
    values = [
        _canonical_text(F.get("texts", F.lit(n)), t, time_zone, is_raw=is_raw).alias(name)
        for n, (name, t) in enumerate(table.columns)
    ]
    valued = texts.select("line", is_row.alias("is_row"), F.struct(*values).alias("values"))
    is_good = reduce(and_, _utf8_checks(table.columns, is_raw=is_raw), F.coalesce("is_row", F.lit(False)))
    data = F.encode("line", _LATIN1) if is_raw else F.col("line").cast("binary")
    bad = F.struct(F.crc32(data).alias("checksum"), F.substring("line", 1, _SHOWN_CHARACTERS).alias("line"))
    return valued.select("values", F.when(~is_good, bad).alias("bad"))


def read_plain_rows(
    spark: SparkSession,
    store: Store,
    dump_format: str,
    files: Sequence[DumpFile],
    columns: DumpColumns,
    time_zone: str,
) -> DataFrame | None:
    """Return the rows as Spark's CSV parser splits them. Args and errors: as `read_rows`.

    Returns:
        `values`, as `read_rows` returns it, and `plain` BOOLEAN: whether the line is plain; where it is not, `values` means
        nothing. None: the format is not split into lines.
    """
    if dump_format == "parquet":
        return None
    is_raw = _has_raw_bytes(dump_format, columns)
    table = _FORMATS[dump_format](store, files[0], _read_lines(spark, files, columns, is_raw=is_raw), columns)
    return _parse_lines(table, time_zone, is_raw=is_raw).select("values", "plain")


def _has_raw_bytes(dump_format: str, columns: DumpColumns) -> bool:
    """Whether the files mix text with raw bytes, so that they are not UTF-8: read as Latin-1, they lose no byte."""
    return dump_format == "dumpling-csv" and any(TYPES[t.base].family in _BYTES for _, t in columns)


def _read_lines(spark: SparkSession, files: Sequence[DumpFile], columns: DumpColumns, *, is_raw: bool) -> DataFrame:
    """Return the lines of files: `line`, and `file_path` if a row may look like the header."""
    # Spark reads a file's path for each line even where nothing uses it.
    file_path = ["_metadata.file_path"] if _may_look_like_header(columns) else []
    line = F.decode(F.col("value").cast("binary"), _LATIN1) if is_raw else F.col("value")
    return spark.read.text([f.path for f in files]).select(line.alias("line"), *file_path)


def _utf8_checks(columns: DumpColumns, *, is_raw: bool) -> list[Column]:
    """Return, for lines read as Latin-1, whether each text of `values` is UTF-8."""
    texts = [c for c, t in columns if is_raw and TYPES[t.base].family in _TEXTS]
    return [F.coalesce(F.is_valid_utf8(F.col("values").getField(c)), F.lit(True)) for c in texts]


def _parse_lines(table: "_TableLines", time_zone: str, *, is_raw: bool) -> DataFrame:
    """Split the lines with Spark's CSV parser.

    Returns:
        The columns of `table.lines`, and `values` and `plain`, as `read_plain_rows`.
    """
    columns, quote = table.columns, table.quote
    fields = [f"_{n}" for n in range(len(columns))]
    row, is_escaped = F.col("row"), F.col("row").contains("\\")
    with_marks = F.replace(
        F.replace(row, F.lit(r"\\"), F.lit(_BACKSLASH_MARK)), F.lit("\\" + quote), F.lit(_QUOTE_MARK)
    )
    can_be_marked = is_escaped & ~(row.contains(_BACKSLASH_MARK) | row.contains(_QUOTE_MARK))
    marked = F.when(can_be_marked, with_marks).otherwise(F.when(~is_escaped, row))
    short = F.when(F.octet_length(row) <= _MAX_PARSED_BYTES, marked)
    prepared = table.lines.withColumn("row", table.row).withColumns({"escaped": is_escaped, "marked": short})
    options = _PARSER_OPTIONS | {"quote": quote, "nullValue": table.null}
    parsed = prepared.withColumn("parsed", F.from_csv("marked", ", ".join(f"{n} STRING" for n in fields), options))
    originals, is_sure, values = [], F.lit(True), []
    for field, (name, mysql_type) in zip(fields, columns, strict=True):
        original, text, is_certain = table.restore(TYPES[mysql_type.base].family, F.col("parsed").getField(field))
        originals.append(F.coalesce(original, F.lit(table.null)))
        is_sure = is_sure & F.coalesce(is_certain, F.lit(True))
        values.append(_canonical_text(text, mysql_type, time_zone, is_raw=is_raw).alias(name))
    is_plain = (F.concat_ws(",", *originals) == F.col("marked")) & is_sure
    valued = parsed.select(*table.lines.columns, F.struct(*values).alias("values"), is_plain.alias("plain"))
    checked = reduce(and_, _utf8_checks(columns, is_raw=is_raw), F.coalesce(F.col("plain"), F.lit(False)))
    return valued.withColumn("plain", checked)


class _TableLines(NamedTuple):
    """The lines of a table's files, and how they are written.

    Attributes:
        lines: the lines with rows, `line`.
        row: the fields of a line, without the brackets around them; NULL where the line is no row.
        columns: in the order of a row's fields.
        field_pattern: a regular expression whose group is a field, quotes included.
        to_text: field -> its text.
        quote: the quote around text.
        null: the field that stands for NULL.
        has_hex_bytes: whether bytes are written as `x'...'`.
    """

    lines: DataFrame
    row: Column
    columns: DumpColumns
    field_pattern: str
    to_text: Callable[[Column], Column]
    quote: str
    null: str
    has_hex_bytes: bool = False

    def restore(self, family: Family, parsed: Column) -> tuple[Column, Column, Column]:
        """Return of a value that Spark's parser made: its field in the line, its text, and whether the text is certain."""
        if family in _NUMBERS:
            return parsed, parsed, F.lit(True)
        if self.has_hex_bytes and family in _BYTES:
            return parsed, F.substring(parsed, F.lit(3), F.length(parsed) - 3), parsed.rlike(_SQL_BYTES)
        field = F.concat(F.lit(self.quote), parsed, F.lit(self.quote))
        text = parsed
        if family in _TEXTS | _BYTES:
            text = F.when(F.col("escaped"), self._resolve_marks(parsed)).otherwise(parsed)
        return field, text, ~parsed.contains(self.quote)

    def _resolve_marks(self, text: Column) -> Column:
        with_quotes = F.replace(_resolve_escapes(text), F.lit(_QUOTE_MARK), F.lit(self.quote))
        return F.replace(with_quotes, F.lit(_BACKSLASH_MARK), F.lit("\\"))


def _describe_csv(store: Store, first: DumpFile, lines: DataFrame, columns: DumpColumns) -> _TableLines:
    header = read_line(store, first, '"')
    ordered = _order_columns([json.loads(f'"{n}"') for n in _names_in_header(header)], columns, first.path)
    rows = _drop_header(lines, header, ordered)
    return _TableLines(rows, F.col("line"), ordered, _CSV_FIELD, _csv_text, '"', _CSV_NULL)


def _describe_sql(store: Store, first: DumpFile, lines: DataFrame, columns: DumpColumns) -> _TableLines:
    ordered = _order_columns(_names_in_insert(read_line(store, first, _INSERT), columns), columns, first.path)
    line = F.col("line")
    rows = lines.where(~(line.startswith(_INSERT) | line.startswith("/*") | (F.length(line) == 0)))
    has_brackets = line.startswith("(") & (line.endswith("),") | line.endswith(");"))
    fields = F.when(has_brackets, F.expr("substr(line, 2, length(line) - 3)"))
    return _TableLines(rows.select("line"), fields, ordered, _SQL_FIELD, _sql_text, "'", _SQL_NULL, has_hex_bytes=True)


_FORMATS = {"dumpling-csv": _describe_csv, "dumpling-sql": _describe_sql}


def _names_in_header(header: str) -> list[str]:
    return re.findall(r'"((?:[^"\\]|\\.)*)"', header)


def _names_in_insert(insert: str, columns: DumpColumns) -> list[str]:
    """Return the columns that an INSERT names; an INSERT without names has all columns."""
    match = _INSERT_COLUMNS.match(insert)
    names = match and match[1]
    return [n.replace("``", "`") for n in _NAME_IN_BACKTICKS.findall(names)] if names else [name for name, _ in columns]


def _order_columns(names: Sequence[str], columns: DumpColumns, path: str) -> list[tuple[str, MySQLType]]:
    """Return the columns in the order of the names.

    Raises:
        DumpError: the names are not those of the columns.
    """
    types = {name.lower(): (name, t) for name, t in columns}
    if sorted(n.lower() for n in names) != sorted(types):
        in_file = f"has the columns {', '.join(names)}" if names else "has no header"
        raise DumpError(
            f"{path}: {in_file}, and its schema file has {', '.join(n for n, _ in columns)}: dump with a header, and all "
            "columns of the table."
        )
    return [types[n.lower()] for n in names]


def _may_look_like_header(columns: DumpColumns) -> bool:
    """Whether a row may look like the header: in a table that has only text columns."""
    return all(TYPES[t.base].family in _TEXTS for _, t in columns)


def _drop_header(lines: DataFrame, header: str, columns: DumpColumns) -> DataFrame:
    """Return the lines with rows: of each file all but one line that is the header."""
    rows = lines.where(F.col("line") != header).select("line")
    if not _may_look_like_header(columns):
        return rows
    like_header = lines.where(F.col("line") == header).groupBy("file_path").count().where("count > 1")
    repeats = F.array_repeat(F.lit(header), (F.col("count") - 1).cast("int"))
    return rows.unionAll(like_header.select(F.explode(repeats)))


def _csv_text(field: Column) -> Column:
    return _field_text(field, _CSV_NULL)


def _sql_text(field: Column) -> Column:
    return _field_text(field, _SQL_NULL)


def _field_text(field: Column, null: str) -> Column:
    """Return a field's text; of `x'...'` the digits."""
    is_quoted = field.startswith('"') | field.startswith("'")
    inner = F.substring(field, F.lit(2), F.length(field) - 2)
    digits = F.substring(field, F.lit(3), F.length(field) - 3)
    unquoted = F.when(field != null, field)
    return F.when(is_quoted, _unescape(inner)).when(field.startswith("x'"), digits).otherwise(unquoted)


def _unescape(text: Column) -> Column:
    """Return a text without its escapes. Between two escaped backslashes, each backslash begins an escape."""
    parts = F.transform(F.split(text, r"\\\\", -1), _resolve_escapes)
    return F.when(text.contains("\\"), F.array_join(parts, "\\")).otherwise(text)


def _resolve_escapes(text: Column) -> Column:
    """Return a text without its escapes, of which none is an escaped backslash."""
    for escape, character in _ESCAPES.items():
        text = F.replace(text, F.lit("\\" + escape), F.lit(character))
    return text


def _canonical_text(value: Column, mysql_type: MySQLType, time_zone: str, *, is_raw: bool) -> Column:
    """Return a value as `protocols.loaded` describes it; `is_raw`: each character of `value` is a byte of the file."""
    family = TYPES[mysql_type.base].family
    if family in _BYTES:
        digits = F.hex(F.encode(value, _LATIN1)) if is_raw else F.upper(value)
        return F.conv(digits, 16, 10) if family is Family.BIT else digits
    if family in _TEXTS and is_raw:
        is_ascii = ~value.rlike(r"[^\x00-\x7f]")
        return F.when(is_ascii, value).otherwise(F.encode(value, _LATIN1).cast("string"))
    if family is Family.TIMESTAMP and time_zone != "UTC":
        zoned = F.concat(value, F.lit(" "), F.lit(time_zone))
        # A zero date is no instant in any zone, and stays as it is.
        text = F.coalesce(F.date_format(zoned.try_cast("timestamp"), _DATETIME_FORMAT), value)
        # With its zone a text is no value of the type, so that it is quarantined.
        return F.when(~occurs_once(value, time_zone), zoned).otherwise(text)
    return value


def _read_parquet_rows(
    spark: SparkSession, files: Sequence[DumpFile], columns: DumpColumns, time_zone: str
) -> DataFrame:
    """Return the typed rows of Parquet files as `read_rows` does."""
    rows = spark.read.parquet(*[f.path for f in files])
    ordered = _order_columns(rows.columns, columns, files[0].path)
    spark_types = [f.dataType for f in rows.schema]
    values = [
        _parquet_text(F.col(quoted(column)), spark_type, t, time_zone).alias(name)
        for column, spark_type, (name, t) in zip(rows.columns, spark_types, ordered, strict=True)
    ]
    return rows.select(F.struct(*values).alias("values"), F.lit(None).cast(_BAD_LINE).alias("bad"))


def _parquet_text(value: Column, spark_type: DataType, mysql_type: MySQLType, time_zone: str) -> Column:
    """Return a typed value as `protocols.loaded` describes it."""
    family = TYPES[mysql_type.base].family
    if isinstance(spark_type, BinaryType) and family not in _BYTES:
        value = value.cast("string")
    elif isinstance(spark_type, BinaryType):
        return _canonical_text(F.hex(value), mysql_type, time_zone, is_raw=False)
    elif isinstance(spark_type, BooleanType):
        value = value.cast("int").cast("string")
    elif isinstance(spark_type, TimestampType):
        return F.date_format(value, _DATETIME_FORMAT)  # an instant, which needs no zone
    elif isinstance(spark_type, TimestampNTZType):
        value = F.date_format(value, _DATETIME_FORMAT)
    else:
        value = value.cast("string")
    # Only text files write bytes and bits as digits.
    return value if family in _BYTES else _canonical_text(value, mysql_type, time_zone, is_raw=False)
