"""Reading and validation of the feeds file; the complete file is validated before anything runs.

Values may refer to environment variables (`${NAME}`; `$${` is a literal `${`). Variables are expanded after the YAML is
parsed, so no variable can add structure. A variable may hold a secret: messages quote the file as written, never the
expanded text.
"""

import json
import os
import re
from pathlib import Path
from types import UnionType
from typing import Any, NoReturn, Union, cast, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from cdc_assets.config.models import FeedsFile
from cdc_assets.config.values import Setting, did_you_mean

_Loc = tuple[str | int, ...]
_Yaml = dict[str, Any] | list[Any] | Setting | None  # what _Loader returns

_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|\$\{")


class FeedsError(ValueError):
    """The feeds file cannot be used. The message has one line per wrong field: file, path in it, found, allowed."""

    __module__ = "cdc_assets.config"  # the module that users import it from, as tracebacks should name it


def feeds_path() -> Path:
    """Return the path of the feeds file: `CDC_FEEDS`; else `data/feeds.yaml`; else, if only that exists, `feeds.yaml`.

    `cdc-assets init` writes `feeds.yaml`.
    """
    if given := os.environ.get("CDC_FEEDS"):
        return Path(given)
    default, written = Path("data/feeds.yaml"), Path("feeds.yaml")
    return written if written.exists() and not default.exists() else default


def load_feeds(path: Path | None = None) -> FeedsFile:
    """Return the content of the feeds file, read and validated.

    Args:
        path: the file; default is `feeds_path`.

    Returns:
        The content, with `${NAME}` expanded from the environment and local folders made absolute.

    Raises:
        FeedsError: the file is missing, is not YAML, or has wrong fields: one line for each of them.
    """
    file = path or feeds_path()
    try:
        return validate_feeds(_read(file), file)
    except RecursionError:
        raise FeedsError(f"{file}: nested too deeply, or an alias that refers to itself") from None


def validate_feeds(raw: dict[str, Any], file: Path) -> FeedsFile:
    """Return the validated content of a feeds file.

    Args:
        raw: the content as parsed from YAML, with `${NAME}` not yet expanded.
        file: the file's path; messages name it, and relative folders are relative to its folder.

    Raises:
        FeedsError: there are wrong fields: one line for each of them.
    """
    problems: dict[_Loc, str] = {}
    expanded = _expand(raw, (), problems)
    try:
        feeds = FeedsFile.model_validate(expanded, context={"folder": file.parent})
    except ValidationError as error:
        for details in error.errors(include_url=False, include_input=False):
            if details["type"] == "too_short" and _lookup(raw, details["loc"]):
                continue  # pydantic counts the valid items only; each wrong item is reported itself
            where, what = _explain(details, raw)
            problems.setdefault(where, what)
    if problems:
        # Outside the except block, so that pydantic's error is not chained: it has values from the environment.
        raise FeedsError("\n".join(_line(file, where, what) for where, what in problems.items()))
    return feeds


class _Loader(yaml.SafeLoader):
    """Loader of plain YAML data: text, numbers, booleans, null, lists, mappings. Keys are text and unique."""

    def compose_mapping_node(self, anchor: dict[str, yaml.Node]) -> yaml.MappingNode:
        """Check a mapping's keys before construction: construction merges `<<`, and merged mappings may repeat a key."""
        node = super().compose_mapping_node(anchor)
        keys: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key must be plain text", problem_mark=key.start_mark)
            if key.value in keys:
                raise yaml.MarkedYAMLError(problem=f"duplicate key {key.value}", problem_mark=key.start_mark)
            keys.add(key.value)
            if key.tag != "tag:yaml.org,2002:merge":
                key.tag = "tag:yaml.org,2002:str"  # a feed may be called 2024 or on
        return node

    def scalar(self, node: yaml.ScalarNode) -> Setting:
        """Return a number or boolean; a value with a colon stays text, as YAML 1.1 reads +10:00 as a base-60 number."""
        if ":" in node.value:
            return str(node.value)
        kind = node.tag.rpartition(":")[2]
        try:
            value: Setting = getattr(self, f"construct_yaml_{kind}")(node)
        except (ValueError, LookupError):  # an explicit tag (!!int x), or a number without digits (0x_)
            raise yaml.MarkedYAMLError(problem=f"not a value of type {kind}", problem_mark=node.start_mark) from None
        return value

    def text(self, node: yaml.ScalarNode) -> str:
        """Return an unquoted date or = as the text in the file."""
        return str(node.value)

    def refuse(self, node: yaml.Node) -> NoReturn:
        """Refuse a tag that does not stand for plain data."""
        raise yaml.MarkedYAMLError(problem=f"the tag {node.tag} has no use here", problem_mark=node.start_mark)


for _tag in ("int", "float", "bool"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.scalar)
for _tag in ("timestamp", "value"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.text)
for _tag in ("binary", "set", "omap", "pairs"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.refuse)


def _read(file: Path) -> dict[str, Any]:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise FeedsError(f"{file}: no such file; name the feeds file in CDC_FEEDS") from None
    except OSError as error:
        raise FeedsError(f"{file}: cannot be read: {error.strerror}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FeedsError(f"{file}: line {line}: not UTF-8 text") from None
    try:
        root = _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise FeedsError(_one_line(f"{file}: line {line}: not usable as YAML: {error.problem}")) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise FeedsError(f"{file}: line {line}: not usable as YAML: control character in the text") from None
    allowed = _keys_of(FeedsFile)
    if root is None:
        raise FeedsError(f"{file}: is empty; allowed: {allowed}")
    if not isinstance(root, dict):
        raise FeedsError(f"{file}: found {_shown(root, ())}; allowed: {allowed}")
    return root


def _expand(value: _Yaml, where: _Loc, problems: dict[_Loc, str]) -> _Yaml:
    """Return a YAML value with its variables expanded; add those that cannot be expanded to `problems`."""
    match value:
        case dict():
            return {key: _expand(item, (*where, key), problems) for key, item in value.items()}
        case list():
            return [_expand(item, (*where, index), problems) for index, item in enumerate(value)]
        case str():
            return _VARIABLE.sub(lambda match: _expand_match(match, where, problems), value)
        case _:
            return value


def _expand_match(match: re.Match[str], where: _Loc, problems: dict[_Loc, str]) -> str:
    name = match["name"]
    if match[0] == "$${":
        return "${"
    if name is None:
        problems[where] = "${ does not begin a ${NAME}; write $${ for a plain ${"
    elif name not in os.environ:
        problems[where] = f"found ${{{name}}}; the environment variable {name} is not set"
    return os.environ.get(name, match[0]) if name else match[0]


def _explain(error: ErrorDetails, raw: _Yaml) -> tuple[_Loc, str]:
    """Return the path of an error in the file, and a text of what was found there and what is allowed."""
    where, kind, context = error["loc"], error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return where, _unknown_key(where)
    if kind == "missing":
        return where, f"missing; allowed: {_allowed(where)}"
    if kind == "exactly_one":
        return where[:-1], f"found {context['given']}; allowed: {context['allowed']}"
    where = (*where, *context.get("at", ()))  # the item that is wrong, if the rule checked its mapping
    key_is_wrong = where[-1] == "[key]"  # how pydantic marks an error in a key
    where = where[:-1] if key_is_wrong else where
    value = where[-1] if key_is_wrong else _lookup(raw, where)
    what = f"found {_shown(value, where)}; allowed: {context.get('allowed') or _allowed(where)}"
    if kind == "string_type" and isinstance(value, int | float):
        what += "; put it in quotes"
    detail = context.get("detail")
    return where, f"{what}; {detail}" if detail and "${" not in str(value) else what


def _unknown_key(where: _Loc) -> str:
    model = _model_at(where[:-1])
    fields = list(_fields_of(model)) if model else []
    return "; ".join(filter(None, ["unknown key", did_you_mean(str(where[-1]), fields), f"known: {', '.join(fields)}"]))


def _model_at(where: _Loc) -> type[BaseModel] | None:
    """Return the model of the mapping at a path in the file; None if no mapping with fixed keys is there."""
    kind: Any = FeedsFile
    for step in where:
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]
        elif (model := _as_model(kind)) and (field := _fields_of(model).get(str(step))):
            kind = field.annotation
        else:
            return None
    return _as_model(kind)


def _as_model(kind: Any) -> type[BaseModel] | None:  # noqa: ANN401 -- an annotation may be anything
    """Return the model that an annotation is, or of which and None it is a union."""
    return next((each for each in _split_union(kind) if isinstance(each, type) and issubclass(each, BaseModel)), None)


def _split_union(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 -- as above
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _describe_allowed(field: FieldInfo) -> str:
    """Return the text of what a field allows: its description, or the values of its Literal or bool."""
    kinds = _split_union(field.annotation)
    choices = ("true", "false") if bool in kinds else [each for kind in kinds for each in get_args(kind)]
    return ", ".join(choices) if field.description is None else field.description


def _fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model by the names that they have in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _keys_of(model: type[BaseModel]) -> str:
    return f"a mapping with the keys {', '.join(_fields_of(model))}"


def _allowed(where: _Loc) -> str:
    if model := _model_at(where):
        return _keys_of(model)
    for end in range(len(where) - 1, -1, -1):  # for an item of a list or mapping, the field that contains it
        model = _model_at(where[:end])
        if model and (field := _fields_of(model).get(str(where[end]))):
            return _describe_allowed(field)
    return ""


def _lookup(raw: _Yaml, where: _Loc) -> _Yaml:
    value: Any = raw
    for step in where:
        value = value[step]
    return cast("_Yaml", value)


def _shown(value: _Yaml, where: _Loc) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    # Options are a mapping; a person who writes them as one text may have put a password into that text, or into a URL.
    may_have_password = where[-1:] in (("options",), ("client_options",)) or where[-2:] == ("verify", "jdbc")
    if may_have_password and not _VARIABLE.fullmatch(str(value)):
        return "text"
    text = json.dumps(value, ensure_ascii=False)
    return f"{text[:80]}..." if len(text) > 80 else text


def _line(file: Path, where: _Loc, what: str) -> str:
    path = ""
    for step in where:
        if isinstance(step, int):
            path += f"[{step}]"
        elif re.fullmatch(r"[\w-]+", step):
            path += f".{step}" if path else step
        else:  # a key that has dots itself: spark["spark.master"]
            path += f"[{json.dumps(step, ensure_ascii=False)}]"
    return _one_line(f"{file}: {path}: {what}")


def _one_line(text: str) -> str:
    return " ".join(text.split())
