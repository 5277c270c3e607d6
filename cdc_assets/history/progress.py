"""How far the histories of a feed are, as a hint: one small file, so that a run need not ask each table.

The tables' own cursors are the truth. A hint that is missing or damaged is made again of them; one that is behind them
costs a look at a table for nothing.
"""

import json
from dataclasses import dataclass, field

from cdc_assets.storage import make_folder
from cdc_assets.tables.lakehouse import Lakehouse

Name = tuple[str, str]  # database, table


@dataclass(frozen=True)
class Progress:
    """Every table has all releases up to `release`, but for those `behind`."""

    release: int = 0
    behind: frozenset[Name] = field(default_factory=frozenset)


def read_progress(lake: Lakehouse) -> Progress | None:
    """The hint; None when there is none that can be used."""
    files, path = lake.store.files(_uri(lake))
    try:
        with files.open_input_stream(path) as stream:
            said = json.loads(stream.read())
        return Progress(int(said["release"]), frozenset((str(d), str(t)) for d, t in said["behind"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_progress(lake: Lakehouse, progress: Progress) -> None:
    """Leave the hint for the next run."""
    files, path = lake.store.files(_uri(lake))
    make_folder(files, path.rpartition("/")[0])
    text = json.dumps({"release": progress.release, "behind": sorted(progress.behind)})
    with files.open_output_stream(path) as stream:
        stream.write(text.encode())


def _uri(lake: Lakehouse) -> str:
    return lake.place("history_progress", f"{lake.feed}.json")
