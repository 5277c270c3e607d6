"""Row images that lack columns of their table, against the columns that a filter leaves out of every row."""

from collections.abc import Collection
from typing import Any

import pytest

from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.type_checks.incomplete_rows import columns_in_rows, refuse_incomplete_columns
from cdc_assets.type_checks.row_images import (
    Image,
    LogSpan,
    Name,
    Sending,
    Stretch,
    find_missing_columns,
    nothing_earlier,
)
from cdc_assets.type_checks.values import DESCRIBED, LEFT_OUT, ValueClass

pytestmark = pytest.mark.fast

TABLE = ("shop", "article")
CANAL = Sending(by_commit_ts=False, statements=True)
TICDC = Sending(by_commit_ts=True, statements=True)
DEBEZIUM = Sending(by_commit_ts=False, statements=False, keys_in_rows=False)
ALL = (CANAL, TICDC, DEBEZIUM)
COMPLETE = ("id", "title", "body")


def statement(at: int, columns: str | None, offset: int = 0, *, topic: str = "t", **others: Any) -> dict[str, Any]:
    """Return a row of table_schemas; of `columns`, names in one text, `id` is the key, and `g_...` are generated."""
    place = {"commit_ts": at, "topic": topic, "partition": 0, "offset": offset, "schema_version": None}
    place |= {"sequence": 10 * at + offset, "source": None}
    column_rows = (
        None
        if columns is None
        else [{"name": c, "type": "int", "generated": c.startswith("g_")} for c in columns.split()]
    )
    return place | {"database": "shop", "table": "article", "columns": column_rows, "key_columns": ["id"]} | others


def rows(*columns: str, at: tuple[int, int], offsets: tuple[int, int] | None = None, **others: Any) -> Image:
    """Return events of one layout in one partition, at these commit_ts, and at the same offsets if there are no others."""
    low, high = offsets or at
    more = {name: others.pop(name) for name in ("keyed", "log") if name in others}
    stretch = Stretch("t", 0, low, high, *at, 1, 1, **more)
    return Image(TABLE, columns, others.pop("changed", True), others.pop("key", ()), [stretch])


def lacking(images: list[Image], schemas: list[dict[str, Any]], sending: Sending = CANAL, *before: str) -> list[Any]:
    """Return the columns that rows lack, each with the commit_ts from which on."""

    def earlier(names: Collection[Name]) -> dict[Name, dict[str, int]]:
        return {name: dict.fromkeys(before, 1) for name in names}

    return [(m.column, m.since) for m in find_missing_columns(images, schemas, sending, earlier)]


CREATED = statement(1, "id title body", 1)


@pytest.mark.parametrize("sending", ALL)
def test_a_column_of_the_schema_that_rows_lack(sending: Sending) -> None:
    assert lacking([rows(*COMPLETE, at=(2, 3)), rows("id", "title", at=(4, 6))], [CREATED], sending) == [("body", 4)]


@pytest.mark.parametrize("sending", ALL)
def test_complete_rows_generated_columns_and_other_letter_case_lack_nothing(sending: Sending) -> None:
    schemas = [statement(1, "id Title body g_sum")]
    assert lacking([rows("ID", "title", "BODY", at=(2, 9)), rows(*COMPLETE, "more", at=(3, 4))], schemas, sending) == []


@pytest.mark.parametrize("sending", [CANAL, TICDC])
def test_a_column_that_a_statement_adds_or_drops(sending: Sending) -> None:
    added, dropped = statement(5, "id title body tag", 5), statement(5, "id title", 5)
    old, new = rows(*COMPLETE, at=(2, 4)), rows(*COMPLETE, "tag", at=(6, 9))
    assert lacking([old, new], [CREATED, added], sending) == []
    assert lacking([old, rows("id", "title", at=(6, 9))], [CREATED, dropped], sending) == []
    # Some rows of one layout come before the statement, some after it.
    assert lacking([rows(*COMPLETE, at=(2, 9)), new], [CREATED, added], sending) == [("tag", 6)]
    assert lacking([old, rows("id", "title", at=(3, 9))], [CREATED, dropped], sending) == [("body", 3)]


def test_statements_of_one_second_in_two_topics_are_in_the_order_of_their_effect() -> None:
    """Debezium sends a TRUNCATE in the table's topic, all other statements in a topic of their own."""
    truncated = statement(5, "id title body", topic="t", sequence=1)
    dropped = statement(5, "id title", topic="schemas", sequence=2)
    rows_after = rows("id", "title", at=(6, 9))
    assert lacking([rows(*COMPLETE, at=(2, 4)), rows_after], [CREATED, truncated, dropped], DEBEZIUM) == []


def test_offsets_and_not_clocks_order_rows_and_statements() -> None:
    """A row has the time at which its statement began: one that waited for a lock is older than the ALTER before it."""
    dropped = statement(50, "id title", 5)
    assert lacking([rows("id", "title", at=(40, 41), offsets=(6, 7))], [CREATED, dropped]) == []
    assert lacking([rows("id", "title", at=(40, 61), offsets=(6, 7))], [CREATED, dropped]) == []
    assert lacking([rows("id", "title", at=(60, 61), offsets=(3, 4))], [CREATED, dropped]) == [("body", 60)]
    # For another partition, only the clock gives the order.
    elsewhere = statement(50, "id title", 5, topic="other")
    assert lacking([rows("id", "title", at=(40, 41))], [CREATED, elsewhere]) == []
    assert lacking([rows("id", "title", at=(60, 61))], [CREATED, elsewhere]) == []


def test_repeated_rows_count_as_rows_before_the_statement() -> None:
    added = statement(50, "id title body tag", 5)
    assert lacking([rows(*COMPLETE, at=(20, 40), offsets=(8, 9))], [CREATED, added]) == []
    assert lacking([rows(*COMPLETE, at=(20, 40), offsets=(2, 9))], [CREATED, added]) == []
    assert lacking([rows(*COMPLETE, at=(20, 60), offsets=(2, 9))], [CREATED, added]) == [("tag", 51)]
    grown = rows(*COMPLETE, "tag", at=(60, 70), offsets=(4, 5))
    for sending in (CANAL, TICDC):
        assert lacking([rows(*COMPLETE, at=(20, 40), offsets=(2, 9)), grown], [], sending) == []
    assert incomplete_later("tag", first=60) == []
    assert incomplete_later("tag", first=10) == [("tag", 20)]


def incomplete_later(column: str, first: int) -> list[Any]:
    """Return what rows at commit_ts 20 to 40 lack of the columns of earlier runs: this one, first seen there."""
    missing = find_missing_columns(
        [rows(*COMPLETE, at=(20, 40))], [], CANAL, lambda names: {n: {column: first} for n in names}
    )
    return [(m.column, m.since) for m in missing]


def test_debezium_may_stamp_a_statement_later_than_the_rows_after_it() -> None:
    schemas = [statement(1, "id title body", topic="schemas"), statement(50, "id title", topic="schemas")]
    assert lacking([rows(*COMPLETE, at=(2, 9)), rows("id", "title", at=(10, 40))], schemas, DEBEZIUM) == []


@pytest.mark.parametrize("sending", [CANAL, TICDC])
def test_rows_without_a_table_schema_are_compared_with_each_other(sending: Sending) -> None:
    complete, part = rows(*COMPLETE, at=(1, 4)), rows("id", "title", at=(5, 9))
    assert lacking([complete, part], [], sending) == [("body", 5)]
    # An earlier run has seen the column.
    assert lacking([part], [], sending, "id", "title", "body") == [("body", 5)]
    # Rows look like this if a statement that adds a column is missing in the feed.
    assert lacking([rows("id", "title", at=(1, 4)), rows(*COMPLETE, at=(5, 9))], [], sending) == []
    assert lacking([rows("id", "title", at=(1, 8)), rows(*COMPLETE, at=(5, 9))], [], sending) == [("body", 1)]
    # A statement between the rows may have dropped the column, even a statement that is not understood.
    assert lacking([complete, part], [statement(5, None, 5)], sending) == []


def test_debezium_need_not_get_statements() -> None:
    complete, part = rows(*COMPLETE, at=(1, 4)), rows("id", "title", at=(5, 9))
    assert lacking([complete, part], [], DEBEZIUM) == []
    assert lacking([rows(*COMPLETE, at=(1, 20)), part], [], DEBEZIUM) == [("body", 5)]


def test_a_delete_needs_its_key_or_all_columns_without_a_key() -> None:
    schemas = [CREATED]
    assert lacking([rows("id", at=(2, 3), changed=False)], schemas) == []
    assert lacking([rows("title", at=(2, 3), changed=False)], schemas) == [("id", 2)]
    assert lacking([rows("id", at=(2, 3), changed=False)], [CREATED | {"key_columns": []}]) == [
        ("body", 2),
        ("title", 2),
    ]


@pytest.mark.parametrize("sending", [CANAL, TICDC])
def test_a_delete_without_a_key_and_a_schema_is_compared_with_other_rows(sending: Sending) -> None:
    """Its message may have the columns of a unique key that is not known."""
    complete, part = rows(*COMPLETE, at=(1, 4)), rows("id", at=(5, 9), changed=False)
    assert sorted(lacking([complete, part], [], sending)) == [("body", 5), ("title", 5)]
    assert sorted(lacking([part], [], sending, *COMPLETE)) == [("body", 5), ("title", 5)]
    assert lacking([complete, rows("id", at=(5, 9), changed=False, key=["id"])], [], sending) == []
    assert lacking([complete, rows(*COMPLETE, at=(5, 9), changed=False)], [], sending) == []


def test_a_row_that_cannot_be_placed_is_refused_whatever_others_have() -> None:
    def needed(image: Image, sending: Sending = CANAL) -> list[tuple[str, bool]]:
        return [(m.column, m.needed) for m in find_missing_columns([image], [CREATED], sending, nothing_earlier)]

    assert needed(rows("title", "body", at=(2, 3), keyed=False)) == [("id", True)]
    assert needed(rows("title", "body", at=(2, 3), key=["id"])) == [("id", True), ("id", False)]
    # The key of Debezium's record is complete, whatever columns the row lacks.
    assert needed(rows("title", "body", at=(2, 3), key=["id"]), DEBEZIUM) == [("id", False)]


def test_a_dump_has_the_outcome_of_the_rows_before_it() -> None:
    dumped = statement(7, "id title body", topic=LOAD_TOPIC)
    assert lacking([rows("id", "title", at=(2, 7))], [CREATED, dumped]) == []
    assert lacking([rows("id", "title", at=(2, 9))], [CREATED, dumped]) == [("body", 8)]


# --- the verdict


def observation(column: str, value_class: str = "any", at: int = 5, **others: Any) -> dict[str, Any]:
    """Return a row of type_observations."""
    verdict = {"code_verdict": "ok", "stated": f'{{"value_class": "{value_class}"}}', "events": 3}
    place = {"first": {"commit_ts": at}, "last": {"commit_ts": at}}
    return {"database": "shop", "table": "article", "column": column} | place | verdict | others


def refused(observations: list[Any], before: list[Any], schemas: list[Any] | None = None) -> list[tuple[str, int]]:
    """Return the columns that are refused, each with its events."""
    judged = refuse_incomplete_columns(observations, schemas or [], lambda _: before)
    return [(o["column"], o["events"]) for o in judged if o["code_verdict"] != "ok"]


def test_a_column_that_no_row_has_is_left_out_by_a_filter() -> None:
    assert refused([observation("id"), observation("body", LEFT_OUT)], [observation("body", LEFT_OUT)]) == []
    # A schema change names it, and no row has it.
    assert refused([observation("body", LEFT_OUT), observation("body", DESCRIBED)], []) == []


def test_a_column_that_other_rows_have_is_refused_in_whichever_run_they_come() -> None:
    left_out, present = observation("body", LEFT_OUT), observation("Body")
    assert refused([left_out, present], []) == [("body", 3)]
    assert refused([left_out], [present]) == [("body", 3)]
    # The events of the earlier run are counted there.
    assert refused([present], [left_out]) == [("body", 0)]
    assert refused([present], [left_out], [{**CREATED, "topic": LOAD_TOPIC, "commit_ts": 9}]) == []
    assert columns_in_rows([left_out, present, observation("x", ValueClass.MISSING)]) == {TABLE: {"body": 5}}


def test_as_many_layouts_as_messages_cost_no_more_than_the_messages() -> None:
    images = [rows("id", f"c{n}", at=(n, n)) for n in range(5000)]
    for sending in ALL:
        missing = find_missing_columns(images, [], sending, nothing_earlier)
        assert len(missing) == (4999 if sending.statements else 0)


def in_log(first: int, last: int, server: int = 1) -> LogSpan:
    return LogSpan(frozenset({server}), (7, first), (7, last))


def added_at(position: int) -> dict[str, Any]:
    """Return ADD COLUMN body at commit_ts 4, in the topic of Debezium's schema changes."""
    place = {"server_id": 1, "file": "binlog.000007", "position": position, "gtid": None}
    return statement(4, "id title body", topic="changes", source=place)


# The clock of the rows is 6 to 8, later than that of the statement, which waited for their transaction.
@pytest.mark.parametrize(
    ("log", "missing"),
    [
        (in_log(100, 200), []),
        (in_log(600, 700), [("body", 6)]),
        (in_log(400, 600), [("body", 6)]),
        (in_log(100, 200, server=2), [("body", 6)]),
        (None, [("body", 6)]),
    ],
)
def test_the_binlog_orders_rows_before_a_statement_that_waited(log: LogSpan | None, missing: list[Any]) -> None:
    created = statement(1, "id title", topic="changes")
    lacking_rows = rows("id", "title", at=(6, 8), log=log)
    assert lacking([lacking_rows, rows(*COMPLETE, at=(9, 9))], [created, added_at(500)], DEBEZIUM) == missing
