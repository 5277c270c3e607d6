"""The rules that the versions of a history table keep."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.history import COPY

Violation = dict[str, Any]  # `rule`, and the columns that identify the version or the key

# Reasons for which a version may end although no version of the key follows at once.
# Not an Arrow array, because the first array that a process creates imports pandas.
_ENDINGS = ["delete", "truncate", "drop", "rename", "ddl", "snapshot"]
VERSION_COLUMNS = (
    "_cdc_key", "_cdc_from_ts", "_cdc_to_ts", "_cdc_is_current", "_cdc_closed_by", "_cdc_topic", "_cdc_partition",
    "_cdc_offset",
)  # fmt: skip
SHOWN = 50
UNREFLECTED = "the last change of the key does not show"  # the only rule about changes; the others are about versions


def find_violations(versions: pa.Table) -> list[Violation]:
    """Return the versions that break a rule about the versions of one key, each with the first rule that it breaks.

    Args:
        versions: `VERSION_COLUMNS` and the copy number.
    """
    if not versions.num_rows:
        return []
    # A version of zero length comes before the version that begins at the same position and lasts. Of several of zero
    # length, the one that a delete closed comes last: their order within one tick of the clock is not known.
    order = versions.append_column("_until", pc.fill_null(versions["_cdc_to_ts"], (1 << 63) - 1))
    order = order.append_column("_ends", pc.is_in(versions["_cdc_closed_by"], pa.array(_ENDINGS)))
    sorted_by = ("_cdc_key", COPY.name, "_cdc_from_ts", "_until", "_ends")
    rows = order.sort_by([(c, "ascending") for c in sorted_by]).combine_chunks()
    start, end = rows["_cdc_from_ts"], rows["_cdc_to_ts"]
    following = pc.if_else(_is_same_as_next(rows, "_cdc_key", COPY.name), _shift_up(start), pa.scalar(None, pa.int64()))
    is_open, is_last = pc.is_null(end), pc.is_null(following)
    may_leave_gap = pc.fill_null(pc.is_in(rows["_cdc_closed_by"], pa.array(_ENDINGS)), False)  # noqa: FBT003
    rules = {
        "more than one open version": _has_other_open_version(rows, is_open),
        "_cdc_is_current disagrees with _cdc_to_ts": pc.not_equal(rows["_cdc_is_current"], is_open),
        # from = to is right: the version was superseded within one commit_ts of a source without a finer clock.
        "ends before it begins": pc.less(end, start),
        "open, but not the last": pc.and_(is_open, pc.invert(is_last)),
        "overlaps the next": pc.less(following, end),
        "a gap that no delete explains": pc.and_(pc.greater(following, end), pc.invert(may_leave_gap)),
        "closed by an update, but no version follows": pc.and_(
            pc.and_(pc.invert(is_open), is_last), pc.invert(may_leave_gap)
        ),
    }
    broken = [pc.if_else(pc.fill_null(each, False), name, pa.scalar(None, pa.string())) for name, each in rules.items()]  # noqa: FBT003
    with_rule = (
        rows.append_column("next_from", following).append_column("rule", pc.coalesce(*broken)).drop_columns(["_until"])
    )
    violations: list[Violation] = with_rule.filter(pc.is_valid(with_rule["rule"])).slice(0, SHOWN).to_pylist()
    return violations


def _has_other_open_version(rows: pa.Table, is_open: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return whether the row of a version has several open versions."""
    names = pc.binary_join_element_wise(rows["_cdc_key"], pc.cast(rows[COPY.name], pa.string()), "\0")
    counts = pa.table({"name": names.filter(is_open)}).group_by("name").aggregate([([], "count_all")])
    return pc.is_in(names, counts.filter(pc.greater(counts["count_all"], 1))["name"].combine_chunks())


def find_unreflected_keys(versions: pa.Table, changes: pa.Table) -> list[Violation]:
    """Return the keys whose last change the versions do not show.

    In a table without a key, other equal rows may still be open after a delete.
    """
    if not changes.num_rows:
        return []  # the run applied rows of a dump only
    order = ["key", "commit_ts", "release", "ordinal", "offset"]
    ordered = changes.sort_by([(c, "ascending") for c in order]).combine_chunks()
    last = ordered.filter(pc.invert(_is_same_as_next(ordered, "key")))
    opened = versions.append_column("opened", pc.cast(versions["_cdc_is_current"], pa.int32()))
    open_by_key = opened.group_by("_cdc_key").aggregate([("opened", "sum"), (COPY.name, "max")])
    both = last.join(open_by_key, keys="key", right_keys="_cdc_key", join_type="inner")
    deleted = pc.equal(both["op"], str(Op.DELETE))
    expected = pc.if_else(deleted, 0, 1)
    keyless = pc.greater(both[f"{COPY.name}_max"], 0)
    wrong = pc.if_else(
        keyless,
        pc.and_(pc.invert(deleted), pc.equal(both["opened_sum"], 0)),
        pc.not_equal(both["opened_sum"], expected),
    )
    unreflected = both.append_column("expected_open", expected).filter(wrong).slice(0, SHOWN)
    shown = {"key": "_cdc_key", "op": "op", "opened_sum": "counted_open", "expected_open": "expected_open",
             "topic": "_cdc_topic", "partition": "_cdc_partition", "offset": "_cdc_offset"}  # fmt: skip
    rule = {"rule": UNREFLECTED}
    return [rule | {new: row[old] for old, new in shown.items()} for row in unreflected.to_pylist()]


def _shift_up(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return each row's value of the following row; NULL for the last row."""
    return pa.chunked_array([*column.slice(1).chunks, pa.nulls(min(len(column), 1), column.type)])


def _is_same_as_next(rows: pa.Table, *columns: str) -> pa.ChunkedArray:
    """Return whether the following row has the same values in these columns."""
    same = pc.fill_null(pc.equal(_shift_up(rows[columns[0]]), rows[columns[0]]), False)  # noqa: FBT003
    for name in columns[1:]:
        same = pc.and_(same, pc.fill_null(pc.equal(_shift_up(rows[name]), rows[name]), False))  # noqa: FBT003
    return same
