"""The shape of a SELECT: its text with marks in the place of its constants, found without a parser.

    SELECT * FROM t WHERE id IN (7, -8) AND town = 'Rome'
    SELECT * FROM t WHERE id IN ( 700000000 ) AND town = '\\ue0001'       constants  (7, -8), ('Rome')

Texts of one shape are read once, so look-ups by key need no parser. A mark is a constant of the same kind, so that what
is decided for it holds for each constant that stands in its place. Only plain texts have a shape: words, names,
whole numbers, strings and comparisons, with a bound on how many; to read one costs little, whatever it says.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Final

MOST_CHARACTERS: Final = 20_000
"""A list of a thousand keys. A longer text is read by those who have a process for it."""
_MOST_PIECES: Final = 600
"""Of the shape: some two hundred columns and conditions."""

_STRING: Final = r"'(?:[^']|'')*'"
_PIECE: Final = re.compile(
    r"""\s*(?:(?P<number>-?\d+(?![\w.]))|(?P<word>[A-Za-z_]\w*(?!['"`]))|(?P<string>'(?:[^']|'')*'(?!'))"""
    r"""|(?P<name>"(?:[^"]|"")+"|`[^`]+`)|(?P<sign><>|!=|<=|>=|[=<>,().*;]))\s*"""
)
_NUMBERS: Final = re.compile(r"\(\s*(-?\d+(?:\s*,\s*-?\d+)*)\s*\)\s*")
_STRINGS: Final = re.compile(rf"\(\s*({_STRING}(?:\s*,\s*{_STRING})*)\s*\)\s*")
_EACH_STRING: Final = re.compile(_STRING)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?")
_BEFORE_NEGATIVE: Final = frozenset(("=", "<", ">", "<=", ">=", "<>", "!=", "(", "AND", "BETWEEN"))
_BEFORE_BRACKET: Final = frozenset((*_BEFORE_NEGATIVE, "IN", "CAST", "WHERE", "NOT"))
_ONCE: Final = frozenset(("SELECT", "FROM", "WHERE"))
_NOT_PLAIN: Final = frozenset(
    (
        *("JOIN", "UNION", "INTERSECT", "EXCEPT", "OR", "CASE", "GROUP", "ORDER", "HAVING", "DISTINCT", "WITH", "EMIT"),
        *("LIKE", "ILIKE", "OFFSET", "WINDOW"),
    )
)
_FIRST: Final = dt.datetime(1000, 1, 1, tzinfo=dt.UTC)
_TEXTS: Final = ("s", "d", "t")
FEW_DIGITS: Final = 9
"""Of whole numbers that are INT wherever they stand."""
_MANY_DIGITS: Final = 18


@dataclass(frozen=True)
class Constants:
    """The constants in one place: several in a list behind IN.

    Attributes:
        kind: `i` and `I` whole numbers of few and of many digits, `s` text, `d` text of a date, `t` of a moment.
    """

    kind: str
    values: tuple[int | str, ...]


@dataclass(frozen=True)
class Shape:
    """The shape of a text.

    Attributes:
        text: with the marks.
        marks: as the literals in a tree hold them.
        constants: that stand in the places of `marks`.
    """

    text: str
    marks: tuple[str, ...]
    constants: tuple[Constants, ...]


def shape_of(text: str, *, schema: bool = False) -> Shape | None:
    """The shape of a SELECT; None for one that is not plain.

    Args:
        schema: the schema `public` before a name goes, as PostgreSQL's clients write it.
    """
    if len(text) > MOST_CHARACTERS:
        return None
    scan, place = _Scan(schema), 0
    while place < len(text):
        listed = _list_at(text, place) if scan.before == "IN" else None
        if listed is not None:
            constants, place = listed
            scan.take(f"( {scan.marked(constants)} )")
            continue
        found = _PIECE.match(text, place)
        if found is None or len(scan.pieces) > _MOST_PIECES:
            return None
        kind, place = found.lastgroup or "", found.end()
        if found[kind] == ";":
            return scan.shape() if place == len(text) else None
        if not scan.piece(kind, found[kind]):
            return None
    return scan.shape()


class _Scan:
    """The pieces of one text so far.

    Attributes:
        before: the last one, in upper case.
    """

    def __init__(self, schema: bool) -> None:
        self._schema = schema
        self._words: set[str] = set()
        self._marks: list[str] = []
        self._constants: list[Constants] = []
        self.pieces: list[str] = []
        self.before = ""

    def piece(self, kind: str, text: str) -> bool:
        """Take the next piece; False if it is in no plain text."""
        match kind:
            case "number" | "string":
                if text.startswith("-") and self.before not in _BEFORE_NEGATIVE:
                    return False  # a difference
                text = self.marked(_constants([text]))
            case "word":
                word = text.upper()
                again = word in _ONCE and word in self._words
                if word in _NOT_PLAIN or again or (not self._words and word != "SELECT"):
                    return False
                self._words.add(word)
            case _ if text == "(" and self.before not in _BEFORE_BRACKET:
                return False  # a call
            case _ if text == "." and self._schema and self.before.strip('"') == "PUBLIC":
                if self.pieces[-2:-1] != ["."]:
                    self.pieces.pop()
                    self.before = ""
                    return True
        self.take(text)
        return True

    def take(self, piece: str) -> None:
        """Take a piece as it is."""
        self.pieces.append(piece)
        self.before = piece.upper()

    def marked(self, constants: Constants) -> str:
        """A mark for constants, as it is written."""
        mark = _mark(constants.kind, len(self._marks))
        self._marks.append(mark)
        self._constants.append(constants)
        return f"'{mark}'" if constants.kind in _TEXTS else mark

    def shape(self) -> Shape | None:
        """The shape of all pieces."""
        plain = self._words >= _ONCE and all(each.kind for each in self._constants)
        return Shape(" ".join(self.pieces), tuple(self._marks), tuple(self._constants)) if plain else None


def _list_at(text: str, place: int) -> tuple[Constants, int] | None:
    """The constants in the brackets at this place, and where the text goes on; None for other brackets."""
    numbers = _NUMBERS.match(text, place)
    if numbers is not None:
        return _constants(numbers[1].split(",")), numbers.end()
    strings = _STRINGS.match(text, place)
    if strings is not None:
        return _constants(_EACH_STRING.findall(strings[1])), strings.end()
    return None


def _constants(texts: list[str]) -> Constants:
    """Constants as they are written, all of them numbers or all of them strings; without a kind: not plain."""
    if not texts[0].startswith("'"):
        digits = max(len(text.strip().lstrip("-")) for text in texts)
        kind = "i" if digits <= FEW_DIGITS else "I" if digits <= _MANY_DIGITS else ""
        return Constants(kind, tuple(int(text) for text in texts) if kind else ())
    values = [text[1:-1].replace("''", "'") for text in texts]
    kind = "d" if all(map(_is_day, values)) else "t" if all(map(_is_moment, values)) else "s"
    return Constants(kind, tuple(values))


def _is_day(text: str) -> bool:
    return _DAY.fullmatch(text) is not None and _reads(text)


def _is_moment(text: str) -> bool:
    return _MOMENT.fullmatch(text) is not None and _reads(text)


def _reads(text: str) -> bool:
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _mark(kind: str, number: int) -> str:
    """A constant of a kind, which none of another number is."""
    match kind:
        case "i":
            return str(700_000_000 + number)
        case "d":
            return (_FIRST + dt.timedelta(days=number)).date().isoformat()
        case "t":
            return (_FIRST + dt.timedelta(seconds=number)).replace(tzinfo=None).isoformat()
        case "s":
            return f"\ue000{number}"
        case _:
            return str(700_000_000_000_000_000 + number)
