"""initial_load: which dumped tables a feed's histories begin with, and at which positions.

Kept whatever else is derived again. The rows themselves are in released_changes, of kind `loaded`.
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

# In the place of a Kafka topic, which no broker lets have a blank in its name.
LOAD_TOPIC = "initial load"
# Of all changes of a key at one commit_ts what a table is loaded anew with comes last.
LAST_ORDINAL = 1 << 30


@dataclass(frozen=True)
class RefusedLoad:
    """A table that is not loaded, as its dump cannot be.

    Attributes:
        database: of the table.
        table: its name.
        why: for people: what is wrong, where, and what to do.
        dump: `told_apart` of the dump that is not looked at again; "": each run does, as it costs next to nothing.
    """

    database: str
    table: str
    why: str
    dump: str = ""


@dataclass(frozen=True, kw_only=True)
class LoadsCursor(Cursor):
    """What is planned.

    Attributes:
        settings: `initial_load` of the feeds file that the tables were found by.
        tables: how many there are.
        refused: the tables of the dump that are not among them.
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
            column(
                "position", BIGINT, "The TSO that the dump was taken at: the rows are those that the table had there."
            ),
            column("path", STRING, "The dump's folder."),
            column("format", STRING, "Its format, as in the feeds file."),
            column("time_zone", STRING, "The zone in which it prints TIMESTAMP."),
            column("statement", STRING, "The CREATE TABLE of its schema file."),
            column(
                "files",
                array(struct(path=STRING, size=BIGINT, modified=BIGINT)),
                "The files with rows, their bytes, and when they were written, in nanoseconds.",
            ),
            column(
                "anew",
                BOOLEAN,
                "Whether the table had changes before: then its rows take the place of those that it has there.",
            ),
        ]
    ),
    cursor=LoadsCursor,
)


def told_apart(row: Mapping[str, Any]) -> str:
    """What tells the dump of a table from another, or from the same with other files; `row`: of initial_load."""
    told = json.dumps({c: v for c, v in row.items() if c != "number"}, sort_keys=True)
    return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
