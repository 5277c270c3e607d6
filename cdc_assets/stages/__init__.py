"""What is done: one module a stage, all of one shape, in one ordered list."""

from typing import Any, Protocol

from cdc_assets.config import Feed
from cdc_assets.lakehouse.lakehouse import Lakehouse
from cdc_assets.stages.decode import Decode
from cdc_assets.stages.history import History
from cdc_assets.stages.ingest import Ingest
from cdc_assets.stages.load import Load
from cdc_assets.stages.release import Release
from cdc_assets.stages.schemas import Schemas
from cdc_assets.stages.types import Types


class Stage(Protocol):
    """One step of the pipeline, from what a stage before it has kept to a commit of its own."""

    name: str

    def due(self, lake: Lakehouse, feed: Feed) -> bool:
        """Whether there is anything to do; asked without Spark."""

    def run(self, lake: Lakehouse, feed: Feed) -> Any:  # noqa: ANN401 -- each stage has a report of its own
        """Read what is new, transform it, commit it; a report of plain values."""


INGEST, DECODE, LOAD, SCHEMAS = Ingest(), Decode(), Load(), Schemas()
TYPES, RELEASE, HISTORY = Types(), Release(), History()
# In the order in which they run: none reads the table of one that comes after it.
STAGES: tuple[Stage, ...] = (INGEST, DECODE, LOAD, SCHEMAS, TYPES, RELEASE, HISTORY)
