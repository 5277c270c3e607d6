"""Feeds without watermarks: events of one key and second in two partitions, of which a run has only one."""

from collections.abc import Callable

import pytest

from cdc_assets_tests.support import Chain, Message, Rows, Stream, tso

BEFORE, AT = tso(1_000), tso(2_000)


def plain(message: Message) -> Message:
    """Return a message without the TiDB extension, as Canal sends it."""
    return {name: value for name, value in message.items() if name != "_tidb"}


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_row_that_leaves_its_key(chain: Callable[..., Chain], ahead: int) -> None:
    """In one second row 1 becomes b and moves to key 7, row 2 moves to key 8, and another row takes key 2.

    Canal sends the change of a key to the partition of the new key, here 1, and the other changes to partition 0.
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
    # If the first run has the row leaving its key, the earlier update comes too late for a version, and is reported.
    assert [r.late_unseen for r in reports] == [0, ahead]
    sample = [(r["partition"], r["offset"], r["key"]) for report in reports for r in report.late_sample]
    assert sample == [(0, 2, '["1"]')] * ahead


def test_a_row_that_comes_back_to_its_key(chain: Callable[..., Chain]) -> None:
    """A change that continues the current state is new, although it restores the row of the beginning of the second."""
    made, rows, stream = chain(protocol="canal-json"), Rows(), Stream(partitions=2)
    stream.send(plain(rows.insert(BEFORE, 1, "a")))
    stream.send(plain(rows.update(AT, 7, "a", "a", old_key=1)), partition=1)
    made.add(stream.records)
    made.run()
    made.add([stream.send(plain(rows.update(AT, 1, "a", "a", old_key=7)))])
    assert made.run().release.late_unseen == 0
    assert {r["id"]: r["v"] for r in made.history() if r["_cdc_is_current"]} == {1: "a"}
