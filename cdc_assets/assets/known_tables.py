"""The history tables of each feed, as its last run left them: what definitions are made of, without the lakehouse.

One small file a feed, in the folder `CDC_STATE`, else `.cdc_state` beside the feeds file: not in the lakehouse, which may be
an object store, and not in Dagster's home, which `dagster job execute` need not have; but beside what is read anyway to know
the feeds. Where the code location and the runs are on different machines it has to be a folder that they share.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dagster import AssetExecutionContext, OpExecutionContext

from cdc_assets.config import feeds_path
from cdc_assets.history.progress import read_progress
from cdc_assets.lakehouse.lakehouse import Lakehouse

# The code location's name in workspace.yaml.
_LOCATION = "cdc_assets"
_SECONDS = 60


@dataclass(frozen=True)
class KnownTables:
    """What the file of a feed says.

    Attributes:
        root: the lakehouse that it was found in.
        release: the last one, if all histories had it then but those that are blocked; 0: others had not.
        tables: the (database, table) pairs that have a history, by name.
        blocked: those that could not be written, and wait.
    """

    root: str
    release: int
    tables: tuple[tuple[str, str], ...]
    blocked: tuple[tuple[str, str], ...] = ()


def known_tables(root: str, feed: str) -> tuple[tuple[str, str], ...]:
    """The history tables of a feed below `root` that its last run left; none as long as nothing is known."""
    known = _read(state_file(feed))
    return known.tables if known is not None and known.root == root else ()


def refresh(context: AssetExecutionContext | OpExecutionContext, lake: Lakehouse) -> tuple[tuple[str, str], ...]:
    """See whether tables have come or gone, if anything was released since it was last seen; tell the web server of them.

    A run never fails by it: what cannot be written or told is a warning in its log.

    Returns:
        The history tables that there are.
    """
    progress, known = read_progress(lake), _read(state_file(lake.feed))
    blocked = tuple(sorted((hold.database, hold.table) for hold in progress.holds)) if progress else ()
    release = progress.release if progress and progress.behind == set(blocked) else 0
    known = known if known is not None and known.root == lake.root else None
    if known is not None and known.release == release > 0 and known.blocked == blocked:
        return known.tables
    found = KnownTables(lake.root, release, tuple(lake.histories()), blocked)
    if found == known:
        return found.tables
    try:
        _write(state_file(lake.feed), found)
    except OSError as error:
        context.log.warning(f"{lake.feed}: the list of its tables could not be kept: {error}")
        return found.tables
    if found.tables != (known.tables if known else ()):
        _tell(context, lake.feed)
    return found.tables


def _tell(context: AssetExecutionContext | OpExecutionContext, feed: str) -> None:
    """Have the web server at `CDC_WEBSERVER` load the definitions anew."""
    if not (address := os.environ.get("CDC_WEBSERVER")):
        return
    # Which a process that has nothing to tell need not load.
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
        done = client.reload_repository_location(location)
    except Exception as error:  # noqa: BLE001 -- whatever it is, the run has done its work
        context.log.warning(f"{feed}: the web server at {address} was not told of new tables: {error}")
        return
    if done.status == ReloadRepositoryLocationStatus.FAILURE:
        context.log.warning(f"{feed}: the web server at {address} did not load {location} anew: {done.message}")
    else:
        context.log.info(f"{feed}: tables came or went, and the web server at {address} knows them")


def state_file(feed: str) -> Path:
    """The file of a feed."""
    folder = os.environ.get("CDC_STATE")
    return (Path(folder) if folder else feeds_path().parent / ".cdc_state") / f"{feed}.json"


def _read(path: Path) -> KnownTables | None:
    """What is known; None when there is nothing that can be used."""
    try:
        said = json.loads(path.read_text())
        return KnownTables(str(said["root"]), int(said["release"]), _pairs(said["tables"]), _pairs(said["blocked"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _pairs(said: Sequence[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((str(database), str(table)) for database, table in said)


def _write(path: Path, known: KnownTables) -> None:
    write_whole(path, json.dumps(asdict(known), ensure_ascii=False))


def write_whole(path: Path, text: str) -> None:
    """Write a file, its folder too, so that a reader sees all of it or what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.{os.getpid()}")
    made.write_text(text, "utf-8")
    made.replace(path)
