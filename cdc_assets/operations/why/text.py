"""The life of a row for people: as text, in brief, or as markdown."""

from collections.abc import Iterator

from cdc_assets.operations.finality import describe_final_position
from cdc_assets.operations.formatting import format_position, format_row, format_value
from cdc_assets.operations.why.fates import format_place
from cdc_assets.operations.why.life import Fate, LifeStep, RecordOrigin, ReleaseOrigin, RowLife
from cdc_assets.tso import time_text

_BRIEF_STEPS = 3


def format_text(life: RowLife) -> str:
    """Return a life as lines of text: its head, then each step with what it did and where it came from, newest first."""
    lines = _format_head(life)
    for step in life.steps:
        lines += ["", f"{step.commit_ts}  {time_text(step.commit_ts)}  {_format_title(step)}"]
        lines += [f"    {line}" for line in [*_format_effects(step), *_format_origin(step)]]
    return "\n".join(lines)


def format_brief(life: RowLife) -> list[str]:
    """Return the verdict and the newest three steps, a line each."""
    lines = [life.verdict]
    for step in life.steps[:_BRIEF_STEPS]:
        reason = f". {step.reason}" if step.reason else ""
        lines.append(f"{format_position(step.commit_ts)} {_format_title(step)}{reason}")
    return lines


def format_markdown(life: RowLife) -> str:
    """Return a life as markdown: its head in paragraphs, then a table with one row a step, newest first."""
    head = "\n\n".join(map(_escape_markdown, _format_head(life)))
    if not life.steps:
        return head
    rows = [["commit_ts", "time", "what", "effect", "origin"], ["---"] * 5]
    rows += [
        [
            str(step.commit_ts),
            time_text(step.commit_ts),
            _format_title(step),
            "; ".join(_format_effects(step)),
            "; ".join(_format_origin(step)),
        ]
        for step in life.steps
    ]
    return "\n".join([head, "", *("| " + " | ".join(map(_escape_markdown, row)) + " |" for row in rows)])


def _format_head(life: RowLife) -> list[str]:
    columns = f" ({', '.join(life.key_columns)})" if life.key_columns else ""
    lines = [
        f"{life.database}.{life.table}{columns} {life.key} of feed {life.feed}. {life.verdict}",
        f"The table is {describe_final_position(life.final)}.",
        life.complete.reason,
    ]
    if life.first_seen_by is not None:
        lines.append(life.first_seen_by)
    if (near := life.near) is not None:
        lines.append(
            f"The nearest keys are {near.below or 'none'} below and {near.above or 'none'} above. The table's keys go from "
            f"{near.lowest} to {near.highest}."
        )
        if near.same_but_case:
            lines.append(f"These keys differ in letter case only: {', '.join(near.same_but_case)}.")
    for row in life.undecoded:
        place = format_place((row["topic"], row["partition"], row["offset"]))
        lines.append(f"A quarantined record names the table and the key: {place}: {row['reason']}: {row['message']}")
    return lines


def _format_title(step: LifeStep) -> str:
    """Return the operation of a step and its fate."""
    copy = f" (copy {step.copy})" if step.copy is not None else ""
    match step.fate:
        case Fate.VERSION if step.until is None:
            fate = "open version"
        case Fate.VERSION:
            fate = f"version until {format_position(step.until or 0)}, closed by {step.closed_by}"
        case Fate.END:
            fate = "the row ends"
        case _:
            fate = step.fate.replace("_", " ")
    return f"{step.op}: {fate}{copy}"


def _format_effects(step: LifeStep) -> Iterator[str]:
    """Yield what a step did to the row, or why it did nothing."""
    if step.reason:
        yield step.reason
    if step.changes:
        yield from (f"{c.column}: {format_value(c.old)} -> {format_value(c.new)}" for c in step.changes)
    elif step.row is not None:
        yield format_row(step.row)
    if (change := step.key_change) is not None:
        other = change.other_half
        half = f"; the other half is record {_format_coordinates(other)}" if other else ""
        yield f"the key changed: delete under {change.old}, insert under {change.new}{half}"
    for row in step.quarantined:
        yield f"{row['column']}: NULL for the source's {format_value(row['value'])}, quarantined as {row['reason']}"


def _format_origin(step: LifeStep) -> Iterator[str]:
    """Yield where a step came from."""
    if step.record is not None:
        yield _format_record(step.record)
    if step.release is not None:
        yield _format_release(step.release)
    if step.statement is not None:
        yield f"statement {step.statement.commit_ts}: {' '.join(step.statement.text.split())}"
    if step.types:
        yield "types: " + ", ".join(f"{column} {kind}" for column, kind in step.types.items())
    if step.column_flags:
        yield "flags: " + "; ".join(f"{column} {flags}" for column, flags in step.column_flags.items())
    if step.character_sets:
        yield "character sets: " + ", ".join(f"{column} {text}" for column, text in step.character_sets.items())
    if step.source is not None:
        yield f"binlog: {format_row(step.source)}"
    if step.source_details is not None:
        yield f"source: {format_row(step.source_details)}"
    if step.message is not None:
        yield f"message: {format_value(step.message)}"


def _format_record(record: RecordOrigin) -> str:
    text = f"record {_format_coordinates(record)}"
    if record.kafka_time is None:
        return text
    return f"{text}, Kafka time {record.kafka_time.isoformat(' ', 'milliseconds')}, batch {record.batch}"


def _format_release(release: ReleaseOrigin) -> str:
    time = f" at {release.committed_at.isoformat(' ', 'seconds')}" if release.committed_at else ""
    run = f", run {release.run}" if release.run else ""
    watermark = f", up to the watermark {format_position(release.watermark)}" if release.watermark else ""
    return f"release {release.number}{time}{run}{watermark}"


def _format_coordinates(record: RecordOrigin) -> str:
    return format_place((record.topic, record.partition, record.offset))


def _escape_markdown(text: str) -> str:
    """Return a text that stays in one cell of a markdown table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
