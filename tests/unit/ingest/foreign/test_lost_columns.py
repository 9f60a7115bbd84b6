"""A column of a table of others that is dropped, renamed, or replaced by another one of its name stops the source that
declares it: the rows that were taken in have values in it that are no longer those over there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyiceberg.types import IntegerType, StringType

from strandline.jobs.model.errors import DeltaSchemaChanged, ForeignSchemaChanged
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from tests.support.foreign_folder import ids
from tests.support.foreign_iceberg import IcebergWorld, end_threads
from tests.support.foreign_log import ForeignLog

_BY_NAME: Final = {"delta.columnMapping.mode": "name"}
_INNER: Final = (("x", "px"), ("y", "py"))


def column(name: str, physical: str, sql_type: Any = "long") -> dict[str, Any]:
    """Of a schema whose columns are mapped."""
    return {
        "name": name,
        "type": sql_type,
        "nullable": True,
        "metadata": {"delta.columnMapping.physicalName": physical},
    }


def struct(*fields: tuple[str, str]) -> dict[str, Any]:
    return {"type": "struct", "fields": [column(name, physical) for name, physical in fields]}


class World:
    """A table with the columns id, a, b and s (a STRUCT), and three sources over it."""

    def __init__(self, folder: Path) -> None:
        self.settings, self.log = Settings(lake=folder / "lake"), ForeignLog(folder / "theirs")
        columns = [column("id", "pid"), column("a", "pa"), column("b", "pb"), column("s", "ps", struct(*_INNER))]
        self.log.begin(columns, features=["columnMapping"], configuration=_BY_NAME)
        self.write(1)
        for text in ("every", "keyed", "few (id BIGINT)"):
            key = ", KEY = 'id'" if text == "keyed" else ""
            list(Interpreter(self.settings, text[0]).run(f"CREATE TABLE {text} WITH (DELTA = '{self.log.path}'{key})"))
            self.drain(text[0])

    def write(self, number: int) -> None:
        inner = pa.array([{"px": number, "py": -number}])
        rows = pa.table({"pid": [number], "pa": [number * 10], "pb": [number * 100], "ps": inner})
        self.log.commit(self.log.add(f"{number}.parquet", rows))

    def drain(self, pipeline: str) -> None:
        drain(self.settings, pipeline, in_driver=True)

    def rows(self, name: str) -> list[Any]:
        (found,) = Interpreter(self.settings, name[0]).run(f"SELECT * FROM {name}")
        assert isinstance(found, Rows)
        return sorted(map(tuple, found.rows))


@pytest.mark.parametrize("rows_follow", [False, True])
@pytest.mark.parametrize(
    ("steps", "lost"),
    [
        ([[column("b", "pa"), column("a", "pb"), column("s", "ps", struct(*_INNER))]], "a"),
        ([[column("a", "pa"), column("b", "new"), column("s", "ps", struct(*_INNER))]], "b"),
        (
            [
                [column("a", "pa"), column("s", "ps", struct(*_INNER))],
                [column("a", "pa"), column("b", "new"), column("s", "ps", struct(*_INNER))],
            ],
            "b",
        ),
        ([[column("a", "pa"), column("b", "pb"), column("s", "ps", struct(("y", "px"), ("x", "py")))]], "s"),
        ([[column("a", "pa"), column("b", "pb"), column("s", "ps", struct(("x", "px"), ("z", "py")))]], "s"),
    ],
    ids=["two change names", "dropped and added", "dropped, then added", "fields change names", "a field is renamed"],
)
def test_a_delta_table_whose_column_is_another_one(
    steps: list[list[dict[str, Any]]], lost: str, rows_follow: bool, tmp_path: Path
) -> None:
    world = World(tmp_path)
    for columns in steps:
        world.log.commit(world.log.metadata([column("id", "pid"), *columns], _BY_NAME))
    if rows_follow:
        world.write(2)
    for name in ("every", "keyed"):
        for _ in range(2):
            with pytest.raises(
                DeltaSchemaChanged, match=f"column '{lost}' of '{name}' is not in .*version 2, as it was before"
            ):
                world.drain(name[0])
        assert [row[:3] for row in world.rows(name)] == [(1, 10, 100)]
    world.drain("f")
    assert world.rows("few") == [(1,), (2,)][: 1 + rows_follow]


def test_a_field_that_is_added_and_a_table_that_is_no_longer_mapped_lose_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    columns = [column("id", "pid"), column("a", "pa"), column("b", "pb")]
    wider = [*columns, column("s", "ps", struct(*_INNER, ("z", "pz")))]
    world.log.commit(world.log.metadata(wider, _BY_NAME))
    world.write(2)
    world.drain("e")
    assert [row[0] for row in world.rows("every")] == [1, 2]
    plain = {"type": "struct", "fields": [{"name": name, "type": "long"} for name in ("x", "y", "z")]}
    named = [{"name": name, "type": "long"} for name in ("id", "a", "b")]
    rows = pa.table({"id": [1, 2], "a": [10, 20], "b": [100, 200], "s": [{"x": 1, "y": -1}, {"x": 2, "y": -2}]})
    world.log.commit(
        world.log.metadata([*named, {"name": "s", "type": plain}]),
        *(world.log.remove(f"{number}.parquet", change=False) for number in (1, 2)),
        world.log.add("again.parquet", rows, change=False),
    )
    world.log.commit(world.log.remove("again.parquet"), world.log.add("less.parquet", rows.slice(1)))
    world.drain("e")
    assert [row[:3] for row in world.rows("every")] == [(2, 20, 200)]


def test_an_iceberg_table_whose_column_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = IcebergWorld(tmp_path, monkeypatch)
    try:
        world.begin(ids())
        world.table.append(ids(1, 2))
        world.run("CREATE TABLE t WITH (ICEBERG = '@', KEY = 'id')")
        world.drain()
        with world.table.update_schema() as change:
            change.delete_column("n")
        with world.table.update_schema() as change:
            change.add_column("n", IntegerType())
            change.add_column("more", StringType())
        world.table.append(pa.table({"Id": [3], "n": pa.array([3], pa.int32()), "more": ["x"]}))
        with pytest.raises(ForeignSchemaChanged, match=r"column 'n' of 't' is not in .*, as it was before"):
            world.drain()
        assert world.ids("t") == [1, 2]
    finally:
        end_threads()
