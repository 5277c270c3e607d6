"""The files of a dump: which tables it has, in which files, and at which position it was taken. Without Spark.

Dumpling writes `<database>.<table>-schema.sql` with the CREATE TABLE, `<database>.<table>.<number>.csv` or `.sql` with rows,
and `metadata` with the position. In names it writes what a file's name cannot hold, and every dot, as %XX.
"""

import gzip
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from cdc_assets.storage import Store

Name = tuple[str, str]  # database, table

_SCHEMA = re.compile(r"(?P<database>[^.]+)\.(?P<table>[^.]+)-schema\.sql(?:\.gz)?")
_ROWS = re.compile(r"(?P<database>[^.]+)\.(?P<table>[^.]+?)(?:\.[0-9]+)?\.(?P<kind>csv|sql|parquet)(?P<packed>\.\w+)?")
# `<table>-schema-view.sql` and the like: what they make holds no rows of its own.
_NO_ROWS = re.compile(r"[^.]+(?:\.[^.]+)?-schema(?:-[a-z]+)?\.sql(?:\.\w+)?")
_WITHOUT_ROWS = re.compile(r"(?P<database>[^.]+)\.(?P<table>[^.]+)-schema-(?:view|sequence)\.sql(?:\.\w+)?")
_KINDS = {"dumpling-csv": "csv", "dumpling-sql": "sql", "parquet": "parquet"}
_STATUS = re.compile(r"SHOW MASTER STATUS:\s*\n\s*Log:\s*(?P<log>\S+)\s*\n\s*Pos:\s*(?P<position>[0-9]+)")
_TSO_LOG = "tidb-binlog"  # what TiDB calls the binlog that it does not have


class DumpError(RuntimeError):
    """A dump cannot be loaded; the message says why, and what to do."""


@dataclass(frozen=True)
class DumpFile:
    """A file with rows: its URI, and its size in bytes."""

    path: str
    size: int


@dataclass(frozen=True)
class DumpedTable:
    """A table of a dump: its CREATE TABLE, and the files with its rows, by name."""

    database: str
    table: str
    statement: str
    files: list[DumpFile] = field(default_factory=list)


def dumped_tables(store: Store, place: str, form: str) -> dict[Name, DumpedTable]:
    """The tables of the dump in a folder.

    Args:
        store: how it is reached.
        place: a folder, or its URI.
        form: as `format` in the feeds file.

    Raises:
        DumpError: there is no such folder, or a file in it cannot be told.
    """
    files, base = store.files(place)
    if files.get_file_info(base).type != FileType.Directory:
        raise DumpError(f"{place}: there is no such folder.")
    listed = sorted(
        (i for i in files.get_file_info(FileSelector(base)) if i.type == FileType.File), key=lambda i: i.base_name
    )
    found: dict[Name, DumpedTable] = {}
    views = {_name(told) for i in listed if (told := _WITHOUT_ROWS.fullmatch(i.base_name))}
    for info in listed:
        if (told := _SCHEMA.fullmatch(info.base_name)) and _name(told) not in views:
            found[_name(told)] = DumpedTable(*_name(told), _statement(files, info))
    rows: dict[Name, list[DumpFile]] = {}
    for info in listed:
        told = _ROWS.fullmatch(info.base_name)
        if told is not None and told["kind"] == _KINDS[form] and not _NO_ROWS.fullmatch(info.base_name):
            if _name(told) not in found:
                missing = f"{'.'.join(_name(told))}-schema.sql"
                raise DumpError(f"{info.path}: there is no {missing} beside it, which tells the types.")
            _check(files, info, form, told["packed"])
            rows.setdefault(_name(told), []).append(DumpFile(_uri(place, info), info.size))
    return {name: replace(table, files=rows.get(name, [])) for name, table in found.items()}


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
    told = _STATUS.search(_read(files, path).decode("utf-8", "replace"))
    if told is None:
        raise DumpError(f"{place}/metadata: tells no position; {more}.")
    if told["log"] != _TSO_LOG:
        raise DumpError(
            f"{place}/metadata: the dump is of a MySQL server, at {told['log']}:{told['position']} of its binlog, which "
            f"cannot be compared with the TSOs of this feed; {more}."
        )
    return int(told["position"])


def first_line(store: Store, file: DumpFile, wanted: str) -> str:
    """The first line of a file that begins so, "" where there is none among its first 64 KiB."""
    files, path = store.files(file.path)
    with files.open_input_stream(path, compression="gzip" if path.endswith(".gz") else None) as stream:
        head = bytes(stream.read(1 << 16))
    lines: Iterable[str] = head.decode("utf-8", "replace").splitlines()
    return next((line for line in lines if line.startswith(wanted)), "")


def _name(told: re.Match[str]) -> Name:
    return unquote(told["database"]), unquote(told["table"])


def _uri(place: str, info: FileInfo) -> str:
    return f"{place.rstrip('/')}/{info.base_name}"


def _read(files: FileSystem, path: str) -> bytes:
    with files.open_input_file(path) as source:
        return bytes(source.read())


def _statement(files: FileSystem, info: FileInfo) -> str:
    """The CREATE TABLE of a schema file, without the settings that stand before it."""
    data = _read(files, info.path)
    text = (gzip.decompress(data) if info.path.endswith(".gz") else data).decode("utf-8", "replace")
    at = re.search(r"^CREATE\s", text, re.MULTILINE | re.IGNORECASE)
    if at is None:
        raise DumpError(f"{info.path}: holds no CREATE TABLE.")
    return text[at.start() :].rstrip().removesuffix(";")


def _check(files: FileSystem, info: FileInfo, form: str, packed: str | None) -> None:
    """Fail where a file cannot be read, or its end is missing: its last line has none."""
    if packed not in (None, ".gz") or (packed and form == "parquet"):
        raise DumpError(f"{info.path}: packed as {packed}; .gz can be read, and files that are not packed.")
    if packed or form == "parquet":
        return
    with files.open_input_file(info.path) as source:
        source.seek(max(0, info.size - 4))
        end = bytes(source.read())
    if end and not (end.endswith(b"\n") and (form != "dumpling-sql" or end.rstrip().endswith(b";"))):
        raise DumpError(f"{info.path}: its end is missing: copy the dump anew.")
