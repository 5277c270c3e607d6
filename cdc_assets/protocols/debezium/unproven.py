"""Settings of a connector that messages do not state, and that only the values themselves can prove.

A value of such a column has a class that names the readings that fit it (`type_checks.values`): `microseconds`, or
`microseconds or milliseconds`. A setting is proven if each of its values that all records permit reads every value in the
way in which the pipeline has read it.
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from cdc_assets.config.connector_settings import MODES
from cdc_assets.mysql_types.descriptors import TYPES, Family
from cdc_assets.mysql_types.types import MySQLType, parse_type
from cdc_assets.protocols.base import UnprovenSetting
from cdc_assets.protocols.debezium import semantics
from cdc_assets.protocols.debezium.semantics import Field, assumed_field
from cdc_assets.type_checks.row_images import Observation
from cdc_assets.type_checks.values import BASE64, DIGITS, HEX, SECOND_PARTS, readings_of_class

# decimal.handling.mode and binary.handling.mode -> how a value is then written.
_READINGS: Mapping[str, str] = {
    "precise": BASE64,
    "string": DIGITS,
    "bytes": BASE64,
    "base64": BASE64,
    "base64-url-safe": BASE64,
    "hex": HEX,
}


def find_unproven_settings(observations: Iterable[Observation], given: Mapping[str, str]) -> list[UnprovenSetting]:
    """Return the settings by which values may have been read wrongly.

    Args:
        observations: rows of type_observations.
        given: the settings in the feeds file.
    """
    values_by_setting: dict[str, list[_Values]] = {}
    for observation in observations:
        stated = json.loads(observation["stated"])
        setting = (stated.get("assumed") or "").partition("=")[0]
        readings = readings_of_class(stated["value_class"]) if setting and setting not in given else frozenset()
        if readings:
            values = _Values(observation, setting, readings, has_schema=stated["semantic_type"] != semantics.UNSTATED)
            values_by_setting.setdefault(setting, []).append(values)
    unproven = (_find_unproven(setting, values) for setting, values in sorted(values_by_setting.items()))
    return [each for each in unproven if each is not None]


@dataclass(frozen=True)
class _Values:
    """Values of one column whose form no message states.

    Attributes:
        observation: the row of type_observations.
        setting: the setting that decides their form.
        readings: the ways to read them that fit.
        has_schema: whether their messages have a schema.
    """

    observation: Observation
    setting: str
    readings: frozenset[str]
    has_schema: bool

    @property
    def mysql_type(self) -> MySQLType:
        """The type of the column."""
        return parse_type(self.observation["mysql_type"])

    @cached_property
    def reading_by_mode(self) -> dict[str, str | None]:
        """The values of the setting, each with how it writes the column."""
        return {mode: self._reading_under(mode) for mode in MODES[self.setting]}

    @property
    def as_read(self) -> str:
        """How the pipeline has read the values (`texts.mysql_text`)."""
        if self.setting == semantics.TIME_MODE:
            return str(self.reading_by_mode[semantics.DEFAULT_TIME_MODE])
        preferred = DIGITS if self.setting == semantics.DECIMAL_MODE else HEX if self.has_schema else BASE64
        return preferred if preferred in self.readings else min(self.readings)

    def otherwise(self, modes: Iterable[str]) -> set[str]:
        """Return how else the values may have to be read, if the setting has one of these values."""
        return {r for mode in modes if (r := self.reading_by_mode[mode]) in self.readings and r} - {self.as_read}

    def _reading_under(self, mode: str) -> str | None:
        """Return how a column is written under a value of the setting; None: not in one of the forms that values prove."""
        if self.setting != semantics.TIME_MODE:
            return _READINGS.get(mode)
        field = Field(self.observation["column"], semantics.UNSTATED, semantics.UNSTATED)
        name = assumed_field(field, self.mysql_type, {semantics.TIME_MODE: mode}).semantic.rpartition(".")[2]
        size = next((size for size in ("Micro", "Nano", "Iso") if name.startswith(size)), "")
        return {"Micro": "microseconds", "Nano": "nanoseconds", "": "milliseconds"}.get(size)


def _find_unproven(setting: str, values: Sequence[_Values]) -> UnprovenSetting | None:
    """Return a setting with the first values that may be wrong; None: there are none."""
    permitted = [mode for mode in MODES[setting] if all(v.reading_by_mode[mode] in v.readings for v in values)]
    doubtful = [v for v in values if v.otherwise(permitted or MODES[setting])]
    if not doubtful:
        return None
    first = min(doubtful, key=_position)
    other = min(first.otherwise(permitted or MODES[setting]))
    sample = str(first.observation["sample_value"])
    return UnprovenSetting(
        setting,
        first.observation,
        _describe(sample, first.mysql_type, first.as_read),
        _describe(sample, first.mysql_type, other),
        [mode for mode, reading in first.reading_by_mode.items() if reading == first.as_read],
        [] if first.as_read in {first.reading_by_mode[mode] for mode in permitted} else permitted,
    )


def _position(values: _Values) -> tuple[Any, ...]:
    """Return a total order, so that cutting the stream into other runs changes no choice."""
    first = values.observation["first"]
    return *(first[name] for name in ("commit_ts", "topic", "partition", "offset")), values.observation["column"]


def _describe(sample: str, mysql_type: MySQLType, reading: str) -> str:
    """Return a value as it is read in one way, for people."""
    parts = SECOND_PARTS.get(reading)
    if parts is not None:
        show = _time if TYPES[mysql_type.base].family is Family.TIME else _datetime
        return f"{show(int(sample), parts)} in {reading}"
    return f"{_SHOWN[TYPES[mysql_type.base].family, reading](sample)} in {reading}"


def _time(number: int, parts: int) -> str:
    seconds, rest = divmod(abs(number), parts)
    fraction = f".{rest * 1_000_000 // parts:06}" if rest else ""
    return f"{'-' * (number < 0)}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"


def _datetime(number: int, parts: int) -> str:
    try:
        return str(datetime(1970, 1, 1) + timedelta(microseconds=number * 1_000_000 // parts))  # noqa: DTZ001 -- a DATETIME
    except OverflowError:
        return f"a time {number // parts} seconds after 1970"


def _bytes_of_base64(sample: str) -> bytes:
    """Return the bytes of a base64 text, which may be the beginning of a longer one."""
    return base64.urlsafe_b64decode(sample[: len(sample) // 4 * 4].translate(str.maketrans("+/", "-_")))


_SHOWN: Mapping[tuple[Family, str], Callable[[str], str]] = {
    (Family.DECIMAL, DIGITS): str,
    (Family.DECIMAL, BASE64): lambda sample: str(int.from_bytes(_bytes_of_base64(sample), "big", signed=True)),
    (Family.BINARY, HEX): lambda sample: f"the bytes {sample.upper()}",
    (Family.BINARY, BASE64): lambda sample: f"the bytes {_bytes_of_base64(sample).hex().upper()}",
}
