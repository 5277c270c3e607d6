"""Which parameters of tests are for which of make's targets.

`make test-fast` runs the tests marked `fast`, `make test-all` those marked `extended`, `make soak` those marked `soak`, and
`make test` the others.
Where all parameters of a test are for one target, the test itself has the mark.
"""

from typing import Any

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
# Further configurations that `make test-all` has: options of a changefeed or connector that change which columns a row has.
# `make soak` has all others.
EXTENDED_CONFIGURATIONS = frozenset(
    {
        "canal-json_ext_claim-check",
        "canal117-flat-dyn3-shanghai",
        "dbz195-double-connect",
        "open-protocol_delete-handle-only",
        "open-protocol_only-updated",
        "simple-json_handle-key-only",
    }
)
# Recorded streams that `make test-fast` has: one of each protocol, all types and gates among them.
FAST_STREAMS = frozenset(
    {
        ("canal-json", "types"),
        ("canal-json_ext", "types"),
        ("canal117-flat", "types"),
        ("debezium_ext_noschema", "types"),
        ("open-protocol", "types"),
        ("simple-avro", "nopk_raw"),
    }
)


def is_fast(parameters: dict[str, Any]) -> bool:
    """Return whether `make test-fast` runs a test with these parameters."""
    return (parameters.get("config"), parameters.get("scenario")) in FAST_STREAMS


def is_soak(parameters: dict[str, Any]) -> bool:
    """Return whether a test with these parameters is left to `make soak`."""
    configuration = parameters.get("config")
    return configuration is not None and configuration not in CONFIGURATIONS | EXTENDED_CONFIGURATIONS


def is_extended(fixtures: tuple[str, ...], parameters: dict[str, Any]) -> bool:
    """Return whether a test is left to `make test-all`.

    Args:
        fixtures: names of the fixtures that the test uses, directly or not.
        parameters: its parameters by name.
    """
    configuration = parameters.get("config")
    return (
        not EXTENDED_FIXTURES.isdisjoint(fixtures)
        or not EXTENDED_STORES.isdisjoint(str(parameters.get(name)) for name in ("place", "server"))
        or (configuration is not None and configuration not in CONFIGURATIONS)
    )
