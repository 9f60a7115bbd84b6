"""The names of settings: those of the environment and of the file, checked, so that a typing error is not a default.

Pydantic reads the variables that it knows and passes over all others. Here every `STRANDLINE_…` variable is either the
name of a setting or of something else that this package, its tests or its benchmarks read.
"""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from strandline.state_store.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX = "STRANDLINE_"
_CONFIG = "STRANDLINE_CONFIG"
_DEFAULT_FILE = "strandline.toml"
# Variables that are no settings: where the file is, what one of our processes tells its child, and what only the tests
# and `make` read, whose children are commands of ours.
_OTHERS = (
    _CONFIG,
    "STRANDLINE_LIFELINE_FD",
    "STRANDLINE_FAILPOINT",
    "STRANDLINE_PYTHON",
    "STRANDLINE_EXAMPLES",
    "STRANDLINE_DELTA_EXAMPLES",
    "STRANDLINE_SPARK_EXAMPLES",
    "STRANDLINE_PATHS_EXAMPLES",
    "STRANDLINE_PATHS_SPARK_EXAMPLES",
    "STRANDLINE_OUTSIDE",
    "STRANDLINE_CONFORMANCE",
    "STRANDLINE_NIGHTLY",
    "STRANDLINE_KILLS",
    "STRANDLINE_SEED",
)


def names_of(section: type[BaseModel], above: str = "") -> tuple[str, ...]:
    """The dotted names of all settings of a section and those below it."""
    names: list[str] = []
    for name, each in section.model_fields.items():
        if isinstance(each.annotation, type) and issubclass(each.annotation, BaseModel):
            names += names_of(each.annotation, f"{above}{name}.")
        else:
            names.append(f"{above}{name}")
    return tuple(names)


def variable_of(name: str) -> str:
    """The environment variable of a setting's dotted name."""
    return PREFIX + name.replace(".", "__").upper()


def check_names(environment: Mapping[str, str], section: type[BaseModel]) -> None:
    """Check the names of all variables that begin with `STRANDLINE_`.

    Raises:
        SettingsError: one is neither a setting nor anything else that is read; the nearest names are proposed.
    """
    dotted = names_of(section)
    sections = {name.rpartition(".")[0] for name in dotted if "." in name}
    known = {variable_of(name) for name in (*dotted, *sections)}
    for variable in sorted(environment):
        # Windows apart, the names of variables are told apart by case; pydantic takes either, so do we.
        if variable.upper().startswith(PREFIX) and variable.upper() not in {*known, *_OTHERS}:
            raise unknown(f"environment variable '{variable}'", variable.upper(), known, PREFIX)


def config_file(environment: Mapping[str, str]) -> Path:
    """The file of settings: the one that `STRANDLINE_CONFIG` names, or `strandline.toml` in the working directory."""
    return Path(environment.get(_CONFIG) or _DEFAULT_FILE)


def check_file(environment: Mapping[str, str]) -> None:
    """Check that the file of settings can be read.

    Raises:
        SettingsError: `STRANDLINE_CONFIG` names a file that is not there, or the file is not TOML.
    """
    path = config_file(environment)
    try:
        tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if environment.get(_CONFIG):
            raise SettingsError(
                f"there is no file '{path}'", where=_CONFIG, hint=f"correct {_CONFIG}, or unset it"
            ) from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else f"it is no UTF-8 text, {error.reason}"
        hint = "check its owner and mode, or that it is a file of TOML"
        raise SettingsError(f"the file of settings cannot be read: {why}", where=str(path), hint=hint) from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(
            f"the file of settings is not TOML: {error}",
            where=str(path),
            hint='settings are written as name = "value", sections as [kafka]; see docs/settings.md',
        ) from error


def unknown(what: str, name: str, known: Iterable[str], prefix: str = "") -> SettingsError:
    """The error of a setting that does not exist, with the nearest name as its hint.

    Args:
        prefix: of all names; it does not make them alike.
    """
    bare = sorted(each.removeprefix(prefix) for each in known)
    close = get_close_matches(name.removeprefix(prefix), bare, n=1, cutoff=0.7)
    hint = f"did you mean {prefix}{close[0]}?" if close else "see docs/settings.md for the names and their defaults"
    return SettingsError(f"unknown {what}", hint=hint)
