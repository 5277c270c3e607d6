"""One check over the tables of a database, in a feed that has too many of them for a check of each."""

import json
from collections.abc import Mapping, Sequence

from cdc_assets.assets.checks.verdict import Verdict

# As many names as a person reads in one line; the rows have them all.
_NAMED = 5


def of_database(verdicts: Mapping[str, Verdict], before: Sequence[Mapping[str, object]] = ()) -> Verdict:
    """Whether a table of the database fails: one row each, so that the next run knows of those that it does not touch.

    Args:
        verdicts: what was found now, by table.
        before: the rows of the check's last verdict; those of tables that were not looked at now still hold.

    Returns:
        The database's verdict. Its violations are not cut: they are one row a failing table, with its first violation.
    """
    failing = {str(row["table"]): dict(row) for row in before if row["table"] not in verdicts}
    for table, verdict in verdicts.items():
        if not verdict.passed:
            first = json.dumps(verdict.violations[0], ensure_ascii=False, default=str) if verdict.violations else ""
            failing[table] = {"table": table, "told": verdict.description, "violation": first}
    if not failing:
        return Verdict(passed=True, description="No table of the database fails.")
    names = sorted(failing)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    told = f"Failing tables: {len(names)}: {', '.join(names[:_NAMED])}{more}."
    return Verdict(passed=False, description=told, violations=[failing[name] for name in names])
