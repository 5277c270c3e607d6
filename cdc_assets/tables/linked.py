"""Where deltalake finds a local table whose path has a `%`, as that of a history table with an unusual name.

Since its version 1.2 it decodes such a path once too often: it looks for what is in `a%2Eb` at `a.b`, however the path is
written (tried up to 1.6.6; a link to the folder is followed first). So it is given a folder with a link to the log.
"""

import contextlib
import hashlib
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory


def deltalake_place(path: str, *, rows: bool = False) -> str:
    """The path to give to deltalake for the table at `path`; it has the table's log and deletion vectors.

    Args:
        path: the table's.
        rows: whether it is to have the table's rows, too.
    """
    if "%" not in path or not path.startswith("/"):
        return path
    table, linked = Path(path), Path(_folder().name, hashlib.sha256(path.encode()).hexdigest())
    linked.mkdir(exist_ok=True)
    for name in ("_delta_log", *(found.name for found in table.glob("*" if rows else "deletion_vector_*"))):
        with contextlib.suppress(FileExistsError):
            (linked / name).symlink_to(table / name)
    return str(linked)


def make_log_folder(path: str) -> None:
    """Before deltalake creates a table at `deltalake_place(path)`: a link to what is not there leads nowhere."""
    if deltalake_place(path) != path:
        Path(path, "_delta_log").mkdir(parents=True, exist_ok=True)


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="cdc-assets-")
