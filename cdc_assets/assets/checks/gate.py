"""What the gate promises: watermarks move, and nothing comes after its time."""

from datetime import datetime
from typing import Any

from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.lakehouse.released_changes import HoldReason
from cdc_assets.stages.release import ReleaseReport
from cdc_assets.tso import TSO_LOGICAL_BITS, time_of, time_text


def partition_table(report: ReleaseReport) -> list[dict[str, Any]]:
    """One row a partition: the largest watermark it has shown, and the topic's released one."""
    return [
        {
            "topic": topic,
            "partition": int(partition),
            "watermark": mark,
            "watermark_time": time_text(mark) if mark is not None else None,
            "released_up_to": report.watermarks.get(topic),
        }
        for topic, partitions in sorted(report.partition_watermarks.items())
        for partition, mark in sorted(partitions.items(), key=lambda p: int(p[0]))
    ]


def watermark_progress(report: ReleaseReport, partitions: int | None) -> Verdict:
    """New events came, and so must the watermark: a partition without any, or one that stands still, holds all back.

    `partitions` is how many each topic has, where the feeds file says so: one that sent nothing holds back, too.
    """
    rows = partition_table(report)
    unheard = [
        {"topic": topic, "partition": number, "watermark": None, "watermark_time": None, "released_up_to": None}
        for topic, shown in sorted(report.partition_watermarks.items())
        for number in range(partitions or 0)
        if str(number) not in shown
    ]
    silent = [r for r in rows if r["watermark"] is None] + unheard
    if silent:
        told = (
            f"{len(silent)} partitions have shown no watermark yet; nothing of their topics is released until they do."
        )
        return Verdict(passed=False, description=told, violations=silent)
    stuck = [r for r in rows if report.watermarks.get(r["topic"], 0) <= report.watermarks_before.get(r["topic"], 0)]
    if report.rows and stuck and report.pending:
        told = f"{report.rows} row events came, but the watermark stands where it stood; {report.pending} are pending."
        return Verdict(passed=False, description=told, violations=stuck)
    told = f"{len(rows)} partitions, all with a watermark; {report.pending} events pending."
    return Verdict(passed=True, description=told if rows else "No partition has sent a watermark yet.")


def schema_known(report: ReleaseReport, interval: int) -> tuple[Verdict, bool]:
    """Return whether no event waits for its table's schema, and whether one has waited longer than it should.

    `interval` is the changefeed's interval of BOOTSTRAP messages, in seconds; 0: it sends none, so that waiting is no way
    on. Time is Kafka's, from the first waiting record to the newest record.
    """
    waiting = [h for h in report.holds if h.reason == HoldReason.SCHEMA]
    if not waiting:
        return Verdict(passed=True, description="Every released event's table schema is known."), False
    rows = [h.row() | {"waited_seconds": max(0, report.newest - h.first["record_ms"]) // 1000} for h in waiting]
    overdue = [r for r in rows if r["waited_seconds"] >= interval]
    events = sum(r["events"] for r in rows)
    told = f"{events} events of {len(rows)} tables wait for a schema that no message has brought yet"
    if interval == 0:
        told += (
            ", and no BOOTSTRAP message will bring it: bootstrap_interval: 0 in the feeds file says that the changefeed "
            "sends none. Set send-bootstrap-interval-in-sec or send-bootstrap-in-msg-count in the changefeed's sink "
            "configuration above 0, and bootstrap_interval: accordingly; or change the tables by a DDL statement, whose "
            "message carries the schemas before and after it."
        )
    elif overdue:
        told += (
            f", {len(overdue)} tables for {interval} s or more: see that the changefeed sends BOOTSTRAP messages "
            "(send-bootstrap-interval-in-sec), and that bootstrap_interval: in the feeds file is what it says there."
        )
    else:
        told += f"; it comes with the next BOOTSTRAP, within {interval} s."
    return Verdict(passed=False, description=told, violations=overdue or rows), bool(overdue)


def watermark_freshness(report: ReleaseReport, minutes: int, now: datetime) -> Verdict:
    """The released watermark of no topic is older than so many minutes; a topic without one is.

    Where there are no watermarks at all (Debezium), the newest time of the source counts that any record tells.
    """
    if not report.partition_watermarks:
        return _source_freshness(report.source, minutes, now)
    marks = {topic: report.watermarks.get(topic) for topic in sorted(report.partition_watermarks)}
    age = {topic: int((now - time_of(mark)).total_seconds() // 60) for topic, mark in marks.items() if mark is not None}
    old = [
        {"topic": topic, "watermark": mark, "time": time_text(mark) if mark else None, "minutes": age.get(topic)}
        for topic, mark in marks.items()
        if topic not in age or age[topic] > minutes
    ]
    told = f"The oldest watermark is {max(age.values())} minutes old." if age else "No topic has a watermark."
    if old:
        told = (
            f"{len(old)} topics have no watermark of the last {minutes} minutes (freshness_minutes in the feeds file): look "
            "at the changefeed, and whether the pipeline runs often enough."
        )
    return Verdict(not old, told, old)


def _source_freshness(source: int, minutes: int, now: datetime) -> Verdict:
    if not source:
        return Verdict(passed=True, description="No record has told a time of the source yet.")
    time = time_text(source << TSO_LOGICAL_BITS)
    age = int((now - time_of(source << TSO_LOGICAL_BITS)).total_seconds() // 60)
    if age <= minutes:
        return Verdict(passed=True, description=f"The newest time of the source is {age} minutes old.")
    told = (
        f"No record of the last {minutes} minutes of the source has come (freshness_minutes in the feeds file): look at the "
        "connector, whether the pipeline runs often enough, and, where the source may be quiet so long, that "
        "heartbeat.interval.ms is set and the heartbeats' topic is one of the feed's."
    )
    return Verdict(passed=False, description=told, violations=[{"newest": time, "minutes": age}])


def late_events_seen_before(report: ReleaseReport) -> Verdict:
    """An event below the released watermark must be a repeat of something released."""
    told = f"{report.late_repeated} late events, all repeats of released ones."
    if report.late_unseen:
        told = (
            f"{report.late_unseen} events came after their time, and were never released: the source broke the promise of "
            "its watermark; or, without watermarks, another partition was ahead of theirs, an equal row of a table without "
            "a key was there, or maintenance had deleted what would tell. They are in change_events at the coordinates "
            "below, not in the history."
        )
    return Verdict(report.late_unseen == 0, told, report.late_sample, {"late_repeated": report.late_repeated})
