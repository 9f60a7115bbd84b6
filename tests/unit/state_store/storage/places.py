"""A place for a storage that child processes can open too."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from strandline.state_store.paths import Location
from strandline.state_store.storage import StorageOptions, open_storage
from strandline.state_store.storage_verbs import Storage

_ROOT = Path(__file__).parents[4]


@dataclass(frozen=True)
class Place:
    """A root and what it takes to reach it."""

    root: str
    options: StorageOptions

    def open(self) -> Storage:
        return open_storage(self.root, self.options)

    def location(self, key: str) -> Location:
        return Location(self.open(), key)

    def child(self, script: str, *args: str) -> subprocess.Popen[str]:
        """A process that runs the script; `place()` in it is this one, its own arguments begin at `sys.argv[2]`."""
        command = [sys.executable, "-c", _CHILD + script, json.dumps([self.root, asdict(self.options)]), *args]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT)


_CHILD = """
import json, sys
from strandline.state_store.storage import StorageOptions
from tests.unit.state_store.storage.places import Place

def place():
    root, options = json.loads(sys.argv[1])
    return Place(root, StorageOptions(**options))

def say(word):
    print(word, flush=True)

"""
