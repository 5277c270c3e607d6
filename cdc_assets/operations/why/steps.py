"""The steps of a row's life: versions, their ends, and what opened no version and closed none."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.history import COPY, source_columns
from cdc_assets.lakehouse.raw_records import RecordPlace, record_place
from cdc_assets.operations.why.details import StepDetails
from cdc_assets.operations.why.evidence import Evidence, event_place, opening_record
from cdc_assets.operations.why.fates import EventFates
from cdc_assets.operations.why.life import ColumnChange, Fate, LifeStep, Row

_CLOSED_BY_NEXT_VERSION = ("update", "ddl")  # the reasons for which a version closes where the row's next one opens


@dataclass(frozen=True)
class StepBuilder:
    """Builds the steps of a row's life.

    Attributes:
        evidence: what the tables hold about the key.
        fates: what became of its events.
        details: what the steps show beside the row.
    """

    evidence: Evidence
    fates: EventFates
    details: StepDetails

    def build_steps(self) -> list[LifeStep]:
        """Return all steps, newest first."""
        steps = [*self._build_versions(), *self._build_ends(), *self._build_others()]
        return sorted(steps, key=_by_order, reverse=True)

    def _build_versions(self) -> Iterator[LifeStep]:
        """Yield a step for each version."""
        previous: dict[Any, Row] = {}
        for version in self.evidence.versions:
            copy, commit_ts = version.get(COPY.name), version["_cdc_from_ts"]
            before = previous.get(copy)
            previous[copy] = version
            is_closed = self._is_closed(version)
            change = _find_opening(self.evidence.changes, version)
            origin = change or _find_opening(self._trimmed_events, version)
            layout_id = change["layout_id"] if change else None
            yield LifeStep(
                commit_ts,
                Fate.VERSION,
                version["_cdc_op"],
                until=version["_cdc_to_ts"] if is_closed else None,
                closed_by=version["_cdc_closed_by"] if is_closed else None,
                copy=copy,
                changes=_compare_versions(before, version),
                row=_select_source_columns(version),
                statement=self.details.find_statement(commit_ts),
                types=self.details.find_types(commit_ts, layout_id),
                column_flags=self.details.find_column_flags(layout_id),
                character_sets=self.details.find_character_sets(commit_ts),
                quarantined=self.details.find_quarantined_values(origin),
                **{"record": self.details.find_record(opening_record(version))} | self.details.describe_origin(origin),
            )

    def _build_ends(self) -> Iterator[LifeStep]:
        """Yield a step for each end of the row."""
        for version, delete in self._ends:
            commit_ts, closed_by = version["_cdc_to_ts"], version["_cdc_closed_by"]
            is_by_statement = closed_by not in (Op.DELETE, Op.SNAPSHOT)
            yield LifeStep(
                commit_ts,
                Fate.END,
                closed_by,
                self._explain_snapshot_end(commit_ts) if closed_by == Op.SNAPSHOT else None,
                copy=version.get(COPY.name),
                statement=self.details.find_statement(commit_ts) if is_by_statement else None,
                **self.details.describe_origin(delete),
            )

    def _build_others(self) -> Iterator[LifeStep]:
        """Yield a step for each event that opened no version and closed none."""
        opened = {(opening_record(version), version["_cdc_from_ts"]) for version in self.evidence.versions}
        ends = {event_place(delete) for _, delete in self._ends if delete}
        for event in self.evidence.events:
            change = self.fates.find_change(event)
            commit_ts = (change or event)["commit_ts"]
            is_applied = (record_place(event), commit_ts) in opened or event_place(event) in ends
            if is_applied and (change or self.fates.may_be_trimmed(event)):
                continue
            fate, reason = self.fates.decide_fate_of_change(change) if change else self.fates.decide_fate(event)
            yield LifeStep(
                commit_ts,
                fate,
                event["op"],
                reason,
                **self.details.describe_origin(change or event),
            )

    @cached_property
    def _ends(self) -> list[tuple[Row, Row | None]]:
        """The versions that no other version follows, each with the delete that closed it: the change, or else its event.

        The delete is None if a statement closed the version, or if maintenance has deleted both.
        """
        opened = {(version.get(COPY.name), version["_cdc_from_ts"]) for version in self.evidence.versions}
        deletes = [row for row in [*self.evidence.changes, *self._trimmed_events] if row["op"] == Op.DELETE]
        ends: list[tuple[Row, Row | None]] = []
        for version in self.evidence.versions:
            commit_ts, closed_by = version["_cdc_to_ts"], version["_cdc_closed_by"]
            is_followed = (version.get(COPY.name), commit_ts) in opened and closed_by in _CLOSED_BY_NEXT_VERSION
            if is_followed or not self._is_closed(version):
                continue
            is_deleted = closed_by == str(Op.DELETE)
            delete = next((row for row in deletes if is_deleted and row["commit_ts"] == commit_ts), None)
            if delete is not None:
                deletes.remove(delete)  # Each delete closes one of several equal rows.
            ends.append((version, delete))
        return ends

    def _is_closed(self, version: Row) -> bool:
        return version["_cdc_to_ts"] is not None and version["_cdc_to_ts"] <= self.evidence.until

    @cached_property
    def _trimmed_events(self) -> list[Row]:
        """The events whose changes, if they made any, maintenance has deleted."""
        return [event for event in self.evidence.events if self.fates.may_be_trimmed(event)]

    def _explain_snapshot_end(self, commit_ts: int) -> str:
        """Return why a row ended without a delete at a position where all rows of the table were read."""
        load, loads = (*self.evidence.name, commit_ts), self.evidence.release_cursor.loads
        if any(each.is_reload and (each.database, each.table, each.position) == load for each in loads):
            return "The table was loaded again, and the dump does not have the row."
        return "The connector took a snapshot of the whole table, which does not have the row."


def _find_opening(rows: list[Row], version: Row) -> Row | None:
    """Return the change or event among `rows` that opened a version; None: it is not among them."""
    place: RecordPlace = opening_record(version)
    at_time = (row for row in rows if row["commit_ts"] == version["_cdc_from_ts"])
    return next((row for row in at_time if record_place(row) == place), None)


def _compare_versions(before: Row | None, version: Row) -> list[ColumnChange]:
    """Return the columns that differ from the version before; none if that one did not end where this one begins."""
    if before is None or before["_cdc_to_ts"] != version["_cdc_from_ts"]:
        return []
    old, new = _select_source_columns(before), _select_source_columns(version)
    return [ColumnChange(column, old[column], new[column]) for column in new if old[column] != new[column]]


def _select_source_columns(version: Row) -> Row:
    return {column: version[column] for column in source_columns(version)}


def _by_order(step: LifeStep) -> tuple[int, int, int, int]:
    """Return the sort key of a step: at one commit_ts ends come first, then versions, then what did neither."""
    rank = {Fate.END: 0, Fate.VERSION: 1}.get(step.fate, 2)
    return step.commit_ts, rank, step.record.offset if step.record else -1, step.copy or 0
