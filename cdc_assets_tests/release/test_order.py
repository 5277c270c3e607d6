"""Feeds without watermarks: one second of a key, told in two partitions, of which a run sees one without the other."""

from collections.abc import Callable

import pytest

from cdc_assets_tests.support import Chain, Message, Rows, Stream, tso

BEFORE, AT = tso(1_000), tso(2_000)


def plain(message: Message) -> Message:
    """As official Canal sends it."""
    return {name: value for name, value in message.items() if name != "_tidb"}


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_row_that_leaves_its_key(chain: Callable[..., Chain], ahead: int) -> None:
    """In one second row 1 becomes b and moves to key 7, row 2 moves to key 8, and another row takes key 2.

    Canal tells a move in the partition of the new key, here 1, and the rest in that of the old one, 0.
    """
    made, rows = chain(protocol="canal-json"), Rows()
    stream = Stream(partitions=2)
    for key, v in ((1, "a"), (2, "z")):
        stream.send(plain(rows.insert(BEFORE, key, v)))
    second = {
        0: [rows.update(AT, 1, "b", "a"), rows.insert(AT, 2, "y")],
        1: [rows.update(AT, 7, "b", "b", old_key=1), rows.update(AT, 8, "z", "z", old_key=2)],
    }
    made.add(stream.records)
    made.run()
    reports = []
    for partition in (ahead, 1 - ahead):
        made.add([stream.send(plain(message), partition) for message in second[partition]])
        reports.append(made.run().release)
    assert {r["id"]: r["v"] for r in made.history() if r["_cdc_is_current"]} == {7: "b", 8: "z", 2: "y"}
    # Where row 1 was seen to leave first, what it had become comes too late for a version of its own, and is told.
    assert [r.late_unseen for r in reports] == [0, ahead]
    told = [(r["partition"], r["offset"], r["key"]) for report in reports for r in report.late_sample]
    assert told == [(0, 2, '["1"]')] * ahead


def test_a_row_that_comes_back_to_its_key(chain: Callable[..., Chain]) -> None:
    """What goes on from the state that is there is new, though it leaves what was there when the second began."""
    made, rows, stream = chain(protocol="canal-json"), Rows(), Stream(partitions=2)
    stream.send(plain(rows.insert(BEFORE, 1, "a")))
    stream.send(plain(rows.update(AT, 7, "a", "a", old_key=1)), partition=1)
    made.add(stream.records)
    made.run()
    made.add([stream.send(plain(rows.update(AT, 1, "a", "a", old_key=7)))])
    assert made.run().release.late_unseen == 0
    assert {r["id"]: r["v"] for r in made.history() if r["_cdc_is_current"]} == {1: "a"}
