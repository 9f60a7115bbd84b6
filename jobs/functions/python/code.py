"""The Python code behind a function: loaded only from allowed modules, and identified by a hash of its source.

[functions]
modules = ["geo"]          CREATE FUNCTION distance(a DOUBLE, b DOUBLE) RETURNS DOUBLE
                           LANGUAGE PYTHON AS 'geo:distance'
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from strandline.jobs.model.errors import FunctionRefused

METHODS = ("init", "update", "merge", "finish")
"""The methods that the class of an aggregate must have; `retract` is optional."""


@dataclass(frozen=True)
class Code:
    """The place of a function's Python code; it can be sent to another process and loaded there.

    Attributes:
        path: where this process looks for modules: a worker's own path may be shorter.
    """

    module: str
    attribute: str
    path: tuple[str, ...] = ()

    def load(self) -> Any:
        """The Python object: a function, or the class of an aggregate.

        Raises:
            FunctionRefused: it cannot be imported, or is not there.
        """
        sys.path.extend(each for each in self.path if each not in sys.path)
        module = _imported(self.module)
        try:
            return getattr(module, self.attribute)
        except AttributeError as error:
            raise FunctionRefused(
                f"the module '{self.module}' has no '{self.attribute}'", hint="AS 'module:name'"
            ) from error

    def source(self) -> str:
        """16 hex digits that change with the text of the module. What the module imports does not count."""
        file = _imported(self.module).__file__
        text = Path(file).read_bytes() if file else b""
        return hashlib.sha256(text).hexdigest()[:16]


def code_of(text: str, allowed: Collection[str]) -> Code:
    """The code that `'module:name'` means.

    Raises:
        FunctionRefused: the text is not of that form, or the module is not on the allow-list; nothing was imported.
    """
    module, _, attribute = text.partition(":")
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise FunctionRefused(f"'{text}' does not name Python code", hint="AS 'module:name'")
    check_allowed(module, allowed)
    return Code(module, attribute, tuple(sys.path))


def check_allowed(module: str, allowed: Collection[str]) -> None:
    """Check that the operator lets functions come from a module. Raises FunctionRefused: not so."""
    if module not in allowed:
        listed = ", ".join(f'"{each}"' for each in (*allowed, module))
        raise FunctionRefused(
            f"functions may not come from the module '{module}'",
            hint=f"the operator allows it in strandline.toml: [functions] modules = [{listed}]",
        )


def retracts(found: Any) -> bool:
    """True if the class of an aggregate can retract values."""
    return callable(getattr(found, "retract", None))


def check_scalar(code: Code, found: Any) -> None:
    """Check that an object can be called. Raises FunctionRefused: not so."""
    if not callable(found):
        raise FunctionRefused(f"'{code.module}:{code.attribute}' cannot be called", hint="it must be a function")


def check_aggregate(code: Code, found: Any) -> None:
    """Check that an object has an aggregate's methods. Raises FunctionRefused: one is missing."""
    missing = [name for name in METHODS if not callable(getattr(found, name, None))]
    if missing:
        raise FunctionRefused(
            f"'{code.module}:{code.attribute}' has no {', '.join(missing)}",
            hint="an aggregate is a class with init(), update(state, x), merge(a, b), finish(state)",
        )


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever a module does when it is imported
        raise FunctionRefused(
            f"the module '{name}' cannot be imported: {type(error).__name__}: {error}",
            hint="it must be on Python's path (PYTHONPATH) wherever Strandline runs",
        ) from error
