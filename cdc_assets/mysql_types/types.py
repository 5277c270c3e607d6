"""MySQL column types: parsed from their texts, and written in one canonical form.

The grammar is that of the data type chapter of the MySQL 8.4 reference manual, with its synonyms ("Using Data Types from
Other Database Engines"), and of the texts in `mysqlType` (TiCDC writes no parameters, Canal the user's own text).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from cdc_assets.mysql_types.descriptors import NUMBERS, TYPES, Range
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


# Words -> base. The longest match counts.
_NAMES: Mapping[tuple[str, ...], str] = {
    tuple(name.split()): base for base, descriptor in TYPES.items() for name in (base, *descriptor.synonyms)
}
_LONGEST_NAME = max(map(len, _NAMES))
_LARGEST_SCALE = 30


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
    length = TYPES[mysql_type.base].declared_length
    if mysql_type.length is not None or length is None:
        return mysql_type
    return replace(mysql_type, length=length, scale=0 if mysql_type.base == "decimal" else None)


def value_range(mysql_type: MySQLType) -> Range | None:
    """Return the integer range of a type; None if it has none. A bit of unknown length counts as `bit(64)`.

    The range of YEAR lacks the year 0, which MySQL also stores.
    """
    if mysql_type.base == "bit":
        return Range(0, (1 << (mysql_type.length or 64)) - 1)
    descriptor = TYPES[mysql_type.base]
    return descriptor.unsigned if mysql_type.unsigned else descriptor.signed


def capacity(mysql_type: MySQLType) -> int | None:
    """Return how many characters or bytes a type of text or bytes holds; None: it is not known."""
    return mysql_type.length or TYPES[mysql_type.base].capacity


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
    max_labels = TYPES[base].max_labels
    if max_labels is not None:
        labels = _labels(cursor)
        if labels and len(labels) > max_labels:
            raise SqlSyntaxError(f"{len(labels)} labels is more than {max_labels}")
    else:
        length, scale = _parameters(cursor, TYPES[base].max_length)
    if words in {("bool",), ("boolean",)}:
        length = 1
    unsigned, zerofill, is_bytes = _attributes(cursor)
    if is_bytes:
        base = TYPES[base].byte_type or base
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
