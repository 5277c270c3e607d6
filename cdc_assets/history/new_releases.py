"""The content of the releases that histories have not applied, read once for all tables. Without Spark."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cdc_assets.history.progress import Name
from cdc_assets.history.statements import Ddl, read_statements
from cdc_assets.lakehouse.decisions import Decision, identify_statement
from cdc_assets.lakehouse.initial_load import LOAD_TOPIC
from cdc_assets.lakehouse.log import DataFile
from cdc_assets.lakehouse.released_changes import ConnectorSnapshot, LoadedTable


@dataclass(frozen=True)
class NewReleases:
    """The content of the releases that at least one history has not applied.

    Attributes:
        layouts: by table, rows of released_changes of kind layout.
        statements: rows of released_changes of kind ddl.
        counts: by table: release -> number of row events.
        files: the files of released_changes with row events.
        schema_rows: rows of table_schemas.
        decided: people's decisions about statements, by statement id.
        loaded: the tables whose histories begin with a load, and the position of that load.
        typed: the loads of these whose rows are stored typed.
        reloads: by table, the positions of its reloads.
        snapshots: by table, the connector's snapshots that claim to have all rows of the table.
        read: by table: release -> the commit_ts of the last read of a snapshot that ended in that release.
    """

    layouts: Mapping[Name, list[dict[str, Any]]]
    statements: list[dict[str, Any]]
    counts: Mapping[Name, Counter[int]]
    files: list[DataFile]
    schema_rows: list[dict[str, Any]]
    decided: Mapping[str, Decision]
    loaded: Mapping[Name, int]
    typed: Mapping[Name, LoadedTable]
    reloads: Mapping[Name, frozenset[int]]
    snapshots: Mapping[Name, list[ConnectorSnapshot]]
    read: Mapping[Name, Mapping[int, int]]

    @cached_property
    def new_ddls(self) -> dict[str, tuple[int, Ddl]]:
        """Ids of the statements of these releases -> the release and the statement."""
        releases = {identify_statement(s): s["release"] for s in self.statements}
        return {d.id: (releases[d.id], d) for d in read_statements(self.statements, self.schema_rows, self.decided)}

    @cached_property
    def all_ddls(self) -> dict[str, Ddl]:
        """Ids of the statements of all releases, in `schema_rows` -> the statement."""
        sent = [r for r in self.schema_rows if r["ddl_statement"] is not None and r["topic"] != LOAD_TOPIC]
        return {d.id: d for d in read_statements(sent, self.schema_rows, self.decided)}

    @cached_property
    def schema_rows_by_table(self) -> dict[Name, list[dict[str, Any]]]:
        """The rows of table_schemas of each table."""
        by_table: dict[Name, list[dict[str, Any]]] = {}
        for r in self.schema_rows:
            by_table.setdefault((r["database"], r["table"]), []).append(r)
        return by_table
