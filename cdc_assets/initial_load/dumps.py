"""The files of a dump: which tables it has, in which files, and at which position it was taken. Needs no Spark.

Dumpling writes `<database>.<table>-schema.sql` with the CREATE TABLE, `<database>.<table>.<number>.csv` or `.sql` with rows,
and `metadata` with the position. In a name it writes every dot, and what a file's name cannot hold, as %XX.
"""

import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pyarrow import ArrowException, parquet
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from cdc_assets.stores.storage import Store

Name = tuple[str, str]  # database, table

_SCHEMA_FILE = re.compile(r"(?P<database>[^.]+)\.(?P<table>.+)-schema\.sql(?P<compression>\.\w+)?")
_ROW_FILE = re.compile(
    r"(?P<database>[^.]+)\.(?P<table>.+?)(?:\.[0-9]+)?\.(?P<kind>csv|sql|parquet)(?P<compression>\.\w+)?"
)
# Every file without rows whose name looks like that of a file with rows: schemas of databases, tables, views, sequences.
_ANY_SCHEMA_FILE = re.compile(r"[^.]+(?:\..+)?-schema(?:-[a-z]+)?\.sql(?:\.\w+)?")
# Dumpling writes a table's schema file for a view and a sequence, too; they have no rows of their own.
_ROWLESS_SCHEMA_FILE = re.compile(r"(?P<database>[^.]+)\.(?P<table>.+)-schema-(?:view|sequence)\.sql(?:\.\w+)?")
_KINDS = {"dumpling-csv": "csv", "dumpling-sql": "sql", "parquet": "parquet"}
_MASTER_STATUS = re.compile(r"SHOW MASTER STATUS:\s*\n\s*Log:\s*(?P<log>\S+)\s*\n\s*Pos:\s*(?P<position>[0-9]+)")
_TIDB_LOG = "tidb-binlog"  # what TiDB names in place of a binlog file, which it does not have
_READ_ERRORS = (OSError, EOFError, zlib.error, ArrowException)
_CHUNK_BYTES = 1 << 20
_FIRST_BYTES = 1 << 16
_THREADS = 16  # each file of an object store costs a round trip or two


class DumpError(RuntimeError):
    """A dump cannot be loaded; the message says why, and what to do."""


@dataclass(frozen=True)
class DumpFile:
    """A file with rows.

    Attributes:
        path: its URI.
        size: in bytes.
        modified: when it was written, in nanoseconds since the epoch; 0: the store does not say.
    """

    path: str
    size: int
    modified: int = 0


@dataclass(frozen=True)
class DumpedTable:
    """A table of a dump.

    Attributes:
        database: its database.
        table: its name.
        statement: its CREATE TABLE; "" where that cannot be read.
        files: the files with its rows, sorted by name.
        damage: what is wrong with one of its files, as far as this shows without reading the rows; "": nothing.
    """

    database: str
    table: str
    statement: str = ""
    files: list[DumpFile] = field(default_factory=list)
    damage: str = ""


def find_dumped_tables(store: Store, folder: str, dump_format: str) -> dict[Name, DumpedTable]:
    """Return the tables of the dump in a folder.

    Args:
        store: how the folder is reached.
        folder: its path or URI.
        dump_format: as `format` in the feeds file.

    Raises:
        DumpError: there is no such folder.
    """
    files, base = store.files(folder)
    if files.get_file_info(base).type != FileType.Directory:
        raise DumpError(f"{folder}: there is no such folder.")
    listed = sorted(
        (i for i in files.get_file_info(FileSelector(base)) if i.type == FileType.File), key=lambda i: i.base_name
    )
    schema_files = _find_schema_files(listed)
    row_files = _find_row_files(listed, _KINDS[dump_format])
    names = schema_files.keys() | row_files.keys()
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        statements = {
            name: pool.submit(_read_create_table, files, folder, name, schema_files.get(name)) for name in names
        }
        checks = {
            name: [
                pool.submit(_check_end, files, _file_uri(folder, info), info, dump_format)
                for info in row_files.get(name, [])
            ]
            for name in names
        }
    return {name: _make_table(name, folder, row_files.get(name, []), statements[name], checks[name]) for name in names}


def _find_schema_files(listed: Sequence[FileInfo]) -> dict[Name, FileInfo]:
    """Return the schema file of each table, without those of views and sequences."""
    rowless = {_table_name(match) for info in listed if (match := _ROWLESS_SCHEMA_FILE.fullmatch(info.base_name))}
    schema_files = {_table_name(match): info for info in listed if (match := _SCHEMA_FILE.fullmatch(info.base_name))}
    return {name: info for name, info in schema_files.items() if name not in rowless}


def _find_row_files(listed: Sequence[FileInfo], kind: str) -> dict[Name, list[FileInfo]]:
    """Return the files of a kind that have rows, by table."""
    row_files: dict[Name, list[FileInfo]] = {}
    for info in listed:
        match = _ROW_FILE.fullmatch(info.base_name)
        if match is not None and match["kind"] == kind and not _ANY_SCHEMA_FILE.fullmatch(info.base_name):
            row_files.setdefault(_table_name(match), []).append(info)
    return row_files


def _make_table(
    name: Name, folder: str, row_files: list[FileInfo], statement: Future[str], checks: Iterable[Future[None]]
) -> DumpedTable:
    """Return a table; a failure of `statement` or of one of `checks` is its damage."""
    create_table, damage = "", ""
    try:
        create_table = statement.result()
        for check in checks:
            check.result()
    except DumpError as error:
        damage = str(error)
    files = [DumpFile(_file_uri(folder, info), info.size, info.mtime_ns or 0) for info in row_files]
    return DumpedTable(*name, create_table, files, damage)


def read_dump_position(store: Store, folder: str) -> int:
    """Return the TSO at which a dump was taken, from its `metadata` file.

    Raises:
        DumpError: there is no such file, or it states no TSO.
    """
    files, base = store.files(folder)
    path = f"{base}/metadata"
    advice = "give initial_load a position:, the TSO that the dump was taken at"
    if files.get_file_info(path).type != FileType.File:
        raise DumpError(f"{folder}: has no file metadata; {advice}.")
    status = _MASTER_STATUS.search(_read_file(files, path).decode("utf-8", "replace"))
    if status is None:
        raise DumpError(f"{folder}/metadata: has no position; {advice}.")
    if status["log"] != _TIDB_LOG:
        raise DumpError(
            f"{folder}/metadata: the dump is of a MySQL server, at {status['log']}:{status['position']} of its binlog, "
            f"which cannot be compared with the TSOs of this feed; {advice}."
        )
    return int(status["position"])


def read_line(store: Store, file: DumpFile, prefix: str) -> str:
    """Return the first line of a file that begins with `prefix`; "": the first 64 KiB have none.

    Raises:
        DumpError: the file cannot be read.
    """
    try:
        with _open_decompressed(*store.files(file.path)) as stream:
            head = bytes(stream.read(_FIRST_BYTES))
    except _READ_ERRORS as error:
        raise DumpError(_unreadable_message(file.path, error)) from error
    lines: Iterable[str] = head.decode("utf-8", "replace").splitlines()
    return next((line for line in lines if line.startswith(prefix)), "")


def find_damage(store: Store, dump_format: str, files: Iterable[DumpFile]) -> str:
    """Return a message about the first file that cannot be read to its end; "": all files can be read."""
    for file in files:
        system, path = store.files(file.path)
        try:
            if dump_format == "parquet":
                with system.open_input_file(path) as source:
                    for _ in parquet.ParquetFile(source).iter_batches():
                        pass
            else:
                with _open_decompressed(system, path) as stream:
                    while stream.read(_CHUNK_BYTES):
                        pass
        except _READ_ERRORS as error:
            return _unreadable_message(file.path, error)
    return ""


def find_line(store: Store, files: Iterable[DumpFile], checksum: int) -> tuple[str, int]:
    """Return where the first line with this CRC-32 is: the file, and the line's number in it, from 1.

    Raises:
        DumpError: no file has it any more.
    """
    for file in files:
        with _open_decompressed(*store.files(file.path)) as stream:
            # Latin-1 has one character a byte; line ends are those that Spark splits at.
            lines: Iterator[str] = io.TextIOWrapper(stream, "latin-1", newline=None)
            for number, line in enumerate(lines, start=1):
                if zlib.crc32(line.removesuffix("\n").encode("latin-1")) == checksum:
                    return file.path, number
    raise DumpError("The dump's files changed while they were read: run again.")


def _table_name(match: re.Match[str]) -> Name:
    return unquote(match["database"]), unquote(match["table"])


def _file_uri(folder: str, info: FileInfo) -> str:
    return f"{folder.rstrip('/')}/{info.base_name}"


def _read_file(files: FileSystem, path: str) -> bytes:
    with files.open_input_file(path) as source:
        return bytes(source.read())


def _open_decompressed(files: FileSystem, path: str) -> Any:  # noqa: ANN401 -- pyarrow's streams have no types
    return files.open_input_stream(path, compression="gzip" if path.endswith(".gz") else None)


def _unreadable_message(path: str, error: BaseException) -> str:
    cause = str(error).strip().split("\n", 1)[0]
    return f"{path}: cannot be read ({cause}): copy it again, or give this process the right to read it."


def _read_create_table(files: FileSystem, folder: str, name: Name, info: FileInfo | None) -> str:
    """Return the CREATE TABLE of a schema file, without the settings before it."""
    if info is None:
        missing = f"{'.'.join(name)}-schema.sql"
        raise DumpError(f"{folder}: has no {missing}, which states the types of the columns: copy it there.")
    uri = _file_uri(folder, info)
    _check_compression(uri, _SCHEMA_FILE.fullmatch(info.base_name))
    try:
        data = _read_file(files, info.path)
        text = (gzip.decompress(data) if info.path.endswith(".gz") else data).decode("utf-8", "replace")
    except _READ_ERRORS as error:
        raise DumpError(_unreadable_message(uri, error)) from error
    start = re.search(r"^CREATE\s", text, re.MULTILINE | re.IGNORECASE)
    if start is None:
        raise DumpError(f"{uri}: has no CREATE TABLE: copy it again.")
    return text[start.start() :].rstrip().removesuffix(";")


def _check_end(files: FileSystem, uri: str, info: FileInfo, dump_format: str) -> None:
    """Fail if a file cannot be read, or is cut: the last line of an uncut file has a line end."""
    is_compressed = _check_compression(uri, _ROW_FILE.fullmatch(info.base_name), dump_format)
    try:
        with files.open_input_file(info.path) as source:
            source.seek(max(0, info.size - 4))
            end = bytes(source.read())
    except _READ_ERRORS as error:
        raise DumpError(_unreadable_message(uri, error)) from error
    if is_compressed or dump_format == "parquet":
        return
    if end and not (end.endswith(b"\n") and (_KINDS[dump_format] != "sql" or end.rstrip().endswith(b";"))):
        raise DumpError(f"{uri}: its end is missing: copy it again.")


def _check_compression(uri: str, match: re.Match[str] | None, dump_format: str = "") -> bool:
    """Return whether a file is compressed, by its name; fail if it is compressed in a way that cannot be read."""
    compression = match and match["compression"]
    if compression not in (None, ".gz") or (compression and dump_format == "parquet"):
        readable = "no compression" if dump_format == "parquet" else ".gz or no compression"
        raise DumpError(f"{uri}: is compressed as {compression}, which cannot be read: use {readable}.")
    return bool(compression)
