"""The map from the name that a definition is stored under to the name that people call it by.

    ALTER TABLE by_shop RENAME TO sold        stored by_shop, called sold

What people say is first looked for among the names that they see: after `ALTER … SWAP WITH` a name that one definition
is stored under is that of another. Files and commits hold stored names; people write and read the others. So a name is
mapped once, on its way in or out. In sentences names are values (`state_store.wording`), and the map is applied to them
alone, when a sentence is printed.

Swaps of two names that a kill cannot leave half done: an intent is put first, then both files, then the intent goes.

    intent ──> file of the one ──> file of the other ──> intent removed

From the intent on, every reader of the catalog sees both definitions under their new names. Whoever changes the catalog
first ends the swaps that somebody else began and did not end. All of it happens under the lock of the catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from strandline.jobs.model import tables
from strandline.jobs.model.errors import NameTaken, UnknownName
from strandline.jobs.model.tables import alike, differ_only_in_case
from strandline.jobs.sql.dialect import quote
from strandline.state_store import wording
from strandline.state_store.errors import CorruptState, StrandlineError
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import make_folder, remove_file, replace, sync_folder
from strandline.state_store.layout import LakeLayout, safe_name
from strandline.state_store.paths import LakePath, files_in
from strandline.state_store.stored_state import members_in, sealed_members


@dataclass(frozen=True)
class NameMap:
    """The definitions of a lake that have been renamed; of most lakes, none.

    Attributes:
        names: {stored name: name that people see}. Each name occurs once.
    """

    names: Mapping[str, str] = field(default_factory=dict)

    def of(self, table: str) -> str:
        """Name that people see of a definition or its table: `by_shop__dead_letters` is `sold__dead_letters`."""
        if not self.names:
            return table
        name, below = tables.parted(table)
        return self.names.get(name, name) + below

    def of_input(self, entry: str) -> str:
        """Name that people see of an entry of a version vector: a table, or `query/table`."""
        return "/".join(self.of(part) for part in entry.split("/"))

    def stored(self, name: str, *, line: int | None = None, column: int | None = None) -> str:
        """Find the stored name of a definition, or of a table of one; return any other name as it is.

        Raises:
            UnknownName: it is the former name of one that is called otherwise now, at line and column.
        """
        if not self.names:
            return name
        head, below = tables.parted(name)
        found = self._stored.get(head)
        if found is None and head in self.names:
            now = self.of(name)
            raise UnknownName(f"`{name}` is called '{now}' now", line=line, column=column, hint=f"write {now}")
        return (head if found is None else found) + below

    def scopes_of(self, stored: str) -> tuple[str, ...]:
        """The names by which a token's scope may mean a stored table: that which people see, and the stored one as long
        as nothing else is called so."""
        seen = self.of(stored)
        return (seen,) if seen == stored or self.is_called(tables.parted(stored)[0]) else (seen, stored)

    def names_of(self, name: str) -> tuple[str, ...]:
        """`scopes_of` a definition or table that people call, or called, by this name."""
        head, below = tables.parted(name)
        return self.scopes_of(self._stored.get(head, head) + below)

    def is_called(self, name: str) -> bool:
        """True if a renamed definition is called so."""
        return name in self._stored

    def all_stored(self, names: Iterable[str]) -> tuple[str, ...]:
        """Find the stored name of each. Raises as `stored`."""
        return tuple(self.stored(name) for name in names)

    def check_new(self, name: str, all_stored: Iterable[str]) -> None:
        """Check that a new definition can have, and be stored under, the name `name`.

        Raises:
            NameTaken: another definition is called, or stored, so.
        """
        self.check_free(name, name, all_stored := tuple(all_stored))
        for stored in all_stored:
            if stored != name and (taken := alike(name, (stored,))) is not None:
                called = self.of(stored)
                hint = f"take another name; or DROP {called}, and CREATE it again: it is then stored under its name"
                raise NameTaken(f"`{taken}` is the name under which '{called}' is stored", hint=hint)

    def check_free(self, name: str, own: str, all_stored: Iterable[str]) -> None:
        """Check that the definition stored as `own` can be called `name`.

        Raises:
            NameTaken: another definition is called so.
        """
        for stored in all_stored:
            taken = None if stored == own else alike(name, (self.of(stored),))
            if taken is not None:
                message = f"'{name}' is defined already" if taken == name else differ_only_in_case("names", taken, name)
                raise NameTaken(message, hint=f"DESCRIBE {quote(taken)} shows it")

    def localized(self, text: str) -> str:
        """Replace the stored names in a sentence by those that people see."""
        return wording.localized(text, self.of_input)

    def localized_error(self, error: StrandlineError) -> StrandlineError:
        """Localize the message, hint and place of an error, in place."""
        error.message = self.localized(error.message)
        error.hint = None if error.hint is None else self.localized(error.hint)
        error.where = None if error.where is None else self.localized(error.where)
        return error

    def legend(self, stored: Iterable[str]) -> list[str]:
        """One line for each renamed definition among these tables."""
        names = {tables.parted(table)[0] for table in stored}
        return [f"'{called}' is stored as `{name}`" for name, called in self.names.items() if name in names]

    @cached_property
    def _stored(self) -> dict[str, str]:
        return {called: stored for stored, called in self.names.items()}


SWAPS_FOLDER: Final = "swapping"
"""Below the catalog's folder."""


def begin_swap(called: Mapping[str, str], lake: LakeLayout) -> None:
    """Put the intent, durably.

    Args:
        called: {stored name: name that people will see}, of both definitions.
    """
    folder = lake.catalog / SWAPS_FOLDER
    make_folder(folder)
    failpoint("before-swap-intent")
    replace(folder / f"{safe_name(min(called))}.json", sealed_members({"called": dict(called)}))
    sync_folder(lake.catalog)
    failpoint("after-swap-intent")


def begun_swaps(lake: LakeLayout) -> dict[str, str]:
    """{stored name: name that people see} of the swaps that have begun and not ended.

    Raises:
        CorruptState: an intent does not read back.
    """
    called: dict[str, str] = {}
    for path in files_in(lake.catalog / SWAPS_FOLDER, ".json"):
        called |= _read(path)
    return called


def end_swaps(lake: LakeLayout) -> None:
    """Remove all intents, once both files of each say its names."""
    for path in files_in(lake.catalog / SWAPS_FOLDER, ".json"):
        remove_file(path)
    sync_folder(lake.catalog / SWAPS_FOLDER)
    failpoint("after-swap-end")


def _read(path: LakePath) -> dict[str, str]:
    try:
        called = members_in(path.read_bytes())["called"]
        return {str(stored): str(name) for stored, name in called.items()}
    except FileNotFoundError:
        return {}  # ended since the folder was listed
    except (ValueError, KeyError, AttributeError) as error:
        raise CorruptState(
            "a swap of two names was begun, and its file does not read back",
            where=str(path),
            hint="remove the file; DESCRIBE shows `stored_as` of both names, and ALTER … RENAME TO gives them theirs",
        ) from error
