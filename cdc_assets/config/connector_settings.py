"""Settings of a Debezium connector that its messages do not always state."""

from collections.abc import Mapping
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

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


class ConnectorSettings(BaseModel):
    """Settings of a feed's Debezium connector, by the connector's own names.

    They count where a message does not state how its values are written.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, alias_generator=lambda name: name.replace("_", ".")
    )

    time_precision_mode: TimePrecisionMode | None = Field(None, description=", ".join(get_args(TimePrecisionMode)))
    decimal_handling_mode: DecimalHandlingMode | None = Field(
        None, description=", ".join(get_args(DecimalHandlingMode))
    )
    binary_handling_mode: BinaryHandlingMode | None = Field(None, description=", ".join(get_args(BinaryHandlingMode)))

    @property
    def by_name(self) -> dict[str, str]:
        """The settings that are given, by the connector's names."""
        return self.model_dump(by_alias=True, exclude_none=True)
