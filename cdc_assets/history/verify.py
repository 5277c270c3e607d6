"""Checks of history tables: their versions are read back from the files, without Spark, and compared with rules."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from cdc_assets.errors import first_line
from cdc_assets.history.progress import Name
from cdc_assets.history.table_report import TableReport
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.history import COPY
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import ReleasedKind

Violation = dict[str, Any]  # `rule`, and the columns that identify the version or the key

# Reasons for which a version may end although no version of the key follows at once.
# Not an Arrow array, because the first array that a process creates imports pandas.
_ENDINGS = ["delete", "truncate", "drop", "rename", "ddl", "snapshot"]
_COLUMNS = (
    "_cdc_key", "_cdc_from_ts", "_cdc_to_ts", "_cdc_is_current", "_cdc_closed_by", "_cdc_topic", "_cdc_partition",
    "_cdc_offset",
)  # fmt: skip
SHOWN = 50
UNREFLECTED = "the last change of the key does not show"  # the only rule about changes; the others are about versions
# More versions than this are checked in several parts, split by key, to bound the memory.
_AT_ONCE = 1_000_000


def verify_written_versions(lake: Lakehouse, report: TableReport) -> list[Violation]:
    """Check the versions that a run wrote into one table.

    Per key: no overlap, no gap that no delete explains, and at most one open version; after the key's last change one open
    version, or none if that change was a delete.

    Returns:
        The versions and keys that break a rule; at most `SHOWN`.
    """
    rows = sum(f.rows for f in report.files)
    parts = -(-rows // _AT_ONCE)
    violations: list[Violation] = []
    for part in range(parts):
        versions = _read_versions(lake, report, part, parts)
        violations += find_violations(versions)
        if not report.statements:  # a statement may end the version that the last change opened
            violations += _find_unreflected_keys(versions, _read_changes(lake, report, part, parts))
    return violations[:SHOWN]


def _select_part(rows: pa.Table, key: str, part: int, parts: int) -> pa.Table:
    """Return the rows of one part of the keys; the length and the first digits of a key decide its part."""
    if parts == 1:
        return rows
    number = pc.cast(pc.utf8_length(rows[key]), pa.int64())
    return rows.filter(pc.equal(_modulo(pc.add(number, _first_digits(rows[key])), parts), part))


def _first_digits(keys: pa.ChunkedArray) -> pa.Array:
    digits = pc.replace_substring_regex(pc.utf8_slice_codeunits(keys, 0, 18), "[^0-9]", "")
    return pc.cast(pc.if_else(pc.equal(digits, ""), "0", digits), pa.int64())


def _modulo(numbers: pa.Array, by: int) -> pa.Array:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by))


def _read_versions(lake: Lakehouse, report: TableReport, part: int, parts: int) -> pa.Table:
    """Return the versions of one part of the keys in the files that the run wrote.

    Returns:
        `_COLUMNS`, and the copy number, 0 for rows with a key.
    """
    table, names = lake.history(report.database, report.table), [*_COLUMNS]
    has_copies = COPY.name in report.columns.names
    if has_copies:
        names.append(COPY.name)

    def select_part(rows: pa.Table) -> pa.Table:
        return _select_part(rows, "_cdc_key", part, parts)

    log = table.log()
    if report.commits > 1 and log and log.may_have_deletion_vectors:
        # A later commit of the run may have marked rows as deleted in the files of an earlier one; Spark skips such rows.
        is_written = F.col("_metadata.file_name").isin([file.path.rpartition("/")[2] for file in report.files])
        rows = select_part(table.read(lake.spark).where(is_written).select(*names).toArrow())
    else:
        rows = table.fetch(report.files, *names, reduce_part=select_part)
    if not has_copies:
        return rows.append_column(COPY.name, pa.array([0] * rows.num_rows, pa.int32()))
    return rows.set_column(len(_COLUMNS), COPY.name, pc.fill_null(rows[COPY.name], 0))


def _read_changes(lake: Lakehouse, report: TableReport, part: int, parts: int) -> pa.Table:
    """Return the changes of one part of the keys that the run applied: key, op, and the columns that order them."""
    files = [f for f in lake.released_changes.files(kind=str(ReleasedKind.ROW)) if f.high["release"] > report.after]
    columns = ["database", "table", "release", "key", "op", "commit_ts", "ordinal", "offset", "topic", "partition"]

    def select_applied(rows: pa.Table) -> pa.Table:
        within = pc.and_(pc.greater(rows["release"], report.after), pc.less_equal(rows["release"], report.through))
        is_of_table = pc.and_(pc.equal(rows["database"], report.database), pc.equal(rows["table"], report.table))
        # A reload decides which rows exist at its position, so changes before it need not show.
        applied = pc.and_(pc.and_(within, is_of_table), pc.greater(rows["commit_ts"], report.loaded))
        return _select_part(rows.filter(applied), "key", part, parts)

    return lake.released_changes.fetch(files, *columns, reduce_part=select_applied)


def verify_all_versions(lake: Lakehouse, database: str, table: str) -> list[Violation]:
    """Return the versions of a history table that break a rule; at most `SHOWN`."""
    history, cursor = lake.history(database, table), lake.history(database, table).cursor()
    parts = -(-cursor.versions // _AT_ONCE) if cursor else 0
    rows = history.read(lake.spark)
    copy = F.coalesce(COPY.name, F.lit(0)) if COPY.name in rows.columns else F.lit(0)
    columns = [*map(F.col, _COLUMNS), copy.alias(COPY.name)]
    violations: list[Violation] = []
    for part in range(parts):
        is_of_part = F.pmod(F.xxhash64("_cdc_key"), F.lit(parts)) == part
        violations += find_violations(rows.where(is_of_part).select(*columns).toArrow())
    return violations[:SHOWN]


def find_violations(versions: pa.Table) -> list[Violation]:
    """Return the versions that break a rule about the versions of one key, each with the first rule that it breaks.

    Args:
        versions: `_COLUMNS` and the copy number.
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


def _find_unreflected_keys(versions: pa.Table, changes: pa.Table) -> list[Violation]:
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


def verify_written_tables(lake: Lakehouse, reports: Sequence[TableReport]) -> dict[Name, list[Violation]]:
    """Return the violations in the tables that a run wrote, by table; tables without a violation are left out."""
    by_table = {(r.database, r.table): _verify_or_explain(lake, r) for r in reports if r.files}
    return {name: violations for name, violations in by_table.items() if violations}


def _verify_or_explain(lake: Lakehouse, report: TableReport) -> list[Violation]:
    """Return the violations of `verify_written_versions`; if the table's files cannot be read, one that says so."""
    try:
        return verify_written_versions(lake, report)
    except Exception as error:  # noqa: BLE001 -- the table is written, and the other tables are still to be checked
        return [{"rule": f"the files that were written cannot be read back, and are not checked: {first_line(error)}"}]
