"""One verdict over all tables of a database, for feeds that have too many tables for a check of each."""

import json
from collections.abc import Mapping, Sequence

from cdc_assets.assets.checks.verdict import Verdict

# The description names this many tables, as many as a person reads in one line; the violations have all of them.
_NAMED_TABLES = 5


def merge_table_verdicts(
    verdicts: Mapping[str, Verdict], last_violations: Sequence[Mapping[str, object]] = ()
) -> Verdict:
    """Return the verdict of a database: it fails while one of its tables fails.

    Args:
        verdicts: by table, the verdicts of this run.
        last_violations: the violations of the database's last verdict; those of tables without a verdict of this run
            still hold.

    Returns:
        The violations are one row a failing table, with the table's first violation. They are not cut, so that the next run
        knows all failing tables. The check only warns if the tables that fail in this run, or all if none fails, only warn.
    """
    failing = {str(row["table"]): dict(row) for row in last_violations if row["table"] not in verdicts}
    for table, verdict in verdicts.items():
        if not verdict.passed:
            first = json.dumps(verdict.violations[0], ensure_ascii=False, default=str) if verdict.violations else ""
            failing[table] = {"table": table, "problem": verdict.description, "violation": first}
    deciding = [verdict for verdict in verdicts.values() if not verdict.passed] or list(verdicts.values())
    only_warns = all(verdict.only_warns for verdict in deciding)
    if not failing:
        return Verdict(passed=True, description="No table of the database fails.", only_warns=only_warns)
    names = sorted(failing)
    more = f" and {len(names) - _NAMED_TABLES} more" if len(names) > _NAMED_TABLES else ""
    description = (
        f"Failing tables of the database ({len(names)}): {', '.join(names[:_NAMED_TABLES])}{more}. The violations have one "
        "row a failing table: what is wrong with it, and what to do."
    )
    violations = [failing[name] for name in names]
    return Verdict(passed=False, description=description, violations=violations, only_warns=only_warns)
