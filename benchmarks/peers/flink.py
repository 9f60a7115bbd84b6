"""Apache Flink 2.3: SQL over prepared files, state in RocksDB, incremental checkpoints every 5 s, mini-batches.

    python -m benchmarks.peers.flink     fetch its libraries from PyPI, 330 MB, once

Its result goes nowhere (`blackhole`); another run of the same query prints the answer, which is checked. A job has no
epochs: the first epochs alone and all of them run as two jobs, five times in one JVM. Steady is what the second of them
takes longer than the first. The first pair warms the JVM up, the medians of the others count: pairs differ by half, and
a first job beside a later one would be slower by what the JVM has learned in between.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.csv

from benchmarks.workload_data import STEADY, Measured, Workload

WHEEL = "apache-flink-libraries==2.3.0"
HOME = Path(sys.prefix) / "share" / "strandline" / "flink"
_PAIRS = 5
_TOOK = re.compile(r"^seconds ([0-9.]+) processor ([0-9.]+)$", re.MULTILINE)
_PACKAGES = ("java.util", "java.lang", "java.nio", "sun.nio.ch", "java.util.concurrent", "java.time")
_CONFIGURATION = {
    "parallelism.default": "2",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.interval": "5s",
    "execution.checkpointing.incremental": "true",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "5s",
    "table.exec.mini-batch.size": "500000",
}
_TABLES = {
    "events": "key BIGINT, `value` BIGINT",
    "info": "product BIGINT, category BIGINT, length BIGINT, PRIMARY KEY (product) NOT ENFORCED",
    "visit": "id BIGINT, product BIGINT, PRIMARY KEY (id) NOT ENFORCED",
}
_QUERIES = {
    "W1": (
        "key BIGINT, n BIGINT, total BIGINT",
        "SELECT key, COUNT(*) AS n, SUM(`value`) AS total FROM events GROUP BY key",
    ),
    "W2": (
        "category BIGINT, longest BIGINT",
        "SELECT category, MAX(length) AS longest FROM info JOIN visit ON info.product = visit.product "
        "GROUP BY category",
    ),
}


def fetch() -> None:
    """Fetch the libraries, unless they are there."""
    if any(HOME.glob("flink-dist-*.jar")):
        return
    HOME.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, WHEEL], check=True)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            for name in wheel.namelist():
                if re.fullmatch(r"pyflink/lib/[^/]+\.jar", name):
                    (HOME / Path(name).name).write_bytes(wheel.read(name))


def run(workload: Workload, epochs: int, folder: Path) -> Measured:
    """The workload by Flink, its answer checked.

    Raises:
        SystemExit: the libraries are not there.
        AssertionError: the answer is wrong.
    """
    if not any(HOME.glob("flink-dist-*.jar")):
        raise SystemExit("Flink's libraries are missing; type: python -m benchmarks.peers.flink")
    first = max(epochs - STEADY, 1)
    folder.mkdir(parents=True)
    counts = _write_epochs(workload, epochs, first, folder)
    jobs = [("first", "blackhole"), ("all", "blackhole")] * _PAIRS + [("all", "print")]
    printed = _java(folder, [_job(workload, folder, part, sink, place) for place, (part, sink) in enumerate(jobs)])
    workload.check(_answer(workload, printed), epochs)
    took = [(float(wall), float(work)) for wall, work in _TOOK.findall(printed)]
    pairs = [(took[place][0], *took[place + 1]) for place in range(2, 2 * _PAIRS, 2)]
    whole = median(seconds for _, seconds, _ in pairs)
    rest = median(seconds - short for short, seconds, _ in pairs)
    each = [(whole - rest) / first] * first + [rest / (epochs - first)] * (epochs - first)
    return Measured(counts, each, median(processor for *_, processor in pairs))


def _write_epochs(workload: Workload, epochs: int, first: int, folder: Path) -> list[int]:
    """The changes of each table as files, of the first epochs and of all; the events of each epoch."""
    counts = []
    for number, changes in enumerate(workload.epochs(), 1):
        if number > epochs:
            break
        counts.append(sum(rows.num_rows for rows in changes.values()))
        for part in ("first", "all") if number <= first else ("all",):
            for name, rows in changes.items():
                _append(folder / part / name, rows)
    return counts


def _append(folder: Path, rows: pa.Table) -> None:
    """Add to the one file of a table, whose order Flink keeps: CSV where nothing goes, else Debezium's envelopes."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "changes").open("ab") as file:
        if "_tombstone" not in rows.column_names:
            pyarrow.csv.write_csv(rows, file, pyarrow.csv.WriteOptions(include_header=False))
            return
        for gone, *values in zip(
            rows["_tombstone"].to_pylist(), *rows.drop(["_tombstone"]).to_pydict().values(), strict=True
        ):
            row = dict(zip(rows.column_names, values, strict=False))
            change = {"before": row, "after": None, "op": "d"} if gone else {"before": None, "after": row, "op": "c"}
            file.write(json.dumps(change).encode() + b"\n")


def _job(workload: Workload, folder: Path, part: str, sink: str, place: int) -> Path:
    """The SQL file of one run: the tables of the workload, the query, where its result goes."""
    columns, query = _QUERIES[workload.name]
    key = columns.split()[0]
    statements = [
        f"CREATE TABLE {table.name} ({_TABLES[table.name]}) WITH ('connector' = 'filesystem', 'path' = '{table}', "
        f"'format' = '{'csv' if workload.name == 'W1' else 'debezium-json'}')"
        for table in sorted((folder / part).iterdir())
    ]
    statements.append(
        f"CREATE TABLE answers ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('connector' = '{sink}')"
    )
    file = folder / f"{place}-{part}-{sink}.sql"
    file.write_text(";\n".join([*statements, f"INSERT INTO answers {query}"]))
    return file


def _java(folder: Path, jobs: list[Path]) -> str:
    """What the runner prints for these files."""
    libraries = f"{HOME}/*"
    subprocess.run(["javac", "-cp", libraries, "-d", folder, Path(__file__).with_name("FlinkSql.java")], check=True)
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _PACKAGES]
    settings = [f"{key}={value}" for key, value in _CONFIGURATION.items()]
    settings.append(f"execution.checkpointing.dir=file:{folder / 'checkpoints'}")
    command = ["java", *opened, "-Xmx4g", "-cp", f"{folder}:{libraries}", "FlinkSql", *settings, *map(str, jobs)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def _answer(workload: Workload, printed: str) -> pa.Table:
    """The rows that the printed changes leave."""
    names = [column.split()[0] for column in _QUERIES[workload.name][0].split(", ")]
    rows: dict[int, tuple[int, ...]] = {}
    for kind, values in re.findall(r"([+-][IUD])\[([-0-9, ]+)\]", printed):
        row = tuple(map(int, values.split(", ")))
        if kind == "-D":
            rows.pop(row[0], None)
        elif kind != "-U":
            rows[row[0]] = row
    return pa.table(dict(zip(names, zip(*rows.values(), strict=True), strict=True)))


if __name__ == "__main__":
    fetch()
