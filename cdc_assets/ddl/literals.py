"""Read the literals of statements. Sections named here are those of the MySQL 8.4 reference manual, "Literal Values"."""

from cdc_assets.ddl.literal_values import bytes_of, decode_bytes
from cdc_assets.ddl.temporal_literals import print_temporal_literal
from cdc_assets.mysql_types.tokens import Token, TokenCursor, TokenKind

# A literal whose value is not known.
_UNKNOWN = Token(TokenKind.OTHER, "")


def read_literal(cursor: TokenCursor) -> Token | None:
    """Take the literal that comes next, except NULL.

    Returns:
        A STRING, NUMBER, HEX or BITS token. A temporal literal becomes a STRING as MySQL prints it, TRUE and FALSE become
        numbers, and texts of other character sets become Unicode. An OTHER token is a literal whose value is not known.
        None: no literal comes next, and no token is taken.
    """
    if cursor.sees("TRUE") or cursor.sees("FALSE"):
        return Token(TokenKind.NUMBER, "1" if cursor.next().text.upper() == "TRUE" else "0")
    if cursor.peek(1).kind is TokenKind.STRING and (keyword := cursor.take_any("DATE", "TIME", "TIMESTAMP")):
        text = print_temporal_literal(keyword, cursor.next().text)
        return _UNKNOWN if text is None else Token(TokenKind.STRING, text)
    if cursor.peek().kind in {TokenKind.STRING, TokenKind.INTRODUCER}:
        return _read_string(cursor)
    if cursor.peek().kind in {TokenKind.HEX, TokenKind.BITS}:
        return cursor.next()
    return _read_number(cursor)


def _read_number(cursor: TokenCursor) -> Token | None:
    """Take a number with its sign; None: no number comes next, and no token is taken."""
    start = cursor.at
    minus = cursor.symbol("-")
    if not minus:
        cursor.symbol("+")
    point = cursor.symbol(".")
    if cursor.peek().kind is not TokenKind.NUMBER:
        cursor.at = start
        return None
    text = cursor.next().text
    return Token(TokenKind.NUMBER, "-" * minus + "0." * point + text)


# Python's names of the character sets of introducers. In those of `_WIDE_SETS` the bytes of ASCII are other characters.
_CHARACTER_SETS = {"utf8": "utf-8", "utf8mb3": "utf-8", "utf8mb4": "utf-8", "ascii": "ascii", "latin1": "cp1252"}
_WIDE_SETS = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf32": "utf-32-be"}


def _read_string(cursor: TokenCursor) -> Token:
    """Take a string with its introducer; adjacent strings are one ("String Literals")."""
    charset = cursor.next().text.lower().removeprefix("_") if cursor.peek().kind is TokenKind.INTRODUCER else None
    if cursor.peek().kind in {TokenKind.HEX, TokenKind.BITS}:
        token, encoding = cursor.next(), (_CHARACTER_SETS | _WIDE_SETS).get(charset or "")
        if charset == "binary":
            return token
        decoded = None if encoding is None else decode_bytes(bytes_of(token), encoding)
        return _UNKNOWN if decoded is None else Token(TokenKind.STRING, decoded)
    text, is_text = "", cursor.peek().kind is TokenKind.STRING
    while cursor.peek().kind is TokenKind.STRING:
        text += cursor.next().text
    # The introducer makes the server read the text's bytes, which are in the session's character set, in another one.
    same_bytes = charset in {None, "binary", "utf8", "utf8mb3", "utf8mb4"}
    has_value = is_text and (same_bytes or (text.isascii() and charset not in _WIDE_SETS))
    return Token(TokenKind.STRING, text) if has_value else _UNKNOWN
