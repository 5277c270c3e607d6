"""The checks of the gate: watermarks advance, schemas arrive, and no event comes too late."""

from datetime import datetime
from typing import Any

from cdc_assets.assets.checks.verdict import Verdict
from cdc_assets.lakehouse.released_changes import HoldReason
from cdc_assets.stages.release.report import ReleaseReport
from cdc_assets.tso import TSO_LOGICAL_BITS, time_of, time_text


def list_partition_watermarks(report: ReleaseReport) -> list[dict[str, Any]]:
    """Return one row a partition: the largest watermark seen in it, and the topic's released watermark."""
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
    """Return whether every partition has sent a watermark, and the released watermark advances when events come.

    Args:
        report: of the release.
        partitions: how many partitions each topic has, where the feeds file says so: then a partition that has sent no
            record at all fails the check, too.
    """
    rows = list_partition_watermarks(report)
    without_record = [
        {"topic": topic, "partition": number, "watermark": None, "watermark_time": None, "released_up_to": None}
        for topic, marks in sorted(report.partition_watermarks.items())
        for number in range(partitions or 0)
        if str(number) not in marks
    ]
    silent = [row for row in rows if row["watermark"] is None] + without_record
    if silent:
        description = (
            f"{len(silent)} partitions have sent no watermark yet, and nothing of their topics is released until they do. "
            "Look at the changefeed, and whether partitions: in the feeds file is the topics' number of partitions."
        )
        return Verdict(passed=False, description=description, violations=silent)
    if report.overtaken:
        places = [
            {
                name: row[name]
                for name in ("topic", "partition", "offset", "database", "table", "commit_ts", "ddl_statement")
            }
            for row in report.overtaken
        ]
        description = (
            f"{len(places)} statements wait for a watermark of their topic that does not come, although other topics have "
            "passed them: the histories of their tables end there. TiCDC sends watermarks only to the topics of tables that "
            "exist, so after DROP TABLE or RENAME TABLE the topic of the old name gets none. Let the changefeed send the "
            "tables to one topic, or create a table that has the topic."
        )
        return Verdict(passed=False, description=description, violations=places)
    stuck = [
        row for row in rows if report.watermarks.get(row["topic"], 0) <= report.watermarks_before.get(row["topic"], 0)
    ]
    if report.rows and stuck and report.pending:
        description = (
            f"{report.rows} row events came, but the watermark did not advance; {report.pending} are pending. Look at the "
            "changefeed: the topic's partition with the lowest watermark holds all its events back."
        )
        return Verdict(passed=False, description=description, violations=stuck)
    if not rows:
        return Verdict(passed=True, description="No partition has sent a watermark yet.")
    description = f"{len(rows)} partitions, all with a watermark; {report.pending} events are pending."
    return Verdict(passed=True, description=description)


def schemas_arrived(report: ReleaseReport, interval: int) -> Verdict:
    """Return whether no event waits for its table's schema; the check only warns until one has waited too long.

    Args:
        report: of the release.
        interval: seconds between BOOTSTRAP messages of the changefeed. 0: it sends none, so every wait is too long. The
            wait is measured in Kafka's time, from the first waiting record to the newest record.
    """
    waiting = [hold for hold in report.holds if hold.reason == HoldReason.SCHEMA]
    if not waiting:
        return Verdict(passed=True, description="The table schema of every event is known.", only_warns=True)
    rows = [h.row() | {"waited_seconds": max(0, report.newest - h.first["record_ms"]) // 1000} for h in waiting]
    overdue = [row for row in rows if row["waited_seconds"] >= interval]
    events = sum(row["events"] for row in rows)
    description = f"{events} events of {len(rows)} tables wait for a schema that no message has brought yet"
    if interval == 0:
        description += (
            ", and no BOOTSTRAP message will bring it: bootstrap_interval: 0 in the feeds file says that the changefeed "
            "sends none. Set send-bootstrap-interval-in-sec or send-bootstrap-in-msg-count in the changefeed's sink "
            "configuration above 0, and bootstrap_interval: accordingly; or change the tables by a DDL statement, whose "
            "message carries the schemas before and after it."
        )
    elif overdue:
        description += (
            f"; {len(overdue)} of these tables have waited {interval} s or more. Check that the changefeed sends BOOTSTRAP "
            "messages (send-bootstrap-interval-in-sec), and that bootstrap_interval: in the feeds file has the same value."
        )
    else:
        description += f". The next BOOTSTRAP message brings it, within {interval} s."
    return Verdict(passed=False, description=description, violations=overdue or rows, only_warns=not overdue)


def watermark_freshness(report: ReleaseReport, minutes: int, now: datetime) -> Verdict:
    """Return whether every topic has a released watermark, and none is older than `minutes`.

    Feeds without watermarks are judged by the newest time of the source that a record states.
    """
    if not report.partition_watermarks:
        return _check_source_time(report.source, minutes, now)
    marks = {topic: report.watermarks.get(topic) for topic in sorted(report.partition_watermarks)}
    ages = {topic: _minutes_since(mark, now) for topic, mark in marks.items() if mark is not None}
    old = [
        {"topic": topic, "watermark": mark, "time": time_text(mark) if mark else None, "minutes": ages.get(topic)}
        for topic, mark in marks.items()
        if topic not in ages or ages[topic] > minutes
    ]
    if old:
        description = (
            f"{len(old)} topics have no watermark of the last {minutes} minutes (freshness_minutes in the feeds file). Look "
            "at the changefeed, and whether the pipeline runs often enough."
        )
        return Verdict(passed=False, description=description, violations=old)
    return Verdict(passed=True, description=f"The oldest watermark is {max(ages.values())} minutes old.")


def _check_source_time(source_ms: int, minutes: int, now: datetime) -> Verdict:
    """Return whether the newest time of the source, in milliseconds, is not older than `minutes`; 0: none is known."""
    if not source_ms:
        return Verdict(passed=True, description="No record has stated a time of the source yet.")
    newest = source_ms << TSO_LOGICAL_BITS
    age = _minutes_since(newest, now)
    if age <= minutes:
        return Verdict(passed=True, description=f"The newest time of the source is {age} minutes old.")
    description = (
        f"The newest time of the source is {age} minutes old, which is more than {minutes} (freshness_minutes in the feeds "
        "file). Look at the connector, and whether the pipeline runs often enough. If the source may be idle for so long, "
        "set heartbeat.interval.ms, and add the heartbeats' topic to the feed."
    )
    violation = {"newest": time_text(newest), "minutes": age}
    return Verdict(passed=False, description=description, violations=[violation])


def _minutes_since(commit_ts: int, now: datetime) -> int:
    return int((now - time_of(commit_ts)).total_seconds() // 60)


def late_events_seen_before(report: ReleaseReport) -> Verdict:
    """Return whether every event below the released watermark repeats one that was released."""
    description = f"{report.late_repeated} late events, all repeats of released events."
    if report.late_unseen:
        description = (
            f"{report.late_unseen} events came late and were never released: they are in no history. They are in "
            "change_events at the coordinates in the violations. With watermarks, the source sent them below a watermark "
            "that it had sent before. Without watermarks, another partition was ahead, a table without a key already had an "
            "equal row, or maintenance had deleted the changes that would show a repeat. Load their tables again from a new "
            "dump (initial_load: in the feeds file), or begin them in another feed."
        )
    return Verdict(report.late_unseen == 0, description, report.late_sample, {"late_repeated": report.late_repeated})
