"""One check over the tables of a database: who fails now, and who failed before and was not looked at since."""

from cdc_assets.assets.checks.database import of_database
from cdc_assets.assets.checks.verdict import Verdict

FINE = Verdict(passed=True, description="fine")
WRONG = Verdict(passed=False, description="two overlap", violations=[{"id": 1, "_cdc_from_ts": 2**60}, {"id": 2}])


def test_a_database_whose_tables_are_fine_passes() -> None:
    found = of_database({"a": FINE, "b": FINE})
    assert found.passed
    assert found.violations == ()


def test_each_table_that_fails_is_a_row_with_its_first_violation() -> None:
    found = of_database({"b": WRONG, "a": Verdict(passed=False, description="not written"), "c": FINE})
    assert (found.passed, found.description) == (False, "Failing tables: 2: a, b.")
    assert list(found.violations) == [
        {"table": "a", "told": "not written", "violation": ""},
        {"table": "b", "told": "two overlap", "violation": '{"id": 1, "_cdc_from_ts": 1152921504606846976}'},
    ]


def test_a_table_that_failed_fails_until_it_is_looked_at_again() -> None:
    before = of_database({"a": WRONG, "b": WRONG}).violations
    then = of_database({"b": FINE, "c": FINE}, before)
    assert (then.passed, then.description) == (False, "Failing tables: 1: a.")
    assert list(then.violations) == [before[0]]
    assert of_database({"a": FINE}, then.violations).passed


def test_every_failing_table_is_a_row_though_the_line_names_a_few() -> None:
    found = of_database({f"t{n:03}": WRONG for n in range(200)})
    assert found.description == "Failing tables: 200: t000, t001, t002, t003, t004 and 195 more."
    assert len(found.violations) == 200
