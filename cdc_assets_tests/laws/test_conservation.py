"""Check the conservation law over the recorded streams; the other tests of the laws check it on their own streams."""

from collections.abc import Callable

import pytest

from cdc_assets_tests.laws.conservation import conserved
from cdc_assets_tests.support import RECORDED, Chain, read_lines


@pytest.mark.parametrize("scenario", ["orders", "tz", "nopk"])
def test_every_record_and_every_row_event_is_accounted_for(scenario: str, recorded: Callable[[str], Chain]) -> None:
    chain = recorded(scenario)
    counts = conserved(chain.lake, chain.feed)
    first = read_lines(RECORDED / "ticdc/truth" / f"{scenario}.history")[0]
    assert counts.records == len(read_lines(RECORDED / "ticdc/canal-json_ext" / scenario))
    assert counts.undecodable == counts.late == counts.excluded == 0
    assert counts.rows == counts.released + counts.duplicate + counts.pending
    assert counts.pending >= first["events_pending"], "repeats of pending events are pending as well"
