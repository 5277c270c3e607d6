"""Run bent records of each wire format; `make fuzz` runs more records in more formats."""

from collections.abc import Callable

import pytest

from cdc_assets_tests.fuzz import KINDS, Kind, hold, undisturbed
from cdc_assets_tests.support import Chain

MUTANTS = 200


@pytest.mark.parametrize(
    "kind",
    [
        # Bent bytes of an Avro datum make new names, and each name is a table.
        pytest.param(kind, id=kind.name, marks=pytest.mark.soak if kind.form == "datum" else ())
        for kind in KINDS
    ],
)
def test_bent_records_stop_nothing(chain: Callable[..., Chain], kind: Kind) -> None:
    with kind.feed_settings() as settings:
        hold(chain(**settings), kind, 1, MUTANTS, undisturbed(chain(**settings), kind))
