"""history_intervals: which versions of a key may stand together, and which may not."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.checks.history import violations

SCHEMA = (
    "_cdc_key STRING, _cdc_from_ts BIGINT, _cdc_to_ts BIGINT, _cdc_is_current BOOLEAN, _cdc_closed_by STRING, "
    "_cdc_topic STRING, _cdc_partition INT, _cdc_offset BIGINT"
)
Version = tuple[int, int | None, str | None]  # from, to, closed by

GOOD: dict[str, list[Version]] = {
    "one open": [(10, None, None)],
    "a chain": [(10, 20, "update"), (20, 30, "update"), (30, None, None)],
    "deleted": [(10, 20, "update"), (20, 30, "delete")],
    "deleted and inserted again later": [(10, 20, "delete"), (25, None, None)],
    "deleted and inserted again at once": [(10, 20, "delete"), (20, None, None)],
    "truncated": [(10, 20, "truncate"), (40, None, None)],
    "dropped": [(10, 20, "drop"), (40, 50, "drop")],
    "renamed away": [(10, 20, "rename")],
    "superseded within one commit_ts": [(10, 10, "update"), (10, None, None)],
    "superseded twice within one commit_ts": [(10, 10, "update"), (10, 10, "update"), (10, 20, "delete")],
    "closed by a change of the table": [(10, 20, "ddl"), (20, None, None)],
}
# The rule that is broken, and the `from` of the versions it is shown at.
BAD: dict[str, tuple[list[Version], str, list[int]]] = {
    "overlap": ([(10, 30, "update"), (20, None, None)], "overlaps the next", [10]),
    "overlap after a delete": ([(10, 30, "delete"), (20, None, None)], "overlaps the next", [10]),
    "one inside another": ([(10, 40, "delete"), (20, 30, "delete")], "overlaps the next", [10]),
    "the same version twice": ([(10, 20, "update"), (10, 20, "update"), (20, None, None)], "overlaps the next", [10]),
    "gap after an update": ([(10, 20, "update"), (25, None, None)], "a gap that no delete explains", [10]),
    "gap after nobody knows what": ([(10, 20, None), (25, None, None)], "a gap that no delete explains", [10]),
    "gap after ddl": ([(10, 20, "ddl"), (25, None, None)], "a gap that no delete explains", [10]),
    "two open": ([(10, None, None), (20, None, None)], "more than one open version", [10, 20]),
    "open, not the last": ([(10, None, None), (20, 30, "delete")], "open, but not the last", [10]),
    "backwards": ([(30, 20, "delete")], "ends before it begins", [30]),
    "no successor": ([(10, 20, "update")], "closed by an update that is not there", [10]),
}


def frame(spark: SparkSession, cases: dict[str, list[Version]], **more: Any) -> Any:
    rows = [
        (key, start, end, more.get("current", end is None), by, "topic", 1, start)
        for key, versions in cases.items()
        for start, end, by in versions
    ]
    return spark.createDataFrame(rows, SCHEMA)


def test_versions_that_may_stand_together(spark: SparkSession) -> None:
    assert violations(frame(spark, GOOD), ["_cdc_key"]).collect() == []


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> list[dict[str, Any]]:
    cases = GOOD | {name: versions for name, (versions, _, _) in BAD.items()}
    return [r.asDict() for r in violations(frame(spark, cases), ["_cdc_key"]).collect()]


@pytest.mark.parametrize("case", BAD)
def test_versions_that_may_not(found: list[dict[str, Any]], case: str) -> None:
    _, rule, starts = BAD[case]
    mine = sorted((r for r in found if r["_cdc_key"] == case), key=lambda r: r["_cdc_from_ts"])
    assert [(r["_cdc_from_ts"], r["rule"]) for r in mine] == [(start, rule) for start in starts]
    assert [(r["_cdc_topic"], r["_cdc_partition"], r["_cdc_offset"]) for r in mine] == [
        ("topic", 1, start) for start in starts
    ]


def test_one_keys_fault_is_not_anothers(found: list[dict[str, Any]]) -> None:
    assert {r["_cdc_key"] for r in found} == set(BAD)


def test_a_flag_that_disagrees_with_the_end(spark: SparkSession) -> None:
    closed = violations(frame(spark, {"k": [(10, 20, "delete")]}, current=True), ["_cdc_key"]).collect()
    opened = violations(frame(spark, {"k": [(10, None, None)]}, current=False), ["_cdc_key"]).collect()
    assert [r["rule"] for r in closed + opened] == ["_cdc_is_current disagrees with _cdc_to_ts"] * 2
