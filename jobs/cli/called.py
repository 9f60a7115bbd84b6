"""What the definitions of the lake are called, for the commands: names come in and go out as people say them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from strandline.jobs.cli.output import say
from strandline.jobs.model.errors import PipelineMissing, UnknownName
from strandline.jobs.model.settings import load_settings
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import Lake, check_lake
from strandline.state_store.wording import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.catalog.called import Called
    from strandline.jobs.model.settings import Settings

T = TypeVar("T")


def called_in(settings: Settings) -> Called:
    """What the definitions of the lake are called by now.

    Raises:
        ObjectMissing: there is no lake.
    """
    from strandline.jobs.catalog.catalog import Catalog

    lake = Lake(settings.lake)
    check_lake(lake)
    return Catalog(lake).called


def told(error: StrandlineError) -> StrandlineError:
    """The same error, about definitions as people call them, where the lake says how that is."""
    try:
        return called_in(load_settings()).told(error)
    except (StrandlineError, OSError):
        return error


def looked_in(error: StrandlineError) -> str:
    """A line that says which lake a name was looked for in, for an error about one that is not there; else empty."""
    if isinstance(error, PipelineMissing) or (isinstance(error, UnknownName) and error.of_lake):
        with suppress(StrandlineError):
            return f"\n  lake: {Lake(load_settings().lake).root} (STRANDLINE_LAKE)"
    return ""


def note_stored(called: Called, tables: Iterable[str]) -> None:
    """Say what the tables of a plan are called that is about tables, and has the names that they are stored under."""
    for table in dict.fromkeys(tables):
        if called.of(table) != table:
            say(f"'{called.of(table)}' is stored as `{table}`")


def shown(found: Iterable[T], called: Called, *attributes: str) -> list[T]:
    """Values of a dataclass as they are shown: what these attributes say about a definition, as people call it.

    Args:
        attributes: names of tables or definitions, or sentences with such names.
    """
    return [_shown(each, called, attributes) for each in found]


def _shown(each: T, called: Called, attributes: tuple[str, ...]) -> T:
    if not called.names:
        return each
    changed = {name: _said(getattr(each, name), called) for name in attributes}
    return cast("T", replace(cast("Any", each), **changed))


def _said(value: Any, called: Called) -> Any:
    if isinstance(value, Text):
        return called.shown(value)
    return called.of(value) if isinstance(value, str) else value
