"""Column types, their values and their defaults, as seeded SQL text.

A type is what `information_schema` says of a column, so values fit whatever statements have made of the column.
"""

import random
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXT_LENGTHS = {"tinytext": 60, "text": 300, "mediumtext": 300, "longtext": 300}
_BYTE_LENGTHS = {"tinyblob": 60, "blob": 300, "mediumblob": 300, "longblob": 300}
# Character set -> characters that it has.
CHARACTERS = {
    "ascii": "abAB 09'\"\\%_`,.-",
    "latin1": "abAB éÿß'\"\\%_`\t",
    "gbk": "ab漢字'\\",
    "ucs2": "abé漢字'\\",
    "utf8mb3": "abé漢字ß'\\%",
    "utf8mb4": "abAé漢😀ß'\"\\%\n\t`",
}
_JSON = (
    "{}",
    "[]",
    "null",
    "1",
    '"é"',
    '{"a": 1, "b": [1.50, null, true]}',
    '{"b":1,"a":"x\\\\"}',
    "[1e2, -0.0]",
    '""',
)
_LABELS = ("a", "b", "Cc", "d e", "é", "x'y", "漢", 'q"')


@dataclass(frozen=True)
class Kind:
    """A type to declare columns with.

    Attributes:
        name: by which its rows are counted.
        declare: SQL of a declaration, by chance.
        as_key: whether it may be a key's.
    """

    name: str
    declare: Callable[[random.Random], str]
    as_key: bool = False


def _plain(name: str, sql: str | None = None, *, as_key: bool = False) -> Kind:
    return Kind(name, lambda _: sql or name, as_key)


def _decimal(low: int, high: int) -> Callable[[random.Random], str]:
    def declare(rng: random.Random) -> str:
        precision = rng.randint(low, high)
        return f"decimal({precision},{rng.randint(0, min(30, precision))})"

    return declare


def _fraction(name: str) -> Callable[[random.Random], str]:
    return lambda rng: rng.choice([name, *(f"{name}({digits})" for digits in range(7))])


def _character_set(rng: random.Random) -> str:
    name = rng.choice(["", *CHARACTERS])
    return f" CHARACTER SET {name}" if name else ""


def _text(name: str, lengths: Sequence[int] = ()) -> Callable[[random.Random], str]:
    return lambda rng: name + (f"({rng.choice(lengths)})" if lengths else "") + _character_set(rng)


def _labels(name: str) -> Callable[[random.Random], str]:
    def declare(rng: random.Random) -> str:
        labels = rng.sample(_LABELS, rng.randint(1, len(_LABELS)))
        return f"{name}({','.join(quote(label) for label in labels)}) CHARACTER SET utf8mb4"

    return declare


KINDS: tuple[Kind, ...] = (
    *(_plain(name, as_key=True) for name in _INTEGER_BITS),
    *(_plain(f"{name} unsigned", as_key=name != "bigint") for name in _INTEGER_BITS),
    _plain("tinyint(1)"),
    _plain("int zerofill", "int(8) unsigned zerofill"),
    Kind("decimal", _decimal(1, 18)),
    Kind("decimal, as a key", lambda _: "decimal(12,2)", as_key=True),
    Kind("decimal, long", _decimal(39, 65)),
    _plain("float"),
    _plain("double"),
    _plain("bit(1)"),
    Kind("bit", lambda rng: f"bit({rng.randint(2, 64)})"),
    Kind("char", _text("char", (1, 5, 20))),
    Kind("varchar", _text("varchar", (1, 9, 40, 300)), as_key=False),
    Kind("varchar, as a key", lambda _: "varchar(20) CHARACTER SET utf8mb4", as_key=True),
    *(Kind(name, _text(name)) for name in _TEXT_LENGTHS),
    Kind("binary", lambda rng: f"binary({rng.choice((1, 4, 16))})"),
    Kind("varbinary", lambda rng: f"varbinary({rng.choice((4, 16, 300))})"),
    *(_plain(name) for name in _BYTE_LENGTHS),
    Kind("enum", _labels("enum")),
    Kind("set", _labels("set")),
    _plain("date", as_key=True),
    Kind("datetime", _fraction("datetime")),
    Kind("timestamp", lambda rng: _fraction("timestamp")(rng) + " NULL"),
    Kind("time", _fraction("time")),
    _plain("year"),
    _plain("json"),
    _plain("point"),
)
OF_NAME = {kind.name: kind for kind in KINDS}
# What MySQL does not have; Debezium 3.5 does not parse MariaDB's INET4 and INET6.
UNKNOWN_TYPES = ("uuid",)


@dataclass(frozen=True)
class Column:
    """A column as the server has it.

    Attributes:
        name: its name.
        type: its type, as `COLUMN_TYPE` has it.
        charset: of texts.
        collation: of texts.
        nullable: whether it may be NULL.
        has_default: whether it has a default.
        is_filled: whether only the server gives it values (generated, AUTO_INCREMENT).
    """

    name: str
    type: str
    charset: str | None
    collation: str | None
    nullable: bool
    has_default: bool
    is_filled: bool

    @property
    def base(self) -> str:
        """The type's name."""
        return re.split(r"[( ]", self.type, maxsplit=1)[0]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers in the type's parentheses."""
        inside = re.match(r"\w+\(([\d,]+)\)", self.type)
        return tuple(map(int, inside[1].split(","))) if inside else ()

    @property
    def kind(self) -> str | None:
        """The name of the Kind that it counts for; None: of none."""
        if self.base in _INTEGER_BITS:
            if self.type == "tinyint(1)":
                return self.type
            if "zerofill" in self.type:
                return "int zerofill"
            return self.base + (" unsigned" if "unsigned" in self.type else "")
        if self.base == "decimal":
            if self.sizes == (12, 2):
                return "decimal, as a key"
            return "decimal, long" if self.sizes[0] > 38 else "decimal"
        if self.base == "bit":
            return "bit(1)" if self.sizes == (1,) else "bit"
        if self.base == "longtext" and self.collation == "utf8mb4_bin":
            return "json"
        if self.base == "varchar" and self.type == "varchar(20)":
            return "varchar, as a key"
        return self.base if self.base in OF_NAME else None

    @property
    def labels(self) -> list[str]:
        """Labels of an ENUM or SET."""
        return [label.replace("''", "'") for label in re.findall(r"'((?:[^']|'')*)'", self.type)]


def quote(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def literal(rng: random.Random, column: Column) -> str:
    """Return a value that the column takes, NULL among them."""
    if column.nullable and rng.random() < 0.12:
        return "NULL"
    return _VALUES.get(column.base, _no_value)(rng, column)


def _no_value(_rng: random.Random, _column: Column) -> str:
    return "DEFAULT"


def _integer(rng: random.Random, column: Column) -> str:
    bits = _INTEGER_BITS[column.base]
    low, high = (0, 2**bits - 1) if "unsigned" in column.type else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return str(rng.choice([low, high, 0, 1, rng.randint(0, 100), rng.randint(low, high)]))


def _decimal_value(rng: random.Random, column: Column) -> str:
    precision, scale = (*column.sizes, 0)[:2]
    digits = "".join(rng.choice("0123456789") for _ in range(rng.choice([1, precision])))
    digits = digits.rjust(scale + 1, "0")
    number = f"{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}".rstrip(".")
    if len(digits.lstrip("0")) > precision:
        number = "0"
    return ("-" if rng.random() < 0.4 and "unsigned" not in column.type else "") + number


def _real(rng: random.Random, column: Column) -> str:
    small = ["0", "1.5", "-2.25", "1e10", "-1e-5", "0.1", "3.4e38", "1.17549e-38"]
    large = [*small, "1.7976931348623157e308", "2.5e-300", repr(rng.uniform(-1e6, 1e6))]
    return rng.choice(small if column.base == "float" else large)


def _bit(rng: random.Random, column: Column) -> str:
    return f"b'{rng.choice([0, 1, (1 << column.sizes[0]) - 1, rng.getrandbits(column.sizes[0])]):b}'"


def text_of(rng: random.Random, charset: str | None, most: int) -> str:
    """Return a text of at most so many characters that a character set has."""
    characters = CHARACTERS.get(charset or "", "abc")
    return "".join(rng.choice(characters) for _ in range(rng.choice([0, 1, most // 2, most])))


def _text_value(rng: random.Random, column: Column) -> str:
    if column.kind == "json":
        return quote(rng.choice(_JSON))
    most = _TEXT_LENGTHS.get(column.base) or (column.sizes or (1,))[0]
    return quote(text_of(rng, column.charset, most // (4 if column.base == "tinytext" else 1)))


def _bytes_value(rng: random.Random, column: Column) -> str:
    most = _BYTE_LENGTHS.get(column.base) or (column.sizes or (1,))[0]
    size = rng.choice([0, 1, most // 2, most])
    return f"x'{rng.randbytes(size).hex()}'" if size else "''"


def _enum(rng: random.Random, column: Column) -> str:
    return quote(rng.choice(column.labels))


def _set(rng: random.Random, column: Column) -> str:
    return quote(",".join(label for label in column.labels if rng.random() < 0.5))


def _date_text(rng: random.Random, low: int = 1000, high: int = 9999) -> str:
    year = rng.choice([low, 1970, 2024, high, rng.randint(low, high)])
    return f"{year:04}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def _fraction_text(rng: random.Random, column: Column) -> str:
    digits = (*column.sizes, 0)[0]
    return "." + "".join(rng.choice("0123456789") for _ in range(digits)) if digits else ""


def _clock_text(rng: random.Random) -> str:
    return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"


def _date(rng: random.Random, _column: Column) -> str:
    return quote(_date_text(rng))


def _datetime(rng: random.Random, column: Column) -> str:
    return quote(f"{_date_text(rng)} {_clock_text(rng)}{_fraction_text(rng, column)}")


def _timestamp(rng: random.Random, column: Column) -> str:
    return quote(f"{_date_text(rng, 1971, 2037)} {_clock_text(rng)}{_fraction_text(rng, column)}")


def _time(rng: random.Random, column: Column) -> str:
    hours = rng.choice([0, 23, 24, 837, rng.randint(0, 837)])
    sign = "-" if rng.random() < 0.3 else ""
    return quote(f"{sign}{hours:02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}{_fraction_text(rng, column)}")


def _year(rng: random.Random, _column: Column) -> str:
    return str(rng.choice([1901, 2155, rng.randint(1901, 2155)]))


def _point(rng: random.Random, _column: Column) -> str:
    return f"ST_GeomFromText('POINT({rng.randint(-9, 9)} {rng.randint(-9, 9)})')"


def _uuid(rng: random.Random, _column: Column) -> str:
    return quote(str(uuid.UUID(int=rng.getrandbits(128), version=4)))


_VALUES: dict[str, Callable[[random.Random, Column], str]] = {
    **dict.fromkeys(_INTEGER_BITS, _integer),
    "decimal": _decimal_value,
    "float": _real,
    "double": _real,
    "bit": _bit,
    **dict.fromkeys(("char", "varchar", *_TEXT_LENGTHS), _text_value),
    **dict.fromkeys(("binary", "varbinary", *_BYTE_LENGTHS), _bytes_value),
    "enum": _enum,
    "set": _set,
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": _time,
    "year": _year,
    "point": _point,
    "uuid": _uuid,
}

# Base type -> literals of every form for a DEFAULT; the server refuses those that do not fit. Debezium 3.5 does not parse
# typed literals (DATE '2024-01-05') and numbers that end in a point. It fails at two texts ('1' '2') of a number, at TRUE of
# a BIT, at a number or a day of a TIME, and at a number of a TIMESTAMP.
_NUMBER_FORMS = ("5", "'5'", "-3", "'-3'", "+3", "0", "TRUE", "FALSE", "0x1F", "b'101'", "(7)", "1e1", "''")
_REAL_FORMS = ("1.5", "'1.5'", "-2.25", ".5", "1e2", "-1.25e-2", "'1e3'", "0x1F", "TRUE", "(3.5)", "0")
_TEXT_FORMS = (
    "'x'", '"x"', "''", "_utf8mb4'é'", "N'n'", "0x41", "X'4142'", "'a' 'b'", "('p')", "'it''s'", r"'a\'b\\'", "7", "-1.50",
    "TRUE", "'a  '", "'%'", "b'1000001'",
)  # fmt: skip
_BYTE_FORMS = ("'abc'", "x'00ff'", "0x41", "''", "X'E9'", "b'1000001'", "'a' 'b'")
_DATE_FORMS = ("'2024-01-05'", "'2024-1-5'", "'20240105'", "20240105", "'2024/01/05'", "'24-1-5'",
               "'2024.01.05'")  # fmt: skip
_MOMENT_FORMS = (
    "'2024-01-05 03:04:05'", "'2024-1-5 3:4:5'", "20240105030405", "'20240105030405'", "'2024-01-05 03:04:05.678912'",
    "'2024-01-05T03:04:05'", "'2024-01-05'",
)  # fmt: skip
_TIME_FORMS = ("'12:34:56'", "'-12:00:01'", "'12:34'", "'12:34:56.7891'")
_DEFAULTS: dict[str, Sequence[str]] = {
    **dict.fromkeys(_INTEGER_BITS, _NUMBER_FORMS),
    **dict.fromkeys(("decimal", "float", "double"), _REAL_FORMS + _NUMBER_FORMS),
    "bit": ("b'1'", "1", "0b1", "x'01'", "'1'", "0"),
    **dict.fromkeys(("char", "varchar", *_TEXT_LENGTHS), _TEXT_FORMS),
    **dict.fromkeys(("binary", "varbinary", *_BYTE_LENGTHS), _BYTE_FORMS),
    "date": _DATE_FORMS,
    "datetime": _MOMENT_FORMS,
    "timestamp": [form for form in _MOMENT_FORMS if "20240105030405" not in form],
    "time": _TIME_FORMS,
    "year": ("2024", "'2024'", "24", "'24'", "'70'", "1901", "0x7E8"),
    "json": ("'{}'", "'[1, 2]'", "'null'", "'\"x\"'"),
}


def default(rng: random.Random, declaration: str) -> str | None:
    """Return a literal for the DEFAULT of a declared type; None: it can have none."""
    base = re.split(r"[( ]", declaration, maxsplit=1)[0]
    if base in ("enum", "set"):
        labels = re.findall(r"'(?:[^']|'')*'", declaration)
        forms: Sequence[Any] = [*labels, *([labels[0].upper()] if labels[0].isascii() else [])]
        return str(rng.choice(forms))
    return rng.choice(_DEFAULTS[base]) if base in _DEFAULTS else None
