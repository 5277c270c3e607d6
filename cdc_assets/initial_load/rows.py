r"""The rows of a dump's files, each value as the text that `protocols.loaded` asks for; with native expressions only.

Dumpling writes a row a line: it escapes line feeds. In CSV a text stands in double quotes, in SQL in single ones, with a
backslash before what must not stand there itself; a number stands as it is; NULL is `\N` in CSV, `NULL` in SQL; bytes are
themselves in CSV, and `x'...'` in SQL.

Spark's own parser of CSV cuts most lines, in a third of the time that a pattern takes, with escaped backslashes and quotes
put aside meanwhile. That parser lets much pass: what it found counts where it makes up the very line again; a pattern cuts
all other lines.
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

from cdc_assets.initial_load.dumps import DumpError, DumpFile, first_line
from cdc_assets.lakehouse.schema import quoted
from cdc_assets.mysql_types.reference import TYPES, Family
from cdc_assets.mysql_types.types import MySQLType
from cdc_assets.stores.storage import Store

Columns = Sequence[tuple[str, MySQLType]]

_BYTES = frozenset({Family.BINARY, Family.SPATIAL, Family.BIT})
_TEXTS = frozenset({Family.TEXT, Family.ENUM, Family.SET, Family.JSON})
_LATIN = "ISO-8859-1"
# A quoted text, or anything without a quote up to the next comma. Possessive: Java gives nothing back, and needs no stack.
_CSV_FIELD = r'(?s)(?:^|,)("[^"\\]*+(?:\\.[^"\\]*+)*+"|[^,"]*+)'
_SQL_FIELD = r"(?s)(?:^|,)((?:x)?'[^'\\]*+(?:\\.[^'\\]*+)*+'|[^,'()]*+)"
_SQL_DIGITS = r"^x'[0-9A-Fa-f]*+'\z"
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r", "Z": "\x1a", '"': '"', "'": "'"}
_NULL = "NULL"
_INSERT = "INSERT INTO "
_QUOTED = "`[^`]*+(?:``[^`]*+)*+`"
_NAMED = re.compile(rf"{_INSERT}{_QUOTED}(?: \(((?:{_QUOTED},?)++)\))? VALUES")
_NAME = re.compile(r"`((?:[^`]|``)*)`")
_SHOWN_CHARACTERS = 200
# Longer lines are left to the pattern: Spark's parser fails on more columns than it was told of, and makes room for all.
_QUICK_CHARACTERS = 1 << 16
_QUICK = {"escape": "\\", "maxColumns": str(_QUICK_CHARACTERS + 1)}
# Stand for an escaped backslash, and an escaped quote, while a line is cut. Lines that have them are left to the pattern.
_BACKSLASH, _ESCAPED_QUOTE = "\ue000", "\ue001"
# What Dumpling writes without quotes.
_NUMBERS = frozenset({Family.INTEGER, Family.DECIMAL, Family.FLOAT})
_BAD = "struct<checksum: bigint, line: string>"
_CLOCK = "yyyy-MM-dd HH:mm:ss.SSSSSS"


def read_rows(
    spark: SparkSession,
    store: Store,
    form: str,
    files: Sequence[DumpFile],
    columns: Columns,
    time_zone: str,
    *,
    but_plain: bool = False,
) -> DataFrame:
    """The rows of the files of one table.

    Args:
        spark: the session.
        store: how the files are reached without it.
        form: as `format` in the feeds file.
        files: at least one.
        columns: of the table, but for generated ones, which dumps leave out.
        time_zone: in which the dump prints TIMESTAMP.
        but_plain: leave out the plain lines, as `read_plain_rows` has them.

    Returns:
        `values` STRUCT: a STRING a column; and `bad` STRUCT<checksum BIGINT, line STRING>: the line, where it is no row of
        the table, and the CRC-32 of its bytes; else NULL.

    Raises:
        DumpError: the files have other columns.
    """
    if form == "parquet":
        rows = spark.read.parquet(*[f.path for f in files])
        return _parquet_rows(rows, columns, time_zone, files[0].path)
    raw = _is_raw(form, columns)
    written = _FORMS[form](store, files[0], _lines(spark, files, columns, raw=raw), columns)
    lines = written.rows
    if but_plain:
        lines = _cut(written, time_zone, raw=raw).where(~F.col("plain"))
    rows = lines.select("line", written.row.alias("row"))
    found = rows.withColumn("fields", F.regexp_extract_all("row", F.lit(written.field), F.lit(1)))
    # For all fields at once: for each by itself, planning 67 columns took seconds.
    valued = found.withColumn("texts", F.transform("fields", written.value))
    whole = (F.array_join("fields", ",") == F.col("row")) & (F.size("fields") == len(written.columns))
    good = whole & (F.lit(True) if raw else F.is_valid_utf8("line"))
    texts = [
        _text(F.get("texts", F.lit(n)), t, time_zone, raw=raw).alias(name)
        for n, (name, t) in enumerate(written.columns)
    ]
    made = valued.select("line", good.alias("good"), F.struct(*texts).alias("values"))
    fine = reduce(and_, _encoded(written.columns, raw=raw), F.coalesce(F.col("good"), F.lit(False)))
    data = F.encode("line", _LATIN) if raw else F.col("line").cast("binary")
    told = F.struct(F.crc32(data).alias("checksum"), F.substring("line", 1, _SHOWN_CHARACTERS).alias("line"))
    return made.select("values", F.when(~fine, told).alias("bad"))


def read_plain_rows(
    spark: SparkSession, store: Store, form: str, files: Sequence[DumpFile], columns: Columns, time_zone: str
) -> DataFrame | None:
    """The rows that need no pattern. Args, errors: as `read_rows`.

    Returns:
        `values`, as `read_rows` has it, and `plain` BOOLEAN: whether the line is such a one; where it is none, `values` says
        nothing. None: there are none in this form.
    """
    if form == "parquet":
        return None
    raw = _is_raw(form, columns)
    written = _FORMS[form](store, files[0], _lines(spark, files, columns, raw=raw), columns)
    return _cut(written, time_zone, raw=raw).select("values", "plain")


def _is_raw(form: str, columns: Columns) -> bool:
    """Whether what stands in the files is no text as a whole, as there are bytes: taken for Latin-1, no byte is lost."""
    return form == "dumpling-csv" and any(TYPES[t.base].family in _BYTES for _, t in columns)


def _lines(spark: SparkSession, files: Sequence[DumpFile], columns: Columns, *, raw: bool) -> DataFrame:
    """The lines of files, `line`; and their `file_path`, where a row may look like the header."""
    wanted = ["_metadata.file_path"] if _may_look_like_the_header(columns) else []
    line = F.decode(F.col("value").cast("binary"), _LATIN) if raw else F.col("value")
    # A file's name that nobody asks for afterwards is read all the same, and costs as much as the line.
    return spark.read.text([f.path for f in files]).select(line.alias("line"), *wanted)


def _encoded(columns: Columns, *, raw: bool) -> list[Column]:
    """Of `values`, where the lines were taken for Latin-1: whether each text is UTF-8."""
    texts = [c for c, t in columns if raw and TYPES[t.base].family in _TEXTS]
    return [F.coalesce(F.is_valid_utf8(F.col("values").getField(c)), F.lit(True)) for c in texts]


def _cut(written: "_Written", time_zone: str, *, raw: bool) -> DataFrame:
    """Lines cut by Spark's parser. Out: the columns of `written.rows`, `values`, and `plain`, as `read_plain_rows`."""
    columns, quote = written.columns, written.quote
    names = [f"_{n}" for n in range(len(columns))]
    row, escaped = F.col("row"), F.col("row").contains("\\")
    marked = F.replace(F.replace(row, F.lit(r"\\"), F.lit(_BACKSLASH)), F.lit("\\" + quote), F.lit(_ESCAPED_QUOTE))
    unmarked = escaped & ~(row.contains(_BACKSLASH) | row.contains(_ESCAPED_QUOTE))
    ready = F.when(unmarked, marked).otherwise(F.when(~escaped, row))
    quick = F.when(F.octet_length(row) <= _QUICK_CHARACTERS, ready)
    prepared = written.rows.withColumn("row", written.row).withColumns({"escaped": escaped, "quick": quick})
    options = _QUICK | {"quote": quote, "nullValue": written.null}
    parsed = prepared.withColumn("cut", F.from_csv("quick", ", ".join(f"{n} STRING" for n in names), options))
    fields, fine, texts = [], F.lit(True), []
    for own, (name, mysql_type) in zip(names, columns, strict=True):
        family, value = TYPES[mysql_type.base].family, F.col("cut").getField(own)
        field, text, whole = written.part(family, value)
        fields.append(F.coalesce(field, F.lit(written.null)))
        fine = fine & F.coalesce(whole, F.lit(True))
        texts.append(_text(text, mysql_type, time_zone, raw=raw).alias(name))
    again = F.concat_ws(",", *fields) == F.col("quick")
    made = parsed.select(*written.rows.columns, F.struct(*texts).alias("values"), (again & fine).alias("plain"))
    plain = reduce(and_, _encoded(columns, raw=raw), F.coalesce(F.col("plain"), F.lit(False)))
    return made.withColumn("plain", plain)


class _Written(NamedTuple):
    """What the lines of a form hold.

    Attributes:
        rows: the lines of rows, `line`.
        row: what stands in one, without its brackets; NULL where it is no row.
        columns: in the order in which a row has their values.
        field: a pattern whose group is a value, with what stands around it.
        value: what makes a text of that.
        quote: what stands around a text.
        null: what stands for NULL.
        digits: whether bytes are written as `x'...'`.
    """

    rows: DataFrame
    row: Column
    columns: Columns
    field: str
    value: Callable[[Column], Column]
    quote: str
    null: str
    digits: bool = False

    def part(self, family: Family, value: Column) -> tuple[Column, Column, Column]:
        """Of a value that Spark's parser found: what stood in the line, the value's text, and whether that is sure."""
        if family in _NUMBERS:
            return value, value, F.lit(True)
        if self.digits and family in _BYTES:
            return value, F.substring(value, F.lit(3), F.length(value) - 3), value.rlike(_SQL_DIGITS)
        field = F.concat(F.lit(self.quote), value, F.lit(self.quote))
        text = value
        if family in _TEXTS | _BYTES:
            text = F.when(F.col("escaped"), self._unmarked(value)).otherwise(value)
        return field, text, ~value.contains(self.quote)

    def _unmarked(self, text: Column) -> Column:
        quoted = F.replace(_meant(text), F.lit(_ESCAPED_QUOTE), F.lit(self.quote))
        return F.replace(quoted, F.lit(_BACKSLASH), F.lit("\\"))


def _csv(store: Store, first: DumpFile, lines: DataFrame, columns: Columns) -> _Written:
    header = first_line(store, first, '"')
    named = _in_order([json.loads(f'"{n}"') for n in _csv_names(header)], columns, first.path)
    rows = _without_header(lines, header, named)
    return _Written(rows, F.col("line"), named, _CSV_FIELD, _csv_value, '"', r"\N")


def _sql(store: Store, first: DumpFile, lines: DataFrame, columns: Columns) -> _Written:
    named = _in_order(_insert_names(first_line(store, first, _INSERT), columns), columns, first.path)
    line = F.col("line")
    rows = lines.where(~(line.startswith(_INSERT) | line.startswith("/*") | (F.length(line) == 0)))
    whole = line.startswith("(") & (line.endswith("),") | line.endswith(");"))
    inner = F.when(whole, F.expr("substr(line, 2, length(line) - 3)"))
    return _Written(rows.select("line"), inner, named, _SQL_FIELD, _sql_value, "'", _NULL, digits=True)


_FORMS = {"dumpling-csv": _csv, "dumpling-sql": _sql}


def _csv_names(header: str) -> list[str]:
    return re.findall(r'"((?:[^"\\]|\\.)*)"', header)


def _insert_names(insert: str, columns: Columns) -> list[str]:
    """The columns that an INSERT names; one without names is about all."""
    told = _NAMED.match(insert)
    named = told and told[1]
    return [n.replace("``", "`") for n in _NAME.findall(named)] if named else [name for name, _ in columns]


def _in_order(names: Sequence[str], columns: Columns, path: str) -> list[tuple[str, MySQLType]]:
    types = {name.lower(): (name, t) for name, t in columns}
    if sorted(n.lower() for n in names) != sorted(types):
        raise DumpError(
            f"{path}: has the columns {', '.join(names) or 'of no header'}, and its schema file "
            f"{', '.join(n for n, _ in columns)}: dump with a header, and all columns of the table."
        )
    return [types[n.lower()] for n in names]


def _may_look_like_the_header(columns: Columns) -> bool:
    return all(TYPES[t.base].family in _TEXTS for _, t in columns)


def _without_header(lines: DataFrame, header: str, columns: Columns) -> DataFrame:
    """The lines of rows. Of a table of texts alone a row may look like the header: then it is one of several in its file."""
    rows = lines.where(F.col("line") != header).select("line")
    if not _may_look_like_the_header(columns):
        return rows
    alike = lines.where(F.col("line") == header).groupBy("file_path").count().where("count > 1")
    return rows.unionAll(alike.select(F.explode(F.array_repeat(F.lit(header), (F.col("count") - 1).cast("int")))))


def _csv_value(field: Column) -> Column:
    return _value(field, r"\N")


def _sql_value(field: Column) -> Column:
    return _value(field, _NULL)


def _value(field: Column, null: str) -> Column:
    """A value's text; of SQL's bytes their digits."""
    quoted = field.startswith('"') | field.startswith("'")
    inner = F.substring(field, F.lit(2), F.length(field) - 2)
    digits = F.substring(field, F.lit(3), F.length(field) - 3)
    plain = F.when(field != null, field)
    return F.when(quoted, _unescaped(inner)).when(field.startswith("x'"), digits).otherwise(plain)


def _unescaped(text: Column) -> Column:
    r"""What a text with escapes stands for. Between two backslashes that stand for one, each begins an escape."""
    parts = F.transform(F.split(text, r"\\\\", -1), _meant)
    return F.when(text.contains("\\"), F.array_join(parts, "\\")).otherwise(text)


def _meant(part: Column) -> Column:
    """What a text stands for in which no backslash is escaped."""
    for escape, character in _ESCAPED.items():
        part = F.replace(part, F.lit("\\" + escape), F.lit(character))
    return part


def _text(value: Column, mysql_type: MySQLType, time_zone: str, *, raw: bool) -> Column:
    """A value as `protocols.loaded` has it; `raw`: it is Latin-1 for the bytes of the file."""
    family = TYPES[mysql_type.base].family
    if family in _BYTES:
        digits = F.hex(F.encode(value, _LATIN)) if raw else F.upper(value)
        return F.conv(digits, 16, 10) if family is Family.BIT else digits
    if family in _TEXTS and raw:
        plain = ~value.rlike(r"[^\x00-\x7f]")
        return F.when(plain, value).otherwise(F.encode(value, _LATIN).cast("string"))
    if family is Family.TIMESTAMP and time_zone != "UTC":
        # A zero date is in no zone.
        zoned = F.concat(value, F.lit(" "), F.lit(time_zone)).try_cast("timestamp")
        return F.coalesce(F.date_format(zoned, _CLOCK), value)
    return value


def _parquet_rows(rows: DataFrame, columns: Columns, time_zone: str, path: str) -> DataFrame:
    named = _in_order(rows.columns, columns, path)
    kinds = [f.dataType for f in rows.schema]
    texts = [
        _parquet_text(F.col(quoted(own)), kind, t, time_zone).alias(name)
        for own, kind, (name, t) in zip(rows.columns, kinds, named, strict=True)
    ]
    return rows.select(F.struct(*texts).alias("values"), F.lit(None).cast(_BAD).alias("bad"))


def _parquet_text(value: Column, kind: DataType, mysql_type: MySQLType, time_zone: str) -> Column:
    """A typed value as `protocols.loaded` has it."""
    family = TYPES[mysql_type.base].family
    if isinstance(kind, BinaryType) and family not in _BYTES:
        value = value.cast("string")
    elif isinstance(kind, BinaryType):
        return _text(F.hex(value), mysql_type, time_zone, raw=False)
    elif isinstance(kind, BooleanType):
        value = value.cast("int").cast("string")
    elif isinstance(kind, TimestampType):
        return F.date_format(value, _CLOCK)  # an instant
    elif isinstance(kind, TimestampNTZType):
        value = F.date_format(value, _CLOCK)
    else:
        value = value.cast("string")
    # Digits of bytes and bits stand in text files alone.
    return value if family in _BYTES else _text(value, mysql_type, time_zone, raw=False)
