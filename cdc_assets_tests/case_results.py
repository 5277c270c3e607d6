"""Compare what runs made of a case with what is right: the rules of `cases/README.md`, as pure functions."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from dagster import AssetCheckEvaluation, TableMetadataValue

# These checks warn about every table whose beginning no record shows, or about any change of columns.
NOT_COUNTED = frozenset({"history_complete", "column_schema_change"})
_KEPT_ASIDE = re.compile(r"__until_\d+$")
_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?")

Version = Mapping[str, Any]  # a row of a history table
Expected = Mapping[str, Any]  # a row of expected.json


@dataclass
class Results:
    """What the runs made of one feed.

    Attributes:
        versions: the rows of each history table, by `database.table`.
        failed: the failing evaluations of all runs, without those of NOT_COUNTED.
        last: the last evaluation of each check, by asset path and check name.
        errors: the messages of steps that failed.
    """

    versions: dict[str, Sequence[Version]] = field(default_factory=dict)
    failed: list[AssetCheckEvaluation] = field(default_factory=list)
    last: dict[tuple[tuple[str, ...], str], AssetCheckEvaluation] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def add(self, evaluation: AssetCheckEvaluation) -> None:
        """Add the evaluation of a check."""
        self.last[tuple(evaluation.asset_key.path), evaluation.check_name] = evaluation
        if not evaluation.passed and evaluation.check_name not in NOT_COUNTED:
            self.failed.append(evaluation)


def differences(expected: Mapping[str, Any], results: Results) -> list[str]:
    """Return what is wrong with the results of a case, one text each; an empty list if the case holds."""
    wrong = []
    if not expected.get("told"):
        wrong += [f"a step failed: {error}" for error in results.errors]
        wrong += [_text(e) for e in results.failed if e.check_name == "conservation"]
    tables = expected.get("tables", {})
    for name, table in tables.items():
        wrong += [f"{name}: {text}" for text in _table_differences(name, table, results, is_alone=len(tables) == 1)]
    wrong += [f"{name} has versions" for name in expected.get("absent", []) if results.versions.get(name)]
    if expected.get("told") and not results.failed and not results.errors:
        wrong.append("no check of the feed fails")
    if expected.get("quiet"):
        failing = (e for e in results.last.values() if not e.passed and e.check_name not in NOT_COUNTED)
        wrong += [_text(e) for e in failing]
    return wrong


def _table_differences(name: str, expected: Mapping[str, Any], results: Results, *, is_alone: bool) -> list[str]:
    versions = results.versions.get(name, [])
    has_failing_check = any(_is_about(name, evaluation, is_alone=is_alone) for evaluation in results.failed)
    wrong = []
    if "open" in expected:
        wrong += _open_differences(expected["open"], [v for v in versions if v["_cdc_is_current"]])
    if "versions" in expected:
        wrong += _version_differences(expected["versions"], versions)
    if expected.get("or_told") and has_failing_check:
        wrong = []
    if expected.get("told") and not has_failing_check:
        wrong.append("no failing check is about the table")
    for row in expected.get("never", []):
        wrong += [f"{_source_row(v)} must not be" for v in versions if _has_values(row, v)]
    return wrong


def _open_differences(expected: Sequence[Expected], open_versions: Sequence[Version]) -> list[str]:
    left = list(open_versions)
    for row in expected:
        match = next((v for v in left if _is_row(row, v)), None)
        if match is None:
            return [f"no open row {row}; left: {[_source_row(v) for v in left]}"]
        left.remove(match)
    return [f"open row too many: {_source_row(v)}" for v in left]


def _version_differences(expected: Sequence[Expected], versions: Sequence[Version]) -> list[str]:
    left = sorted(versions, key=lambda v: (v["_cdc_from_ts"], v["_cdc_to_ts"] is None, v["_cdc_to_ts"] or 0))
    earliest = -1
    for row in expected:
        match = next((v for v in left if v["_cdc_from_ts"] >= earliest and _is_row(row, v)), None)
        if match is None:
            return [f"no version {row} in its place; left: {[_source_row(v) for v in left]}"]
        earliest = match["_cdc_from_ts"]
        left.remove(match)
    return [f"version too many: {_source_row(v)}" for v in left]


def _is_about(table: str, evaluation: AssetCheckEvaluation, *, is_alone: bool) -> bool:
    """Whether a failing check is about a table: its own, or any if the table is alone, or one that names it."""
    database, name = table.split(".", 1)
    if is_alone or evaluation.asset_key.path[1:] == ["history", database, name]:
        return True
    violations = evaluation.metadata.get("violations")
    shown = [r.data for r in violations.records] if isinstance(violations, TableMetadataValue) else []
    text = (evaluation.description or "") + json.dumps(shown, ensure_ascii=False, default=str)
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _is_row(expected: Expected, version: Version) -> bool:
    """Whether a version has the expected values, and NULL in all other columns of the source."""
    others = (v for c, v in _source_row(version).items() if c not in expected and not _KEPT_ASIDE.search(c))
    return _has_values(expected, version) and all(value is None for value in others)


def _has_values(expected: Expected, version: Version) -> bool:
    return all(is_same_value(value, version.get(column)) for column, value in expected.items())


def _source_row(version: Version) -> dict[str, Any]:
    return {c: v for c, v in version.items() if not c.startswith("_cdc_")}


def _text(evaluation: AssetCheckEvaluation) -> str:
    return f"{evaluation.check_name} of {'/'.join(evaluation.asset_key.path)} fails: {evaluation.description}"


def is_same_value(expected: Any, actual: Any) -> bool:
    """Whether a value of a history table is the expected one: numbers by value, documents by content, all else as text."""
    if expected is None or actual is None:
        return expected is actual
    if isinstance(actual, (bytes, bytearray)):
        return isinstance(expected, str) and expected.lower() == actual.hex()
    if isinstance(actual, (bool, int, float, Decimal)):
        number = _number(expected)
        if isinstance(actual, float) and number is not None:
            return abs(float(number) - actual) <= 2e-6 * max(abs(float(number)), abs(actual))
        return number is not None and number == Decimal(actual)
    if isinstance(actual, datetime):
        return isinstance(expected, str) and datetime.fromisoformat(expected) == actual
    if isinstance(actual, date):
        return bool(expected == actual.isoformat())
    return isinstance(expected, str) and _same_text(expected, actual)


def _number(value: Any) -> Decimal | None:
    try:
        return Decimal(value)
    except (InvalidOperation, TypeError):
        return None


def _same_text(expected: str, actual: str) -> bool:
    """Whether two texts are equal: as they stand, as times, as instants, or as JSON documents."""
    if expected == actual:
        return True
    times = [_TIME.fullmatch(text) for text in (expected, actual)]
    if all(times):
        first, second = ((m[1], int(m[2]), m[3], m[4], (m[5] or "").rstrip("0")) for m in times if m)
        return bool(first == second)
    try:
        return datetime.fromisoformat(expected) == datetime.fromisoformat(actual)
    except ValueError:
        pass
    try:
        documents = json.loads(expected), json.loads(actual)
    except ValueError:
        return False
    return isinstance(documents[0], (dict, list)) and bool(documents[0] == documents[1])
