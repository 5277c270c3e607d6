"""An explanation for people: as text, or as markdown."""

from collections.abc import Iterator

from cdc_assets.operations.explain import Explanation, Step
from cdc_assets.operations.fates import Fate, place_text
from cdc_assets.operations.plain import row_text, value_text
from cdc_assets.tso import time_text

_BRIEF = 3  # steps


def as_text(told: Explanation) -> str:
    """As lines, newest first."""
    lines = _head(told)
    for step in told.steps:
        lines += ["", f"{step.commit_ts}  {time_text(step.commit_ts)}  {_title(step)}"]
        lines += [f"    {line}" for line in [*_what(step), *_whence(step)]]
    return "\n".join(lines)


def in_brief(told: Explanation) -> list[str]:
    """The verdict, and the newest of what happened."""
    lines = [told.verdict]
    for step in told.steps[:_BRIEF]:
        why = f": {step.why}" if step.why else ""
        lines.append(f"{step.commit_ts} ({time_text(step.commit_ts)}) {_title(step)}{why}")
    return lines


def as_markdown(told: Explanation) -> str:
    """As paragraphs and a table, newest first."""
    head = "\n\n".join(map(_escaped, _head(told)))
    rows = [
        [str(s.commit_ts), time_text(s.commit_ts), _title(s), "; ".join(_what(s)), "; ".join(_whence(s))]
        for s in told.steps
    ]
    if not rows:
        return head
    table = [["commit_ts", "time", "what", "how", "whence"], ["---"] * 5, *rows]
    return "\n".join([head, "", *("| " + " | ".join(map(_escaped, row)) + " |" for row in table)])


def _head(told: Explanation) -> list[str]:
    columns = f" ({', '.join(told.key_columns)})" if told.key_columns else ""
    until = f"{told.final.position} ({time_text(told.final.position)})" if told.final.position >= 0 else "no position"
    lines = [
        f"{told.database}.{told.table}{columns} {told.key} of feed {told.feed}: {told.verdict}",
        f"final up to {until}: {told.final.reason}",
        told.complete.reason,
    ]
    if told.unseen is not None:
        lines.append(told.unseen)
    if told.near is not None:
        near = told.near
        lines.append(
            f"the keys next to it: {near.below or 'none'} below, {near.above or 'none'} above; "
            f"the table's go from {near.lowest} to {near.highest}"
        )
        lines += [f"but for letter case the same: {', '.join(near.alike)}"] if near.alike else []
    for each in told.undecoded:
        place = place_text((each["topic"], each["partition"], each["offset"]))
        lines.append(f"quarantined, and names the table and the key: {place}: {each['reason']}: {each['message']}")
    return lines


def _title(step: Step) -> str:
    copy = f" (copy {step.copy})" if step.copy is not None else ""
    match step.fate:
        case Fate.VERSION if step.until is None:
            said = f"{step.op}: in force"
        case Fate.VERSION:
            said = f"{step.op}: until {step.until} ({time_text(step.until or 0)}), closed by {step.closed_by}"
        case Fate.END:
            said = f"{step.op}: the row ends"
        case _:
            said = f"{step.op}: not taken: {step.fate}"
    return said + copy


def _what(step: Step) -> Iterator[str]:
    """What it did to the row."""
    if step.why:
        yield step.why
    if step.changes:
        yield from (f"{c.column}: {value_text(c.old)} -> {value_text(c.new)}" for c in step.changes)
    elif step.row is not None:
        yield row_text(step.row)
    if (change := step.key_change) is not None:
        other = change.other_half
        half = f"; its other half is record {place_text((other.topic, other.partition, other.offset))}" if other else ""
        yield f"the key changed: delete under {change.old}, insert under {change.new}{half}"
    for q in step.quarantined:
        yield f"{q['column']}: NULL here for {value_text(q['value'])} of the source, which is in quarantine: {q['reason']}"


def _whence(step: Step) -> Iterator[str]:
    """Where it came from."""
    if (record := step.record) is not None:
        taken = (
            f", Kafka time {record.kafka_time.isoformat(' ', 'milliseconds')}, batch {record.batch}"
            if record.kafka_time
            else ""
        )
        yield f"record {place_text((record.topic, record.partition, record.offset))}{taken}"
    if (release := step.release) is not None:
        when = f" at {release.committed_at.isoformat(' ', 'seconds')}" if release.committed_at else ""
        mark = (
            f", up to the watermark {release.watermark} ({time_text(release.watermark)})" if release.watermark else ""
        )
        run = f", run {release.run}" if release.run else ""
        yield f"release {release.number}{when}{run}{mark}"
    if step.statement is not None:
        yield f"statement {step.statement.commit_ts}: {' '.join(step.statement.text.split())}"
    if step.types:
        yield "types: " + ", ".join(f"{column} {kind}" for column, kind in step.types.items())
    if step.column_flags:
        yield "flags: " + "; ".join(f"{column} {flags}" for column, flags in step.column_flags.items())
    if step.character_sets:
        yield "character sets: " + ", ".join(f"{column} {text}" for column, text in step.character_sets.items())
    if step.source is not None:
        yield f"binlog: {row_text(step.source)}"
    if step.source_details is not None:
        yield f"source: {row_text(step.source_details)}"
    if step.event is not None:
        yield f"message: {value_text(step.event)}"


def _escaped(text: str) -> str:
    """A text in a cell of a markdown table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
