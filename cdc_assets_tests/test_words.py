"""Check the names and sizes that the style rules set: terms of the glossary, names of values, unique class names."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.fast

PROJECT = Path(__file__).parents[1]
MODULES = sorted((PROJECT / "cdc_assets").rglob("*.py"))
ALL_MODULES = [
    *MODULES,
    *(m for name in ("cdc_assets_tests", "benchmarks") for m in sorted((PROJECT / name).rglob("*.py"))),
]
# Words that name nothing that a reader could look up, as a name or as a part of one.
RIDDLES = frozenset(
    [
        "told",
        "said",
        "found",
        "known",
        "wanted",
        "whole",
        "anew",
        "standing",
        "gone",
        "there",
        "news",
        "pinned",
        "carried",
        "settled",
        "gathered",
        "few",
    ]
)
LONGEST_MODULE, LONGEST_FUNCTION = 400, 50
MOST_TERMS = 30


def defined_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names of functions, classes, parameters, variables and fields that a module defines."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def test_the_glossary_is_short() -> None:
    rows = re.findall(r"^\| (?!Term|---)", (PROJECT / "docs/glossary.md").read_text(), re.MULTILINE)
    assert 0 < len(rows) <= MOST_TERMS


@pytest.mark.parametrize("module", ALL_MODULES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_names_say_what_they_hold(module: Path) -> None:
    names = set(defined_names(ast.parse(module.read_text())))
    assert {name for name in names if RIDDLES & set(name.lower().split("_"))} == set()


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_column_names_say_what_they_hold(module: Path) -> None:
    """Columns and keys are texts in the code. `whole` is a value of the setting `snapshots`."""
    texts = {node.value for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Constant)}
    assert (texts & RIDDLES) - {"whole"} == set()


def test_class_names_are_unique() -> None:
    classes = Counter(
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in classes.items() if count > 1] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_long_modules_and_functions_say_why(module: Path) -> None:
    text = module.read_text()
    tree = ast.parse(text)
    long: list[ast.Module | ast.FunctionDef] = [tree] if text.count("\n") > LONGEST_MODULE else []
    long += [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION
    ]
    silent = [node for node in long if "long because" not in " ".join((ast.get_docstring(node) or "").split())]
    assert [getattr(node, "name", module.name) for node in silent] == []
