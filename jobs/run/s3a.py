"""Spark's way to a lake on S3: Hadoop's S3A, with the settings by which the lake itself was opened.

Its jars are fetched for those who use it (`strandline setup --s3`, 13 MB). The keys are set in the running session,
not in its options: those stand on the JVM's command line, where everybody on the machine reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.jobs.run.jars import home
from strandline.state_store.errors import SettingsError
from strandline.state_store.paths import Location

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from strandline.state_store.layout import Lake
    from strandline.state_store.storage.open import StorageOptions

_JARS: Final = home("s3")
# The URLs of a lake are s3://…, as delta-rs and all others write them; s3a:// is Hadoop's own word.
_FILE_SYSTEM: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def jars(lake: Lake) -> list[Path]:
    """The jars that a session needs to reach the lake, beside Delta's; none for a lake on a disk.

    Raises:
        SettingsError: they are not there, or no session reaches this kind of object store.
    """
    if not isinstance(lake.root, Location):
        return []
    if not str(lake.root).startswith("s3://"):
        raise SettingsError(
            "Spark reaches lakes on a disk and on S3 only",
            where=str(lake.root),
            hint="with no events to take in and STRANDLINE_ENGINE=duckdb, a run does without Spark",
        )
    found = sorted(_JARS.glob("*.jar"))
    if not any(jar.name.startswith("hadoop-aws") for jar in found):
        raise SettingsError(
            "the jars by which Spark reaches S3 are missing", where=str(_JARS), hint="type: strandline setup --s3"
        )
    return found


def connect(spark: SparkSession, lake: Lake, options: StorageOptions) -> None:
    """Tell a session how to reach the lake; nothing for one on a disk.

    Args:
        options: by which the lake was opened.
    """
    if isinstance(lake.root, Location):
        configuration = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - the only way to it
        for key, value in hadoop_options(options.with_environment()).items():
            configuration.set(key, value)


def hadoop_options(options: StorageOptions) -> dict[str, str]:
    """Hadoop's options for S3A. What is not said is left to the SDK, such as the role of the machine."""
    said = {
        "fs.s3.impl": _FILE_SYSTEM,
        "fs.s3a.endpoint": options.endpoint,
        "fs.s3a.endpoint.region": options.region,
        "fs.s3a.path.style.access": str(not options.virtual_hosted_style).lower(),
        "fs.s3a.access.key": options.access_key_id,
        "fs.s3a.secret.key": options.secret_access_key,
        "fs.s3a.session.token": options.session_token,
        # The default since Hadoop 3.5 is a library of its own, for files of gigabytes.
        "fs.s3a.input.stream.type": "classic",
    }
    return {key: value for key, value in said.items() if value is not None}
