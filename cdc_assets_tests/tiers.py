"""Which tests `make test` leaves to `make test-all`: those that wait for servers, and variants of what it runs once."""

from pathlib import Path
from typing import Any

# Files of which no test is in `make test`.
EXTENDED_FILES = frozenset(
    {
        "pages.py",
        "test_class_archive.py",
        "test_cluster.py",
        "test_evolution_crash.py",
        "test_generated_rows.py",
        "test_real_dumps.py",
    }
)
# Fixtures that start a browser.
EXTENDED_FIXTURES = frozenset({"page"})
# Where the lakehouse lies: `make test` has local folders and S3.
EXTENDED_STORES = frozenset({"gcs", "azure", "hdfs"})
# Configurations of encoders that `make test` has, at least one a protocol; all others are variants of these.
CONFIGURATIONS = frozenset(
    {
        "canal-json",
        "canal-json_ext",
        "canal117-flat",
        "dbz195-schemas",
        "dbz350m-noschemas-tx",
        "debezium",
        "debezium_ext_noschema",
        "open-protocol",
        "simple-avro",
        "simple-json",
    }
)


def is_extended(file: Path, fixtures: tuple[str, ...], parameters: dict[str, Any]) -> bool:
    """Return whether a test is left to `make test-all`.

    Args:
        file: of the test.
        fixtures: names of the fixtures that the test uses, directly or not.
        parameters: its parameters by name.
    """
    configuration = parameters.get("config")
    return (
        file.name in EXTENDED_FILES
        or not EXTENDED_FIXTURES.isdisjoint(fixtures)
        or not EXTENDED_STORES.isdisjoint(str(parameters.get(name)) for name in ("place", "server"))
        or (configuration is not None and configuration not in CONFIGURATIONS)
    )
