"""Compare the native readers of messages with Python's json module."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from cdc_assets.lakehouse.quarantine import Reason
from cdc_assets.protocols.keys import key_values
from cdc_assets.protocols.messages import FieldType, columns_field, overlay, read
from cdc_assets_tests.support import frame_of_rows

FIELDS: Mapping[str, FieldType] = {
    "text": "text", "any": "any", "json": "json", "texts": "texts", "ints": "ints", "int": "int",
    "bigint": "bigint", "boolean": "boolean",
    "list": ["text"], "inner": {"text": "text", "int": "int"},
    "columns": columns_field([(2, 2), (8, 8), (16 | 64, 16)], unsupported=9),
}  # fmt: skip
# Any text without lone surrogates, which JSON may have, but no text in Spark.
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_INTS, _BIGINTS = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
_NUMBERS = _INTS | _BIGINTS | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=6,
)
_OPTIONAL_FLAGS = {
    "f": st.sampled_from([0, 1, 2, 8, 10, 16, 64, 80, None]),
    "h": st.booleans() | st.none(),
    "other": _VALUES,
}
_FITTING = {
    "text": _TEXTS, "any": _VALUES, "json": st.dictionaries(_TEXTS, _VALUES, max_size=3) | st.lists(_VALUES, max_size=3),
    "texts": st.dictionaries(_TEXTS, _TEXTS, max_size=4), "ints": st.dictionaries(_TEXTS, _INTS, max_size=4),
    "int": _INTS, "bigint": _BIGINTS, "boolean": st.booleans(),
    "list": st.lists(_TEXTS | st.none(), max_size=3),
    "inner": st.fixed_dictionaries({}, optional={"text": _TEXTS, "int": st.integers(0, 9), "other": _VALUES}),
    "columns": st.dictionaries(
        _TEXTS,
        st.fixed_dictionaries({"v": _VALUES, "t": st.integers(0, 9)}, optional=_OPTIONAL_FLAGS)
        | st.fixed_dictionaries({}, optional={"v": _VALUES, "t": st.integers(0, 9), **_OPTIONAL_FLAGS}),
        max_size=3,
    ),
}  # fmt: skip
_MESSAGES = st.fixed_dictionaries({}, optional=_FITTING | {"of nobody": _VALUES})


class OtherTypeError(Exception):
    """A field has another type than prescribed."""


def as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def object_of(entries: Mapping[str, Any]) -> str:
    return "{" + ",".join(f"{as_text(name)}:{as_text(value)}" for name, value in entries.items()) + "}"


def is_integer(value: Any, bits: int) -> bool:
    return type(value) is int and -(1 << bits - 1) <= value < 1 << bits - 1


def expected(field_type: FieldType, value: Any) -> Any:
    """Return what must be read from a value that Python has read."""
    if value is None:
        return None
    if isinstance(field_type, str):
        return expected_one(field_type, value)
    if isinstance(field_type, list):
        return [expected(field_type[0], inner) for inner in as_type(list, value)]
    if "*" in field_type:
        return expected_columns({n: as_type(dict, c) if c is not None else {} for n, c in as_type(dict, value).items()})
    return {name: expected(inner, as_type(dict, value).get(name)) for name, inner in field_type.items()}


def expected_columns(columns: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the columns that must be read.

    The rule of the key is that of `ticdc-open-protocol`: flags 2, 8, 16 without 64; else `h`.
    """
    code, flags, handle = (
        {n: expected(kind, c.get(name)) for n, c in columns.items()}
        for name, kind in (("t", "int"), ("f", "int"), ("h", "boolean"))
    )
    valued = all("v" in c for c in columns.values())
    result = {
        "text": object_of({n: c["v"] for n, c in columns.items() if "v" in c}),
        "valued": valued,
        "complete": valued and None not in code.values(),
        "supported": False,
        "layout": None,
        "key_columns": None,
    }
    if not result["complete"]:
        return result
    bits = {n: f or 0 for n, f in flags.items()}
    having = [
        [n for n in columns if bits[n] & 2],
        [n for n in columns if bits[n] & 8],
        [n for n in columns if bits[n] & 16 and not bits[n] & 64],
        [n for n in columns if handle[n]],
    ]
    key = sorted(next(filter(None, having), []), key=str.encode)
    layout = {n: {"t": code[n], "f": bits[n]} for n in columns}
    more = {"supported": 9 not in code.values(), "layout": as_text(layout), "key_columns": key}
    return result | more


def expected_one(field_type: str, value: Any) -> Any:
    values = value.values() if isinstance(value, dict) else ()
    fits = {
        "text": isinstance(value, str),
        "any": True,
        "json": not isinstance(value, str),
        "texts": not isinstance(value, str) and all(isinstance(v, str) for v in values),
        "ints": not isinstance(value, str) and all(is_integer(v, 32) for v in values),
        "int": is_integer(value, 32),
        "bigint": is_integer(value, 64),
        "boolean": isinstance(value, bool),
    }
    if not fits[field_type]:
        raise OtherTypeError
    if field_type == "texts" and isinstance(value, dict):
        entries = sorted((f"{as_text(n)}:{as_text(v)}".encode() for n, v in value.items()))
        return "{" + b",".join(entries).decode() + "}"
    if field_type in {"json", "texts", "ints"}:
        return as_text(value)
    return as_text(value) if field_type == "any" and not isinstance(value, str) else value


def as_type(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise OtherTypeError
    return value


def message(value: Any) -> tuple[Any, str | None]:
    try:
        return expected(FIELDS, as_type(dict, value)), None
    except OtherTypeError:
        return None, str(Reason.WRONG_TYPE)


def read_all(spark: SparkSession, texts: Sequence[str | bytes]) -> list[tuple[Any, str | None]]:
    values = [(t if isinstance(t, bytes) else t.encode(),) for t in texts]
    frame = frame_of_rows(spark, values, "value BINARY").coalesce(1)
    rows = frame.select(read(F.col("value"), FIELDS).alias("r")).collect()
    return [(r["r"]["m"] and plain(r["r"]["m"]), r["r"]["wrong"]) for r in rows]


def plain(value: Any) -> Any:
    if isinstance(value, Row):
        # A layout's order and content count, not how its characters are escaped.
        return {
            n: as_text(json.loads(each)) if n == "layout" and each else plain(each)
            for n, each in value.asDict().items()
        }
    return value


_SIX_EXAMPLES = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))


@_SIX_EXAMPLES
@given(messages=st.lists(_MESSAGES, min_size=20, max_size=40), indent=st.sampled_from([None, 1]))
def test_fields_are_read_in_their_types(
    spark: SparkSession, messages: list[dict[str, Any]], indent: int | None
) -> None:
    texts = [json.dumps(each, ensure_ascii=False, indent=indent) for each in messages]
    assert read_all(spark, texts) == [message(each) for each in messages]


@_SIX_EXAMPLES
@given(
    messages=st.lists(
        st.dictionaries(st.sampled_from([*FIELDS, "x"]), _VALUES, max_size=3) | _VALUES, min_size=20, max_size=40
    )
)
def test_a_field_of_another_type_is_a_reason(spark: SparkSession, messages: list[Any]) -> None:
    assert read_all(spark, [json.dumps(each, ensure_ascii=False) for each in messages]) == [
        message(each) for each in messages
    ]


def test_a_value_that_is_not_json_is_a_reason(spark: SparkSession) -> None:
    complete = '{"text":"t","json":{"a":[1,{"b":null}]}}'
    broken = [complete[:n] for n in range(len(complete))]
    broken += [
        complete + " x",
        complete + complete,
        "{'text':1}",
        '{"text":01}',
        '{"x":"\\q"}',
        '{"x":tru}',
        '{"x":NaN}',
        "{,}",
    ]
    # A lone surrogate in a name, a text, or a value that is not read.
    halves = [
        rf'{{"{name}":"{text}"}}' for name, text in ((r"\ud800", ""), ("text", r"\uDE00"), ("x", r"\ud83d \ude00"))
    ]
    assert read_all(spark, [*broken, *halves]) == [(None, str(Reason.MALFORMED_JSON))] * (len(broken) + len(halves))
    both = read_all(spark, [r'{"text":"\ud83d\ude00","json":["\ud83d\ude00"]}'])
    assert [(m["text"], m["json"]) for m, _ in both] == [("😀", r'["\ud83d\ude00"]')]


def test_messages_with_equal_beginnings_are_read_independently(spark: SparkSession) -> None:
    """The reader caches a first field that is an object, and the types of columns."""
    heads = [
        '"inner":{"text":"a","int":1,"other":[{}]}', '"inner":{"text":"a"}', '"inner": {"text":"é"}', '"inner":{}',
        '"inner":{"int":"x"}', '"inner":null', '"inner":[]', '"other":{"text":"a"}', '"texts":{"b":"1","a":"2"}',
        '"ints":{"a":1}', '"texts":{"a":1}', r'"texts":{"a":"\n"}', '"text":"t"',
    ]  # fmt: skip
    rests = [
        "}", ' ,"int":1}', ', "int":1}', ',"int":1}', ',"int":"x"}', ',"inner":{"text":"b"}}', ',"inner":null}',
        ',"inner":1}', ',"texts":{"b":"1","a":"2"},"ints":{"a":1}}', ',"ints":{"a":1,"b":2}}', ',"x":{"inner":{}}}',
        ",}", ",1}", "", ',"text":"t"', "}x", "},{}", r',"text":"\ud800"}',
    ]  # fmt: skip

    def judged(head: str, rest: str) -> tuple[Any, str | None]:
        try:
            alone, both = (json.loads(f"{{{head}{end}") for end in ("}", rest))
        except ValueError:
            return None, str(Reason.MALFORMED_JSON)
        if r"\ud800" in rest:
            return None, str(Reason.MALFORMED_JSON)
        # Each value of a repeated name must be of its type, and the last one counts.
        return message(alone) if message(alone)[1] else message(both)

    once = [(head, rest) for head in heads for rest in rests]
    twice = [*once, *reversed(once)]
    assert read_all(spark, [f"{{{head}{rest}" for head, rest in twice]) == [judged(*each) for each in twice]


def test_many_messages_with_different_beginnings(spark: SparkSession) -> None:
    messages = [{"inner": {"int": n % 1500}, "bigint": n, "texts": {"a": str(n)}} for n in range(3000)]
    assert read_all(spark, [json.dumps(content) for content in messages]) == [message(content) for content in messages]


def test_digits_and_escapes_stay_and_the_last_field_of_a_name_counts(spark: SparkSession) -> None:
    text = r'{"json": {"a" : 1.10, "b": 1e400, "c": "\u00e4\n", "d\"": 18446744073709551616.000}, "text": "1", "text": "2"}'
    [(read_message, wrong)] = read_all(spark, [text])
    assert wrong is None
    assert read_message["json"] == r'{"a":1.10,"b":1e400,"c":"\u00e4\n","d\"":18446744073709551616.000}'
    assert read_message["text"] == "2"


@_SIX_EXAMPLES
@given(
    pairs=st.lists(
        st.tuples(*[st.dictionaries(st.sampled_from("abcdé"), _VALUES, max_size=4)] * 2), min_size=20, max_size=40
    )
)
def test_overlay_replaces_and_adds_fields(
    spark: SparkSession, pairs: list[tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    rows = [(object_of(over), object_of(under)) for over, under in pairs]
    frame = frame_of_rows(spark, [*rows, (None, "{}"), ("{}", None)], "over STRING, under STRING").coalesce(1)
    overlaid = [r[0] for r in frame.select(overlay(F.col("over"), F.col("under"))).collect()]
    assert overlaid[:-2] == [
        object_of(over | {n: v for n, v in under.items() if n not in over}) for over, under in pairs
    ]
    assert overlaid[-2:] == [None, None]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abcdé"), _VALUES, max_size=4),
            st.lists(st.sampled_from("abcdéf"), unique=True, max_size=3),
        ),
        min_size=20,
        max_size=40,
    )
)
def test_a_key_has_the_values_of_its_columns(spark: SparkSession, rows: list[tuple[dict[str, Any], list[str]]]) -> None:
    images = [(object_of(row), columns) for row, columns in rows]
    frame = frame_of_rows(
        spark, [*images, (None, ["a"]), ("{}", None)], "image STRING, columns ARRAY<STRING>"
    ).coalesce(1)
    keys = [r[0] for r in frame.select(key_values(F.col("image"), F.col("columns"))).collect()]
    # A value that is no text becomes its JSON text, and a column that the row lacks is null.
    texts = [{n: v if isinstance(v, str) or v is None else as_text(v) for n, v in row.items()} for row, _ in rows]
    assert [json.loads(k) for k in keys[:-2]] == [
        [row.get(n) for n in columns] for row, (_, columns) in zip(texts, rows, strict=True)
    ]
    assert keys[-2:] == [None, None]
