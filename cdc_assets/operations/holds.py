"""Holds in words: why a table is blocked, and what a person can do about it."""

from cdc_assets.lakehouse.raw_records import record_place
from cdc_assets.lakehouse.released_changes import Hold, HoldReason
from cdc_assets.operations.formatting import format_position

_TYPE_ADVICE = "give its type under columns: in the feeds file, or set type_mapping: warn for the table"


def describe_hold(hold: Hold, feed: str) -> str:
    """Return why a table of `feed` is blocked, from which commit_ts on, and what to do."""
    first = hold.first
    match hold.reason:
        case HoldReason.SCHEMA:
            version = f"version {first['schema_version']} of its schema" if "schema_version" in first else "its schema"
            reason = f"{version} has not arrived; a BOOTSTRAP or DDL message of the table brings it"
        case HoldReason.TYPE:
            advice = first.get("advice", _TYPE_ADVICE)
            place = record_place(first)
            reason = f"column {first['column']} of {place} breaks the type mapping: {first['problem']}; {advice}"
        case HoldReason.LOAD:
            reason = f"its dump cannot be loaded: {first['why']}"
        case HoldReason.LINKED:
            reason = f"{first['why']}: {first['statement']}"
        case HoldReason.DDL:
            command = f"cdc-assets acknowledge {feed} {first['statement_id']}"
            reason = (
                f"{first['why']}: {first['statement']}; decide with {command} and --apply, --ignore or --as STATEMENT"
            )
        case HoldReason.WRITE:
            command = f"cdc-assets retry {feed} {hold.database}.{hold.table}"
            reason = (
                f"its history could not be written since {first['failing_since']}: {first['why']}; remove the cause, then "
                f"run {command}; without it, a run tries again when changes of the table are released, when the feed's "
                "settings or the version of cdc-assets change, and from time to time"
            )
    return f"the table is blocked from commit_ts {format_position(hold.since)} on: {reason}"
