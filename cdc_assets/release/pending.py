"""Which events of change_events are not released, as a release's cursor tells."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.config import Feed
from cdc_assets.lakehouse.released_changes import ReleaseCursor
from cdc_assets.release.base import in_held_batch, positions
from cdc_assets.release.choose import has_watermarks
from cdc_assets.release.transactions import held_back
from cdc_assets.release.watermark import bound


def is_pending(feed: Feed, cursor: ReleaseCursor) -> Column:
    """Whether a row event or a statement of the batches that the gate has looked at is pending. BOOLEAN, never NULL."""
    if not has_watermarks(feed, cursor.partition_watermarks):
        return held_back(cursor.transactions.bounds) | in_held_batch(positions(cursor.holds, "batch"))
    above = F.col("commit_ts") >= bound(cursor.watermarks, positions(cursor.holds, "commit_ts"))
    return F.coalesce(above, F.lit(False)) & (F.col("batch") > cursor.ungated)
