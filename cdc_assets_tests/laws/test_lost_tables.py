"""Somebody deletes a table of the lakehouse, or puts an old copy in its place: no run skips records in silence."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_assets.lakehouse.cursor import CursorError
from cdc_assets.operations.rebuild import rebuild_feed
from cdc_assets_tests.support import Chain, Rows, Stream, tso

ORDERS = Rows()


def send(made: Chain, stream: Stream, number: int) -> None:
    """Add one row and a watermark above it."""
    made.add([stream.send(ORDERS.insert(tso(10 * number), number, "x"))])
    before = len(stream.records)
    stream.watermark(tso(10 * number + 5))
    made.add(stream.records[before:])


@pytest.mark.parametrize("has_old_copy", [False, True])
@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("raw_records", r"raw_records/f has batches up to [01], but change_events/f has read up to batch 2"),
        ("released_changes", r"released_changes/f has releases up to [01], but the histories have .* up to release 2"),
    ],
)
def test_a_lost_table_stops_the_feed_until_it_is_back(
    table: str, message: str, chain: Callable[..., Chain], tmp_path: Path, *, has_old_copy: bool
) -> None:
    made, stream = chain(), Stream()
    folder = Path(made.lake.root) / table / "f"
    send(made, stream, 1)
    made.run()
    shutil.copytree(folder, tmp_path / "old")
    send(made, stream, 2)
    made.run()
    shutil.move(folder, tmp_path / "newest")
    if has_old_copy:
        shutil.copytree(tmp_path / "old", folder)
    send(made, stream, 3)
    for _ in range(2):
        with pytest.raises(CursorError, match=message):
            made.run()
    if table == "released_changes":
        list(rebuild_feed(made.lake, made.feed))
    else:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(tmp_path / "newest", folder)
    made.run()
    send(made, stream, 4)
    made.run()
    assert [r["id"] for r in made.versions()] == [1, 2, 3, 4]
