"""Compare the table schemas that DDL alone gives with the model, after every statement and without Spark."""

import pytest
from hypothesis import HealthCheck, given, settings

from cdc_assets.ddl.apply import apply_ddl
from cdc_assets.ddl.shapes import TableSchema
from cdc_assets_tests.laws.evolution_cases import CASES, Case
from cdc_assets_tests.laws.mysql_model import Dialect, Model, Name, Statement
from cdc_assets_tests.laws.test_evolution_model import Life, lives

Described = tuple[list[tuple[str, str, bool]], tuple[str, ...]]


def describe_schemas(tables: dict[Name, TableSchema]) -> dict[Name, Described]:
    """Return the columns (name, type, nullable), in order, and the key of every table."""
    return {
        name: ([(c.name, c.type.lower().replace(" ", ""), c.nullable) for c in it.columns], tuple(it.primary_key))
        for name, it in tables.items()
    }


def describe_model(model: Model, ts: int) -> dict[Name, Described]:
    """Return the same from the model."""
    return {
        name: ([(c.name, c.type.sql.lower().replace(" ", ""), c.nullable) for c in it.shape.columns], it.shape.key)
        for name, it in model.state_at(ts).items()
    }


def check(model: Model, dialect: Dialect) -> None:
    tables: dict[Name, TableSchema] = {}
    for event in model.log:
        if isinstance(event, Statement):
            texts = [t.tidb_sql for t in event.tables] if dialect is Dialect.TIDB else [event.mysql_sql]
            for text in texts:
                effect = apply_ddl(tables, text, event.database)
                assert effect.error is None
                tables = dict(effect.tables)
            assert describe_schemas(tables) == describe_model(model, event.ts), texts


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_kind(case: Case, dialect: Dialect) -> None:
    model = Model()
    case.run(model, case.name)
    check(model, dialect)


@pytest.mark.parametrize("dialect", Dialect)
@settings(max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(life=lives(with_ddl=True))
def test_any_sequence(dialect: Dialect, life: Life) -> None:
    check(life.model, dialect)
