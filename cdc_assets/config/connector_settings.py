"""Settings of a Debezium connector that its messages do not always state."""

from collections.abc import Mapping
from typing import Literal, get_args

TimePrecisionMode = Literal[
    "adaptive_time_microseconds", "adaptive", "connect", "isostring", "microseconds", "nanoseconds"
]
DecimalHandlingMode = Literal["precise", "string", "double"]
BinaryHandlingMode = Literal["bytes", "base64", "base64-url-safe", "hex"]

# The connector's name of each setting -> its values.
MODES: Mapping[str, tuple[str, ...]] = {
    "time.precision.mode": get_args(TimePrecisionMode),
    "decimal.handling.mode": get_args(DecimalHandlingMode),
    "binary.handling.mode": get_args(BinaryHandlingMode),
}
