"""Join the verdicts on the tables of a database: tables that fail now, and tables that failed and are unchecked since."""

from cdc_assets.assets.checks.database import merge_table_verdicts
from cdc_assets.assets.checks.verdict import Verdict

PASSING = Verdict(passed=True, description="right")
FAILING = Verdict(passed=False, description="two overlap", violations=[{"id": 1, "_cdc_from_ts": 2**60}, {"id": 2}])


def test_a_database_whose_tables_all_pass_passes() -> None:
    verdict = merge_table_verdicts({"a": PASSING, "b": PASSING})
    assert verdict.passed
    assert verdict.violations == ()


def test_each_failing_table_is_a_row_with_its_first_violation() -> None:
    not_written = Verdict(passed=False, description="not written")
    verdict = merge_table_verdicts({"b": FAILING, "a": not_written, "c": PASSING})
    assert not verdict.passed
    assert verdict.description.startswith("Failing tables of the database (2): a, b. ")
    assert list(verdict.violations) == [
        {"table": "a", "problem": "not written", "violation": ""},
        {"table": "b", "problem": "two overlap", "violation": '{"id": 1, "_cdc_from_ts": 1152921504606846976}'},
    ]


def test_a_failing_table_fails_until_it_is_checked_again() -> None:
    first = merge_table_verdicts({"a": FAILING, "b": FAILING})
    second = merge_table_verdicts({"b": PASSING, "c": PASSING}, first.violations)
    assert not second.passed
    assert second.description.startswith("Failing tables of the database (1): a. ")
    assert list(second.violations) == [first.violations[0]]
    assert merge_table_verdicts({"a": PASSING}, second.violations).passed


def test_every_failing_table_is_a_row_though_the_description_names_five() -> None:
    verdict = merge_table_verdicts({f"t{n:03}": FAILING for n in range(200)})
    assert verdict.description.startswith(
        "Failing tables of the database (200): t000, t001, t002, t003, t004 and 195 more. "
    )
    assert len(verdict.violations) == 200
