"""Names as people give them, and stranger ones, all of which the server takes."""

import random

PLAIN = ("orders", "customers", "items", "log_2024", "Accounts", "ledger")
STRANGE = (
    "漢字" * 24,  # the server needs 5 bytes of a file's name for each
    "long_" * 12 + "name",
    "per%cent %s",
    "dot.ted.name",
    "back`tick",
    "quo'te\"s",
    " leading and inner  spaces",
    "select",
    "semi;colon -- /*x*/",
    "~2E~",
    "_delta_log",
    "$dollar#@!",
    "\u017fharp-ß",  # its first letter is an s in lower case
)
# Without backticks: Debezium 3.5 doubles them in the names of columns.
COLUMNS = (
    "a", "b", "c", "Value", "amount", "note", "x y", "per%cent", "dot.ted", "key", "漢字列", "é" * 64, "_cdc_note",
    "n0", "From", "1st", "a-b", "quo'te", 'dou"ble', "until", "a,b", "semi;colon",
)  # fmt: skip


def quoted(name: str) -> str:
    """Return a name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def written(rng: random.Random, name: str) -> str:
    """Return a name as it may stand in a statement: in backticks, or plain where that does."""
    is_plain = name.isascii() and name.isidentifier() and name not in ("select", "key", "From", "until")
    return name if is_plain and rng.random() < 0.5 else quoted(name)
