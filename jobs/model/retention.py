"""The retention of an event log: the options of a source that say how old and how large its log may grow.

| option | value | says |
| --- | --- | --- |
| RETENTION_MS | milliseconds | events that are older go, file by file |
| RETENTION_BYTES | bytes | the oldest go as long as what stays has that many |

-1 stands for no end, as in Kafka. No row of a view depends on them: what was counted of an event stays counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

RETENTION_OPTIONS: Final = ("RETENTION_MS", "RETENTION_BYTES")
NO_END: Final = -1


@dataclass(frozen=True)
class LogRetention:
    """How much an event log keeps; None: no end.

    Attributes:
        age_ms: of an event, in milliseconds of its event time before now.
        size: bytes of data files.
    """

    age_ms: int | None = None
    size: int | None = None

    @classmethod
    def read(cls, options: Mapping[str, str], default_ms: int | None = None) -> LogRetention:
        """What the options of a source say.

        Args:
            default_ms: the age where they say none.
        """
        age, size = (int(options[name]) if name in options else None for name in RETENTION_OPTIONS)
        age = default_ms if age is None else age
        return cls(None if age == NO_END else age, None if size == NO_END else size)

    @property
    def endless(self) -> bool:
        """True if nothing ever goes."""
        return self.age_ms is None and self.size is None
