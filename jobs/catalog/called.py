"""The names that definitions are called by, where those are not the names that their tables are stored under.

    ALTER TABLE by_shop RENAME TO sold        stored by_shop, called sold

A name is one definition's alone, whether that is stored or called so. What is stored says stored names; people say, and
are shown, the names that definitions are called by. In sentences names are values (`state_store.wording`), so this map
applies to them alone, where a sentence is printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from strandline.jobs.model import tables
from strandline.jobs.model.errors import NameTaken, UnknownName
from strandline.jobs.model.tables import alike, differ_only_in_case
from strandline.jobs.sql.dialect import quote
from strandline.state_store import wording
from strandline.state_store.errors import StrandlineError


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

    def shown(self, text: str) -> str:
        """A sentence for people: its names of tables as those are called."""
        return wording.called(text, self.of_input)

    def told(self, error: StrandlineError) -> StrandlineError:
        """The same error, with what it says as `shown`."""
        error.message = self.shown(error.message)
        error.hint = None if error.hint is None else self.shown(error.hint)
        error.where = None if error.where is None else self.shown(error.where)
        return error

    def legend(self, stored: Iterable[str]) -> list[str]:
        """A line for each of these tables, or tables of a definition, that is called otherwise than it is stored."""
        names = {tables.parted(table)[0] for table in stored}
        return [f"'{called}' is stored as `{name}`" for name, called in self.names.items() if name in names]

    @cached_property
    def _stored(self) -> dict[str, str]:
        return {called: stored for stored, called in self.names.items()}
