"""Fetches jars with the Ivy that pyspark ships: no Maven, no Spark start. `strandline setup` fetches those of Delta.

    python -m strandline.jobs.run.jars delta        the jars of Delta, for every Spark session
    python -m strandline.jobs.run.jars kafka        an Apache Kafka broker, for tests and benchmarks
    python -m strandline.jobs.run.jars dynamodb     DynamoDB Local, for the tests of replicas
    python -m strandline.jobs.run.jars jdbc         PostgreSQL's driver for Java, for the tests of the server
    python -m strandline.jobs.run.jars s3           what Spark needs beside them for a lake on S3, and for its test

The jars land below the virtual environment, in `share/strandline/<set>/`; a set that is complete is not fetched again.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from strandline.state_store.errors import SettingsError

_SETS: Final[Mapping[str, Sequence[tuple[str, str, str]]]] = {
    "kafka": [
        ("org.apache.kafka", "kafka_2.13", "4.3.1"),
        # Kafka logs through the log4j 2 API and ships no implementation as a dependency.
        ("org.apache.logging.log4j", "log4j-core", "2.25.4"),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    ],
    "dynamodb": [("com.amazonaws", "DynamoDBLocal", "2.6.1")],
    "jdbc": [("org.postgresql", "postgresql", "42.7.8")],
    "s3": [
        # The Hadoop that pyspark 4.2.0 ships, and the SDK that it was built with.
        ("org.apache.hadoop", "hadoop-aws", "3.5.0"),
        ("software.amazon.awssdk", "s3", "2.35.4"),
        # S3A copies and renames by it …
        ("software.amazon.awssdk", "s3-transfer-manager", "2.35.4"),
        # … and takes on roles by this one.
        ("software.amazon.awssdk", "sts", "2.35.4"),
        # S3A names its classes, used or not.
        ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
    ],
}
# They ask for the whole SDK as one jar of 600 MB; the modules that S3A uses are named beside them.
_ALONE = {"hadoop-aws", "analyticsaccelerator-s3"}
# What joins Spark's own class path.
_BESIDE_SPARK = {"delta", "s3"}


def home(name: str) -> Path:
    """Where the jars of a set lie."""
    return Path(sys.prefix) / "share" / "strandline" / name


def fetch(name: str) -> Path:
    """Fetch a set unless it is there; its folder.

    Raises:
        SettingsError: there is no Java, or no repository can be reached.
    """
    target = home(name)
    stamp = target / ".complete"
    parts = _parts(name)
    wanted = "\n".join(":".join(part) for part in parts)
    if stamp.exists() and stamp.read_text() == wanted:
        return target
    target.mkdir(parents=True, exist_ok=True)
    ivy = next((Path(_pyspark_home()) / "jars").glob("ivy-*.jar"))
    settings = Path(__file__).with_name("ivysettings.xml")
    for group, artifact, revision in parts:
        command = ["java", "-jar", str(ivy), "-settings", str(settings), "-dependency", group, artifact, revision]
        command += [
            "-confs",
            "default",
            "-retrieve",
            f"{target}/[artifact]-[revision].[ext]",
            "-types",
            "jar",
            "bundle",
            # The database inside DynamoDB Local is a native library.
            "so",
        ]
        command += ["-notransitive"] if artifact in _ALONE else []
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise SettingsError(
                "there is no Java on the PATH",
                hint="install Java 17 or 21 (Debian: apt install openjdk-17-jre-headless)",
            ) from None
        if done.returncode != 0:
            raise SettingsError(
                f"could not fetch {group}:{artifact}:{revision}: {_reason(done.stdout + done.stderr)}",
                where=str(target),
                hint="is Maven Central reachable from here? Ivy takes -Dhttps.proxyHost from JAVA_TOOL_OPTIONS",
            )
    if name in _BESIDE_SPARK:
        _drop_bundled(target)
    stamp.write_text(wanted)
    return target


def _parts(name: str) -> Sequence[tuple[str, str, str]]:
    """Group, artifact and version of each jar of a set. Delta's are those of the installed packages."""
    if name != "delta":
        return _SETS[name]
    spark = ".".join(version("pyspark").split(".")[:2])
    return [("io.delta", f"delta-spark_{spark}_2.13", version("delta-spark"))]


def _drop_bundled(target: Path) -> None:
    """Spark's own jars win: a second version of one on the class path is trouble."""
    bundled = {_artifact(jar) for jar in (Path(_pyspark_home()) / "jars").glob("*.jar")}
    for jar in target.glob("*.jar"):
        if _artifact(jar) in bundled:
            jar.unlink()


def _reason(output: str) -> str:
    """The line of Ivy's report that says what failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    failed = [line for line in lines if "unresolved dependency" in line or "exception" in line.lower()]
    return (failed or lines or ["no output"])[0][:300]


def _artifact(jar: Path) -> str:
    return re.sub(r"-\d.*", "", jar.name)


def _pyspark_home() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent)


if __name__ == "__main__":
    try:
        for which in sys.argv[1:] or ["delta"]:
            print(fetch(which))
    except SettingsError as unfetched:
        sys.exit(str(unfetched))
