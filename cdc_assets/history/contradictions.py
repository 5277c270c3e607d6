"""Rows that contradict a DDL statement before them.

Examples: a row after DROP COLUMN still has the column; a row after ADD COLUMN lacks the column; a row's message names
another type than the statement; a row has a column that no statement has given the table. Such rows are applied as they were
sent, and a check reports them. Where messages carry table schemas, the type checks compare rows with these, and here only
columns that no statement has given the table are left to find.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdc_assets.binlog import is_after_place, is_before_place
from cdc_assets.ddl.actions import AddColumn, AddKey, Column, DropColumn, ModifyColumn, RenameColumn
from cdc_assets.history.progress import Name
from cdc_assets.history.statements import Ddl, Spot, is_in_partition
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.mysql_types.descriptors import NUMBERS, TYPES, Family
from cdc_assets.mysql_types.types import MySQLType, parsed
from cdc_assets.protocols.base import WireColumn
from cdc_assets.protocols.messages import field_names

# Servers replace some of these types by others: MariaDB's JSON is LONGTEXT; TEXT in the character set `binary` is BLOB.
_CHARACTERS = frozenset({Family.TEXT, Family.BINARY, Family.JSON})

# The key that Alibaba Cloud's RDS and PolarDB-X add to a table without one. Rows have it, and no statement does.
_HIDDEN_KEYS = frozenset({"__#alibaba_rds_row_id#__", "_drds_implicit_id_"})


@dataclass(frozen=True)
class StatedColumn:
    """What a statement says about a column; it holds for rows up to the next statement that changes the column.

    Attributes:
        name: the column's name, in lower case.
        ddl: the statement.
        column: the column after the statement; None if the table no longer has the column.
        before: the column's type before the statement; None if it is not known.
        others: the columns of the table before the statement added this one; None if it adds none, or they are not known.
        until: the next statement that changes the column; None if there is none.
    """

    name: str
    ddl: Ddl
    column: Column | None
    before: MySQLType | None = None
    others: frozenset[str] | None = None
    until: Ddl | None = None


@dataclass(frozen=True)
class Suspicion:
    """Rows of some column layouts, which contradict a statement if any of these rows came after the statement.

    Attributes:
        stated: what the statement says about the column.
        wire_type: the column's type by the rows' messages; None if they lack the column.
        layout_ids: the rows' layouts.
    """

    stated: StatedColumn
    wire_type: str | None
    layout_ids: tuple[int, ...]


@dataclass(frozen=True)
class KeySuspicion:
    """Rows of some column layouts whose messages name a key that no key of the table makes unique.

    Attributes:
        ddl: the statement that states the table's key.
        key: the columns of that key.
        sent_key: the columns of the key that the messages name.
        layout_ids: the rows' layouts.
    """

    ddl: Ddl
    key: tuple[str, ...]
    sent_key: tuple[str, ...]
    layout_ids: tuple[int, ...]


# Rows that contradict a statement before them:
# column: the column that the contradiction is about.
# commit_ts, statement, stated: the statement, and what it says about the column.
# observed, rows: what rows of the run say about the column, and how many they are.
# topic, partition, offset, row_commit_ts: the first of these rows.
Contradiction = dict[str, Any]


# --- What statements say about columns.


def collect_stated_columns(name: Name, statements: Iterable[Ddl]) -> list[StatedColumn]:
    """Return what the statements of a table, in order, say about its columns, as far as it is certain."""
    current: dict[str, StatedColumn] = {}
    shape: Mapping[str, Column] | None = None
    ended: list[StatedColumn] = []

    def end(names: Iterable[str], ddl: Ddl) -> None:
        ended.extend(replace(current.pop(each), until=ddl) for each in list(names) if each in current)

    for ddl in statements:
        columns = ddl.shapes.get(name)
        after = None if columns is None else {c.name.lower(): c for c in columns}
        if _replaces_all_columns(name, ddl):
            end(list(current), ddl)
            shape, stated = None, [StatedColumn(each, ddl, column) for each, column in (after or {}).items()]
        elif after is not None and shape is not None:
            stated = list(_compare_shapes(ddl, shape, after))
        else:
            stated = list(_read_actions(name, ddl, current))
            end(_list_new_names(name, ddl), ddl)
        end([each.name for each in stated], ddl)
        current |= {each.name: each for each in stated}
        shape = shape if after is None else after
    return [*ended, *current.values()]


def collect_undeclared_columns(
    name: Name, statements: Iterable[Ddl], layouts: Iterable[Sequence[WireColumn]]
) -> list[StatedColumn]:
    """Return the columns of layouts that no statement has given the table while all of its columns were known.

    A lost statement, or a converter that changes names, makes such columns. A `StatedColumn` names the statement from which
    on all columns are known, and says that the table has no such column.
    """
    sent = {column.name.lower() for columns in layouts for column in columns} - _HIDDEN_KEYS
    undeclared: list[StatedColumn] = []
    first: Ddl | None = None
    declared: set[str] = set()

    def end(until: Ddl | None) -> None:
        if first is not None:
            undeclared.extend(StatedColumn(each, first, None, until=until) for each in sorted(sent - declared))

    for ddl in statements:
        columns = ddl.shapes.get(name)
        if _replaces_all_columns(name, ddl):
            end(ddl)
            first, declared = None, set()
        if columns is not None:
            first = first or ddl
            declared |= {c.name.lower() for c in columns}
    end(None)
    return undeclared


def _replaces_all_columns(name: Name, ddl: Ddl) -> bool:
    """Return whether nothing that earlier statements say about the table's columns holds after the statement."""
    renamed = name in ddl.moved or name in ddl.moved.values()
    return renamed or ddl.database == name[0] or ddl.kind in (None, "create_table", "drop_table", "recover_table")


def _compare_shapes(ddl: Ddl, before: Mapping[str, Column], after: Mapping[str, Column]) -> Iterator[StatedColumn]:
    """Yield the columns that a statement drops, adds or changes, by the table's columns before and after it."""
    for name in before.keys() - after.keys():
        yield StatedColumn(name, ddl, None)
    for name, column in after.items():
        if name not in before:
            # Not every source sends generated columns.
            others = frozenset(each for each, other in before.items() if not other.generated)
            yield StatedColumn(name, ddl, column, others=others)
        elif column.type != before[name].type:
            yield StatedColumn(name, ddl, column, before=parsed(before[name].type))


def _read_actions(name: Name, ddl: Ddl, current: Mapping[str, StatedColumn]) -> Iterator[StatedColumn]:
    """Yield what a statement certainly does to the columns that it names, for a table whose columns are not known."""
    new_names = _list_new_names(name, ddl)
    for action in (a for table, actions in ddl.changes if table == name for a in actions):
        match action:
            case AddColumn(column, only_if_missing=False):
                yield StatedColumn(column.name.lower(), ddl, column)
            case DropColumn(old_name, if_exists=False) | RenameColumn(old_name, if_exists=False):
                if old_name.lower() not in new_names:
                    yield StatedColumn(old_name.lower(), ddl, None)
            case ModifyColumn(old_name, column, if_exists=False):
                if old_name.lower() not in {*new_names, column.name.lower()}:
                    yield StatedColumn(old_name.lower(), ddl, None)
                earlier = current.get(old_name.lower())
                before = parsed(earlier.column.type) if earlier and earlier.column else None
                yield StatedColumn(column.name.lower(), ddl, column, before=before)


def _list_new_names(name: Name, ddl: Ddl) -> set[str]:
    """Return the names, in lower case, that columns get by a statement. Another column may have lost the name by it."""
    names: set[str] = set()
    for action in (a for table, actions in ddl.changes if table == name for a in actions):
        match action:
            case AddColumn(column):
                names.add(column.name.lower())
            case RenameColumn(new_name=new_name):
                names.add(new_name.lower())
            case ModifyColumn(old_name, column) if old_name.lower() != column.name.lower():
                names.add(column.name.lower())
    return names


# --- Which column layouts may contradict a statement.


def find_suspicions(
    layouts: Mapping[int, tuple[Sequence[WireColumn], int]],
    stated: Iterable[StatedColumn],
    overridden: Callable[[str], bool],
) -> list[Suspicion]:
    """Return the statements that rows of these layouts may contradict.

    Args:
        layouts: layout_id -> the columns of the layout, and the highest commit_ts of its rows.
        stated: `collect_stated_columns`.
        overridden: returns whether the feeds file gives the type of a column.
    """
    by_contradiction: dict[tuple[str, str, str | None], Suspicion] = {}
    for each in stated:
        for layout_id, (columns, last) in layouts.items():
            wire = {c.name.lower(): c for c in columns}
            if last <= each.ddl.spot.commit_ts or not _contradicts(each, wire, overridden):
                continue
            wire_type = str(wire[each.name].wire_type) if each.name in wire else None
            key = each.name, each.ddl.id, wire_type
            suspicion = by_contradiction.get(key, Suspicion(each, wire_type, ()))
            by_contradiction[key] = replace(suspicion, layout_ids=(*suspicion.layout_ids, layout_id))
    return list(by_contradiction.values())


def _contradicts(stated: StatedColumn, wire: Mapping[str, WireColumn], overridden: Callable[[str], bool]) -> bool:
    """Return whether rows with the columns `wire` contradict a statement that came before them."""
    sent, column = wire.get(stated.name), stated.column
    if column is None:
        return sent is not None
    if sent is None:
        # Rows that lack older columns, too, come through a column filter, which may also leave out the new column. Where
        # the older columns are not known, such a filter cannot be excluded. Not every source sends generated columns.
        may_be_filtered = stated.others is None or not stated.others <= wire.keys()
        return not (may_be_filtered or column.generated)
    return not (overridden(sent.name) or fits(parsed(str(sent.wire_type)), parsed(column.type), stated.before))


def fits(wire: MySQLType | None, declared: MySQLType | None, before: MySQLType | None = None) -> bool:
    """Return whether a type that messages name, with or without parameters, may stand for a declared type.

    Args:
        wire: the type by the messages; None: unknown.
        declared: the type by the statement; None: unknown.
        before: the column's type before the statement: a message that names this type comes from before the statement.
    """
    if wire is None or declared is None:
        return True
    if wire.base == declared.base:
        digits = [(t.length, t.scale) for t in (wire, declared) if t.base == "decimal" and t.length is not None]
        is_signed_alike = wire.base not in NUMBERS or wire.unsigned == declared.unsigned
        return is_signed_alike and len(set(digits)) <= 1
    if before is not None and wire.base == before.base:
        return False
    families = TYPES[wire.base].family, TYPES[declared.base].family
    # A server makes bytes of texts in the character set `binary`, but never texts of bytes.
    return families != (Family.TEXT, Family.BINARY) and _CHARACTERS.issuperset(families)


def find_key_suspicions(
    name: Name, statements: Iterable[Ddl], layouts: Iterable[Mapping[str, Any]]
) -> list[KeySuspicion]:
    """Return the keys of messages that no key of the table makes unique, as with Debezium's `message.key.columns`.

    Args:
        name: the table.
        statements: its statements, in order.
        layouts: rows of released_changes of kind layout.
    """
    stated = [d for d in statements if d.keys.get(name)]
    if not stated:
        return []
    required = {c.name.lower() for d in stated for c in d.shapes[name] if c.nullable is False}
    actions = [a for d in stated for table, each in d.changes if table == name for a in each]
    unique = [a.columns for a in actions if isinstance(a, AddKey) and a.kind == "unique" and a.columns]
    unique_names = [key for columns in unique if (key := {c.lower() for c in columns}) <= required]
    unique_names += [{c.lower() for c in d.keys[name]} for d in stated]
    layout_ids: dict[tuple[str, ...], list[int]] = {}
    for r in layouts:
        sent = {c.lower() for c in r["key_columns"]}
        if sent and not sent & _HIDDEN_KEYS and not any(key <= sent for key in unique_names):
            layout_ids.setdefault(tuple(r["key_columns"]), []).append(r["layout_id"])
    last = stated[-1]
    return [KeySuspicion(last, last.keys[name], sent_key, tuple(ids)) for sent_key, ids in layout_ids.items()]


# --- Which rows do contradict a statement.


def find_contradictions(
    changes: DataFrame, suspicions: Sequence[Suspicion | KeySuspicion], *, exact: bool
) -> list[Contradiction]:
    """Return the suspicions that rows confirm. Runs a query, and only if there are suspicions.

    Args:
        changes: rows of released_changes.
        suspicions: `find_suspicions` and `find_key_suspicions`.
        exact: whether commit_ts orders rows and statements. If not, count only rows that come after the statement both in
            its partition and by the clock: other rows may have been delayed or repeated, and so be older.
    """
    if not suspicions:
        return []
    names = F.transform(field_names(F.col("after")), F.lower)
    rows = changes.where(F.col("op") != str(Op.DELETE)).withColumn("names", names)
    counts = count_rows(rows, [_confirms(each, exact=exact) for each in suspicions])
    confirmed = zip(suspicions, counts, strict=True)
    return [_describe_contradiction(each, count, first) for each, (count, first) in confirmed if count]


ROW_PLACE = ("commit_ts", "topic", "partition", "offset")


def count_rows(rows: DataFrame, conditions: Sequence[Expression]) -> list[tuple[int, Row]]:
    """Return for each condition how many rows meet it, and `ROW_PLACE` of the first of them. Runs one query."""
    counts = [F.count_if(each) for each in conditions]
    firsts = [F.min(F.when(each, F.struct(*ROW_PLACE))) for each in conditions]
    result = rows.agg(*counts, *firsts).collect()[0]
    return list(zip(result[: len(conditions)], result[len(conditions) :], strict=True))


def _confirms(suspicion: Suspicion | KeySuspicion, *, exact: bool) -> Expression:
    """Return whether a row confirms a suspicion. BOOLEAN, never NULL."""
    if isinstance(suspicion, KeySuspicion):
        return F.col("layout_id").isin(*suspicion.layout_ids)
    stated = suspicion.stated
    has = F.array_contains("names", stated.name)
    conditions = [
        F.col("layout_id").isin(*suspicion.layout_ids),
        ~has if suspicion.wire_type is None else has,
        _is_after(stated.ddl.spot, exact=exact),
    ]
    if stated.until is not None:
        conditions.append(_is_before(stated.until.spot, exact=exact))
    return F.coalesce(reduce(and_, conditions), F.lit(False))


def _is_after(spot: Spot, *, exact: bool) -> Expression:
    if exact:
        return F.col("commit_ts") > spot.commit_ts
    if spot.place is not None:
        return is_after_place(spot.place)
    return is_in_partition(spot) & (F.col("offset") > spot.offset) & (_own_time() > spot.commit_ts)


def _is_before(spot: Spot, *, exact: bool) -> Expression:
    if exact:
        return F.col("commit_ts") <= spot.commit_ts
    if spot.place is not None:
        return is_before_place(spot.place)
    return (~is_in_partition(spot) | (F.col("offset") < spot.offset)) & (_own_time() < spot.commit_ts)


def _own_time() -> Expression:
    """Return the change's own time: its commit_ts may be that of an earlier change with a later clock. BIGINT."""
    return F.coalesce("event_ts", "commit_ts")


def _describe_contradiction(suspicion: Suspicion | KeySuspicion, rows: int, first: Row) -> Contradiction:
    if isinstance(suspicion, KeySuspicion):
        ddl, name = suspicion.ddl, ", ".join(suspicion.sent_key)
        stated = f"the key is ({', '.join(suspicion.key)})"
        observed = f"the key is ({name}), which no unique key makes unique: rows that share it end each other"
    else:
        ddl, column, wire_type = suspicion.stated.ddl, suspicion.stated.column, suspicion.wire_type
        name = suspicion.stated.name if column is None else column.name
        stated = "the table has no such column" if column is None else f"the column is {column.type}"
        observed = "the column is missing" if wire_type is None else f"the column is {wire_type}"
    return {
        "column": name,
        "commit_ts": ddl.spot.commit_ts,
        "statement": ddl.text,
        "stated": stated,
        "observed": observed,
        "rows": rows,
        "topic": first["topic"],
        "partition": first["partition"],
        "offset": first["offset"],
        "row_commit_ts": first["commit_ts"],
    }
