"""The files that a new project begins with: a feeds file for the inspected topics, and Dagster's two."""

import re
from collections.abc import Container, Mapping, Sequence
from importlib import resources
from itertools import chain, count
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml

from cdc_assets.errors import OperationError
from cdc_assets.operations.inspect.topics import TopicReport

_ZONE = "\ntime_zone: UTC"
_ZONE_NOTE = "  # the zone in which the source prints TIMESTAMP values: records do not state it"
_FILES = ("dagster.yaml", "workspace.yaml")
_HEAD = """\
# The feeds of this project, written by `cdc-assets init` from a sample of the topics' records.
# docs/feeds-file.md describes every field.
"""


def write_project(folder: Path, reports: Sequence[TopicReport], source: Mapping[str, Any]) -> list[Path]:
    """Write `feeds.yaml`, `workspace.yaml` and `dagster.yaml` into `folder`, and return them.

    Args:
        folder: an existing folder.
        reports: what the topics contain.
        source: `source` of the feeds file, without topics and partitions; `${NAME}` in options as it was given.

    Raises:
        OperationError: one of the files exists, or no feed can be made of the topics. Then nothing is written.
    """
    text = _feeds_file(reports, source)
    existing_files = [name for name in ("feeds.yaml", *_FILES) if (folder / name).exists()]
    if existing_files:
        raise OperationError(
            f"{folder}: has {', '.join(existing_files)} already; nothing was written. Use another folder."
        )
    templates = resources.files("cdc_assets.operations.inspect") / "templates"
    contents = {"feeds.yaml": text} | {name: (templates / name).read_text("utf-8") for name in _FILES}
    for name, content in contents.items():
        (folder / name).write_text(content, "utf-8")
    return [folder / name for name in contents]


def _feeds_file(reports: Sequence[TopicReport], source: Mapping[str, Any]) -> str:
    """Return the text of a feeds file: one feed for topics of one protocol with the same settings, and one connector.

    Raises:
        OperationError: no topic has a known protocol, or one folder of recorded snapshots has topics of several feeds.
    """
    groups: dict[tuple[str, ...], list[TopicReport]] = {}
    for each in reports:
        if each.protocol is not None:
            groups.setdefault((each.protocol, str(sorted(each.settings.items())), each.source), []).append(each)
    groups = _joined(groups)
    if not groups:
        raise OperationError("No topic has a known protocol: `cdc-assets inspect` says why.")
    if "recorded" in source and (len(groups) > 1 or any(each.protocol is None for each in reports)):
        raise OperationError(
            f"{source['recorded']}: holds topics of several protocols or settings, and a feed reads the whole folder: put "
            "the files of each into a folder of its own."
        )
    feeds: dict[str, str] = {}
    for topics in groups.values():
        feeds[_name(topics, feeds)] = indent(_comments(topics) + _feed(topics, source), "    ")
    return f"{_HEAD}feeds:\n" + "".join(f"  {name}:\n{feed}" for name, feed in feeds.items())


def _joined(groups: dict[tuple[str, ...], list[TopicReport]]) -> dict[tuple[str, ...], list[TopicReport]]:
    """Add Debezium's topics without a connector's name (heartbeats, transactions) to the one connector that fits."""
    nameless = [key for key in groups if key[0] == "debezium" and not key[2]]
    named = [key for key in groups if key[0] == "debezium" and key[2]]
    for key in nameless:
        fitting = [n for n in named if any(n[2] in each.topic for each in groups[key])] or named
        if len(fitting) == 1:
            groups[fitting[0]] += groups.pop(key)
    return groups


def _name(topics: Sequence[TopicReport], taken: Container[str]) -> str:
    text = topics[0].source or topics[0].topic
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_") or "feed"
    name = name if name[0].isalpha() else f"feed_{name}"
    return next(each for each in chain([name], (f"{name}_{n}" for n in count(2))) if each not in taken)


def _comments(topics: Sequence[TopicReport]) -> str:
    lines = [f"{each.topic}: {each.dialect or 'no rows'}" for each in topics]
    lines += [f"{p.problem} {p.advice}" for p in dict.fromkeys(p for each in topics for p in each.problems)]
    return "".join(f"# {line}\n" for line in lines)


def _feed(topics: Sequence[TopicReport], source: Mapping[str, Any]) -> str:
    """Return the settings of one feed as YAML."""
    if "recorded" in source:
        source = {**source, "partitions": max(each.partitions for each in topics)}
    else:
        source = {"kafka": {**source["kafka"], "topics": sorted(each.topic for each in topics)}}
    feed = {"protocol": topics[0].protocol, **topics[0].settings, "time_zone": "UTC", "source": source}
    return yaml.safe_dump(feed, sort_keys=False, allow_unicode=True).replace(_ZONE, f"{_ZONE}{_ZONE_NOTE}", 1)
