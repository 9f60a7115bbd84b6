"""Writing a file under a name that only one of many writers can get. No lock: a writer that dies blocks nobody."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from pathlib import Path


def claim(path: Path, data: bytes) -> bool:
    """Write a file, whole and durable, under a name nobody has; False when the name is taken."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    with temporary.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True
