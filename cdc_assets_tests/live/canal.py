"""A real Canal 1.1.7 that sends flat messages to a broker, in a process that can be killed and moved back.

Its jars come from Maven as the product's do (`cdc_assets.stores.jars`); `canal_jars.txt` has their checksums.
"""

import random
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from cdc_assets_tests.live.reader import Reader
from cdc_assets_tests.live.sessions import Statement, Step
from cdc_assets_tests.mariadb import PASSWORD, USER, MariaDB

TOPIC = "live"
_JAR_LIST = Path(__file__).with_name("canal_jars.txt")
_PROGRAM = Path(__file__).with_name("CanalSender.java")
_SETTINGS = {
    "canal.mq.topic": TOPIC,
    "canal.mq.flatMessage": "true",
    "canal.mq.canalGetTimeout": "100",
    "kafka.bootstrap.servers": "{servers}",
    "kafka.acks": "all",
    "kafka.retries": "0",
    "kafka.linger.ms": "1",
    "kafka.max.request.size": "1048576",
    "canal.file.data.dir": "{folder}/positions",
    "canal.file.flush.period": "1000",
    "canal.instance.tsdb.url": "jdbc:h2:{folder}/schemas/h2;CACHE_SIZE=1000;MODE=MYSQL;",
    "canal.instance.filter.regex": r".*\\..*",
    "canal.instance.dbUsername": "{user}",
    "canal.instance.dbPassword": "{password}",
    "canal.instance.master.journal.name": "{file}",
    "canal.instance.master.position": "{position}",
    "canal.instance.master.timestamp": "{timestamp}",
    "port": "{port}",
}
_LOGGING = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level %logger{20} - %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


def canal_settings(rng: random.Random) -> dict[str, str]:
    """Return settings of Canal by chance, of those that lose nothing."""
    return {
        "canal.instance.filter.query.dml": rng.choice(["true", "false"]),
        "canal.instance.parser.parallel": rng.choice(["true", "false"]),
        "canal.mq.canalBatchSize": rng.choice(["1", "50", "1000"]),
    }


# Canal's parser (Druid 1.2.17) does not read these statements and names, or takes them for others. Canal sends them, but
# keeps the columns that the table had before, and stops where a row has more columns.
_NOT_READ = re.compile(
    r"^CREATE OR REPLACE|^SET STATEMENT|^/\* why \*/|^ALTER TABLE .* (WAIT \d+|NOWAIT) |, RENAME `|DEFAULT 'a' 'b'"
    r"|``|` leading|`_?\u017f",
    re.IGNORECASE | re.DOTALL,
)
# Canal reads all texts as UTF-8.
_NOT_UTF_8 = re.compile(r"CHARACTER SET (latin1|gbk|ucs2)")
# Canal sends the bytes of a JSON column of MariaDB that was created while Canal ran as if they were ISO-8859-1.
_JSON = re.compile(r"(?<=` )json\b")


def readable_by_canal(step: Step) -> Step | None:
    """Return a step that Canal reads rightly, with types that it does not corrupt; None: Canal reads a statement wrongly."""
    if any(_NOT_READ.search(statement.sql) for statement in step.statements):
        return None
    statements = [_NOT_UTF_8.sub("CHARACTER SET utf8mb3", statement.sql) for statement in step.statements]
    statements = [_JSON.sub("longtext", sql) for sql in statements]
    return replace(step, statements=tuple(map(_with_sql, step.statements, statements)))


def _with_sql(statement: Statement, sql: str) -> Statement:
    return replace(statement, sql=sql)


class Canal(Reader):
    """Canal: it sends what the binlog has since its first start."""

    def __init__(self, folder: Path, server: MariaDB, servers: str, settings: Mapping[str, str]) -> None:
        """Write the settings, and create the topic.

        Args:
            folder: its files are kept here; it must not exist.
            server: the database that it reads.
            servers: the broker's address.
            settings: of Canal, beside the fixed ones.
        """
        # Not the tables' schemas: for a position, Canal makes them of those statements alone that come before it.
        super().__init__(folder, _JAR_LIST, ["positions/live/meta.dat"])
        (folder / "schemas").mkdir()
        ((file, position, *_),) = server.run("SHOW MASTER STATUS")
        places = {"servers": servers, "folder": folder, "port": server.port, "user": USER, "password": PASSWORD}
        places |= {"file": file, "position": position, "timestamp": int(time.time() * 1000)}
        lines = [f"{key}={value.format(**places)}\n" for key, value in _SETTINGS.items()]
        lines += [f"{key}={value}\n" for key, value in settings.items()]
        (folder / "canal.properties").write_text("".join(lines))
        (folder / "logback.xml").write_text(_LOGGING)
        topic = NewTopic(TOPIC, num_partitions=1, replication_factor=1)
        client = AdminClient({"bootstrap.servers": servers})
        client.create_topics([topic])[TOPIC].result()

    def arguments(self, classes: str) -> list[str]:
        """Return the arguments of Java."""
        logging = f"-Dlogback.configurationFile={self.folder / 'logback.xml'}"
        return ["-Duser.timezone=UTC", logging, "-cp", classes, str(_PROGRAM), str(self.folder / "canal.properties")]

    def has_failed(self, log: str) -> bool:
        """Return whether Canal repeats an error."""
        return "CanalParseException" in log[-20_000:]
