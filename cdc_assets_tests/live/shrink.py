"""Looks for fewer steps with the same difference: executes some of them again, in databases of their own, and compares."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from cdc_assets_tests.live.sessions import Step

_AT_ONCE = 6  # how many lists of steps are tried between two comparisons


def in_other_databases(step: Step, ending: str, databases: Sequence[str]) -> Step:
    """Return a step that does the same in databases whose names have an ending."""

    def renamed(text: str) -> str:
        for database in databases:
            text = text.replace(database, database + ending)
        return text

    statements = tuple(replace(s, sql=renamed(s.sql)) for s in step.statements)
    return Step(step.productions, tuple((renamed(d), t) for d, t in step.tables), statements)


def linked_steps(steps: Sequence[Step], tables: set[tuple[str, str]]) -> list[Step]:
    """Return the steps that concern some tables, or others that DDL statements have linked to them."""
    linked = set(tables)
    for step in reversed(steps):
        if step.productions and linked & set(step.tables):
            linked |= set(step.tables)
    return [step for step in steps if linked & set(step.tables)]


def shrink(steps: list[Step], fails: Callable[[list[list[Step]]], list[bool]], seconds: float) -> list[Step]:
    """Return fewer steps that fail: those that are left when leaving out any part makes the rest pass, or time is up.

    Args:
        steps: which fail.
        fails: returns which lists of steps fail.
        seconds: after which no list is tried any more.
    """
    end, parts = time.monotonic() + seconds, 2
    while len(steps) > 1:
        size = -(-len(steps) // parts)
        rests = [steps[:n] + steps[n + size :] for n in range(0, len(steps), size)]
        failing: list[list[Step]] = []
        for n in range(0, len(rests), _AT_ONCE):
            if failing or time.monotonic() > end:
                break
            tried = rests[n : n + _AT_ONCE]
            failing = [rest for rest, has_failed in zip(tried, fails(tried), strict=True) if has_failed]
        if failing:
            steps, parts = failing[0], max(parts - 1, 2)
        elif time.monotonic() > end or parts >= len(steps):
            break
        else:
            parts = min(len(steps), parts * 2)
    return steps
