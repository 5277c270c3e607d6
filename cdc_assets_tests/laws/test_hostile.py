"""Hostile input: some bent records of each wire format; `make fuzz` is the same over more, and over more formats."""

from collections.abc import Callable

import pytest

from cdc_assets_tests.fuzz import KINDS, Kind, hold, undisturbed
from cdc_assets_tests.support import Chain

MUTANTS = 200


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_bent_records_stop_nothing(chain: Callable[..., Chain], kind: Kind) -> None:
    hold(chain(**kind.settings), kind, 1, MUTANTS, undisturbed(chain(**kind.settings), kind))
