"""Sentences for people in which the names of tables stay values until they are printed.

    sentence("'{}' is read by {}", Name("by_shop"), quoted(readers))

A table is stored under one name and may be called by another (`ALTER TABLE … RENAME TO`). Who finds a fault knows the
first; who prints it knows the map from it to the second. So a sentence carries names apart from its words, and a map
applies to these alone: a user's value, a column or a topic of the same spelling stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Written = Callable[[str], str]


@dataclass(frozen=True)
class Name:
    """A definition, or a table of one, as a part of a sentence.

    Attributes:
        stored: the name that it is stored under.
        written: how a name stands there: as it is, or quoted for a statement or a shell.
    """

    stored: str
    written: Written = str


class Text(str):
    """A sentence, with its parts. As a string it has the names that tables are stored under."""

    __slots__ = ("parts",)

    parts: tuple[str | Name, ...]

    def __new__(cls, *parts: str | Name) -> Text:
        flat = tuple(each for part in parts for each in (part.parts if isinstance(part, Text) else (part,)))
        text = super().__new__(cls, "".join(p.written(p.stored) if isinstance(p, Name) else p for p in flat))
        text.parts = flat
        return text

    def __str__(self) -> str:
        return self

    def __getnewargs__(self) -> tuple[str | Name, ...]:  # type: ignore[override]
        """What a copy is made of, in this process and in others."""
        return self.parts

    def localized(self, of: Callable[[str], str]) -> str:
        """The sentence as it is printed: `of` gives the name that people see for a stored one."""
        return "".join(p.written(of(p.stored)) if isinstance(p, Name) else p for p in self.parts)


def sentence(template: str, *values: object) -> Text:
    """A sentence: each `{}` of the template stands for a value, which may be a Name or a Text.

    Raises:
        ValueError: there are more values than places, or fewer.
    """
    words = template.split("{}")
    places = [each if isinstance(each, Name | Text) else str(each) for each in values]
    between = zip(words[1:], places, strict=True)
    return Text(words[0], *(part for word, place in between for part in (place, word)))


def joined(separator: str, texts: Iterable[str]) -> Text:
    """Texts one after the other, with something between them."""
    parts: list[str] = []
    for each in texts:
        parts += [separator, each] if parts else [each]
    return Text(*parts)


def quoted(stored: Iterable[str]) -> Text:
    """Names in quotes, with commas between them."""
    return joined(", ", (sentence("'{}'", Name(each)) for each in stored))


_LISTED, _NAMED = 20, 12
"""A list of so many names is read; of a longer one the first few tell which list it is."""


def listed(names: Sequence[str]) -> str:
    """Names with commas between them; of many the first ones, and how many more there are."""
    if len(names) <= _LISTED:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED:,} more"


def as_json(text: str) -> str | list[str | dict[str, str]]:
    """A text as a value of JSON: a string, or where it has names the list of its parts."""
    if not isinstance(text, Text) or not any(isinstance(part, Name) for part in text.parts):
        return str(text)
    return [{"table": part.stored} if isinstance(part, Name) else part for part in text.parts if part]


def from_json(value: str | list[str | dict[str, str]]) -> str:
    """The text that `as_json` gave.

    Raises:
        TypeError, KeyError: it is none.
    """
    if isinstance(value, str):
        return value
    return Text(*(part if isinstance(part, str) else Name(part["table"]) for part in value))


def localized(text: str, of: Callable[[str], str]) -> str:
    """Localize a text; one without names stays as it is."""
    return text.localized(of) if isinstance(text, Text) else text
