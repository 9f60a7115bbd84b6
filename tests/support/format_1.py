"""A lake that was written before commits had checksums: stream, keyed table, MAX over their join, two epochs of each.

CREATE STREAM visits (shop VARCHAR KEY, spent BIGINT) …            ('a', 5) ('b', 7) ('a', 9) | ('b', 3)
CREATE TABLE shops (shop VARCHAR PRIMARY KEY, city VARCHAR) …      ('a', Ulm) ('b', Bonn) | ('a', Bonn)
CREATE TABLE best AS SELECT s.city, MAX(v.spent) AS best, COUNT(*) AS visits FROM visits v JOIN shops s …
"""

from __future__ import annotations

import tarfile
from pathlib import Path

from strandline.state_store.layout import Lake

_ARCHIVE = Path(__file__).parent.parent / "data" / "lake_of_format_1.tar.gz"


def unpacked(folder: Path) -> Lake:
    """A copy of that lake."""
    with tarfile.open(_ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return Lake(folder / "lake")
