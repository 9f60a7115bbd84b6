"""The names that definitions are called by, where those are not the names that their tables are stored under.

    ALTER TABLE by_shop RENAME TO sold        stored by_shop, called sold

A name is one definition's alone, whether that is stored or called so. So one of the two names tells the other, and a
text that says either is never about anything else. What is stored says stored names; people say, and are shown, the
names that definitions are called by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from jobs.model import tables
from jobs.model.errors import NameTaken, UnknownName
from jobs.model.names import alike, differ_only_in_case
from jobs.sql.dialect import quote
from state_store.errors import StrandlineError

_OTHERS = ("column", "columns", "topic", "TOPIC =", "pipeline", "function", "reader")
"""Words of messages before what is no definition, and may have the name of one."""
_BEFORE_NAMES = (
    *("STREAM", "TABLE", "VIEW", "DESCRIBE", "INTO", "FROM", "JOIN"),
    *("rebuild", "verify", "backfill", "drill", "compact", "publish"),
)
"""Words of statements and commands that a name follows without quotes."""


@dataclass(frozen=True)
class Called:
    """The definitions of a lake that are called otherwise than their tables are stored; of most lakes, none.

    Attributes:
        names: {stored: called} of those alone. Each name occurs once.
    """

    names: Mapping[str, str] = field(default_factory=dict)

    def of(self, table: str) -> str:
        """What a definition is called, or a table of one: `by_shop__dead_letters` is `sold__dead_letters`."""
        if not self.names:
            return table
        name, below = tables.parted(table)
        return self.names.get(name, name) + below

    def of_input(self, entry: str) -> str:
        """What the input is called that an entry of a version vector names: a table, or `query/table`."""
        return "/".join(self.of(part) for part in entry.split("/"))

    def stored(self, name: str, *, line: int | None = None, column: int | None = None) -> str:
        """The name under which is stored what is called `name`: a definition, or a table of one; any other as it is.

        Raises:
            UnknownName: it is the former name of one that is called otherwise now, at line and column.
        """
        if not self.names:
            return name
        head, below = tables.parted(name)
        if head in self.names:
            now = self.of(name)
            raise UnknownName(f"`{name}` is called '{now}' now", line=line, column=column, hint=f"write {now}")
        return self._stored.get(head, head) + below

    def names_of(self, name: str) -> tuple[str, ...]:
        """The two names of what is stored or called so; none where they are the same."""
        if not self.names:
            return ()
        head, below = tables.parted(name)
        stored = self._stored.get(head, head)
        return (stored + below, self.names[stored] + below) if stored in self.names else ()

    def all_stored(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names under which are stored what is called so. Raises UnknownName."""
        return tuple(self.stored(name) for name in names)

    def check_free(self, name: str, own: str, all_stored: Iterable[str]) -> None:
        """Check that `name` can be what the definition is called that is, or is to be, stored as `own`.

        Raises:
            NameTaken: another definition is called, or stored, so.
        """
        for stored in all_stored:
            called = self.of(stored)
            taken = None if stored == own else alike(name, (called, stored))
            if taken is not None and taken != called:
                hint = f"take another name; or DROP {called}, and CREATE it again: it is then stored under its name"
                raise NameTaken(f"`{taken}` is the name under which '{called}' is stored", hint=hint)
            if taken is not None:
                message = f"'{name}' is defined already" if taken == name else differ_only_in_case("names", taken, name)
                raise NameTaken(message, hint=f"DESCRIBE {quote(taken)} shows it")

    def spoken(self, text: str) -> str:
        """A message for people: definitions in quotes, or after a word of a command, by what they are called.

        What a message says in backquotes stays: `by_shop` is called 'sold' now.
        """
        if self._said is None:
            return text
        return self._said.sub(lambda found: found["before"] + self.names[found["name"]] + found["below"], text)

    def with_legend(self, text: str) -> str:
        """A text about tables, which says the names that they are stored under, below what those are called."""
        legend = [
            f"'{called}' is stored as `{stored}`"
            for stored, called in self.names.items()
            if re.search(rf"(?<!\w){re.escape(stored)}(?:{tables.BELOW.pattern})(?!\w)", text)
        ]
        return "\n".join([*legend, text])

    def told(self, error: StrandlineError) -> StrandlineError:
        """The same error, with what it says as `spoken`."""
        error.message = self.spoken(error.message)
        error.hint = None if error.hint is None else self.spoken(error.hint)
        return error

    @cached_property
    def _stored(self) -> dict[str, str]:
        return {called: stored for stored, called in self.names.items()}

    @cached_property
    def _said(self) -> re.Pattern[str] | None:
        """Where a message says a stored name that people do not."""
        if not self.names:
            return None
        names = "|".join(re.escape(name) for name in sorted(self.names, key=len, reverse=True))
        others = "".join(f"(?<!{word} )" for word in _OTHERS)
        before = rf"{others}'|\b(?:{'|'.join(_BEFORE_NAMES)}) "
        return re.compile(rf"(?P<before>{before})(?P<name>{names})(?P<below>(?:{tables.BELOW.pattern})(?!\w))")
