"""The processes behind `make up`, each kept alive: one that ends by itself is started again.

Runs and streams do not depend on them; without the daemon nothing is scheduled, and without the webserver nothing
is shown; without the server nobody reads over HTTP.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from strandline.orchestration.processes import ProcessGroup, last_lines, signals_held_back

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# The webserver and the daemon each stop a code server of their own first; they need 2–5 s.
GRACE_SECONDS: Final = 20.0
RESTARTS: Final = 5
"""A service that ends as often within `SETTLED_SECONDS` of each start will not stay: the reason is in its log."""
SETTLED_SECONDS: Final = 300.0
_LOG_TAIL_LINES: Final = 20


@dataclass
class Service:
    """One service: its command, the file its output goes to, and its process.

    Args:
        name: as messages call it.
        arguments: of the Python that runs us.
    """

    name: str
    arguments: Sequence[str]
    log: Path
    process: ProcessGroup = field(init=False)
    _began: float = field(init=False, default=0.0)
    _ends: int = field(init=False, default=0)
    _former: list[ProcessGroup] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.log.parent.mkdir(exist_ok=True)
        self.log.write_text("")
        self._start()

    def tail(self) -> str:
        """The last lines of its output."""
        return "\n".join(last_lines(self.log, _LOG_TAIL_LINES))

    def stop(self) -> None:
        """End it with all that it started, also before it was last started again."""
        for process in (self.process, *self._former):
            process.stop(GRACE_SECONDS)

    def revive(self) -> bool:
        """Start it again if it has ended; false when it has ended too often."""
        if self.process.poll() is None:
            return True
        self._ends = self._ends + 1 if time.monotonic() - self._began < SETTLED_SECONDS else 1
        if self._ends > RESTARTS:
            return False
        print(f"{self.name} ended by itself and is started again; see {self.log}", file=sys.stderr)
        # What it started is left alone: runs are among it. Its code server ends by itself, once they have ended.
        self._former.append(self.process)
        self._start()
        return True

    def _start(self) -> None:
        self._began = time.monotonic()
        with self.log.open("a") as output, signals_held_back():
            self.process = ProcessGroup([sys.executable, *self.arguments], stdout=output, stderr=output)
