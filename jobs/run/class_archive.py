"""The JVM's class archive: what a session's start loads, parsed and checked once instead of at every start.

    python -m strandline.jobs.run.class_archive     train a session and write the archive, 190 MB (`make setup`)

A Spark session and its first queries load some 20,000 classes, which is a third of the processor's time they cost
(docs/design/0011-start.md). The archive is the JVM's own (JEP 350, dynamic class data sharing): it is mapped into
memory, and a JVM of another version or with other jars ignores it, so that a stale one costs time and nothing else.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.jobs.model.settings import SparkSettings
from strandline.jobs.run.spark import class_archives, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_SECONDS = 300
"""How long the JVM may take to write the archive when it ends: 15 s on a quiet machine, 60 s on a busy one."""


def write() -> Path | None:
    """Write the archive of a session that did what every run does; None from a JVM that has no archives.

    The session itself runs without one: an archive can't be made on top of another. The name carries the size, so
    that a file that was cut short is never mapped, which would end the JVM.
    """
    folder = class_archives()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    unfinished = folder / "unfinished"
    # What the JVM says of the classes that it leaves out, a thousand lines, helps nobody.
    options = f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:disable -Xlog:all=error:stderr"
    with spark_session(SparkSettings(), "strandline-setup", options) as session:
        gateway = session.sparkContext._gateway  # noqa: SLF001 — Spark has no other name for its JVM
        assert gateway is not None
        jvm = gateway.proc
        with tempfile.TemporaryDirectory() as scratch:
            _train(session, Path(scratch))
    # Without its standard input the JVM ends, and writes the archive as its last act.
    jvm.stdin.close()
    jvm.wait(END_SECONDS)
    if not unfinished.exists():
        return None
    return unfinished.rename(folder / f"spark-{unfinished.stat().st_size}.jsa")


def _train(session: SparkSession, scratch: Path) -> None:
    """Load the classes of both formats, of joins, aggregates, windows and of Python's workers."""
    rows = session.range(1000).selectExpr("id", "id % 7 AS key", "CAST(id AS STRING) AS text", "id / 3 AS number")
    rows.write.parquet(str(scratch / "parquet"))
    session.read.parquet(str(scratch / "parquet")).createOrReplaceTempView("events")
    session.sql(
        "SELECT key, COUNT(*) AS n, SUM(number) AS total, MAX(text) AS top FROM events GROUP BY key"
    ).write.format("delta").save(str(scratch / "delta"))
    session.read.format("delta").load(str(scratch / "delta")).createOrReplaceTempView("totals")
    session.sql(
        "SELECT e.key, ROW_NUMBER() OVER (PARTITION BY e.key ORDER BY e.id) AS place, t.n FROM events AS e "
        "LEFT JOIN totals AS t ON e.key = t.key WHERE e.id IN (SELECT MAX(id) FROM events GROUP BY key)"
    ).collect()
    session.range(4).mapInArrow(lambda batches: batches, "id BIGINT").collect()


if __name__ == "__main__":
    written = write()
    sys.stdout.write(f"{written or 'this JVM keeps no class archives'}\n")
