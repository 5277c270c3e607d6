"""An observation that lacks a value: each protocol's rules judge it, and none skips it."""

from collections.abc import Mapping
from typing import Any

import pytest

from cdc_assets.protocols.canal_json import type_rules as canal_json
from cdc_assets.protocols.debezium import type_rules as debezium
from cdc_assets.protocols.debezium.semantics import UNSTATED
from cdc_assets.protocols.open_protocol import type_rules as open_protocol
from cdc_assets.protocols.simple import type_rules as simple
from cdc_assets.type_checks.rules import NO_SUCH_TYPE, NO_TYPE, MySQLTypes, Rules
from cdc_assets.type_checks.validation import OK, find_broken_rules
from cdc_assets.type_checks.values import ValueClass

pytestmark = pytest.mark.fast

RULES: dict[str, Rules] = {
    "canal-json": canal_json.CanalJsonRules(frozenset({"spec"})),
    "open-protocol": open_protocol.OpenProtocolRules(),
    "simple": simple.SimpleRules(),
    "debezium": debezium.DebeziumRules(),
    "debezium, a schema change": debezium.DebeziumRules(),
}
PLACE: dict[str, Any] = {"database": "d", "table": "t", "column": "c"}
# An observation of each protocol that breaks no rule.
FINE: dict[str, dict[str, Any]] = {
    "canal-json": {"mysql_type": "int", "jdbc_code": 4, "kind": "int", "sender": "spec", "value_class": "0..9"},
    "open-protocol": {"mysql_type": "int", "type_code": 3, "flags": 0, "wire_type": "number", "value_class": "any"},
    "simple": {
        "mysql_type": "int", "nullable": True, "encoding": "json", "kind": "int", "wire_type": "string",
        "value_class": "any",
    },
    "debezium": {
        "mysql_type": "int", "semantic_type": "int32", "connect_type": "int32", "stands_for": "int", "wire_type": "number",
        "value_class": "any",
    },
    "debezium, a schema change": {
        "mysql_type": "int", "jdbc_type": 4, "base": "int", "described": True, "value_class": "any",
    },
}  # fmt: skip
# Fields that no rule judges, because the limits of the values include them.
NOT_JUDGED = {("simple", "nullable")}
# The fields that a protocol derives from `mysql_type`: without the type they are missing, too.
DERIVED = {
    "canal-json": ("kind",),
    "simple": ("kind",),
    "debezium": ("stands_for",),
    "debezium, a schema change": ("base",),
}


def verdicts(protocol: str, row: Mapping[str, Any]) -> list[str]:
    """Return the verdicts of both models, the MySQL types' and the protocol's, on one observation."""
    return [find_broken_rules([{**PLACE, **row}], model)[0] for model in (MySQLTypes, RULES[protocol].model)]


@pytest.mark.parametrize("protocol", FINE)
def test_an_observation_that_lacks_nothing_breaks_no_rule(protocol: str) -> None:
    assert verdicts(protocol, FINE[protocol]) == [OK, OK]
    assert RULES[protocol].expected(PLACE | FINE[protocol]) != "no such type"


@pytest.mark.parametrize(
    ("protocol", "field"),
    [(protocol, field) for protocol, row in FINE.items() for field in row if (protocol, field) not in NOT_JUDGED],
)
def test_an_observation_that_lacks_one_field_breaks_a_rule(protocol: str, field: str) -> None:
    assert verdicts(protocol, FINE[protocol] | {field: None}) != [OK, OK]


@pytest.mark.parametrize("protocol", FINE)
def test_an_observation_without_a_type_breaks_both_checks(protocol: str) -> None:
    without = dict.fromkeys(["mysql_type", *DERIVED.get(protocol, ())])
    types, codes = verdicts(protocol, FINE[protocol] | without)
    assert types == NO_TYPE
    # Open Protocol's code names the type, so it is judged alone.
    assert (codes == OK) == (protocol == "open-protocol")


@pytest.mark.parametrize("protocol", FINE)
def test_a_type_that_mysql_does_not_have_breaks_both_checks_if_the_reference_does_not_have_it(protocol: str) -> None:
    unknown = {"mysql_type": "intt"} | dict.fromkeys(DERIVED.get(protocol, ()))
    row = FINE[protocol] | unknown
    types, codes = verdicts(protocol, row)
    assert types == "not a MySQL type"
    if RULES[protocol].expected(PLACE | row) == "no such type":
        assert codes != OK


def test_missing_types_that_protocols_document_break_no_rule() -> None:
    """Open Protocol's type NULL, Debezium without schemas, and a Simple row that breaks only the rule of checksums."""
    always_null = FINE["open-protocol"] | {
        "mysql_type": None,
        "type_code": 6,
        "wire_type": "none",
        "type_optional": True,
    }
    assert verdicts("open-protocol", always_null) == [OK, OK]
    schemaless = {"semantic_type": UNSTATED, "connect_type": UNSTATED, "type_optional": True, "value_class": "any"}
    assert verdicts("debezium", schemaless) == [OK, OK]
    assert RULES["debezium"].expected(PLACE | {"mysql_type": None} | schemaless) != "no such type"
    corrupted = {"column": "*", "encoding": "json", "type_optional": True, "value_class": ValueClass.CORRUPTED}
    assert verdicts("simple", corrupted) == [OK, str(ValueClass.CORRUPTED)]


@pytest.mark.parametrize("protocol", ["canal-json", "open-protocol", "simple", "debezium"])
def test_a_column_that_only_the_row_has_breaks_both_checks(protocol: str) -> None:
    types, codes = verdicts(protocol, {"value_class": ValueClass.UNTYPED})
    assert types == str(ValueClass.UNTYPED)
    assert codes != OK


def test_a_type_that_the_wire_types_of_simple_do_not_have() -> None:
    spatial = FINE["simple"] | {"mysql_type": "point", "kind": "point", "wire_type": None}
    assert verdicts("simple", spatial) == [OK, NO_SUCH_TYPE]
    assert RULES["simple"].expected(PLACE | spatial) == "no such type"
