"""Read what earlier runs of this stage and of others have left: cursors, and the holds whose reason may be gone."""

import json
from collections.abc import Sequence

from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import Hold, ReleaseCursor
from cdc_assets.lakehouse.type_observations import Refused
from cdc_assets.release.holds import find_retried_holds


def read_cursor(lake: Lakehouse) -> ReleaseCursor:
    """Return the cursor of the last release."""
    return lake.released_changes.cursor() or ReleaseCursor(sequence=0)


def read_schema_sequence(lake: Lakehouse) -> int:
    """Return the number of the last commit of table_schemas; 0: there is none."""
    cursor = lake.table_schemas.cursor()
    return cursor.sequence if cursor else 0


def hold_settings(feed: Feed) -> str:
    """Return the feed's settings that holds depend on, as text."""
    return json.dumps(feed.schema_changes)


def read_refused(lake: Lakehouse) -> list[Refused]:
    """Return the tables that the type check refuses."""
    cursor = lake.type_observations.cursor()
    return cursor.refused if cursor else []


def list_retried_holds(lake: Lakehouse, feed: Feed, cursor: ReleaseCursor) -> Sequence[Hold]:
    """Return the holds whose reason may be gone."""
    if not cursor.holds:
        return []
    return find_retried_holds(cursor, read_schema_sequence(lake), hold_settings(feed), lambda: read_refused(lake))
