"""The settings and the name map of the lake, for the commands: names come in and go out as people write them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from strandline.jobs.cli.output import say
from strandline.jobs.model.errors import PipelineMissing, UnknownName
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout, check_lake
from strandline.state_store.wording import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.catalog.name_map import NameMap
    from strandline.jobs.model.settings import Settings

T = TypeVar("T")


def load_settings() -> Settings:
    """The settings of a command. What reads them takes as long to import as all else that `--help` needs.

    Raises:
        SettingsError: one of them is none.
    """
    from strandline.jobs.model import settings

    return settings.load_settings()


def name_map_in(settings: Settings) -> NameMap:
    """Read the name map of the lake.

    Raises:
        ObjectMissing: there is no lake.
    """
    from strandline.jobs.catalog.catalog import Catalog

    lake = LakeLayout(settings.lake)
    check_lake(lake)
    return Catalog(lake).name_map


def localized_error(error: StrandlineError) -> StrandlineError:
    """Localize an error by the name map of the lake, if that can be read."""
    try:
        return name_map_in(load_settings()).localized_error(error)
    except (StrandlineError, OSError):
        return error


def looked_in(error: StrandlineError) -> str:
    """A line that says which lake a name was looked for in, for an error about one that is not there; else empty."""
    if isinstance(error, PipelineMissing) or (isinstance(error, UnknownName) and error.of_lake):
        with suppress(StrandlineError):
            return f"\n  lake: {LakeLayout(load_settings().lake).root} (STRANDLINE_LAKE)"
    return ""


def note_stored(name_map: NameMap, tables: Iterable[str]) -> None:
    """Print the stored name of each renamed table of a plan, which shows stored names."""
    for table in dict.fromkeys(tables):
        if name_map.of(table) != table:
            say(f"'{name_map.of(table)}' is stored as `{table}`")


def localized(found: Iterable[T], name_map: NameMap, *attributes: str) -> list[T]:
    """Localize these attributes of the values of a dataclass.

    Args:
        attributes: names of tables or definitions, or sentences with such names.
    """
    return [_localized(each, name_map, attributes) for each in found]


def _localized(each: T, name_map: NameMap, attributes: tuple[str, ...]) -> T:
    if not name_map.names:
        return each
    changed = {name: _localized_value(getattr(each, name), name_map) for name in attributes}
    return cast("T", replace(cast("Any", each), **changed))


def _localized_value(value: Any, name_map: NameMap) -> Any:
    if isinstance(value, Text):
        return name_map.localized(value)
    return name_map.of(value) if isinstance(value, str) else value
