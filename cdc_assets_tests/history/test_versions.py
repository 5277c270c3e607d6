"""Build the chain of versions of a key, without writing it."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from cdc_assets.history.versions import (
    Effects,
    Ending,
    Replacement,
    build_timeline,
    build_versions,
    continue_versions,
    keep_boundaries,
)
from cdc_assets.lakehouse.schema import BIGINT, INT, STRING, struct
from cdc_assets_tests.support import frame_of_rows

ROW: DataType = struct(id=BIGINT, v=STRING)
CHANGES = struct(
    key=STRING,
    copy=INT,
    era=INT,
    commit_ts=BIGINT,
    release=BIGINT,
    ordinal=INT,
    op=STRING,
    row=ROW,
    topic=STRING,
    partition=INT,
    offset=BIGINT,
)
OPEN = struct(
    key=STRING,
    copy=INT,
    era=INT,
    commit_ts=BIGINT,
    op=STRING,
    row=ROW,
    topic=STRING,
    partition=INT,
    offset=BIGINT,
    rest=struct(more=STRING),
)

Change = tuple[int, str, str | None]  # commit_ts, op, v after it
Version = tuple[int, str | None, str | None, int | None, str | None]  # from, op (None: open before), v, to, closed by


def chain(spark: SparkSession, changes: dict[str, list[Change]], held: dict[str, tuple[int, str | None]]) -> DataFrame:
    rows = [
        (key, 0, 0, at, 1, 0, op, None if op == "delete" else Row(id=1, v=v), "t", 0, at)
        for key, line in changes.items()
        for at, op, v in line
    ]
    present = [(key, 0, 0, at, "insert", Row(id=1, v=v), "old", 1, at, Row(more=key)) for key, (at, v) in held.items()]
    return build_versions(
        keep_boundaries(build_timeline(frame_of_rows(spark, rows, CHANGES), frame_of_rows(spark, present, OPEN)))
    )


def read_versions(frame: DataFrame) -> dict[str, list[Version]]:
    """Return the versions that are opened or closed; versions from before keep their other columns."""
    result: dict[str, list[Version]] = {}
    for r in sorted(frame.collect(), key=lambda r: (r["key"], r["commit_ts"])):
        assert r["rest"] == (Row(more=r["key"]) if r["was_open"] else None)
        if r["was_open"] and r["to_ts"] is None:
            continue
        op = None if r["was_open"] else r["op"]
        version = (r["commit_ts"], op, r["row"]["v"], r["to_ts"], r["closed_by"])
        result.setdefault(r["key"], []).append(version)
    return result


# name -> (the open version before, the changes, the versions that are opened or closed)
CASES: dict[str, tuple[tuple[int, str | None] | None, list[Change], list[Version]]] = {
    "insert": (None, [(10, "insert", "a")], [(10, "insert", "a", None, None)]),
    "snapshot": (None, [(10, "snapshot", "a")], [(10, "snapshot", "a", None, None)]),
    "update": ((5, "a"), [(10, "update", "b")], [(5, None, "a", 10, "update"), (10, "update", "b", None, None)]),
    "an update that changes nothing": ((5, "a"), [(10, "update", "a")], []),
    "to NULL and back": (
        (5, "a"),
        [(10, "update", None), (11, "update", "a")],
        [(5, None, "a", 10, "update"), (10, "update", None, 11, "update"), (11, "update", "a", None, None)],
    ),
    "NULL stays NULL": ((5, None), [(10, "update", None)], []),
    "delete": ((5, "a"), [(10, "delete", None)], [(5, None, "a", 10, "delete")]),
    "delete of what is not there": (None, [(10, "delete", None)], []),
    "delete twice": ((5, "a"), [(10, "delete", None), (11, "delete", None)], [(5, None, "a", 10, "delete")]),
    "delete, and insert of the same row": (
        (5, "a"),
        [(10, "delete", None), (11, "insert", "a")],
        [(5, None, "a", 10, "delete"), (11, "insert", "a", None, None)],
    ),
    "update of what is not there": (None, [(10, "update", "a")], [(10, "update", "a", None, None)]),
    "insert of what is there": (
        (5, "a"),
        [(10, "insert", "b")],
        [(5, None, "a", 10, "update"), (10, "update", "b", None, None)],
    ),
    "a whole life": (
        None,
        [
            (10, "insert", "a"),
            (11, "update", "a"),
            (12, "update", "b"),
            (13, "delete", None),
            (14, "delete", None),
            (15, "insert", "b"),
            (16, "update", "c"),
        ],
        [
            (10, "insert", "a", 12, "update"),
            (12, "update", "b", 13, "delete"),
            (15, "insert", "b", 16, "update"),
            (16, "update", "c", None, None),
        ],
    ),
    "back to the row of before, in one run": (
        (5, "a"),
        [(10, "update", "b"), (11, "update", "a")],
        [(5, None, "a", 10, "update"), (10, "update", "b", 11, "update"), (11, "update", "a", None, None)],
    ),
    "an open version without changes": ((5, "a"), [], []),
}


def test_all_cases_side_by_side(spark: SparkSession) -> None:
    """Each case is a key of its own, so keys do not affect each other."""
    changes = {name: line for name, (_, line, _) in CASES.items()}
    held = {name: version for name, (version, _, _) in CASES.items() if version}
    expected = {name: versions for name, (_, _, versions) in CASES.items() if versions}
    assert read_versions(chain(spark, changes, held)) == expected


STEPS = st.lists(
    st.tuples(st.sampled_from(["insert", "update", "delete"]), st.sampled_from(["a", "b", None])), max_size=6
)


def replay(line: list[Change], held: tuple[int, str | None] | None) -> dict[int, tuple[bool, str | None]]:
    """Return commit_ts -> (whether the row exists from then on, its v)."""
    state = {held[0]: (True, held[1])} if held else {}
    return state | {at: (op != "delete", v if op != "delete" else None) for at, op, v in line}


@settings(max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    lines=st.lists(STEPS, min_size=8, max_size=25),
    opened=st.lists(st.sampled_from([None, "a", "b", "null"]), min_size=25),
)
def test_versions_are_the_states(
    spark: SparkSession, lines: list[list[tuple[str, str | None]]], opened: list[str | None]
) -> None:
    """At every commit_ts, the versions hold the row of the last change at or before it."""
    changes = {str(k): [(10 + n, op, v) for n, (op, v) in enumerate(line)] for k, line in enumerate(lines)}
    held = {str(k): (5, None if o == "null" else o) for k, o in enumerate(opened[: len(lines)]) if o}
    result = read_versions(chain(spark, changes, held))
    for key, line in changes.items():
        present = result.get(key, [])
        if key in held and not (present and present[0][1] is None):
            present = [(5, None, held[key][1], present[0][0] if present else None, None), *present]
            assert len(present) == 1, "an open version that is not closed has no successor"
        states = replay(line, held.get(key))
        for at in [4, 5, *range(10, 17)]:
            shown: list[Any] = [v for start, _, v, end, _ in present if start <= at and (end is None or at < end)]
            is_present, value = next((states[p] for p in sorted(states, reverse=True) if p <= at), (False, None))
            assert shown == ([value] if is_present else [])
        assert all(end is None or start < end for start, _, _, end, _ in present)


def test_an_open_version_that_stays_so_is_among_them(spark: SparkSession) -> None:
    (stays,) = chain(spark, {"k": [(10, "update", "a")]}, {"k": (5, "a")}).collect()
    assert (stays["was_open"], stays["commit_ts"], stays["to_ts"], stays["closed_by"]) == (True, 5, None, None)


@pytest.mark.parametrize("op", ["insert", "delete"])
def test_coordinates_are_those_of_the_opening_change(spark: SparkSession, op: str) -> None:
    line: list[Change] = [(10, "update", "b"), (11, op, "c")]
    rows = chain(spark, {"k": line}, {"k": (5, "a")}).collect()
    places = {r["commit_ts"]: (r["topic"], r["partition"], r["offset"]) for r in rows}
    expected = {5: ("old", 1, 5), 10: ("t", 0, 10)} | ({11: ("t", 0, 11)} if op == "insert" else {})
    assert places == expected


# At 10 another table takes the name. Rows from before have era 0, rows after it have era 2.
REPLACEMENT = Effects(
    last_era=2,
    endings=(Ending(0, "rename", 10),),
    replacement=Replacement(
        commit_ts=10,
        old_era=0,
        new_era=1,
        is_same=lambda old, new: old["v"].eqNullSafe(new["v"]),
        merge=lambda old, new: F.struct(new["id"].alias("id"), old["v"].alias("v")),
    ),
)
Seen = tuple[int, int, str | None, int | None, str | None]  # from, id, v, to, closed by
# name -> (from and v of the open version, v of the row that comes in, changes (era, commit_ts, op, v), all versions)
REPLACED: dict[str, tuple[tuple[int, str] | None, str | None, list[tuple[int, int, str, str | None]], list[Seen]]] = {
    "equal": ((5, "a"), "a", [], [(5, 2, "a", None, None)]),
    "another": ((5, "a"), "b", [], [(5, 1, "a", 10, "rename"), (10, 2, "b", None, None)]),
    "in the old table alone": ((5, "a"), None, [], [(5, 1, "a", 10, "rename")]),
    "in the new table alone": (None, "a", [], [(10, 2, "a", None, None)]),
    "changed after it": (
        (5, "a"),
        "a",
        [(2, 12, "update", "c")],
        [(5, 2, "a", 12, "update"), (12, 3, "c", None, None)],
    ),
    "deleted after it": ((5, "a"), "a", [(2, 12, "delete", None)], [(5, 2, "a", 12, "delete")]),
    "changed before it": (
        (5, "b"),
        "a",
        [(0, 8, "update", "a")],
        [(5, 1, "b", 8, "update"), (8, 2, "a", None, None)],
    ),
    "deleted before it": (
        (5, "a"),
        "a",
        [(0, 8, "delete", None)],
        [(5, 1, "a", 8, "delete"), (10, 2, "a", None, None)],
    ),
    "changed at its position": (
        (5, "a"),
        "a",
        [(2, 10, "update", "c")],
        [(5, 1, "a", 10, "rename"), (10, 2, "a", 10, "update"), (10, 3, "c", None, None)],
    ),
    "begun at its position": ((10, "a"), "a", [], [(10, 1, "a", 10, "rename"), (10, 2, "a", None, None)]),
}


def test_a_version_goes_on_where_an_equal_row_comes_in(spark: SparkSession) -> None:
    present = [
        (key, 0, 0, held[0], "insert", Row(id=1, v=held[1]), "t", 0, 0, Row(more=key))
        for key, (held, _, _, _) in REPLACED.items()
        if held
    ]
    changes = [
        (key, 0, era, at, 1, 0, op, None if op == "delete" else Row(id=1 if era == 0 else 3, v=v), "t", 0, 0)
        for key, (_, _, line, _) in REPLACED.items()
        for era, at, op, v in line
    ]
    coming = [
        (key, 0, 1, 10, 0, 0, "ddl", Row(id=2, v=new), "t", 0, 0) for key, (_, new, _, _) in REPLACED.items() if new
    ]
    changed, held, arrived = (
        frame_of_rows(spark, rows, kind) for rows, kind in ((changes, CHANGES), (present, OPEN), (coming, CHANGES))
    )
    line = build_timeline(changed, held, arrived)
    made = build_versions(continue_versions(keep_boundaries(line, REPLACEMENT), REPLACEMENT), REPLACEMENT)
    result: dict[str, list[Seen]] = {}
    for r in sorted(made.collect(), key=lambda r: (r["key"], r["commit_ts"], r["row"]["id"])):
        result.setdefault(r["key"], []).append((r["commit_ts"], *r["row"], r["to_ts"], r["closed_by"]))
    assert result == {key: versions for key, (_, _, _, versions) in REPLACED.items()}
