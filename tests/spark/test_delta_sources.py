"""Sources over Delta tables that Spark writes: deletion vectors, MERGE, and what no other writer does.

After each statement the rows of a bag and of a keyed table are those that Spark reads at that version; at last the same
versions are taken in once more, by Spark's tasks and its own plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from strandline.jobs.model.errors import ViewsStopped
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from tests.support.examples import AT_LENGTH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.jobs.model.settings import Settings

_PROPERTIES: Final = {
    "vectors": ("'delta.enableDeletionVectors' = 'true'", ""),
    "feed": ("'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true'", "PARTITIONED BY (cat)"),
    "mapped": (
        "'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name'"
        ", 'delta.enableRowTracking' = 'true', 'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '4'"
        ", 'delta.enableTypeWidening' = 'true', 'delta.enableInCommitTimestamps' = 'true'",
        "CLUSTER BY (id)",
    ),
    "rewritten": ("'delta.enableDeletionVectors' = 'false'", ""),
}
_STEPS: Final = (
    "INSERT INTO {t} SELECT id, IF(id % 3 = 0, 'a', 'b'), CAST(id % 5 AS DOUBLE) FROM RANGE(20, 60)",
    "DELETE FROM {t} WHERE id % 4 = 1",
    "UPDATE {t} SET v = v + 1 WHERE id < 30",
    "DELETE FROM {t} WHERE id % 4 = 2",
    "OPTIMIZE {t}",
    "MERGE INTO {t} t USING (SELECT id * 3 AS id, 'c' AS cat, 9.0D AS v FROM RANGE(0, 40)) s ON t.id = s.id"
    " WHEN MATCHED AND s.id > 90 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *",
    "REORG TABLE {t} APPLY (PURGE)",
    "DELETE FROM {t} WHERE cat = 'c'",
    "CREATE OR REPLACE TABLE {t} USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name') AS"
    " SELECT id, cat, v + 1 AS v FROM {t} WHERE id % 2 = 0",
    "INSERT INTO {t} VALUES (500, NULL, NULL), (501, 'a', DOUBLE('NaN')), (502, 'b', -0.0D)",
    "RESTORE TABLE {t} TO VERSION AS OF 3",
    "INSERT OVERWRITE {t} SELECT id, 'z', 1.0D FROM RANGE(0, 9)",
    "UPDATE {t} SET cat = 'y' WHERE id = 3",
    "DELETE FROM {t}",
    "INSERT INTO {t} VALUES (1, 'a', 1.5D)",
)


@pytest.mark.parametrize("form", _PROPERTIES if AT_LENGTH else ["feed"])
def test_what_spark_writes_is_what_a_source_has(
    form: str, settings: Settings, spark: SparkSession, tmp_path: Path
) -> None:
    properties, layout = _PROPERTIES[form]
    theirs, table = tmp_path / "theirs", f"delta.`{tmp_path / 'theirs'}`"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, cat STRING, v DOUBLE) USING delta {layout} TBLPROPERTIES ({properties})"
    )
    spark.sql(f"INSERT INTO {table} SELECT id, 'a', 1.0D FROM RANGE(0, 20)")
    _define(settings, theirs)
    for step in _STEPS:
        if "CLUSTER" in layout and "REORG" in step:
            continue  # of a clustered table Delta has none
        spark.sql(step.format(t=table))
        drain(settings, "p", in_driver=True)
        expected = _bag(spark.sql(f"SELECT id, cat, v FROM {table}").collect())
        for name in ("bag", "keyed"):
            assert _bag(_rows(settings, name)) == expected, f"{name} after {step}"
    assert [check for check in verify(settings, deep=True) if check.ok is False] == []
    _read_again_by_spark(settings, spark, theirs)


def test_schema_changes_by_spark(settings: Settings, spark: SparkSession, tmp_path: Path) -> None:
    """A column that is added, widened or renamed beside those that a source declares does not disturb it."""
    theirs, table = tmp_path / "theirs", f"delta.`{tmp_path / 'theirs'}`"
    mapped = "'delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true'"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, n INT, old STRING) USING delta TBLPROPERTIES ({mapped})")
    spark.sql(f"INSERT INTO {table} VALUES (1, 1, 'x')")
    for _ in Interpreter(settings, "p").run(f"CREATE TABLE few (id BIGINT) WITH (DELTA = '{theirs}')"):
        pass
    for step in (
        "ALTER TABLE {t} ADD COLUMN more STRUCT<a: INT, b: STRING>",
        "ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT",
        "ALTER TABLE {t} RENAME COLUMN old TO new",
        "INSERT INTO {t} VALUES (2, 5000000000, 'y', NAMED_STRUCT('a', 1, 'b', 'c'))",
        "ALTER TABLE {t} DROP COLUMN new",
        "DELETE FROM {t} WHERE id = 1",
    ):
        spark.sql(step.format(t=table))
        drain(settings, "p", in_driver=True)
    assert _rows(settings, "few", "id") == [(2,)]
    for _ in Interpreter(settings, "p").run(f"CREATE TABLE every WITH (DELTA = '{theirs}')"):
        pass
    drain(settings, "p", in_driver=True)
    assert _rows(settings, "every", "id, n, more") == [(2, 5_000_000_000, {"a": 1, "b": "c"})]


def test_a_key_with_two_rows_is_named(settings: Settings, spark: SparkSession, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    spark.sql("SELECT 7 AS id, 'a' AS cat UNION ALL SELECT 7, 'a' UNION ALL SELECT 8, 'b'").write.format("delta").save(
        str(theirs)
    )
    ingest = settings.ingest.model_copy(update={"driver_rows": 0})
    by_spark = settings.model_copy(update={"ingest": ingest, "engine": "spark"})
    for _ in Interpreter(by_spark, "p").run(f"CREATE TABLE k WITH (DELTA = '{theirs}', KEY = 'id, cat')"):
        pass
    with pytest.raises(ViewsStopped, match=r'more than one row in .*: id = 7, cat = "a" has 2'):
        drain(by_spark, "p", spark)


def _define(settings: Settings, theirs: Path) -> None:
    text = f"CREATE TABLE bag WITH (DELTA = '{theirs}'); CREATE TABLE keyed WITH (DELTA = '{theirs}', KEY = 'id');"
    text += "CREATE MATERIALIZED VIEW sums AS SELECT cat, COUNT(*) AS n, MAX(v) AS most FROM bag GROUP BY cat"
    for _ in Interpreter(settings, "p").run(text):
        pass


def _read_again_by_spark(settings: Settings, spark: SparkSession, theirs: Path) -> None:
    """The same history in a second lake, read by Spark's tasks, computed by its plans."""
    ingest = settings.ingest.model_copy(update={"driver_rows": 0})
    root = theirs.parent / "by_spark"
    other = settings.model_copy(update={"lake": root, "ingest": ingest, "engine": "spark"})
    text = f"CREATE TABLE bag WITH (DELTA = '{theirs}', START_VERSION = 1);"
    text += f"CREATE TABLE keyed WITH (DELTA = '{theirs}', KEY = 'id', START_VERSION = 1);"
    text += "CREATE MATERIALIZED VIEW sums AS SELECT cat, COUNT(*) AS n, MAX(v) AS most FROM bag GROUP BY cat"
    for _ in Interpreter(other, "p").run(text):
        pass
    drain(other, "p", spark)
    for name in ("bag", "keyed", "sums"):
        ours, again = (reader.head(root_of / "tables" / name) for root_of in (settings.lake, root))
        assert ours is not None
        assert again is not None
        assert again.record.digest == ours.record.digest, name


def _rows(settings: Settings, name: str, columns: str = "id, cat, v") -> list[tuple[object, ...]]:
    (found,) = Interpreter(settings, "p").run(f"SELECT {columns} FROM {name}")
    assert isinstance(found, Rows)
    return [tuple(row) for row in found.rows if isinstance(row, tuple | list)]


def _bag(rows: Iterable[Iterable[object]]) -> Counter[str]:
    """−0.0 is 0.0, as in the digest."""
    plain = ([0.0 if value == 0.0 and isinstance(value, float) else value for value in row] for row in rows)
    return Counter(map(repr, plain))
