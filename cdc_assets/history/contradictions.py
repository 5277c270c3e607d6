"""Rows that contradict a DDL statement before them: two statements of one fact, where messages carry no table schema.

A row after DROP COLUMN that has the column, one after ADD COLUMN that lacks it, one whose message names another type of a
column than the statement. Such rows are applied as they were sent, and reported.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.ddl.actions import AddColumn, Column, DropColumn, ModifyColumn, RenameColumn
from cdc_assets.history.progress import Name
from cdc_assets.history.statements import Ddl, Spot
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.mysql_types.reference import TYPES, Family
from cdc_assets.mysql_types.types import NUMBERS, MySQLType, parsed
from cdc_assets.protocols.base import WireColumn
from cdc_assets.protocols.messages import field_names

# Some of these types are written for others: MariaDB's JSON is LONGTEXT, TEXT in the character set `binary` is BLOB.
_CHARACTERS = frozenset({Family.TEXT, Family.BINARY, Family.JSON})


class Mismatch(StrEnum):
    """What contradicts a statement, in words: what rows do."""

    HAVE = "rows have the column"
    LACK = "rows lack the column"
    TYPE = "rows have another type"


@dataclass(frozen=True)
class StatedColumn:
    """What a statement says of a column, for rows up to the next statement that changes it.

    Attributes:
        name: the column's, in lower case.
        ddl: the statement.
        column: the column after it; None: the table does not have it any more.
        before: the type that the column had before; None: none is known.
        others: the columns that the table had before; None: the column is not added, or they are not known.
        until: the next statement; None: there is none.
    """

    name: str
    ddl: Ddl
    column: Column | None
    before: MySQLType | None = None
    others: frozenset[str] | None = None
    until: Ddl | None = None


@dataclass(frozen=True)
class Suspicion:
    """Rows of some layouts contradict a statement, if there are any after it.

    Attributes:
        kind: how.
        stated: the statement about the column.
        wire_type: the type that the rows' messages name; None: they have no such column.
        layout_ids: their layouts.
    """

    kind: Mismatch
    stated: StatedColumn
    wire_type: str | None
    layout_ids: tuple[int, ...]


@dataclass(frozen=True)
class Contradiction:
    """Rows that contradict a statement before them.

    Attributes:
        column: that both are about.
        commit_ts: of the statement.
        statement: its SQL.
        stated: what the statement says of the column.
        found: what the rows say of it.
        rows: how many rows of the run.
        topic: of the first of them.
        partition: of that row's record.
        offset: of that row's record.
        row_commit_ts: of that row.
    """

    column: str
    commit_ts: int
    statement: str
    stated: str
    found: str
    rows: int
    topic: str
    partition: int
    offset: int
    row_commit_ts: int


# --- what statements say


def stated_columns(name: Name, statements: Iterable[Ddl]) -> list[StatedColumn]:
    """Return what the statements of a table, in order, say of its columns, as far as it is certain."""
    now: dict[str, StatedColumn] = {}
    shape: Mapping[str, Column] | None = None
    found: list[StatedColumn] = []

    def end(names: Iterable[str], ddl: Ddl) -> None:
        found.extend(replace(now.pop(each), until=ddl) for each in list(names) if each in now)

    for ddl in statements:
        told = ddl.shapes.get(name)
        after = None if told is None else {c.name.lower(): c for c in told}
        if _begins_anew(name, ddl):
            end(list(now), ddl)
            shape, said = None, [StatedColumn(each, ddl, column) for each, column in (after or {}).items()]
        elif after is not None and shape is not None:
            said = list(_differences(ddl, shape, after))
        else:
            said = list(_of_actions(name, ddl, now))
        end([each.name for each in said], ddl)
        now |= {each.name: each for each in said}
        shape = shape if after is None else after
    return [*found, *now.values()]


def _begins_anew(name: Name, ddl: Ddl) -> bool:
    """Whether nothing that was said of the table before a statement holds after it."""
    renamed = name in ddl.moved or name in ddl.moved.values()
    return renamed or ddl.database == name[0] or ddl.kind in (None, "create_table", "drop_table", "recover_table")


def _differences(ddl: Ddl, before: Mapping[str, Column], after: Mapping[str, Column]) -> Iterator[StatedColumn]:
    for name in before.keys() - after.keys():
        yield StatedColumn(name, ddl, None)
    for name, column in after.items():
        if name not in before:
            yield StatedColumn(name, ddl, column, others=_sent(before))
        elif column.type != before[name].type:
            yield StatedColumn(name, ddl, column, before=parsed(before[name].type))


def _sent(shape: Mapping[str, Column]) -> frozenset[str]:
    """The columns of which every source sends values."""
    return frozenset(name for name, column in shape.items() if not column.generated)


def _of_actions(name: Name, ddl: Ddl, now: Mapping[str, StatedColumn]) -> Iterator[StatedColumn]:
    """Of a table whose shape is not known: what certainly happens to columns that the statement names."""
    for action in (a for of, actions in ddl.changes if of == name for a in actions):
        match action:
            case AddColumn(column, only_if_missing=False):
                yield StatedColumn(column.name.lower(), ddl, column)
            case DropColumn(dropped, if_exists=False) | RenameColumn(dropped, if_exists=False):
                yield StatedColumn(dropped.lower(), ddl, None)
            case ModifyColumn(old_name, column, if_exists=False) if old_name.lower() == column.name.lower():
                known = now.get(old_name.lower())
                before = parsed(known.column.type) if known and known.column else None
                yield StatedColumn(old_name.lower(), ddl, column, before=before)


# --- what layouts say


def suspicions(
    layouts: Mapping[int, tuple[Sequence[WireColumn], int]],
    stated: Iterable[StatedColumn],
    overridden: Callable[[str], bool],
) -> list[Suspicion]:
    """Return what rows of these layouts may contradict.

    Args:
        layouts: of messages: layout_id -> its columns, and the highest commit_ts of a row.
        stated: `stated_columns`.
        overridden: whether the feeds file gives the type of a column.
    """
    found: dict[tuple[Mismatch, str, str, str | None], Suspicion] = {}
    for each in stated:
        for layout_id, (columns, last) in layouts.items():
            if last <= each.ddl.spot.commit_ts:
                continue
            wire = {c.name.lower(): c for c in columns}
            kind = _contradiction(each, wire, overridden)
            if kind is not None:
                said = None if kind is Mismatch.LACK else str(wire[each.name].wire_type)
                key = kind, each.name, each.ddl.id, said
                known = found.get(key, Suspicion(kind, each, said, ()))
                found[key] = replace(known, layout_ids=(*known.layout_ids, layout_id))
    return list(found.values())


def _contradiction(
    stated: StatedColumn, wire: Mapping[str, WireColumn], overridden: Callable[[str], bool]
) -> Mismatch | None:
    sent, column = wire.get(stated.name), stated.column
    if column is None:
        return None if sent is None else Mismatch.HAVE
    if sent is None:
        # Rows that lack other columns, too, are filtered, and so may the new one be; where the other columns are not known,
        # that cannot be told. Not every source sends generated columns.
        filtered = stated.others is None or not stated.others <= wire.keys()
        return None if filtered or column.generated else Mismatch.LACK
    if overridden(sent.name) or fits(parsed(str(sent.wire_type)), parsed(column.type), stated.before):
        return None
    return Mismatch.TYPE


def fits(wire: MySQLType | None, declared: MySQLType | None, before: MySQLType | None = None) -> bool:
    """Return whether a type that messages name, parameters or not, may stand for a declared type.

    `before`: the type that the column had before the statement that declares it; messages that name that one are older.
    """
    if wire is None or declared is None:
        return True
    if wire.base == declared.base:
        digits = [(t.length, t.scale) for t in (wire, declared) if t.base == "decimal" and t.length is not None]
        is_signed_alike = wire.base not in NUMBERS or wire.unsigned == declared.unsigned
        return is_signed_alike and len(set(digits)) <= 1
    if before is not None and wire.base == before.base:
        return False
    return {TYPES[wire.base].family, TYPES[declared.base].family} <= _CHARACTERS


# --- which rows do


def contradictions(changes: DataFrame, suspected: Sequence[Suspicion], *, exact: bool) -> list[Contradiction]:
    """Return which suspicions rows confirm. A query; only where there are suspicions.

    Args:
        changes: rows of released_changes.
        suspected: `suspicions`.
        exact: whether commit_ts orders rows and statements. Else only a row counts that comes after the statement in its
            partition and by the clock: one that waited, or is a repeat, may be older.
    """
    place = F.struct("commit_ts", "topic", "partition", "offset")
    names = F.transform(field_names(F.col("after")), F.lower)
    rows = changes.where(F.col("op") != str(Op.DELETE)).withColumn("names", names)
    wanted = [_confirms(each, exact=exact) for each in suspected]
    counts = [F.count_if(each).alias(f"n{n}") for n, each in enumerate(wanted)]
    firsts = [F.min(F.when(each, place)).alias(f"p{n}") for n, each in enumerate(wanted)]
    found = rows.agg(*counts, *firsts).collect()[0]
    return [
        _reported(each, found[f"n{n}"], found[f"p{n}"].asDict()) for n, each in enumerate(suspected) if found[f"n{n}"]
    ]


def _confirms(suspicion: Suspicion, *, exact: bool) -> Expression:
    stated = suspicion.stated
    has = F.array_contains("names", stated.name)
    conditions = [
        F.col("layout_id").isin(*suspicion.layout_ids),
        ~has if suspicion.kind is Mismatch.LACK else has,
        _is_after(stated.ddl.spot, exact=exact),
    ]
    if stated.until is not None:
        conditions.append(_is_before(stated.until.spot, exact=exact))
    return F.coalesce(reduce(and_, conditions), F.lit(False))


def _is_after(spot: Spot, *, exact: bool) -> Expression:
    if exact:
        return F.col("commit_ts") > spot.commit_ts
    return _in_partition(spot) & (F.col("offset") > spot.offset) & (_time() > spot.commit_ts)


def _is_before(spot: Spot, *, exact: bool) -> Expression:
    if exact:
        return F.col("commit_ts") <= spot.commit_ts
    return (~_in_partition(spot) | (F.col("offset") < spot.offset)) & (_time() < spot.commit_ts)


def _in_partition(spot: Spot) -> Expression:
    return (F.col("topic") == spot.topic) & (F.col("partition") == spot.partition)


def _time() -> Expression:
    """The change's own time: its position may be that of a change before it."""
    return F.coalesce("event_ts", "commit_ts")


def _reported(suspicion: Suspicion, rows: int, first: Mapping[str, Any]) -> Contradiction:
    column, stated = suspicion.stated.column, suspicion.stated
    said = "the table has no such column" if column is None else f"the column is {column.type}"
    found = "the column is missing" if suspicion.wire_type is None else f"the column is {suspicion.wire_type}"
    return Contradiction(
        stated.name if column is None else column.name,
        stated.ddl.spot.commit_ts,
        stated.ddl.text,
        said,
        found,
        rows,
        first["topic"],
        first["partition"],
        first["offset"],
        first["commit_ts"],
    )
