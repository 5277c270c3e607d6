"""The list of a feed's history tables, from which Dagster loads the definitions without reading the lakehouse.

Each run writes the list to one small file a feed, in the folder `CDC_STATE`, else in `.cdc_state` beside the feeds
file. The file is not in the lakehouse, because listing an object store is slow, and not in Dagster's home, because
`dagster job execute` works without one. If the code location and the runs are on different machines, they must share
the folder.
"""

import os
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
from pydantic import BaseModel

from cdc_assets.config import feeds_path
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages.history.progress_file import read_progress

# The code location's name in workspace.yaml.
_LOCATION = "cdc_assets"
_SECONDS = 60


class TableList(BaseModel):
    """The contents of a feed's file.

    Attributes:
        root: the root of the lakehouse that has the tables.
        release: the last release, if all histories but the blocked ones had applied it; otherwise 0.
        tables: the (database, table) pairs that have a history, sorted.
        blocked: the (database, table) pairs that are blocked because they could not be written.
    """

    root: str
    release: int
    tables: tuple[tuple[str, str], ...]
    blocked: tuple[tuple[str, str], ...]


def read_table_list(root: str, feed: str) -> tuple[tuple[str, str], ...]:
    """Return the history tables of a feed below `root` after its last run; none if no file lists them."""
    listed = _read(build_state_path(feed))
    return listed.tables if listed is not None and listed.root == root else ()


def refresh_table_list(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, lake: Lakehouse
) -> tuple[tuple[str, str], ...]:
    """List the history tables again if something was released since the last list, and write the file.

    If tables appeared or disappeared, the web server reloads the definitions. A failure is a warning in the log and
    never fails the run, which has done its work.

    Returns:
        The history tables, (database, table) pairs.
    """
    progress, listed = read_progress(lake), _read(build_state_path(lake.feed))
    blocked = tuple(sorted((hold.database, hold.table) for hold in progress.holds)) if progress else ()
    release = progress.release if progress and progress.behind == set(blocked) else 0
    listed = listed if listed is not None and listed.root == lake.root else None
    if listed is not None and listed.release == release > 0 and listed.blocked == blocked:
        return listed.tables
    current = TableList(root=lake.root, release=release, tables=tuple(lake.histories()), blocked=blocked)
    if current == listed:
        return current.tables
    try:
        write_atomically(build_state_path(lake.feed), current.model_dump_json())
    except OSError as error:
        context.log.warning(f"{lake.feed}: the list of its tables could not be written: {error}")
        return current.tables
    if current.tables != (listed.tables if listed else ()):
        _reload_definitions(context, lake.feed)
    return current.tables


def _reload_definitions(context: dg.AssetExecutionContext | dg.OpExecutionContext, feed: str) -> None:
    """Make the web server at `CDC_WEBSERVER` reload the definitions."""
    if not (address := os.environ.get("CDC_WEBSERVER")):
        return
    # Import late: most processes do not reload definitions, and the import is slow.
    from dagster_graphql import DagsterGraphQLClient, ReloadRepositoryLocationStatus  # noqa: PLC0415

    origin, url = context.run.remote_job_origin, urlsplit(address)
    location = origin.location_name if origin else _LOCATION
    try:
        client = DagsterGraphQLClient(
            url.hostname or "",
            port_number=url.port,
            use_https=url.scheme == "https",
            timeout=_SECONDS,
            path_prefix=url.path.rstrip("/"),
        )
        answer = client.reload_repository_location(location)
    except Exception as error:  # noqa: BLE001 -- the run has done its work, whatever fails here
        context.log.warning(
            f"{feed}: the web server at {address} did not answer: reload the definitions in the UI: {error}"
        )
        return
    if answer.status == ReloadRepositoryLocationStatus.FAILURE:
        context.log.warning(f"{feed}: the web server at {address} could not reload {location}: {answer.message}")
    else:
        context.log.info(f"{feed}: history tables appeared or disappeared; {address} reloaded the definitions")


def build_state_path(feed: str) -> Path:
    """Return the path of a feed's file."""
    folder = os.environ.get("CDC_STATE")
    return (Path(folder) if folder else feeds_path().parent / ".cdc_state") / f"{feed}.json"


def _read(path: Path) -> TableList | None:
    """Return the contents of a file; None if it is missing or not usable."""
    try:
        return TableList.model_validate_json(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def write_atomically(path: Path, text: str) -> None:
    """Write a file, and its folder if needed, so that a reader sees either the old or the complete new contents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, "utf-8")
    temporary.replace(path)
