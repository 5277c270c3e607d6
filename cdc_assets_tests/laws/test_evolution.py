"""Check schema evolution, one case for each kind of DDL, in every protocol: the as-of law, and the history's columns.

All cases of a protocol are one stream that is run once; with `EVOLUTION_ALL=1` every protocol runs all cases.
`test_evolution_model` mixes several kinds of DDL.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from cdc_assets_tests.laws.binlog_encoders import BINLOG
from cdc_assets_tests.laws.encoders import TICDC
from cdc_assets_tests.laws.evolution import columns_of, problems, released_below
from cdc_assets_tests.laws.evolution_cases import CASES, OPEN, Case, Columns
from cdc_assets_tests.laws.mysql_model import Model, Name
from cdc_assets_tests.support import Chain

ENCODERS = TICDC | BINLOG
THOROUGH = "canal-json"  # this protocol runs all cases
ALL = bool(os.environ.get("EVOLUTION_ALL"))  # with EVOLUTION_ALL=1 every protocol does
Lived = Callable[[str], "Life"]


@dataclass(frozen=True)
class Life:
    """All cases in one stream of a protocol, run, with the columns that each case expects."""

    model: Model
    chain: Chain
    columns: dict[str, dict[Name, dict[str, str]]]
    failure: Exception | None


def _expected(model: Model, columns: Columns) -> dict[Name, dict[str, str]]:
    return {model.name(table): own for table, own in columns.items()}


@pytest.fixture(scope="module")
def lived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    done: dict[str, Life] = {}

    def life(protocol: str) -> Life:
        if protocol not in done:
            model, encoder = Model(), ENCODERS[protocol]()
            columns = {c.name: _expected(model, c.run(model, c.name)) for c in _cases(protocol)}
            model.watermark()
            chain = Chain(spark, tmp_path_factory.mktemp(protocol), **encoder.settings)
            chain.add(encoder.encode(model.log))
            failure = None
            try:
                chain.run()
            except Exception as error:  # noqa: BLE001 the tables of other cases are as they should be
                failure = error
            done[protocol] = Life(model, chain, columns, failure)
        return done[protocol]

    return life


def _cases(protocol: str) -> list[Case]:
    able = [c for c in CASES if ENCODERS[protocol].has_databases or not c.databases]
    return able if protocol == THOROUGH or ALL else [c for c in able if c.everywhere]


# `debezium` differs from this protocol only in the messages' schemas.
MARKS = {THOROUGH: [pytest.mark.fast], "debezium-noschemas": [pytest.mark.soak]}
PAIRS = [pytest.param(p, c, id=f"{p}-{c}", marks=MARKS.get(p, [])) for p in ENCODERS for c in _cases(p)]


@pytest.mark.parametrize(("protocol", "case"), PAIRS)
def test_history_is_the_table_at_every_position(protocol: str, case: Case, lived: Lived) -> None:
    life = lived(protocol)
    below = released_below(life.model, gated=ENCODERS[protocol].gated)
    assert problems(life.model, life.chain, life.columns[case.name], below) == []


@pytest.mark.parametrize(("protocol", "case"), PAIRS)
def test_history_has_the_columns_of_the_design(protocol: str, case: Case, lived: Lived) -> None:
    life = lived(protocol)
    for name, own in life.columns[case.name].items():
        columns = columns_of(life.chain, name)
        if OPEN in own:
            left = {c: t for c, t in own.items() if c != OPEN}
            assert {c: t for c, t in columns.items() if "__until_" not in c} == left
        else:
            assert columns == own


@pytest.mark.parametrize("protocol", [pytest.param(p, marks=MARKS.get(p, [])) for p in ENCODERS])
def test_every_table_was_written(protocol: str, lived: Lived) -> None:
    life = lived(protocol)
    assert life.failure is None
    assert {q["reason"] for q in life.chain.quarantine()} <= {"zero_date"}
