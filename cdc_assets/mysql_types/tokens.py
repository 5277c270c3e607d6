"""Tokens of SQL text, by sqlglot's MySQL tokenizer, and a cursor that reads them.

sqlglot's parser is not used for types and DDL. As of 30.30 it rejects FLOAT UNSIGNED, CHAR(3) BYTE and POINT; it reads INT8
as TINYINT and REAL as FLOAT; it returns RENAME TABLE, partition clauses and `ADD COLUMN (...)` as text, unread.
Its tokenizer knows MySQL's quoting, escapes, introducers, comments and literals.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar, NamedTuple

from sqlglot import TokenType
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import TokenError


class SqlSyntaxError(ValueError):
    """The SQL text does not have what the reader expects at this place."""


class TokenKind(Enum):
    """The kind of a token."""

    WORD = auto()  # keyword or unquoted name
    QUOTED = auto()  # name in backticks
    STRING = auto()
    NUMBER = auto()
    BITS = auto()  # b'101', 0b101: the text is the binary digits
    HEX = auto()  # x'FF', 0xFF: the text is the hexadecimal digits
    INTRODUCER = auto()  # _utf8mb4 before a string
    OTHER = auto()
    END = auto()


class Token(NamedTuple):
    """One token; `text` without its quotes and with its escapes resolved."""

    kind: TokenKind
    text: str


_KINDS = {
    TokenType.IDENTIFIER: TokenKind.QUOTED,
    TokenType.STRING: TokenKind.STRING,
    TokenType.NATIONAL_STRING: TokenKind.STRING,
    TokenType.NUMBER: TokenKind.NUMBER,
    TokenType.BIT_STRING: TokenKind.BITS,
    TokenType.HEX_STRING: TokenKind.HEX,
    TokenType.INTRODUCER: TokenKind.INTRODUCER,
}
_END = Token(TokenKind.END, "")
_MYSQL = MySQL()


class _Tokenizer(MySQL.Tokenizer):
    # By default sqlglot does not split the text after RENAME and some other first words.
    COMMANDS: ClassVar[set[TokenType]] = set()


def tokenize(sql: str) -> tuple[Token, ...]:
    """Split SQL text into tokens; comments are left out, except MySQL's executable ones (`/*!40005 TEMPORARY */`).

    Raises:
        SqlSyntaxError: a quote or a comment is not closed.
    """
    return tokens_of(executed_texts(sql)[0])


def tokens_of(text: str) -> tuple[Token, ...]:
    """Split one of the `executed_texts` into tokens; all comments are left out.

    Raises:
        SqlSyntaxError: a quote or a comment is not closed.
    """
    try:
        sqlglot_tokens = _Tokenizer(dialect=_MYSQL).tokenize(text)
    except TokenError as error:
        raise SqlSyntaxError(str(error)) from error
    tokens: list[Token] = []
    for token in sqlglot_tokens:
        kind = _KINDS.get(token.token_type)
        if kind is not None:
            tokens.append(Token(kind, token.text))
        elif token.text[:1].isalnum() or token.text[:1] in {"_", "$"}:
            # sqlglot joins some keywords into one token ("PRIMARY KEY").
            tokens += [Token(TokenKind.WORD, word) for word in token.text.split()]
        else:
            tokens.append(Token(TokenKind.OTHER, token.text))
    return tuple(tokens)


# Some servers in use execute comments for this version and later ones, others do not.
_DOUBTFUL_VERSION = 50700


def executed_texts(sql: str) -> list[str]:
    """Return the texts that servers may execute: comments `/*!NNNNN ... */` are replaced by their contents.

    The binlog has `DROP /*!40005 TEMPORARY */ TABLE ...`: without the word the statement drops another table. If servers
    differ, because of their version or because only MariaDB executes `/*M! ... */`, there are two texts: one with all
    comments executed, one with those that every server executes. TiDB's `/*T! ... */` stay comments, because their contents
    (CLUSTERED, AUTO_RANDOM) are neither columns nor types.
    """
    if "/*!" not in sql and "/*M!" not in sql:
        return [sql]
    texts = ["".join(_without_executable_marks(sql, doubtful=doubtful)) for doubtful in (True, False)]
    return texts[:1] if texts[0] == texts[1] else texts


def _without_executable_marks(sql: str, *, doubtful: bool) -> Iterator[str]:
    """Return the pieces of a text without the marks of executable comments.

    Args:
        sql: the text.
        doubtful: whether to remove the marks of comments, too, that only some servers execute.
    """
    at, executable = 0, False
    while at < len(sql):
        mark = _EXECUTABLE.match(sql, at)
        if mark and (doubtful or not (mark["maria"] or int(mark["version"] or 0) >= _DOUBTFUL_VERSION)):
            at, executable = mark.end(), True
            yield " "
        elif executable and sql.startswith("*/", at):
            at, executable = at + 2, False
            yield " "
        else:
            end = _end_of_piece(sql, at)
            yield sql[at:end]
            at = end


_EXECUTABLE = re.compile(r"/\*(?P<maria>M)?!(?P<version>[0-9]{5,6})?")


def _end_of_piece(sql: str, at: int) -> int:
    """Return where the quoted text, comment or single character that begins at `at` ends."""
    if sql.startswith("/*", at):
        close = sql.find("*/", at + 2)
        return len(sql) if close < 0 else close + 2
    if sql[at] == "#" or sql.startswith("-- ", at):
        close = sql.find("\n", at)
        return len(sql) if close < 0 else close
    if sql[at] not in "'\"`":
        return at + 1
    quote, end = sql[at], at + 1
    while end < len(sql) and sql[end] != quote:
        end += 2 if sql[end] == "\\" and quote != "`" else 1
    return end + 1  # A doubled quote ends one piece and begins the next, which makes no difference to the caller.


@dataclass
class TokenCursor:
    """A position in a sequence of tokens. Words are compared ignoring case; quoted names are never keywords."""

    tokens: tuple[Token, ...]
    at: int = 0

    def peek(self, ahead: int = 0) -> Token:
        """Return the token `ahead` places on, or an END token."""
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else _END

    def next(self) -> Token:
        """Take one token."""
        token = self.peek()
        self.at += 1
        return token

    @property
    def at_end(self) -> bool:
        """Whether no token is left."""
        return self.peek().kind is TokenKind.END

    @property
    def done(self) -> bool:
        """Whether no token is left except a closing semicolon."""
        return self.at_end or self.sees_symbol(";")

    def word(self, ahead: int = 0) -> str:
        """Return the word `ahead` places on in upper case; empty if the token there is not a word."""
        token = self.peek(ahead)
        return token.text.upper() if token.kind is TokenKind.WORD else ""

    def sees(self, *words: str) -> bool:
        """Return whether the next tokens are these words."""
        return all(self.word(ahead) == word for ahead, word in enumerate(words))

    def take(self, *words: str) -> bool:
        """Take these words if they come next, and return whether they do."""
        if not self.sees(*words):
            return False
        self.at += len(words)
        return True

    def take_any(self, *words: str) -> str:
        """Take one of these words if it comes next, and return it; else return an empty text."""
        word = self.word()
        if word not in words:
            return ""
        self.at += 1
        return word

    def sees_symbol(self, text: str, ahead: int = 0) -> bool:
        """Return whether this symbol is `ahead` places on."""
        return self.peek(ahead) == (TokenKind.OTHER, text)

    def symbol(self, text: str) -> bool:
        """Take this symbol if it comes next, and return whether it does."""
        if not self.sees_symbol(text):
            return False
        self.at += 1
        return True

    def expect_symbol(self, text: str) -> None:
        """Take this symbol.

        Raises:
            SqlSyntaxError: the next token is another one.
        """
        if not self.symbol(text):
            raise SqlSyntaxError(f"expected {text!r}, found {self.peek().text!r}")

    def name(self) -> str:
        """Take a name: unquoted, in backticks, or (sql_mode ANSI_QUOTES) in quotation marks.

        Raises:
            SqlSyntaxError: the next token is not a name.
        """
        token = self.next()
        if token.kind not in {TokenKind.WORD, TokenKind.QUOTED, TokenKind.STRING, TokenKind.NUMBER}:
            raise SqlSyntaxError(f"expected a name, found {token.text!r}")
        return token.text

    def skip_group(self) -> None:
        """Skip a parenthesis with its contents if it comes next."""
        if not self.symbol("("):
            return
        depth = 1
        while depth:
            token = self.next()
            if token.kind is TokenKind.END:
                raise SqlSyntaxError("a parenthesis is not closed")
            depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind is TokenKind.OTHER else 0
