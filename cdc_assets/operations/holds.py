"""Holds in words: why a table is blocked, and what a person can do about it."""

from cdc_assets.lakehouse.released_changes import Hold, HoldReason
from cdc_assets.operations.formatting import format_position


def describe_hold(hold: Hold, feed: str) -> str:
    """Return why a table of `feed` is blocked, from which commit_ts on, and what to do."""
    first = hold.first
    match hold.reason:
        case HoldReason.SCHEMA:
            reason = (
                f"schema version {first.get('schema_version')} of its rows has not arrived; a BOOTSTRAP or DDL message of "
                "the table brings it"
            )
        case HoldReason.TYPE:
            default = "give its type under columns: in the feeds file, or set type_mapping: warn for the table"
            reason = (
                f"column {first.get('column')} breaks the type mapping: {first.get('told')}; "
                f"{first.get('advice', default)}"
            )
        case HoldReason.LOAD:
            reason = f"its dump cannot be loaded: {first.get('why')}"
        case HoldReason.LINKED:
            reason = f"{first.get('why')}: {first.get('statement')}"
        case HoldReason.DDL:
            command = f"cdc-assets acknowledge {feed} {first.get('statement_id')} ..."
            reason = f"{first.get('why')}: {first.get('statement')}; decide with {command}"
        case HoldReason.WRITE:
            command = f"cdc-assets retry {feed} {hold.database}.{hold.table}"
            reason = (
                f"its history could not be written since {first.get('failing_since')}: {first.get('why')}; remove the "
                f"cause, then run {command}; without it, a run tries again when changes of the table are released, when "
                "the feed's settings or the version of cdc-assets change, and from time to time"
            )
    return f"the table is blocked from commit_ts {format_position(hold.since)} on: {reason}"
