"""The properties of a session: their names, values and defaults, as `SET 'name' = 'value'` takes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from strandline.jobs.model.errors import OptionRefused

_KNOWN = {"auto.offset.reset": ("earliest", "latest")}
"""{property: its values, the default first}."""


@dataclass
class Session:
    """The properties that one user has set. It lives as long as its prompt, script or `-e`."""

    properties: dict[str, str] = field(default_factory=lambda: {name: values[0] for name, values in _KNOWN.items()})

    def set(self, name: str, value: str) -> None:
        """Set a property.

        Raises:
            OptionRefused: there is no such property, or it cannot have that value.
        """
        self._check(name)
        if value.lower() not in _KNOWN[name]:
            raise OptionRefused(f"'{name}' cannot be '{value}'", hint=f"use one of {', '.join(_KNOWN[name])}")
        self.properties[name] = value.lower()

    def unset(self, name: str) -> None:
        """Give a property its default again. Raises OptionRefused: there is no such property."""
        self._check(name)
        self.properties[name] = _KNOWN[name][0]

    @property
    def from_latest(self) -> bool:
        """True if push queries begin with the next change, without the present rows."""
        return self.properties["auto.offset.reset"] == "latest"

    @staticmethod
    def _check(name: str) -> None:
        if name not in _KNOWN:
            raise OptionRefused(
                f"'{name}' is not a property of a session",
                hint=f"known: {', '.join(_KNOWN)}; everything else is set in strandline.toml",
            )
