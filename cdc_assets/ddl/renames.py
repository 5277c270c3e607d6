"""Find the order in which RENAMEs of one position took effect.

TiDB sends one message for each table of a multi-table RENAME, in any order and in different topics. Other sources may send
statements of one clock tick in different topics. A table can take a name only when no other table has it, which gives the
order.
"""

from collections.abc import Callable, Sequence

from cdc_assets.ddl.resolve import Name

Rename = tuple[Name, Name]  # old and new name
NameChange = tuple[Name | None, Name | None]  # a Rename; of a CREATE TABLE (None, name), of a DROP TABLE (name, None)


class UnorderedError(Exception):
    """The order of renames does not follow from their names."""


def order_renames(renames: Sequence[Rename], exists: Callable[[Name], bool], *, from_one_statement: bool) -> list[int]:
    """Return the order in which renames took effect, as indexes of `renames`.

    Args:
        renames: old and new names, in the order of their messages.
        exists: whether a table of this name is known before the renames.
        from_one_statement: whether the renames are certainly parts of one statement.

    Raises:
        UnorderedError: the renames form a circle, and it is not known which of its names was free at first.
    """
    if not from_one_statement and is_possible_order(renames, exists):
        return list(range(len(renames)))
    remaining, order = dict(enumerate(renames)), list[int]()
    while remaining:
        old_names = {old for old, _ in remaining.values()}
        # Another table still has a name that is among the old names.
        possible = [n for n, (_, new) in remaining.items() if new not in old_names]
        next_rename = possible[0] if possible else _find_first_of_circle(remaining, exists)
        order.append(next_rename)
        del remaining[next_rename]
    return order


def is_possible_order(steps: Sequence[NameChange], exists: Callable[[Name], bool]) -> bool:
    """Return whether statements can have taken effect in the order of their messages.

    Args:
        steps: what the statements do to names.
        exists: whether a table of this name is known before them.
    """
    changed: dict[Name, bool] = {}
    for old, new in steps:
        if old and new and (changed.get(new, exists(new)) or changed.get(old) is False):
            return False
        changed |= ({old: False} if old else {}) | ({new: True} if new else {})
    return True


def _find_first_of_circle(renames: dict[int, Rename], exists: Callable[[Name], bool]) -> int:
    """Return the rename to the only free name of a circle. Tables swap their names by way of such a name.

    Raises:
        UnorderedError: no name of the circle is free, or several are.
    """
    by_old_name = {old: n for n, (old, _) in renames.items()}
    circle = [next(iter(renames))]
    while (following := by_old_name[renames[circle[-1]][1]]) not in circle:
        circle.append(following)
    to_free_name = [n for n in circle if not exists(renames[n][1])]
    if len(to_free_name) != 1:
        names = ", ".join(sorted(".".join(renames[n][0]) for n in circle))
        raise UnorderedError(f"the order in which {names} took each other's names does not follow from the statements")
    return to_free_name[0]
