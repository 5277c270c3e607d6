"""What messages said of columns as tables of cursor format 1 keep it (`mysql_types`), in the layouts of today."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.protocols.base import Protocol
from cdc_assets.protocols.canal_json import CanalJson, layout_text
from cdc_assets.protocols.simple import Simple

_Both = tuple[Column, Column]  # layout, layout_id


def _of_message() -> _Both:
    layout = F.col("mysql_types")
    return layout, F.xxhash64(layout)


def _of_canal_json() -> _Both:
    columns = F.map_entries(F.from_json("mysql_types", "MAP<STRING, STRING>"))
    each = F.transform(columns, lambda c: F.to_json(F.create_map(c["key"], c["value"]), {"ignoreNullFields": "false"}))
    entries = F.array_sort(F.transform(each, lambda text: F.substr(text, F.lit(2), F.length(text) - 2)))
    layout = layout_text(F.col("key_columns"), F.concat(F.lit("{"), F.array_join(entries, ","), F.lit("}")))
    return layout, F.xxhash64(layout)


def _of_simple() -> _Both:
    """The schema that a row names is its layout; what it holds, only released changes have."""
    columns = F.map_entries(F.from_json("mysql_types", "MAP<STRING, STRING>"))
    named = F.transform(columns, lambda c: F.struct(c["key"].alias("name"), c["value"].alias("type")))
    return F.to_json(named), F.xxhash64("database", "table", "table_id", "schema_version")


_LAYOUTS: dict[type[Protocol], Callable[[], _Both]] = {CanalJson: _of_canal_json, Simple: _of_simple}


def with_layouts(rows: DataFrame, protocol: Protocol) -> DataFrame:
    """Add `layout` and `layout_id` to change events, or to released changes, of format 1, as decoding gives them now.

    Of protocols whose rows name their schema by number, `layout` of an event is null, as it is now.
    """
    layout, layout_id = _LAYOUTS.get(type(protocol), _of_message)()
    row = F.col("kind") == "row"
    return rows.withColumns({"layout": F.when(row, layout), "layout_id": F.when(row, layout_id)}).drop("mysql_types")
