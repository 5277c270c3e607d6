"""Find open rows whose parent row has ended; the expected rows follow from MySQL's manual, "FOREIGN KEY Constraints"."""

import pytest
from pyspark.sql import SparkSession

from cdc_assets.ddl.actions import ForeignKey, TableName
from cdc_assets.history.missing_parents import MissingParents, find_rows_without_parent, pair_columns, summarize
from cdc_assets_tests.support import frame_of_rows

VERSION = "_cdc_key STRING, _cdc_from_ts BIGINT, _cdc_to_ts BIGINT, _cdc_closed_by STRING, _cdc_is_current BOOLEAN"
PARENTS, CHILDREN = f"{VERSION}, id INT, code STRING", f"{VERSION}, `par ent` BIGINT, code STRING"
KEY = ForeignKey("fk", ("par ent",), TableName("shop", "p"), ("id",), "CASCADE")

Version = tuple[int, int | None, str | None, int | None]  # begin, end, closed by, the value of the compared column


def find(
    spark: SparkSession, parents: list[Version], children: list[Version], *, by_update: bool = False
) -> list[tuple[str, str, int]]:
    """Return the keys of children without a parent, the values of the parent, and when it ended."""
    old = frame_of_rows(
        spark, [(str(n), a, b, by, b is None, v, "x") for n, (a, b, by, v) in enumerate(parents)], PARENTS
    )
    new = frame_of_rows(
        spark, [(str(n), a, b, by, b is None, v, "x") for n, (a, b, by, v) in enumerate(children)], CHILDREN
    )
    rows = find_rows_without_parent(new, old, [("par ent", "id")], by_update=by_update)
    return sorted((row["key"], row["parent_values"], row["removed_ts"]) for row in rows.collect())


def test_rows_that_a_delete_cascaded_to(spark: SparkSession) -> None:
    parents: list[Version] = [(1, 9, "delete", 1), (1, None, None, 2), (1, 9, "truncate", 3), (1, 9, "snapshot", 4)]
    children: list[Version] = [
        (5, None, None, 1),  # lost
        (5, 8, "delete", 1),  # its own DELETE came before that of its parent
        (5, None, None, 2),
        (5, None, None, None),
        (5, None, None, 3),
        (5, None, None, 4),
        (9, None, None, 1),  # lost: the source accepted it while the parent existed
        (10, None, None, 1),  # the parent must exist again, but the feed does not have it yet
    ]
    assert find(spark, parents, children) == [("0", "1", 9), ("6", "1", 9)]


def test_a_parent_that_was_inserted_again(spark: SparkSession) -> None:
    parents: list[Version] = [(1, 9, "delete", 1), (12, 15, "delete", 1), (20, None, None, 1)]
    children: list[Version] = [(5, None, None, 1), (13, None, None, 1), (21, None, None, 1)]
    assert find(spark, parents, children) == [("0", "1", 9), ("1", "1", 15)], "the first end of the parent"


def test_a_parent_that_changes_other_columns(spark: SparkSession) -> None:
    parents: list[Version] = [(1, 9, "update", 1), (9, None, None, 1)]
    assert find(spark, parents, [(5, None, None, 1)], by_update=True) == []


def test_a_parent_whose_columns_change(spark: SparkSession) -> None:
    parents: list[Version] = [(1, 9, "update", 1), (9, None, None, 2)]
    assert find(spark, parents, [(5, None, None, 1)], by_update=True) == [("0", "1", 9)]
    assert find(spark, parents, [(5, None, None, 1)]) == [], "without ON UPDATE the source refuses it"
    # An UPDATE of the key ends the version as a delete does, and the values may go on under the new key.
    parents = [(1, 9, "delete", 1), (9, None, None, 2)]
    assert find(spark, parents, [(5, None, None, 1)], by_update=True) == [("0", "1", 9)]
    parents = [(1, 9, "delete", 1), (9, None, None, 1)]
    assert find(spark, parents, [(5, None, None, 1), (9, None, None, 1)]) == []


def test_a_foreign_key_of_two_columns(spark: SparkSession) -> None:
    parents = frame_of_rows(spark, [("1", 1, 9, "delete", False, 1, "x"), ("2", 1, None, None, True, 1, "y")], PARENTS)
    children = frame_of_rows(
        spark, [(str(n), 5, None, None, True, 1, code) for n, code in enumerate(["x", "y", None])], CHILDREN
    )
    rows = find_rows_without_parent(children, parents, [("par ent", "id"), ("code", "code")], by_update=False)
    assert summarize(rows, KEY) == MissingParents(
        1, [{"foreign_key": "fk", "parent": "shop.p", "key": "0", "parent_values": "1, x", "removed_ts": 9}]
    )


@pytest.mark.parametrize(
    ("children", "parents", "expected"),
    [
        (["PAR ENT"], ["Id"], [("PAR ENT", "Id")]),
        (["par ent"], ["other"], None),
        (["other"], ["id"], None),
    ],
)
def test_columns_match_in_any_letter_case(
    children: list[str], parents: list[str], expected: list[tuple[str, str]] | None
) -> None:
    assert pair_columns(KEY, children, parents) == expected


def test_columns_that_the_histories_rename() -> None:
    key = ForeignKey("fk", ("_cdc_a",), TableName("shop", "p"), ("id",), "CASCADE")
    assert pair_columns(key, ["_source_cdc_a"], ["id"]) == [("_source_cdc_a", "id")]


def test_a_key_without_columns_is_not_compared() -> None:
    assert pair_columns(ForeignKey("fk", ("a",), TableName("shop", "p")), ["a"], ["id"]) is None
