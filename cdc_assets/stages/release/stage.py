"""The stage released_changes, the gate: it releases the events below the watermark, deduplicated."""

from dataclasses import replace

from cdc_assets.config import Feed
from cdc_assets.lakehouse.cursor import CursorError
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import ReleaseCursor
from cdc_assets.stages.history.progress_file import read_progress
from cdc_assets.stages.load.release import find_due_reloads, is_plan_due, release_loads, release_reloads
from cdc_assets.stages.release.new_events import read_new_events
from cdc_assets.stages.release.report import ReleaseReport, report_state
from cdc_assets.stages.release.run import ReleaseRun, list_retried_holds


class Release:
    """Raises the watermarks, and releases the events below them.

    The window is [released watermark, new watermark) by commit_ts over change_events. Events above it stay there, pending.
    The window of a held table ends at its hold, and begins there in the run that finds the hold's reason gone.
    """

    name = "released_changes"

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Return whether new events, holds whose reason may be gone, or dumps to load wait."""
        cursor = lake.released_changes.last_cursor()
        if self._has_new_input(lake, feed, cursor):
            return True
        plan = lake.loads.cursor()
        return is_plan_due(plan, cursor) or bool(find_due_reloads(lake, plan, cursor))

    def _has_new_input(self, lake: Lakehouse, feed: Feed, cursor: ReleaseCursor) -> bool:
        decoded = lake.change_events.cursor()
        return decoded is not None and (decoded.batch > cursor.batch or bool(list_retried_holds(lake, feed, cursor)))

    def run(self, lake: Lakehouse, feed: Feed) -> ReleaseReport:
        """Release the loads that begin histories, then the events, then the loads that replace rows.

        The loads that begin histories come first, a commit each, so that the gate knows which events their dumps cover. The
        events are one commit, whose cursor has the watermarks below which events may be dropped. A load that replaces rows
        needs all changes up to its dump released.

        Raises:
            ConcurrentRunError: another run released at the same time.
            CursorError: the histories have applied more releases than the table has.
        """
        cursor, plan = lake.released_changes.last_cursor(), lake.loads.cursor()
        applied = progress.release if (progress := read_progress(lake)) else 0
        if applied > cursor.sequence:
            raise CursorError(
                f"{lake.released_changes.name} has releases up to {cursor.sequence}, but the histories have applied up to "
                f"release {applied}: the table was deleted, or is an old copy, and new releases would count as applied. Put "
                "the newest copy of the table back, or run the job rebuild."
            )
        loaded = []
        if plan is not None and is_plan_due(plan, cursor):
            loaded = release_loads(lake, feed, plan, cursor)
            cursor = lake.released_changes.last_cursor()
        new = read_new_events(lake, feed, cursor) if self._has_new_input(lake, feed, cursor) else None
        report = report_state(feed, cursor, cursor) if new is None else ReleaseRun(lake, feed, new).release()
        if plan is not None:
            cursor = lake.released_changes.last_cursor()
            if reloads := find_due_reloads(lake, plan, cursor):
                loaded += release_reloads(lake, feed, cursor, reloads)
        return replace(report, release=report.release or cursor.sequence, loaded=loaded) if loaded else report
