"""initial_load: which dumped tables a feed's histories begin with, and at which positions.

A rebuild keeps this table. The rows of the dumps are in released_changes, with kind `loaded`.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import StructType

from cdc_assets.lakehouse.cursor import Cursor
from cdc_assets.lakehouse.schema import BIGINT, BOOLEAN, STRING, array, column, struct
from cdc_assets.lakehouse.table import Definition

# Stands where a change has its Kafka topic. No broker accepts a topic name with a blank, so no topic has this name.
LOAD_TOPIC = "initial load"
# The ordinal of a reloaded row: it comes after all changes of its key at the same commit_ts.
LAST_ORDINAL = 1 << 30


@dataclass(frozen=True)
class RefusedLoad:
    """A table that cannot be loaded from its dump.

    Attributes:
        database: the source's database.
        table: the source's table.
        why: a message to people: what is wrong, where, and what to do.
        dump: `dump_digest` of the dump, which is not read again as long as it stays the same; "" if every run reads it.
    """

    database: str
    table: str
    why: str
    dump: str = ""


@dataclass(frozen=True, kw_only=True)
class LoadsCursor(Cursor):
    """The planned loads.

    Attributes:
        settings: `initial_load` of the feeds file, by which the loads were planned.
        tables: how many loads are planned.
        refused: the tables of the dump that cannot be loaded.
    """

    settings: str = ""
    tables: int = 0
    refused: list[RefusedLoad] = field(default_factory=list)


INITIAL_LOAD = Definition(
    columns=StructType(
        [
            column("number", BIGINT, "Number of the load, from 1."),
            column("database", STRING, "The source's database."),
            column("table", STRING, "The source's table."),
            column("position", BIGINT, "The TSO that the dump was taken at: it has the rows that the table had there."),
            column("path", STRING, "The dump's folder."),
            column("format", STRING, "The dump's format, as in the feeds file."),
            column("time_zone", STRING, "The zone in which the dump prints TIMESTAMP values."),
            column("statement", STRING, "The CREATE TABLE of the dump's schema file."),
            column(
                "files",
                array(struct(path=STRING, size=BIGINT, modified=BIGINT)),
                "The files with rows: path, size in bytes, modification time in nanoseconds.",
            ),
            column(
                "is_reload",
                BOOLEAN,
                "Whether the table had changes before the load: then the loaded rows replace those that it has there.",
            ),
        ]
    ),
    cursor=LoadsCursor,
)


def dump_digest(row: Mapping[str, Any]) -> str:
    """Return a digest of a table's dump, which changes when the dump or one of its files changes.

    Args:
        row: a row of initial_load.
    """
    identity = json.dumps({c: v for c, v in row.items() if c != "number"}, sort_keys=True)
    return hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
