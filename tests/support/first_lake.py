"""A lake that the first release's formats were written to, kept as test data: what every later version must go on from.

    git archive COMMIT | tar x -C FOLDER; cd FOLDER; PYTHONPATH=$PWD python WHERE/first_lake.py ARCHIVE

writes it by the code of that commit: the lake in `tests/data` is by that of 10d5d2f4, the first whose commits, catalog
files and local topics have the one format each that 0.1.0 has. What stands here calls only what that commit has. A
stream, a keyed table, a join of both with a MAX, a window, a view over a view, a stream out of a query; two epochs.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter

PIPELINE: Final = "shop"
ARCHIVE: Final = Path(__file__).parent.parent / "data" / "lake_of_0_1_0.tar.gz"
_SQL: Final = """
CREATE STREAM visits (shop VARCHAR KEY, spent BIGINT, tags ARRAY<VARCHAR>, at TIMESTAMP)
  WITH (KAFKA_TOPIC = 'visits', VALUE_FORMAT = 'JSON', PARTITIONS = 2, TIMESTAMP = 'at');
CREATE TABLE shops (shop VARCHAR PRIMARY KEY, city VARCHAR)
  WITH (KAFKA_TOPIC = 'shops', VALUE_FORMAT = 'JSON', PARTITIONS = 1);
CREATE TABLE best AS
  SELECT s.city, MAX(v.spent) AS best, AVG(v.spent) AS mean, COUNT(*) AS visits
  FROM visits v JOIN shops s ON v.shop = s.shop GROUP BY s.city;
CREATE TABLE hourly AS
  SELECT shop, COUNT(*) AS n, SUM(spent) AS spent FROM visits WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY shop;
CREATE MATERIALIZED VIEW top AS SELECT MAX(best) AS best FROM best;
CREATE STREAM large AS SELECT * FROM visits WHERE spent > 6;
INSERT INTO visits VALUES ('a', 5, ARRAY['x'], '2026-01-01T10:00:00'), ('b', 7, NULL, '2026-01-01T10:30:00'),
  ('a', 9, ARRAY['y', 'z'], '2026-01-01T11:10:00');
INSERT INTO shops VALUES ('a', 'Ulm'), ('b', 'Bonn');
"""
_MORE: Final = """
INSERT INTO visits VALUES ('b', 3, NULL, '2026-01-01T10:40:00');
INSERT INTO shops VALUES ('a', 'Bonn');
"""


def write(archive: Path) -> None:
    """Write the lake by the code that runs, as an archive."""
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(lake=Path(folder) / "lake", engine="duckdb")
        for statements in (_SQL, _MORE):
            list(Interpreter(settings, PIPELINE).run(statements))
            drain(settings, PIPELINE, in_driver=True)
        with tarfile.open(archive, "w:gz") as made:
            made.add(Path(folder) / "lake", "lake")


def unpacked(folder: Path) -> Path:
    """The root of a copy of the lake in a folder."""
    with tarfile.open(ARCHIVE) as archive:
        # Python has filters from 3.11.4 on.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder / "lake"


if __name__ == "__main__":
    write(Path(sys.argv[1]))
