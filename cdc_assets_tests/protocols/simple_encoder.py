"""Messages of the Simple Protocol in JSON, written from the document, independent of the decoder."""

from dataclasses import dataclass, replace
from typing import Any

from cdc_assets_tests.support import Message


def column(name: object, mysql_type: object, *, nullable: bool = True, **more: Any) -> dict[str, Any]:
    data_type = {"mysqlType": mysql_type, "charset": "binary", "collate": "binary", "length": 11} | more
    return {"name": name, "dataType": data_type, "nullable": nullable, "default": None}


def watermark(ts: int) -> Message:
    return {"version": 1, "type": "WATERMARK", "commitTs": ts, "buildTs": ts >> 18}


@dataclass(frozen=True)
class Table:
    """A table `(id int primary key, v varchar(20))` under one schema."""

    name: str = "user"
    database: str = "simple"
    table_id: int = 148
    version: int = 447984074911121426
    columns: tuple[dict[str, Any], ...] = (
        column("id", "int", nullable=False),
        column("v", "varchar", length=20, charset="utf8mb4", collate="utf8mb4_bin"),
    )
    key: tuple[str, ...] = ("id",)

    def under(self, version: int, table_id: int | None = None, *added: dict[str, Any]) -> "Table":
        """Return the table under another schema."""
        return replace(self, version=version, table_id=table_id or self.table_id, columns=(*self.columns, *added))

    @property
    def schema(self) -> dict[str, Any]:
        index = {"name": "primary", "unique": True, "primary": True, "nullable": False, "columns": list(self.key)}
        return {
            "schema": self.database,
            "table": self.name,
            "tableID": self.table_id,
            "version": self.version,
            "columns": list(self.columns),
            "indexes": [index] if self.key else [],
        }

    def bootstrap(self) -> Message:
        return {"version": 1, "type": "BOOTSTRAP", "commitTs": 0, "buildTs": 1, "tableSchema": self.schema}

    def ddl(self, kind: str, sql: str, ts: int, before: "Table | None" = None) -> Message:
        message = {"version": 1, "type": kind, "sql": sql, "commitTs": ts, "buildTs": 1, "tableSchema": self.schema}
        return message | ({"preTableSchema": before.schema} if before else {})

    def row(self, kind: str, ts: int, **images: dict[str, Any]) -> Message:
        head = {"version": 1, "database": self.database, "table": self.name, "tableID": self.table_id, "type": kind}
        return head | {"commitTs": ts, "buildTs": 1, "schemaVersion": self.version} | images

    def insert(self, ts: int, key: int, v: str | None, **more: Any) -> Message:
        return self.row("INSERT", ts, data={"id": str(key), "v": v, **more})

    def update(self, ts: int, key: int, v: str | None, old: str | None, **more: Any) -> Message:
        return self.row("UPDATE", ts, data={"id": str(key), "v": v, **more}, old={"id": str(key), "v": old, **more})

    def delete(self, ts: int, key: int, v: str | None, **more: Any) -> Message:
        return self.row("DELETE", ts, old={"id": str(key), "v": v, **more})
