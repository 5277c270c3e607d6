"""The files of a dump: which tables it has, in which files, and at which position it was taken. Without Spark.

Dumpling writes `<database>.<table>-schema.sql` with the CREATE TABLE, `<database>.<table>.<number>.csv` or `.sql` with rows,
and `metadata` with the position. In names it writes what a file's name cannot hold, and every dot, as %XX.
"""

import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pyarrow import ArrowException, parquet
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from cdc_assets.stores.storage import Store

Name = tuple[str, str]  # database, table

_SCHEMA = re.compile(r"(?P<database>[^.]+)\.(?P<table>.+)-schema\.sql(?P<packed>\.\w+)?")
_ROWS = re.compile(r"(?P<database>[^.]+)\.(?P<table>.+?)(?:\.[0-9]+)?\.(?P<kind>csv|sql|parquet)(?P<packed>\.\w+)?")
# `<table>-schema-view.sql` and the like: what they make holds no rows of its own.
_NO_ROWS = re.compile(r"[^.]+(?:\..+)?-schema(?:-[a-z]+)?\.sql(?:\.\w+)?")
_WITHOUT_ROWS = re.compile(r"(?P<database>[^.]+)\.(?P<table>.+)-schema-(?:view|sequence)\.sql(?:\.\w+)?")
_KINDS = {"dumpling-csv": "csv", "dumpling-sql": "sql", "parquet": "parquet"}
_STATUS = re.compile(r"SHOW MASTER STATUS:\s*\n\s*Log:\s*(?P<log>\S+)\s*\n\s*Pos:\s*(?P<position>[0-9]+)")
_TSO_LOG = "tidb-binlog"  # what TiDB calls the binlog that it does not have
_UNREADABLE = (OSError, EOFError, zlib.error, ArrowException)
_CHUNK = 1 << 20
_AT_ONCE = 16  # files that are looked at: of a store that is far away each is a round trip or two


class DumpError(RuntimeError):
    """A dump cannot be loaded; the message says why, and what to do."""


@dataclass(frozen=True)
class DumpFile:
    """A file with rows: its URI, its size in bytes, and when it was written, in nanoseconds (0: nobody knows)."""

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
        files: with its rows, by name.
        damage: what is wrong with one of its files, as far as that shows without reading the rows; "": nothing.
    """

    database: str
    table: str
    statement: str = ""
    files: list[DumpFile] = field(default_factory=list)
    damage: str = ""


def dumped_tables(store: Store, place: str, form: str) -> dict[Name, DumpedTable]:
    """The tables of the dump in a folder.

    Args:
        store: how it is reached.
        place: a folder, or its URI.
        form: as `format` in the feeds file.

    Raises:
        DumpError: there is no such folder.
    """
    files, base = store.files(place)
    if files.get_file_info(base).type != FileType.Directory:
        raise DumpError(f"{place}: there is no such folder.")
    listed = sorted(
        (i for i in files.get_file_info(FileSelector(base)) if i.type == FileType.File), key=lambda i: i.base_name
    )
    views = {_name(told) for i in listed if (told := _WITHOUT_ROWS.fullmatch(i.base_name))}
    schemas: dict[Name, FileInfo] = {}
    rows: dict[Name, list[FileInfo]] = {}
    for info in listed:
        if (told := _SCHEMA.fullmatch(info.base_name)) and _name(told) not in views:
            schemas[_name(told)] = info
        told = _ROWS.fullmatch(info.base_name)
        if told is not None and told["kind"] == _KINDS[form] and not _NO_ROWS.fullmatch(info.base_name):
            rows.setdefault(_name(told), []).append(info)
    found = {}
    names = schemas.keys() | rows.keys()
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        statements = {n: pool.submit(_statement, files, place, n, schemas.get(n)) for n in names}
        checks = {n: [pool.submit(_check, files, _uri(place, i), i, form) for i in rows.get(n, [])] for n in names}
    for name in names:
        mine, statement, damage = rows.get(name, []), "", ""
        try:
            statement = statements[name].result()
            for check in checks[name]:
                check.result()
        except DumpError as error:
            damage = str(error)
        told_files = [DumpFile(_uri(place, i), i.size, i.mtime_ns or 0) for i in mine]
        found[name] = DumpedTable(*name, statement, told_files, damage)
    return found


def dumped_at(store: Store, place: str) -> int:
    """The TSO that a dump was taken at, as its `metadata` file has it.

    Raises:
        DumpError: there is no such file, or it tells no TSO.
    """
    files, base = store.files(place)
    path = f"{base}/metadata"
    more = "give initial_load a position:, the TSO that the dump was taken at"
    if files.get_file_info(path).type != FileType.File:
        raise DumpError(f"{place}: has no file metadata; {more}.")
    text = _read(files, path).decode("utf-8", "replace")
    told = _STATUS.search(text)
    if told is None:
        raise DumpError(f"{place}/metadata: tells no position; {more}.")
    if told["log"] != _TSO_LOG:
        raise DumpError(
            f"{place}/metadata: the dump is of a MySQL server, at {told['log']}:{told['position']} of its binlog, which "
            f"cannot be compared with the TSOs of this feed; {more}."
        )
    return int(told["position"])


def first_line(store: Store, file: DumpFile, wanted: str) -> str:
    """The first line of a file that begins so, "" where there is none among its first 64 KiB.

    Raises:
        DumpError: it cannot be read.
    """
    try:
        with _unpacked(*store.files(file.path)) as stream:
            head = bytes(stream.read(1 << 16))
    except _UNREADABLE as error:
        raise DumpError(_broken(file.path, error)) from error
    lines: Iterable[str] = head.decode("utf-8", "replace").splitlines()
    return next((line for line in lines if line.startswith(wanted)), "")


def unreadable(store: Store, form: str, files: Iterable[DumpFile]) -> str:
    """Which file of several cannot be read to its end, and why; "": all can."""
    for file in files:
        system, path = store.files(file.path)
        try:
            if form == "parquet":
                with system.open_input_file(path) as source:
                    for _ in parquet.ParquetFile(source).iter_batches():
                        pass
            else:
                with _unpacked(system, path) as stream:
                    while stream.read(_CHUNK):
                        pass
        except _UNREADABLE as error:
            return _broken(file.path, error)
    return ""


def line_number(store: Store, files: Iterable[DumpFile], checksum: int) -> tuple[str, int]:
    """Where the first line with this CRC-32 stands: the file, and the line's number in it from 1. One of them has it."""
    for file in files:
        with _unpacked(*store.files(file.path)) as stream:
            # One character a byte; and lines end as they do for Spark.
            lines: Iterator[str] = io.TextIOWrapper(stream, "latin-1", newline=None)
            for number, line in enumerate(lines, start=1):
                if zlib.crc32(line.removesuffix("\n").encode("latin-1")) == checksum:
                    return file.path, number
    raise DumpError("a line that was there a moment ago is gone: run again.")


def _name(told: re.Match[str]) -> Name:
    return unquote(told["database"]), unquote(told["table"])


def _uri(place: str, info: FileInfo) -> str:
    return f"{place.rstrip('/')}/{info.base_name}"


def _read(files: FileSystem, path: str) -> bytes:
    with files.open_input_file(path) as source:
        return bytes(source.read())


def _unpacked(files: FileSystem, path: str) -> Any:  # noqa: ANN401 -- pyarrow's streams have no types
    return files.open_input_stream(path, compression="gzip" if path.endswith(".gz") else None)


def _broken(path: str, error: BaseException) -> str:
    told = str(error).strip().split("\n", 1)[0]
    return f"{path}: cannot be read ({told}): copy it anew, or let this process read it."


def _statement(files: FileSystem, place: str, name: Name, info: FileInfo | None) -> str:
    """The CREATE TABLE of a schema file, without the settings that stand before it."""
    if info is None:
        missing = f"{'.'.join(name)}-schema.sql"
        raise DumpError(f"{place}: has no {missing}, which tells the types, beside the rows: copy it there.")
    _check_packing(_uri(place, info), _SCHEMA.fullmatch(info.base_name))
    try:
        data = _read(files, info.path)
        text = (gzip.decompress(data) if info.path.endswith(".gz") else data).decode("utf-8", "replace")
    except _UNREADABLE as error:
        raise DumpError(_broken(_uri(place, info), error)) from error
    at = re.search(r"^CREATE\s", text, re.MULTILINE | re.IGNORECASE)
    if at is None:
        raise DumpError(f"{_uri(place, info)}: holds no CREATE TABLE: copy it anew.")
    return text[at.start() :].rstrip().removesuffix(";")


def _check(files: FileSystem, uri: str, info: FileInfo, form: str) -> None:
    """Fail where a file cannot be read, or its end is missing: its last line has none."""
    packed = _check_packing(uri, _ROWS.fullmatch(info.base_name), form)
    try:
        with files.open_input_file(info.path) as source:
            source.seek(max(0, info.size - 4))
            end = bytes(source.read())
    except _UNREADABLE as error:
        raise DumpError(_broken(uri, error)) from error
    if packed or form == "parquet":
        return
    if end and not (end.endswith(b"\n") and (_KINDS[form] != "sql" or end.rstrip().endswith(b";"))):
        raise DumpError(f"{uri}: its end is missing: copy it anew.")


def _check_packing(uri: str, told: re.Match[str] | None, form: str = "") -> bool:
    """Whether a file is packed, by its name; fail where it is in a way that cannot be read."""
    packed = told and told["packed"]
    if packed not in (None, ".gz") or (packed and form == "parquet"):
        raise DumpError(f"{uri}: packed as {packed}; .gz can be read, and files that are not packed.")
    return bool(packed)
