"""Check the crash law across DDL: a run that is killed between two steps of a schema change is repeated."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_assets_tests.laws.crashing_run import install
from cdc_assets_tests.laws.encoders import TICDC
from cdc_assets_tests.laws.evolution import names_of, problems, released_below
from cdc_assets_tests.laws.mysql_model import ID, INT, Add, Column, Model, Modify, Rekey, not_null, varchar
from cdc_assets_tests.support import Chain, histories

pytestmark = pytest.mark.extended


def altered_and_renamed(model: Model) -> None:
    """Change a table by statements of several steps: an `__until_` column, a default, another key, another name."""
    model.alter("t", Modify(not_null("a", varchar(9))), Add(not_null("b", INT, "5")))
    model.update("t", 1, a="text")
    model.alter("t", Rekey(("b", "id")))
    model.rename(("t", "u"))
    model.update("u", 5, 2, v="there")


def replaced(model: Model) -> None:
    """Replace a table by another: one row is equal in both, one differs."""
    model.create("w", [ID, Column("v", varchar(20)), Column("c", INT, default="3")])
    model.insert("w", id=1, v="before")
    model.insert("w", id=2, v="another")
    model.rename(("t", "u"), ("w", "t"))
    model.update("t", 2, v="there")


@pytest.mark.parametrize(
    ("change", "shaped"), [(altered_and_renamed, 3), pytest.param(replaced, 1, marks=pytest.mark.soak)]
)
def test_a_run_that_dies_between_two_steps_is_repeated(
    change: Callable[[Model], None], shaped: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, encoder = Model(), TICDC["canal-json"]()
    model.create("t", [ID, Column("v", varchar(20)), not_null("a", INT)])
    for key in (1, 2):
        model.insert("t", id=key, v="before", a=key)
    model.watermark()
    first = len(model.log)
    change(model)
    model.watermark()
    chain = Chain(spark, tmp_path / "first", **encoder.settings)
    chain.add(encoder.encode(model.log[:first]))
    chain.run()
    chain.add(encoder.encode(model.log[first:]))
    undisturbed = chain.copy(tmp_path / "undisturbed")
    done: list[str] = []
    stood: dict[str, Chain] = {}

    def reached(moment: str) -> None:
        if moment == "shaped" or (moment.startswith("after") and done[-1].startswith("history/")):
            name = f"{len(stood)} {moment}"
            stood[name] = undisturbed.copy(tmp_path / name)

    with monkeypatch.context() as patched:
        install(reached, done.append, patched.setattr)
        undisturbed.run()
    assert problems(model, undisturbed, names_of(model), released_below(model, gated=True)) == []
    expected = histories(undisturbed.lake)
    *stood_still, last = stood
    moments = [name.split()[1] for name in stood_still]
    assert (moments.count("shaped") >= shaped, moments.count("after") >= 2, last.split()[1]) == (True, True, "after")
    for name in stood_still:
        killed = stood[name]
        killed.run()
        assert histories(killed.lake) == expected, name
