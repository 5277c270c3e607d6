"""In which order the renames of one moment happened.

TiDB's multi-table RENAME comes as one message a table, in any order and in topics of their own; other sources' statements of
one clock tick may lie in several topics. A table can take a name only when that name is free, which tells the order.
"""

from collections.abc import Callable, Sequence

Name = tuple[str, str]
Rename = tuple[Name, Name]


class UnorderedError(Exception):
    """The order of renames is not told."""


def in_order(renames: Sequence[Rename], present: Callable[[Name], bool], *, together: bool) -> list[int]:
    """Return the order in which renames took effect, as places in `renames`.

    Args:
        renames: old and new names, in the order of their messages.
        present: whether a table is known to be there before them.
        together: whether they are parts of one statement for sure.

    Raises:
        UnorderedError: they go in a circle, and which name was free to begin with is not known.
    """
    if not together and _can_happen(renames, present):
        return list(range(len(renames)))
    left, done = dict(enumerate(renames)), list[int]()
    while left:
        olds = {old for old, _ in left.values()}
        # A name that is still to be left by another table is taken.
        free = [n for n, (_, new) in left.items() if new not in olds]
        if not free:
            free = _first_of_circle(left, present)
        done.append(free[0])
        del left[free[0]]
    return done


def _can_happen(renames: Sequence[Rename], present: Callable[[Name], bool]) -> bool:
    """Whether the renames can have happened one after the other as they stand."""
    changed: dict[Name, bool] = {}
    for old, new in renames:
        if changed.get(new, present(new)) or changed.get(old) is False:
            return False
        changed |= {old: False, new: True}
    return True


def _first_of_circle(left: dict[int, Rename], present: Callable[[Name], bool]) -> list[int]:
    """The rename into the one name of a circle that no table had: a swap goes by way of such a name."""
    by_old = {old: n for n, (old, _) in left.items()}
    circle = [next(iter(left))]
    while (following := by_old[left[circle[-1]][1]]) not in circle:
        circle.append(following)
    absent = [n for n in circle if not present(left[n][1])]
    if len(absent) != 1:
        names = ", ".join(sorted(".".join(left[n][0]) for n in circle))
        raise UnorderedError(f"the order in which {names} took each other's names is not told")
    return absent
