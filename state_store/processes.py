"""Identity of a process: its pid and start, with the boot and host on which both mean something.

A pid alone names nobody. Pids are used again, and a lake on shared storage is written from several hosts.
"""

from __future__ import annotations

import socket
from dataclasses import asdict, dataclass
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Process:
    """One process, as a note in a file names it.

    Attributes:
        started: clock ticks from the boot to its start (field 22 of /proc/PID/stat, see proc(5)).
        boot: the kernel's random id of that boot.
    """

    pid: int
    started: str
    boot: str
    host: str

    @property
    def is_local(self) -> bool:
        """True if it ran in this boot of this host: only then does the pid say anything here."""
        return (self.boot, self.host) == _here()

    @property
    def is_alive(self) -> bool:
        """True if it is local and has not ended."""
        return self.is_local and _started(self.pid) == self.started

    def as_json(self) -> dict[str, object]:
        """The process as an object of a note."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: object) -> Process | None:
        """Read the process that `as_json` wrote; None for anything else."""
        if not isinstance(value, dict):
            return None
        pid, rest = value.get("pid"), [value.get(name) for name in ("started", "boot", "host")]
        # Pids below 2 are signals to groups or the init process: never one of ours.
        if not isinstance(pid, int) or pid < 2 or not all(isinstance(each, str) for each in rest):
            return None
        return cls(pid, *(str(each) for each in rest))


def process(pid: int) -> Process | None:
    """Find the live process of a pid; None if there is none."""
    started = _started(pid)
    return None if started is None else Process(pid, started, *_here())


def _here() -> tuple[str, str]:
    return _BOOT.read_text().strip(), socket.gethostname()


def _started(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the command in parentheses, which may hold spaces and parentheses itself.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]  # a zombie has ended
