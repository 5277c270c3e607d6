"""MySQL column types: parsed from their texts, and written in one canonical form.

The grammar is that of the data type chapter of the MySQL 8.4 reference manual, with its synonyms ("Using Data Types from
Other Database Engines"), and of the texts in `mysqlType` (TiCDC writes no parameters, Canal the user's own text).
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from cdc_assets.mysql_types.tokens import SqlSyntaxError, TokenCursor, TokenKind, tokenize


class UnknownType(ValueError):  # noqa: N818 -- part of the package's interface under this name
    """The text is not a MySQL column type."""


class NoSuchTypeError(SqlSyntaxError):
    """MySQL has no type of this name."""


@dataclass(frozen=True)
class MySQLType:
    """A MySQL column type.

    Attributes:
        base: canonical lower-case name, as in information_schema's DATA_TYPE: `int`, `varchar`, `longblob`, ...
        length: display width, characters, bytes, bits, precision of a decimal, fractional digits of a time type; None
            if the text has none (TiCDC writes none: then it is unknown, not MySQL's default).
        scale: digits after the point of decimal, float and double.
        unsigned: whether negative values are excluded.
        zerofill: whether clients pad with zeros; messages never do.
        labels: the labels of enum and set, in order; None if unknown.
    """

    base: str
    length: int | None = None
    scale: int | None = None
    unsigned: bool = False
    zerofill: bool = False
    labels: tuple[str, ...] | None = None

    def __str__(self) -> str:
        text = self.base
        if self.labels is not None:
            text += f"({','.join(_quoted(label) for label in self.labels)})"
        elif self.length is not None:
            text += f"({self.length})" if self.scale is None else f"({self.length},{self.scale})"
        return text + " unsigned" * self.unsigned + " zerofill" * self.zerofill


INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
NUMBERS = INTEGERS | {"decimal", "float", "double"}
SPATIAL = frozenset(
    {
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
    }
)

# Words -> base. The longest match counts.
_NAMES: dict[tuple[str, ...], str] = {
    **{(name,): name for name in NUMBERS | SPATIAL},
    **{(name,): name for name in ("date", "datetime", "timestamp", "time", "year", "json", "enum", "set", "bit")},
    **{(name,): name for name in ("char", "varchar", "binary", "varbinary")},
    **{(f"{size}{kind}",): f"{size}{kind}" for size in ("tiny", "", "medium", "long") for kind in ("text", "blob")},
    ("integer",): "int",
    ("int1",): "tinyint",
    ("int2",): "smallint",
    ("int3",): "mediumint",
    ("middleint",): "mediumint",
    ("int4",): "int",
    ("int8",): "bigint",
    ("bool",): "tinyint",
    ("boolean",): "tinyint",
    ("serial",): "bigint",
    ("dec",): "decimal",
    ("numeric",): "decimal",
    ("fixed",): "decimal",
    ("float4",): "float",
    ("float8",): "double",
    ("real",): "double",
    ("double", "precision"): "double",
    ("character",): "char",
    ("char", "varying"): "varchar",
    ("character", "varying"): "varchar",
    ("varcharacter",): "varchar",
    ("national", "char"): "char",
    ("national", "character"): "char",
    ("nchar",): "char",
    ("national", "char", "varying"): "varchar",
    ("national", "character", "varying"): "varchar",
    ("national", "varchar"): "varchar",
    ("national", "varcharacter"): "varchar",
    ("nchar", "varying"): "varchar",
    ("nchar", "varchar"): "varchar",
    ("nchar", "varcharacter"): "varchar",
    ("nvarchar",): "varchar",
    ("long",): "mediumtext",
    ("long", "varchar"): "mediumtext",
    ("long", "char", "varying"): "mediumtext",
    ("long", "character", "varying"): "mediumtext",
    ("long", "varcharacter"): "mediumtext",
    ("long", "varbinary"): "mediumblob",
    ("geomcollection",): "geometrycollection",
}
_LONGEST_NAME = max(map(len, _NAMES))

# Text type -> the type that it is with `byte` or `character set binary`.
_BYTES_OF = {
    "char": "binary",
    "varchar": "varbinary",
    "tinytext": "tinyblob",
    "text": "blob",
    "mediumtext": "mediumblob",
    "longtext": "longblob",
}

# The largest length of a type: "Numeric Data Type Syntax", "Date and Time Data Type Syntax". For other types it is the
# length of a LONGTEXT.
_LARGEST = {"decimal": 65, "bit": 64, "datetime": 6, "timestamp": 6, "time": 6}
_LARGEST_OF_ALL = (1 << 32) - 1
_LARGEST_SCALE = 30
_MOST_LABELS = {"enum": 65_535, "set": 64}

# MySQL's length for a type that a DDL statement has without one; decimal is (10, 0).
_DECLARED_LENGTH = {"char": 1, "binary": 1, "bit": 1, "decimal": 10}


@lru_cache(maxsize=65536)
def parse_type(text: str) -> MySQLType:
    """Return the MySQL column type of a text, in any spelling that MySQL, TiDB or an encoder uses.

    Raises:
        UnknownType: the text is not a MySQL column type, or something follows it.
    """
    try:
        cursor = TokenCursor(tokenize(text))
        mysql_type = read_type(cursor)
    except SqlSyntaxError as error:
        raise UnknownType(f"{text!r} is not a MySQL type: {error}") from error
    if cursor.peek().kind is not TokenKind.END:
        raise UnknownType(f"{text!r} is not a MySQL type: {cursor.peek().text!r} follows {mysql_type}")
    return mysql_type


def parsed(text: str | None) -> MySQLType | None:
    """Return the MySQL column type of a text; None if the text is not a MySQL type."""
    try:
        return parse_type(text or "")
    except UnknownType:
        return None


def declared(mysql_type: MySQLType) -> MySQLType:
    """Return the type with MySQL's length if a DDL statement has none: `char` is `char(1)`."""
    if mysql_type.length is not None or mysql_type.base not in _DECLARED_LENGTH:
        return mysql_type
    scale = 0 if mysql_type.base == "decimal" else None
    return replace(mysql_type, length=_DECLARED_LENGTH[mysql_type.base], scale=scale)


def read_type(cursor: TokenCursor) -> MySQLType:
    """Read a type with its attributes (unsigned, zerofill, character set, collation) from SQL tokens.

    Raises:
        NoSuchTypeError: the next tokens are not the name of a MySQL type.
        SqlSyntaxError: the parameters or attributes after the name do not fit the type.
    """
    words = _name(cursor)
    base = _NAMES[words]
    labels: tuple[str, ...] | None = None
    length = scale = None
    if base in {"enum", "set"}:
        labels = _labels(cursor)
        if labels and len(labels) > _MOST_LABELS[base]:
            raise SqlSyntaxError(f"{len(labels)} labels is more than {_MOST_LABELS[base]}")
    else:
        length, scale = _parameters(cursor, _LARGEST.get(base, _LARGEST_OF_ALL))
    if words in {("bool",), ("boolean",)}:
        length = 1
    unsigned, zerofill, is_bytes = _attributes(cursor)
    if is_bytes:
        base = _BYTES_OF.get(base, base)
    if base == "decimal" and length is not None and scale is None:
        scale = 0
    if base == "float" and length is not None and scale is None:
        # p of FLOAT(p) only selects FLOAT or DOUBLE.
        base, length = ("float" if length <= 24 else "double"), None
    if (unsigned or zerofill) and base not in NUMBERS:
        raise SqlSyntaxError(f"{base} cannot be unsigned")
    return MySQLType(base, length, scale, unsigned or words == ("serial",), zerofill, labels)


def _name(cursor: TokenCursor) -> tuple[str, ...]:
    for count in range(_LONGEST_NAME, 0, -1):
        words = tuple(cursor.word(ahead).lower() for ahead in range(count))
        if words in _NAMES:
            cursor.at += count
            return words
    raise NoSuchTypeError(f"no type is called {cursor.peek().text!r}")


def _parameters(cursor: TokenCursor, largest: int) -> tuple[int | None, int | None]:
    if not cursor.symbol("("):
        return None, None
    length = _number(cursor, largest)
    scale = _number(cursor, _LARGEST_SCALE) if cursor.symbol(",") else None
    cursor.expect_symbol(")")
    if scale is not None and scale > length:
        raise SqlSyntaxError(f"{scale} digits after the point is more than {length} in all")
    return length, scale


def _number(cursor: TokenCursor, largest: int) -> int:
    token = cursor.next()
    if token.kind is not TokenKind.NUMBER or not token.text.isdecimal():
        raise SqlSyntaxError(f"expected a number, found {token.text!r}")
    if len(token.text.lstrip("0")) > len(str(largest)) or int(token.text) > largest:
        raise SqlSyntaxError(f"{token.text[:20]} is more than {largest}")
    return int(token.text)


def _labels(cursor: TokenCursor) -> tuple[str, ...] | None:
    if not cursor.symbol("("):
        return None
    labels: list[str] = []
    while True:
        while cursor.peek().kind is TokenKind.INTRODUCER:
            cursor.next()
        token = cursor.next()
        if token.kind is not TokenKind.STRING:
            raise SqlSyntaxError(f"expected a label, found {token.text!r}")
        labels.append(token.text.rstrip(" "))  # MySQL deletes trailing blanks of labels
        if not cursor.symbol(","):
            break
    cursor.expect_symbol(")")
    return tuple(labels)


def _attributes(cursor: TokenCursor) -> tuple[bool, bool, bool]:
    unsigned = zerofill = is_bytes = False
    while True:
        if cursor.take("UNSIGNED"):
            unsigned = True
        elif cursor.take("ZEROFILL"):
            unsigned = zerofill = True  # ZEROFILL makes a column UNSIGNED
        elif cursor.take("BYTE"):
            is_bytes = True
        elif cursor.take("CHARACTER", "SET") or cursor.take("CHAR", "SET") or cursor.take_any("CHARSET", "COLLATE"):
            cursor.symbol("=")
            collating = cursor.word(-1) == "COLLATE"
            is_bytes = is_bytes or (cursor.name().lower() == "binary" and not collating)
        elif not cursor.take_any("SIGNED", "BINARY", "ASCII", "UNICODE"):
            return unsigned, zerofill, is_bytes


def _quoted(label: str) -> str:
    escaped = label.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
