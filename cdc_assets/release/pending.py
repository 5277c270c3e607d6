"""Tell pending events of change_events from others."""

from pyspark.sql import Column

from cdc_assets.config import Feed
from cdc_assets.lakehouse.released_changes import ReleaseCursor
from cdc_assets.release.base import find_hold_positions
from cdc_assets.release.source_order_gate import is_held
from cdc_assets.release.watermark_gate import waits_for_watermark
from cdc_assets.release.watermarks import has_watermarks


def is_pending(feed: Feed, cursor: ReleaseCursor) -> Column:
    """Return whether a row event or DDL event of the batches up to `cursor.batch` is pending. BOOLEAN, never NULL."""
    if not has_watermarks(feed, cursor.partition_watermarks):
        return is_held(cursor.transactions.bounds, find_hold_positions(cursor.holds, "batch"))
    return waits_for_watermark(cursor)
