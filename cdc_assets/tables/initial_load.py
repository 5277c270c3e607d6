"""initial_load: which dumped tables a feed's histories begin with, and at which positions.

Kept whatever else is derived again. The rows themselves are in released_changes, of kind `loaded`.
"""

from dataclasses import dataclass

from pyspark.sql.types import StructType

from cdc_assets.tables.cursor import Cursor
from cdc_assets.tables.schema import BIGINT, STRING, array, column, struct
from cdc_assets.tables.table import Definition

# In the place of a Kafka topic, which no broker lets have a blank in its name.
LOAD_TOPIC = "initial load"


@dataclass(frozen=True, kw_only=True)
class LoadsCursor(Cursor):
    """What is planned.

    Attributes:
        settings: `initial_load` of the feeds file that the tables were found by.
        tables: how many there are.
    """

    settings: str = ""
    tables: int = 0


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
            column("files", array(struct(path=STRING, size=BIGINT)), "The files with rows, and their bytes."),
        ]
    ),
    cursor=LoadsCursor,
)
