"""Whether a history holds, at its position or later, the rows that the source was read with."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.operations.verify.compare import Comparison
from cdc_assets.operations.verify.differences import Image, RowImages
from cdc_assets.operations.verify.sides import RowVersion


def find_rows_held_later(lake: Lakehouse, comparison: Comparison, images: Mapping[bytes, RowImages]) -> set[bytes]:
    """Return the ids of the rows that the history, as it is now, holds at the position or later as the source had them.

    Args:
        lake: the feed's tables.
        comparison: in which the rows differ.
        images: row id -> what both sides held of the row.
    """
    versions: dict[bytes, list[RowVersion]] = {row_id: [] for row_id in images}
    for version in comparison.history_side(lake).read_versions(images):
        versions[version.row_id].append(version)
    position, has_key = comparison.verification.position, bool(comparison.digests.key)
    return {
        row_id for row_id, row in images.items() if holds_image(versions[row_id], position, row.source, has_key=has_key)
    }


def holds_image(versions: Sequence[RowVersion], position: int, image: Image, *, has_key: bool) -> bool:
    """Return whether the versions of a row hold an image at a position or later.

    Args:
        versions: those that are valid at the position or later, or begin there.
        position: a commit_ts.
        image: what the source had of the row; empty: nothing.
        has_key: whether the table has a key, so that only one version of a row is valid at a time.
    """
    # A clock that has whole seconds gives a version no time if the row changes again within the second.
    if has_key and any(version.from_ts == version.to_ts and image == {version.digest: 1} for version in versions):
        return True
    changes: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int), {position: defaultdict(int)})
    for version in versions:
        changes[max(version.from_ts, position)][version.digest] += 1
        if version.to_ts is not None:
            changes[max(version.to_ts, position)][version.digest] -= 1
    held: dict[int, int] = {}
    for commit_ts in sorted(changes):
        for digest, change in changes[commit_ts].items():
            held[digest] = held.get(digest, 0) + change
        held = {digest: count for digest, count in held.items() if count}
        if held == image:
            return True
    return False
