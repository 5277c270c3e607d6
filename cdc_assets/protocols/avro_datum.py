"""Avro datums, each read as a whole or not at all."""

import json
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

# Avro's reader ignores bytes after the datum, and a datum that was cut may still be readable. These bytes are appended to
# the datum and read as its last field, so that both are noticed.
_END = b"\x00end\xff\x16\x80\x01"
_END_TYPE = {"type": "fixed", "name": "End", "size": len(_END)}


def parse_datum(datum: Column, schema: Any) -> Column:  # noqa: ANN401 -- JSON
    """Return a BINARY datum as a STRUCT with the field `message`; NULL if Avro cannot read the datum.

    `is_complete` says whether the datum ends where its schema does.

    Args:
        datum: the datum, without header or schema id.
        schema: its Avro schema, as JSON values.
    """
    fields = [{"name": "message", "type": schema}, {"name": "end", "type": _END_TYPE}]
    closed = json.dumps({"type": "record", "name": "Closed", "fields": fields})
    return from_avro(F.concat(datum, F.lit(_END)), closed, {"mode": "PERMISSIVE"})


def is_complete(parsed: Column) -> Column:
    """Return whether a result of `parse_datum` is of a whole datum and of nothing after it. BOOLEAN, never NULL."""
    return F.coalesce(parsed["end"] == F.lit(_END), F.lit(False))
