"""The bytes and numbers that literals stand for. Sections named here are those of the MySQL 8.4 reference manual."""

import re
from decimal import ROUND_HALF_UP, Context, Decimal

from cdc_assets.mysql_types.tokens import Token, TokenKind

# Digits enough that no number of a literal is rounded by the arithmetic itself.
EXACT = Context(prec=500, rounding=ROUND_HALF_UP)


def bytes_of(token: Token) -> bytes:
    """Return the bytes of a hexadecimal or bit-value literal."""
    size = -(-len(token.text) // (8 if token.kind is TokenKind.BITS else 2))
    return int(token.text or "0", 2 if token.kind is TokenKind.BITS else 16).to_bytes(size, "big")


def decode_bytes(data: bytes, encoding: str) -> str | None:
    """Return the text of bytes; None: they are no text in this encoding."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


# A number and nothing else but blanks around it.
_NUMBER = re.compile(
    r"\s*([+-]?(?:[0-9]{1,100}(?:[.][0-9]{0,100})?|[.][0-9]{1,100})(?:[eE][+-]?[0-9]{1,3})?)\s*", re.ASCII
)


def number_of(literal: Token) -> Decimal | None:
    """Return the number that MySQL takes a literal for in a numeric column; None: it is none, or has more than 64 bits.

    See "Hexadecimal Literals", "Bit-Value Literals".
    """
    if literal.kind in {TokenKind.HEX, TokenKind.BITS}:
        data = bytes_of(literal)
        return Decimal(int.from_bytes(data, "big")) if len(data) <= 8 else None
    match = _NUMBER.fullmatch(literal.text)
    return Decimal(match[1]) if match else None


def is_double(literal: Token) -> bool:
    """Return whether a literal is an approximate number: one with an exponent ("Numeric Literals")."""
    return literal.kind is TokenKind.NUMBER and "e" in literal.text.lower()


def round_half_up(number: Decimal, digits: int) -> Decimal:
    """Return a number rounded half away from zero to digits after the point ("Rounding Behavior")."""
    return number.quantize(Decimal(1).scaleb(-digits), context=EXACT)
