"""Every column that is the project's own has its meaning on the asset's page; a source's columns have none of ours."""

from cdc_assets import quarantine, table_schemas
from cdc_assets.assets.columns import COLUMNS, HISTORY, RECORD
from cdc_assets.gate import release
from cdc_assets.history.apply import CDC_COLUMNS, COPY
from cdc_assets.protocols import events
from cdc_assets.sources import ingest


def test_every_column_of_ours_is_explained() -> None:
    explained = set(COLUMNS)
    for schema in (events.SCHEMA, table_schemas.SCHEMA, release.SCHEMA):
        assert set(schema.names) <= explained
    for schema in (ingest.SCHEMA, quarantine.SCHEMA):
        assert set(schema.names) <= set(RECORD)
    assert set(HISTORY) == {*CDC_COLUMNS.names, COPY}


def test_a_source_column_is_never_explained_as_one_of_ours() -> None:
    assert all(name.startswith("_cdc_") for name in HISTORY)
