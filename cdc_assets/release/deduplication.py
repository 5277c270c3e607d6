"""Deduplicate the events of feeds without watermarks, key by key and, within a partition, in the order of the offsets.

Source clocks label changes and never order them. A change that was never seen is applied. A change that was seen is a
duplicate, with one exception if only its content shows that it was seen: a row may go to and fro within one tick of the
source's clock.

- By binlog position (Debezium): two events are the same change if server, time, file, position and row are equal; after a
  failover, if GTID, operation and images are equal. Two servers state one position for all row events of a transaction:
  MariaDB 11.4 and later, unless `binlog_legacy_event_pos` is ON, and MySQL with `binlog_transaction_compression`. So in
  MariaDB's binlog operation and images must be equal, too. In MySQL's an event with another operation or other images is
  another change if it continues the row's last change, at the same position; else it is the same change in another form, as
  after an upgrade of the connector. Where one position has several changes of a key, content decides.
- By content (Canal): two events are the same change if time, operation and images are equal. A seen change is applied only
  if its key is not within a replay, its before image is the row's state, and its time is the newest of the key. Otherwise
  it is a duplicate, and the key is within a replay until an unseen change or a duplicate of the last change comes. A
  statement that ends all rows of the table (`RowEnds`) leaves no row. A seen change between it and its repetition is a
  duplicate, and so is one after a statement that gave the table other columns.

The native function `KeyOrder.scala` implements this rule; docs/protocols.md shows its model.
"""

import json

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc_assets.binlog import file_number
from cdc_assets.lakehouse.change_events import Op
from cdc_assets.lakehouse.released_changes import ReleasedKind
from cdc_assets.lakehouse.schema import BIGINT, BOOLEAN, INT, array, struct
from cdc_assets.release.base import NO_ROW_ENDS, RowEnds
from cdc_assets.release.changes import END_STATE_COLUMNS
from cdc_assets.release.late import LATE_SAMPLE, NO_LATE_EVENTS, LateEvents
from cdc_assets.spark.session import checkpointed

_MARIADB_GTID = r"^\d+-\d+-\d+$"  # domain, server, number
_DELETE, _UPDATE = str(Op.DELETE), str(Op.UPDATE)
# Rows of one key text are different rows if the text has the values of other columns, as before a change of the key.
_KEY = ["database", "table", "key_names", "key"]
# The fields of a piece that the native function reads, in this order.
_COMPARED = [
    "topic", "partition", "offset", "index", "piece", "time", "op", "before", "after", "keyless", "weight", "pass",
    "identity", "twin", "file_number", "place", "has_own_position", "log_position",
]  # fmt: skip
# The fields of a released change that the native function reads, in this order.
_RELEASED = {
    "release": "bigint", "ordinal": "int", "commit_ts": "bigint", "topic": "string", "partition": "int", "offset": "bigint",
    "index": "int", "piece": "int", "time": "bigint", "op": "string", "before": "string", "after": "string",
    "keyless": "boolean", "weight": "int", "pass": "bigint", "identity": "bigint", "twin": "bigint", "file_number": "bigint",
    "place": "bigint", "has_own_position": "boolean", "log_position": "bigint",
}  # fmt: skip
_RELEASED_ARRAY = f"array<struct<{', '.join(f'`{name}`: {kind}' for name, kind in _RELEASED.items())}>>"
_OTHERS = [c for c in END_STATE_COLUMNS if c not in _COMPARED]
_JUDGED = struct(
    kept=array(struct(at=INT, commit_ts=BIGINT, repeats=INT)),
    repeated=array(struct(at=INT, repeats=INT)),
    lost=array(INT),
    unseen=INT,
    in_replay=BOOLEAN,
)


_NO_RECORDS = "array<struct<topic: string, partition: int, offset: bigint, repeated: bigint, ends_rows: boolean>>"
_ROW_ENDS = f"map<string, {_NO_RECORDS}>"


def judge_pieces(
    split: DataFrame, prior: DataFrame | None, *, by_position: bool, trimmed: int, row_ends: RowEnds
) -> DataFrame:
    """Decide for the pieces of each key which are applied, which are duplicates, and which are lost.

    Args:
        split: the pieces of `split_key_changes`, with `pass` BIGINT.
        prior: the rows of released_changes of kind `row` and `repeat` at or above the lowest commit_ts of the pieces; None:
            there are none.
        by_position: whether the binlog position identifies a change, else its content.
        trimmed: the highest commit_ts of a change that maintenance has deleted.
        row_ends: the statements that ended all rows of a table.

    Returns:
        One row for each key: database, table, key; `key_names` STRING, as `_add_identity`; `pieces` ARRAY<STRUCT>, the new
        ones; `applied` ARRAY<STRUCT>, the changes of earlier releases; `kept` ARRAY<STRUCT<at INT, commit_ts BIGINT, repeats
        INT>>, the pieces that are applied, in order, each with its index in `pieces`, a commit_ts that never falls, and the
        number of row events that duplicate it; `repeated` ARRAY<STRUCT<at INT, repeats INT>>, the indexes in `applied` of
        the changes that have duplicates; `lost` ARRAY<INT>, the indexes of the pieces that are neither; `unseen` INT, how
        many row events these are;
        `in_replay` BOOLEAN.
    """
    pieces = _add_identity(
        split.withColumn("op", F.col("piece_op")).withColumn("time", F.col("commit_ts")), by_position=by_position
    )
    by_key = pieces.groupBy(*_KEY).agg(F.collect_list(F.struct(*_COMPARED, *_OTHERS)).alias("pieces"))
    if prior is None:
        empty = F.array().cast(_RELEASED_ARRAY)
        with_prior = by_key.withColumns({"applied": empty, "was_replaying": F.lit(False), "table_newest": F.lit(0)})
    else:
        with_prior = _add_prior(by_key, prior, by_position=by_position)
    judged = F.call_function(
        "cdc_key_order",
        F.lit(by_position),
        F.lit(trimmed).cast("bigint"),
        F.lit(len(_COMPARED) + len(_OTHERS)),
        F.lit(len(_RELEASED)),
        F.lit(_JUDGED.json()),
        "pieces",
        "applied",
        "was_replaying",
        F.col("table_newest").cast("bigint"),
        _select_row_ends(row_ends),
    )
    return with_prior.withColumn("judged", judged).select(*_KEY, "pieces", "applied", "judged.*")


def _select_row_ends(row_ends: RowEnds) -> Column:
    """Return the records of the statements that ended all rows of a key's table."""
    records = {
        json.dumps(name, ensure_ascii=False, separators=(",", ":")): [
            dict(zip(("topic", "partition", "offset", "repeated", "ends_rows"), each, strict=True)) for each in ends
        ]
        for name, ends in row_ends.items()
    }
    by_table = F.from_json(F.lit(json.dumps(records, ensure_ascii=False)), _ROW_ENDS)
    return F.coalesce(F.try_element_at(by_table, F.to_json(F.array("database", "table"))), F.array().cast(_NO_RECORDS))


def _add_prior(by_key: DataFrame, prior: DataFrame, *, by_position: bool) -> DataFrame:
    """Add the state that earlier releases left: `applied`, `was_replaying` BOOLEAN and `table_newest` BIGINT.

    Args:
        by_key: one row for each key.
        prior: as in `judge_pieces`.
        by_position: as in `judge_pieces`.
    """
    own = prior.withColumns(
        {
            "time": F.coalesce("event_ts", "commit_ts"),
            "piece": F.lit(0),
            "weight": F.col("events"),
            "pass": F.lit(0).cast("bigint"),
        }
    )
    released = F.struct(*[F.col(name).cast(kind).alias(name) for name, kind in _RELEASED.items()])
    change = F.when(F.col("kind") == str(ReleasedKind.ROW), released)
    key_states = (
        _add_identity(own, by_position=by_position)
        .groupBy(*_KEY)
        .agg(F.collect_list(change).alias("applied"), F.max_by("in_replay", "release").alias("was_replaying"))
    )
    table_times = own.groupBy("database", "table").agg(F.max("time").alias("table_newest"))
    return (
        by_key.join(key_states, on=_KEY, how="left")
        .join(table_times, on=["database", "table"], how="left")
        .withColumns(
            {
                "applied": F.coalesce("applied", F.array().cast(_RELEASED_ARRAY)),
                "was_replaying": F.coalesce("was_replaying", F.lit(False)),
                "table_newest": F.coalesce("table_newest", F.lit(0)),
            }
        )
    )


def _add_identity(changes: DataFrame, *, by_position: bool) -> DataFrame:
    """Add the columns that identify a change, and clear unrelated images.

    Returns:
        `changes` with `key_names` STRING, a JSON array of the key's columns, `keyless` BOOLEAN, and BIGINTs: `identity`;
        `twin`, which is the same in the logs of two servers; `file_number`; `place`, which identifies the position. NULL:
        there is none; `log_position`, the position in the file. And `has_own_position` BOOLEAN: whether each change has a
        place of its own, unless its transaction is compressed.
    """
    images = {
        "key_names": F.coalesce(F.to_json("key_columns"), F.lit("")),
        # A piece of a changed key still has its event's other image, which is of the other key.
        "before": F.when(F.col("op").isin(_DELETE, _UPDATE), F.col("before")),
        "after": F.when(F.col("op") != _DELETE, F.col("after")),
        "keyless": F.coalesce(F.size("key_columns") == 0, F.lit(False)),
    }
    null = F.lit(None).cast("bigint")
    position = {"identity": F.lit(0).cast("bigint"), "twin": null, "file_number": null, "place": null}
    position |= {"has_own_position": F.lit(False), "log_position": null}
    if by_position:
        is_read = F.col("op") == str(Op.SNAPSHOT)
        is_of_mariadb = F.coalesce(F.col("source.gtid").rlike(_MARIADB_GTID), F.lit(False))
        log = [F.col(f"source.{part}") for part in ("server_id", "file", "position")]
        place = [is_read, F.col("source_ms"), *log, F.col("source.row")]
        position = {
            "identity": F.xxhash64(*place, F.col("op"), F.col("before"), F.col("after")),
            "twin": _hash_transaction_row(),
            "file_number": file_number(),
            "place": F.when(is_of_mariadb, F.xxhash64(F.col("source.gtid"), *log)).otherwise(F.xxhash64(*place)),
            "has_own_position": ~is_of_mariadb,
            "log_position": F.col("source.position"),
        }
    return changes.withColumns(images).withColumns(position)


def _hash_transaction_row() -> Column:
    """Return a hash of GTID, operation and images, which is the same in the logs of two servers. BIGINT or NULL."""
    gtid = F.col("source.gtid")
    # MySQL's GTID is `uuid:number` or `uuid:tag:number`, MariaDB's is `domain-server-number`. The number counts within the
    # uuid and the tag, or within the domain.
    is_mysql = gtid.contains(":")
    number = F.when(is_mysql, F.substring_index(gtid, ":", -1)).otherwise(F.substring_index(gtid, "-", -1))
    scope = F.when(is_mysql, F.regexp_replace(gtid, ":[^:]*$", "")).otherwise(F.substring_index(gtid, "-", 1))
    has_gtid = scope.isNotNull() & number.try_cast("bigint").isNotNull()
    return F.when(has_gtid, F.xxhash64(scope, number.try_cast("bigint"), "op", "before", "after"))


def number_passes(split: DataFrame, *, has_unkeyed: bool) -> DataFrame:
    """Add `pass` BIGINT to pieces: in which pass over the stream a piece of a table without a key came; else 0.

    A restarted source sends the stream from an earlier position on, and equal rows of a table without a key are counted
    within one pass. A pass begins where the clock goes back to a time at which the same row has come before.

    Args:
        split: the pieces of `split_key_changes`.
        has_unkeyed: whether tables without a key may be among them.
    """
    if not has_unkeyed:
        return split.withColumn("pass", F.lit(0).cast("bigint"))
    is_keyless = F.size("key_columns") == 0
    in_kafka = Window.partitionBy("topic", "partition", "database", "table").orderBy("offset", "index", "piece")
    equal = Window.partitionBy("topic", "partition", "database", "table", "key", "commit_ts", "piece_op").orderBy(
        "offset", "index"
    )
    goes_back = (F.col("commit_ts") < F.lag("commit_ts").over(in_kafka)) & (F.col("occurrence") > 1)
    numbered = (
        split.where(is_keyless)
        .withColumn("occurrence", F.row_number().over(equal))
        .withColumn("goes_back", F.coalesce(goes_back.cast("int"), F.lit(0)))
        .withColumn("pass", F.sum("goes_back").over(in_kafka))
        .drop("occurrence", "goes_back")
    )
    return split.where(~is_keyless).withColumn("pass", F.lit(0).cast("bigint")).unionByName(numbered)


def deduplicate(
    split: DataFrame, prior: DataFrame | None, *, by_position: bool, trimmed: int, row_ends: RowEnds = NO_ROW_ENDS
) -> tuple[DataFrame, LateEvents]:
    """Return the changes of pieces without duplicates, and the late events.

    The parameters are those of `judge_pieces`. Without watermarks a run may end between any two records. So a delete and an
    insert at one commit_ts stay two changes, as if a run had ended between them (the chop law).

    Returns:
        Rows of released_changes, of kind `row` for changes and of kind `repeat` for changes of earlier releases that have
        duplicates among the pieces; and the late events.
    """
    # Two DataFrames read the result, and Spark plans expressions that build on it slowly.
    pieces = judge_pieces(split, prior, by_position=by_position, trimmed=trimmed, row_ends=row_ends)
    judged = checkpointed(pieces, eager=False)
    changes = _select_changes(judged)
    if prior is not None:
        changes = changes.unionByName(_select_repeats(judged), allowMissingColumns=True)
    return changes, _count_lost(judged)


def _select_changes(judged: DataFrame) -> DataFrame:
    """Return one change for each applied piece. `ordinal`: its number among the changes of its key in this run."""
    flat = judged.select(*_KEY, "in_replay", "pieces", F.posexplode("kept").alias("ordinal", "k"))
    piece = flat.withColumn("p", F.get("pieces", F.col("k.at")))
    time, position = F.col("p.time"), F.col("k.commit_ts")
    return piece.select(
        F.lit(str(ReleasedKind.ROW)).alias("kind"),
        "database",
        "table",
        "key",
        position.alias("commit_ts"),
        F.when(time != position, time).alias("event_ts"),
        *[F.col(f"p.{c}").alias(c) for c in [*END_STATE_COLUMNS, "op", "before"]],
        "ordinal",
        F.col("p.weight").alias("events"),
        F.col("k.repeats").cast("bigint").alias("repeats"),
        "in_replay",
    )


def _select_repeats(judged: DataFrame) -> DataFrame:
    """Return the changes of earlier releases that have duplicates among the pieces, with the number of these row events.

    They get the key's highest commit_ts, so that a read of the changes from some commit_ts on includes them.
    """
    highest = [F.array_max(F.transform(c, lambda each: each["commit_ts"])) for c in ("applied", "kept")]
    last = F.greatest(*highest)
    flat = judged.select(*_KEY, "in_replay", "applied", last.alias("commit_ts"), F.inline("repeated"))
    change = flat.withColumn("a", F.get("applied", F.col("at")))
    return change.select(
        F.lit(str(ReleasedKind.REPEAT)).alias("kind"),
        "database",
        "table",
        "key",
        F.from_json("key_names", "array<string>").alias("key_columns"),
        "commit_ts",
        F.col("a.time").alias("event_ts"),
        *[F.col(f"a.{c}").alias(c) for c in ("topic", "partition", "offset", "index", "op")],
        F.lit(0).alias("events"),
        F.col("repeats").cast("bigint").alias("repeats"),
        "in_replay",
    )


def _count_lost(judged: DataFrame) -> LateEvents:
    """Return how many row events are neither applied nor duplicates, with a sample."""
    total = judged.agg(F.sum("unseen")).head()
    unseen = total[0] or 0 if total else 0
    if not unseen:
        return NO_LATE_EVENTS
    lost = judged.select(*_KEY, "pieces", F.explode("lost").alias("at"))
    piece = F.get("pieces", F.col("at"))
    shown = [piece[c].alias(c) for c in ("topic", "partition", "offset", "op")]
    time = piece["time"].alias("commit_ts")
    events = lost.where(piece["weight"] == 1)
    sample = events.select(*shown, "database", "table", time, "key").limit(LATE_SAMPLE)
    return LateEvents(unseen=unseen, sample=[r.asDict() for r in sample.collect()])
