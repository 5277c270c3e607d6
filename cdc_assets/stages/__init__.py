"""Run the steps of the pipeline: one module or folder for each stage, in one ordered list."""

from typing import Any, Protocol

from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages.decode import Decode
from cdc_assets.stages.history.stage import History
from cdc_assets.stages.ingest import Ingest
from cdc_assets.stages.load.stage import Load
from cdc_assets.stages.release.stage import Release
from cdc_assets.stages.schemas import Schemas
from cdc_assets.stages.types import Types


class Stage(Protocol):
    """One step of the pipeline: it reads the tables of earlier stages and commits to its own."""

    name: str

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Return whether the stage has anything to do, without Spark."""

    def run(self, lake: Lakehouse, feed: Feed) -> Any:  # noqa: ANN401 -- each stage has a report of its own
        """Read the new input, transform it, commit it, and return a report of plain values."""


INGEST, DECODE, LOAD, SCHEMAS = Ingest(), Decode(), Load(), Schemas()
TYPES, RELEASE, HISTORY = Types(), Release(), History()
# In the order in which they run: no stage reads the table of a later one.
STAGES: tuple[Stage, ...] = (INGEST, DECODE, LOAD, SCHEMAS, TYPES, RELEASE, HISTORY)
