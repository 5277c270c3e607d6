"""What a history table promises, held against what was written: read back from the files, without Spark."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from cdc_assets.errors import first_line
from cdc_assets.history.progress import Name
from cdc_assets.history.writer import TableReport
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.history import COPY
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import ReleasedKind

Broken = dict[str, Any]  # `rule`, and what tells the version

# What closes a version so that the next one need not begin where it ends.
# No Arrow array yet: the first one that a process makes imports pandas.
_ENDINGS = ["delete", "truncate", "drop", "rename", "ddl", "snapshot"]
_COLUMNS = (
    "_cdc_key", "_cdc_from_ts", "_cdc_to_ts", "_cdc_is_current", "_cdc_closed_by", "_cdc_topic", "_cdc_partition",
    "_cdc_offset",
)  # fmt: skip
SHOWN = 50
UNREFLECTED = "the last change of the key does not show"  # the one rule that is about changes, not about versions alone
# So many rows are looked at at once; of more, a part of the keys after the other.
_AT_ONCE = 1_000_000


def verify(lake: Lakehouse, report: TableReport) -> list[Broken]:
    """Check the versions that a part of a run wrote.

    Per key: no overlap, no gap that a delete does not explain, at most one open version; and after its last change one open
    version, or none if that change was a delete.

    Returns:
        The versions, or keys, that break a promise; at most `SHOWN`.
    """
    rows = sum(f.rows for f in report.files)
    parts = -(-rows // _AT_ONCE)
    broken: list[Broken] = []
    for part in range(parts):
        versions = _versions(lake, report, part, parts)
        broken += violations(versions)
        if not report.statements:  # which may end what the last change has left
            broken += _unreflected(versions, _changes(lake, report, part, parts))
    return broken[:SHOWN]


def _of_part(rows: pa.Table, key: str, part: int, parts: int) -> pa.Table:
    """Those of a part of the keys: by their length and first bytes, which is all that must be the same for one key."""
    if parts == 1:
        return rows
    number = pc.cast(pc.utf8_length(rows[key]), pa.int64())
    return rows.filter(pc.equal(_modulo(pc.add(number, _digits(rows[key])), parts), part))


def _digits(keys: pa.ChunkedArray) -> pa.Array:
    found = pc.replace_substring_regex(pc.utf8_slice_codeunits(keys, 0, 18), "[^0-9]", "")
    return pc.cast(pc.if_else(pc.equal(found, ""), "0", found), pa.int64())


def _modulo(numbers: pa.Array, by: int) -> pa.Array:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by))


def _versions(lake: Lakehouse, report: TableReport, part: int, parts: int) -> pa.Table:
    """Of a part of the keys the versions in the files that were written: `_COLUMNS`, and the copy, 0 of rows with a key."""
    table, names = lake.history(report.database, report.table), [*_COLUMNS]
    copied = COPY.name in report.columns.names
    if copied:
        names.append(COPY.name)

    def kept(rows: pa.Table) -> pa.Table:
        return _of_part(rows, "_cdc_key", part, parts)

    log = table.log()
    if report.commits > 1 and log and log.may_have_deletion_vectors:
        # Of what one commit of the run has written the next may have marked rows as deleted.
        there = F.col("_metadata.file_name").isin([file.path.rpartition("/")[2] for file in report.files])
        rows = kept(table.read(lake.spark).where(there).select(*names).toArrow())
    else:
        rows = table.fetch(report.files, *names, reduce_part=kept)
    if not copied:
        return rows.append_column(COPY.name, pa.array([0] * rows.num_rows, pa.int32()))
    return rows.set_column(len(_COLUMNS), COPY.name, pc.fill_null(rows[COPY.name], 0))


def _changes(lake: Lakehouse, report: TableReport, part: int, parts: int) -> pa.Table:
    """Of a part of the keys the changes that were applied: key, op, and what orders them."""
    files = [f for f in lake.released_changes.files(kind=str(ReleasedKind.ROW)) if f.high["release"] > report.after]
    columns = ["database", "table", "release", "key", "op", "commit_ts", "ordinal", "offset", "topic", "partition"]

    def kept(rows: pa.Table) -> pa.Table:
        within = pc.and_(pc.greater(rows["release"], report.after), pc.less_equal(rows["release"], report.through))
        mine = pc.and_(pc.equal(rows["database"], report.database), pc.equal(rows["table"], report.table))
        # A load says what there is, whatever came before it.
        applied = pc.and_(pc.and_(within, mine), pc.greater(rows["commit_ts"], report.loaded))
        return _of_part(rows.filter(applied), "key", part, parts)

    return lake.released_changes.fetch(files, *columns, reduce_part=kept)


def wrong_versions(lake: Lakehouse, database: str, table: str) -> list[Broken]:
    """The versions that break a rule among all that a table has; at most `SHOWN`."""
    kept, cursor = lake.history(database, table), lake.history(database, table).cursor()
    parts = -(-cursor.versions // _AT_ONCE) if cursor else 0
    rows = kept.read(lake.spark)
    copy = F.coalesce(COPY.name, F.lit(0)) if COPY.name in rows.columns else F.lit(0)
    columns = [*map(F.col, _COLUMNS), copy.alias(COPY.name)]
    broken: list[Broken] = []
    for part in range(parts):
        mine = F.pmod(F.xxhash64("_cdc_key"), F.lit(parts)) == part
        broken += violations(rows.where(mine).select(*columns).toArrow())
    return broken[:SHOWN]


def violations(versions: pa.Table) -> list[Broken]:
    """The versions that break a rule about those of their key, each with the first that it breaks.

    In: `_COLUMNS` and the copy.
    """
    if not versions.num_rows:
        return []
    # A version that ends where it begins stands before the one that begins there and lasts.
    order = versions.append_column("_until", pc.fill_null(versions["_cdc_to_ts"], (1 << 63) - 1))
    rows = order.sort_by([(c, "ascending") for c in ("_cdc_key", COPY.name, "_cdc_from_ts", "_until")]).combine_chunks()
    start, end = rows["_cdc_from_ts"], rows["_cdc_to_ts"]
    following = pc.if_else(_same_as_next(rows, "_cdc_key", COPY.name), _next(start), pa.scalar(None, pa.int64()))
    open_now, last = pc.is_null(end), pc.is_null(following)
    ended = pc.fill_null(pc.is_in(rows["_cdc_closed_by"], pa.array(_ENDINGS)), False)  # noqa: FBT003
    rules = {
        "more than one open version": _of_several(rows, open_now),
        "_cdc_is_current disagrees with _cdc_to_ts": pc.not_equal(rows["_cdc_is_current"], open_now),
        # from = to: superseded within one commit_ts of a source that has no finer clock.
        "ends before it begins": pc.less(end, start),
        "open, but not the last": pc.and_(open_now, pc.invert(last)),
        "overlaps the next": pc.less(following, end),
        "a gap that no delete explains": pc.and_(pc.greater(following, end), pc.invert(ended)),
        "closed by an update that is not there": pc.and_(pc.and_(pc.invert(open_now), last), pc.invert(ended)),
    }
    broken = [pc.if_else(pc.fill_null(each, False), name, pa.scalar(None, pa.string())) for name, each in rules.items()]  # noqa: FBT003
    told = (
        rows.append_column("next_from", following).append_column("rule", pc.coalesce(*broken)).drop_columns(["_until"])
    )
    shown: list[Broken] = told.filter(pc.is_valid(told["rule"])).slice(0, SHOWN).to_pylist()
    return shown


def _of_several(rows: pa.Table, open_now: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether a version is of a row that has several open ones."""
    names = pc.binary_join_element_wise(rows["_cdc_key"], pc.cast(rows[COPY.name], pa.string()), "\0")
    counted = pa.table({"name": names.filter(open_now)}).group_by("name").aggregate([([], "count_all")])
    return pc.is_in(names, counted.filter(pc.greater(counted["count_all"], 1))["name"].combine_chunks())


def _unreflected(versions: pa.Table, changes: pa.Table) -> list[Broken]:
    """The keys whose last change does not show.

    Of equal rows in a table without a key, others may be open after a delete.
    """
    if not changes.num_rows:
        return []  # the table has got rows of a dump alone
    order = ["key", "commit_ts", "release", "ordinal", "offset"]
    ordered = changes.sort_by([(c, "ascending") for c in order]).combine_chunks()
    last = ordered.filter(pc.invert(_same_as_next(ordered, "key")))
    opened = versions.append_column("opened", pc.cast(versions["_cdc_is_current"], pa.int32()))
    held = opened.group_by("_cdc_key").aggregate([("opened", "sum"), (COPY.name, "max")])
    both = last.join(held, keys="key", right_keys="_cdc_key", join_type="inner")
    deleted = pc.equal(both["op"], str(Op.DELETE))
    wanted = pc.if_else(deleted, 0, 1)
    keyless = pc.greater(both[f"{COPY.name}_max"], 0)
    wrong = pc.if_else(
        keyless,
        pc.and_(pc.invert(deleted), pc.equal(both["opened_sum"], 0)),
        pc.not_equal(both["opened_sum"], wanted),
    )
    told = both.append_column("expected_open", wanted).filter(wrong).slice(0, SHOWN)
    shown = {"key": "_cdc_key", "op": "op", "opened_sum": "found_open", "expected_open": "expected_open",
             "topic": "_cdc_topic", "partition": "_cdc_partition", "offset": "_cdc_offset"}  # fmt: skip
    rule = {"rule": UNREFLECTED}
    return [rule | {new: row[old] for old, new in shown.items()} for row in told.to_pylist()]


def _next(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Each row's value of the following row; null for the last."""
    return pa.chunked_array([*column.slice(1).chunks, pa.nulls(min(len(column), 1), column.type)])


def _same_as_next(rows: pa.Table, *columns: str) -> pa.ChunkedArray:
    """Whether the following row has the same values."""
    same = pc.fill_null(pc.equal(_next(rows[columns[0]]), rows[columns[0]]), False)  # noqa: FBT003
    for name in columns[1:]:
        same = pc.and_(same, pc.fill_null(pc.equal(_next(rows[name]), rows[name]), False))  # noqa: FBT003
    return same


def broken_by_table(lake: Lakehouse, reports: Sequence[TableReport]) -> dict[Name, list[Broken]]:
    """`verify` for each table that was written; those that break nothing are left out."""
    found = {(r.database, r.table): _verified(lake, r) for r in reports if r.files}
    return {name: broken for name, broken in found.items() if broken}


def _verified(lake: Lakehouse, report: TableReport) -> list[Broken]:
    """`verify`; of a table whose files cannot be read, that."""
    try:
        return verify(lake, report)
    except Exception as error:  # noqa: BLE001 -- the table is written, and the others are to be checked
        return [{"rule": f"the files that were written cannot be read back, and are not checked: {first_line(error)}"}]
