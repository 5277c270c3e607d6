"""Read the versions of history tables back from their files, and compare them with the rules."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from cdc_assets.errors import first_line
from cdc_assets.history.progress import Name
from cdc_assets.history.table_report import TableReport
from cdc_assets.history.version_rules import (
    SHOWN,
    VERSION_COLUMNS,
    Violation,
    find_unreflected_keys,
    find_violations,
)
from cdc_assets.lakehouse.history import COPY
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.lakehouse.released_changes import ReleasedKind

# More versions than this are checked in several parts, split by key, to bound the memory.
_AT_ONCE = 1_000_000


def verify_written_versions(lake: Lakehouse, report: TableReport) -> list[Violation]:
    """Check the versions that a run wrote into one table.

    Per key: no overlap, no gap that no delete explains, and at most one open version; after the key's last change one open
    version, or none if that change was a delete.

    Returns:
        The versions and keys that break a rule; at most `SHOWN`.
    """
    parts = -(-sum(f.rows for f in report.files) // _AT_ONCE)
    violations: list[Violation] = []
    for part in range(parts):
        versions = _read_versions(lake, report, part, parts)
        violations += find_violations(versions)
        if not report.statements:  # a statement may end the version that the last change opened
            violations += find_unreflected_keys(versions, _read_changes(lake, report, part, parts))
    return violations[:SHOWN]


def _read_versions(lake: Lakehouse, report: TableReport, part: int, parts: int) -> pa.Table:
    """Return the versions of one part of the keys in the files that the run wrote.

    Returns:
        `VERSION_COLUMNS`, and the copy number, 0 for rows with a key.
    """
    table = lake.history(report.database, report.table)
    has_copies = COPY.name in report.columns.names
    names = [*VERSION_COLUMNS, *([COPY.name] if has_copies else [])]

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
    return rows.set_column(len(VERSION_COLUMNS), COPY.name, pc.fill_null(rows[COPY.name], 0))


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
    columns = [*map(F.col, VERSION_COLUMNS), copy.alias(COPY.name)]
    violations: list[Violation] = []
    for part in range(parts):
        is_of_part = F.pmod(F.xxhash64("_cdc_key"), F.lit(parts)) == part
        violations += find_violations(rows.where(is_of_part).select(*columns).toArrow())
    return violations[:SHOWN]


def _select_part(rows: pa.Table, key: str, part: int, parts: int) -> pa.Table:
    """Return the rows of one part of the keys; a hash of a key decides its part."""
    if parts == 1:
        return rows
    from pandas.util import hash_array  # noqa: PLC0415 -- slow to import, and only a large table needs it

    return rows.filter(pa.array(hash_array(rows[key].to_numpy(), categorize=False) % parts == part))


def verify_written_tables(lake: Lakehouse, reports: Sequence[TableReport]) -> dict[Name, list[Violation]]:
    """Return the violations in the tables that a run wrote, by table; tables without a violation are left out.

    A table whose files cannot be read has one violation, which says so.
    """
    broken = {}
    for report in reports:
        try:
            violations = verify_written_versions(lake, report) if report.files else []
        except Exception as error:  # noqa: BLE001 -- the table is written, and the other tables are still to be checked
            why = f"the files that were written cannot be read back, and are not checked: {first_line(error)}"
            violations = [{"rule": why}]
        if violations:
            broken[report.database, report.table] = violations
    return broken
