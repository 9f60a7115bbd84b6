"""Arrangements of data files: what has the keys is found, whatever was lost, damaged, or made by others meanwhile."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.state_store import arrangements
from strandline.state_store.arrangements import Arrangements, DataFile, arrangements_in, distinct, hashes_of

ROWS = pa.table(
    {
        "k": [5, 1, None, 5, 9, 1],
        "t": ["a", "b", "c", None, "e", "f"],
        "__state": pa.array([{"x": n, "y": n % 2} for n in range(6)]),
    }
)
GENEROUS = 1 << 30


def data_file(folder: Path, rows: pa.Table = ROWS, name: str = "f") -> DataFile:
    path = folder / f"{name}.parquet"
    pq.write_table(rows, path, row_group_size=2)
    return DataFile("t", name, "0a0b0c0d", path, rows.num_rows)


def eager(folder: Path, most_bytes: int = GENEROUS) -> Arrangements:
    return Arrangements(folder / "arrangements", most_bytes, fewest_rows=1, patience=1, largest_share=1.0)


def looked_up(
    made: Arrangements, file: DataFile, columns: Sequence[str], keys: pa.Table
) -> list[dict[str, Any]] | None:
    found = made.open(file, columns)
    if found is None:
        return None
    numbers = found.find(distinct([hashes_of(keys)]), file.rows)
    assert numbers is not None
    rows: list[dict[str, Any]] = found.take(numbers).to_pylist()
    return rows


def values_of_t(made: Arrangements, file: DataFile, *keys: int | None) -> list[Any] | None:
    rows = looked_up(made, file, ["k"], pa.table({"k": pa.array(keys, pa.int64())}))
    return None if rows is None else [row["t"] for row in rows]


def test_rows_are_found_by_key_in_the_order_of_the_file(tmp_path: Path) -> None:
    made, file = eager(tmp_path), data_file(tmp_path)
    assert values_of_t(made, file, 1, 9, 77) == ["b", "e", "f"]
    assert values_of_t(made, file, None) == ["c"]
    assert values_of_t(made, file) == []
    both = pa.table({"x": pa.array([2, 4], pa.int64()), "k": pa.array([None, 8], pa.int64())})
    assert looked_up(made, file, ["__state.x", "k"], both) == [ROWS.to_pylist()[2]]


_DOUBLES = [0.0, -0.0, 1.5, math.nan, -math.inf, None]
_KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int32(), [0, 1, -1, None]),
    (pa.int64(), [0, 2**63 - 1, -1, None]),
    (pa.float64(), _DOUBLES),
    (pa.string(), ["", "a", "ü", "x" * 40, None]),
    (pa.binary(), [b"", b"\0", b"y" * 33, None]),
    (pa.bool_(), [True, False, None]),
    (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    (pa.timestamp("us", "UTC"), [0, -1, 1, None]),
    (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-1.50"), None]),
    (pa.decimal128(38, 0), [Decimal(10**37), Decimal(-(10**37)), Decimal(0), None]),
    (pa.list_(pa.float64()), [[], [0.0, None], [-0.0, None], [math.nan], None]),
    (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": None}, {"a": None, "b": ""}, None]),
]


@given(st.data())
def test_every_row_that_sql_calls_equal_is_found(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """By DuckDB's equality, as rules join; a collision may give more."""
    folder = tmp_path_factory.mktemp("equal")
    kinds = data.draw(st.lists(st.sampled_from(_KINDS), min_size=1, max_size=2))
    names = [f"k{place}" for place in range(len(kinds))]

    def drawn(most: int) -> pa.Table:
        count = data.draw(st.integers(1, most))
        draws = (st.lists(st.sampled_from(values), min_size=count, max_size=count) for _, values in kinds)
        columns = [pa.array(data.draw(each), kind) for each, (kind, _) in zip(draws, kinds, strict=True)]
        return pa.table(dict(zip(names, columns, strict=True)))

    rows, keys = drawn(12), drawn(3)
    file = data_file(folder, rows.append_column("n", pa.array(range(rows.num_rows))))
    found = looked_up(eager(folder), file, names, keys)
    assert found is not None
    with duckdb.connect() as db:
        db.register("r", pq.read_table(file.path))
        db.register("ks", keys)
        same = " AND ".join(f"r.{name} IS NOT DISTINCT FROM ks.{name}" for name in names)
        wanted = {n for (n,) in db.sql(f"SELECT n FROM r SEMI JOIN ks ON {same}").fetchall()}
    assert wanted <= {row["n"] for row in found}


def stored(made: Arrangements) -> list[Path]:
    return sorted(made.folder.iterdir())


@pytest.mark.parametrize("kind", [".rows", ".keys"])
@pytest.mark.parametrize("damage", ["lost", "empty", "half", "flipped", "longer"])
def test_what_is_lost_or_damaged_is_made_again(tmp_path: Path, kind: str, damage: str) -> None:
    file = data_file(tmp_path)
    assert values_of_t(eager(tmp_path), file, 5) == ["a", None]
    path = next(each for each in stored(eager(tmp_path)) if each.suffix == kind)
    whole = path.read_bytes()
    flipped = bytes([whole[0] ^ 4]) + whole[1:]
    forms = {"empty": b"", "half": whole[: len(whole) // 2], "flipped": flipped, "longer": whole + b"\0"}
    path.unlink()
    if damage != "lost":
        path.write_bytes(forms[damage])
    assert values_of_t(eager(tmp_path), file, 5) == ["a", None]
    assert path.read_bytes() == whole


def test_a_file_is_arranged_when_it_was_asked_for_often_enough_and_is_large(tmp_path: Path) -> None:
    made = Arrangements(tmp_path / "a", GENEROUS, fewest_rows=6, patience=3)
    file, small = data_file(tmp_path), data_file(tmp_path, ROWS.slice(0, 5), "small")
    assert [values_of_t(made, file, 9) for _ in range(4)] == [None, None, ["e"], ["e"]]
    assert [values_of_t(made, small, 9) for _ in range(4)] == [None] * 4
    again = Arrangements(tmp_path / "a", GENEROUS, fewest_rows=6, patience=3)
    assert values_of_t(again, file, 9) == ["e"], "another process finds it"


def test_another_file_of_that_name_is_another_file(tmp_path: Path) -> None:
    made, file = eager(tmp_path), data_file(tmp_path)
    assert values_of_t(made, file, 9) == ["e"]
    other = data_file(tmp_path, ROWS.set_column(1, "t", pa.array(["z"] * 6)))
    altered = DataFile(other.table, other.name, "ffffffff", other.path, other.rows)
    assert values_of_t(made, altered, 9) == ["z"]


def test_what_was_not_used_for_longest_goes_first_and_what_is_in_use_stays(tmp_path: Path) -> None:
    one, two, three = (data_file(tmp_path, name=name) for name in ("one", "two", "three"))
    first = eager(tmp_path)
    assert values_of_t(first, one, 9) == values_of_t(first, two, 9) == ["e"]
    size = sum(path.stat().st_size for path in stored(first))
    full = eager(tmp_path, size)
    assert values_of_t(full, one, 9) == ["e"]
    assert values_of_t(full, three, 9) is None, "all others were used a moment ago"
    old = time.time() - 10_000
    for name in (two.entry(), two.entry(["k"])):
        os.utime(full.folder / name, (old, old))
    roomy = eager(tmp_path, size // 2 + 5_000)
    assert values_of_t(roomy, three, 9) == ["e"]
    names = {path.name for path in stored(roomy)}
    assert not names & {two.entry(), two.entry(["k"])}
    assert names >= {one.entry(), three.entry()}


def test_what_a_table_no_longer_has_is_dropped_once_no_reader_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, one, two = eager(tmp_path), data_file(tmp_path, name="one"), data_file(tmp_path, name="two")
    values_of_t(made, one, 9)
    values_of_t(made, two, 9)
    made.drop_others("t", ["two"])
    assert len(stored(made)) == 4
    monkeypatch.setattr(arrangements, "_IN_USE_SECONDS", -1.0)
    made.drop_others("another", [])
    made.drop_others("t", ["two"])
    assert {path.name for path in stored(made)} == {two.entry(), two.entry(["k"])}


def test_a_disk_that_is_full_or_closed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, made = data_file(tmp_path), eager(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        assert values_of_t(made, file, 9) is None
        assert stored(made) == []
    assert values_of_t(made, file, 9) is None, "not tried again in this process"
    assert values_of_t(eager(tmp_path), file, 9) == ["e"]
    monkeypatch.setattr(arrangements, "_SPARE_BYTES", 1 << 62)
    assert values_of_t(eager(tmp_path), data_file(tmp_path, name="next"), 9) is None


def test_a_folder_of_others_is_not_used(tmp_path: Path) -> None:
    made = eager(tmp_path)
    made.folder.mkdir()
    made.folder.chmod(0o777)
    assert values_of_t(made, data_file(tmp_path), 9) is None
    assert stored(made) == []


def test_without_bytes_there_are_none(tmp_path: Path) -> None:
    assert arrangements_in(tmp_path, 0) is None
    own = arrangements_in(None, 1)
    assert own is not None
    assert own.folder.name == f"strandline-arrangements-{os.getuid()}"


def test_threads_that_ask_together_find_the_same_or_scan(tmp_path: Path) -> None:
    made, file = eager(tmp_path), data_file(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: values_of_t(made, file, 1), range(40)))
    assert [each for each in found if each not in (["b", "f"], None)] == []
    assert values_of_t(made, file, 1) == ["b", "f"]


def _ask(folder: Path, file: DataFile, out: Any) -> None:
    out.put(values_of_t(eager(folder), file, 1))


def test_processes_that_make_the_same_do_not_disturb_each_other(tmp_path: Path) -> None:
    file = data_file(tmp_path)
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    makers = [context.Process(target=_ask, args=(tmp_path, file, out)) for _ in range(3)]
    for each in makers:
        each.start()
    assert [out.get(timeout=60) for _ in makers] == [["b", "f"]] * 3
    for each in makers:
        each.join(60)
    assert len(stored(eager(tmp_path))) == 2


@pytest.mark.kill
@pytest.mark.parametrize(
    "failpoint", ["inside-arrangement:1", "before-arrangement-named:1", "before-arrangement-named:2"]
)
def test_what_a_killed_maker_left_is_not_there(tmp_path: Path, failpoint: str) -> None:
    file = data_file(tmp_path)
    code = (
        "import sys; from pathlib import Path; import tests.unit.state_store.test_arrangements as t;"
        "folder = Path(sys.argv[1]); t.values_of_t(t.eager(folder), t.data_file(folder), 1)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=os.environ | {"STRANDLINE_FAILPOINT": failpoint},
        check=False,
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL
    made = eager(tmp_path)
    assert len([path for path in stored(made) if path.suffix == ".keys"]) == 0
    assert values_of_t(made, file, 1) == ["b", "f"]
    old = time.time() - 10_000
    for path in made.folder.glob("*.tmp"):
        os.utime(path, (old, old))
    assert values_of_t(made, data_file(tmp_path, name="next"), 1) == ["b", "f"]
    assert list(made.folder.glob("*.tmp")) == [], "what was left behind goes when the next is made"


def test_more_rows_than_are_wanted_are_not_found(tmp_path: Path) -> None:
    found = eager(tmp_path).open(data_file(tmp_path), ["k"])
    assert found is not None
    keys = distinct([hashes_of(pa.table({"k": [5, 1]}))])
    assert found.find(keys, 3) is None
    numbers = found.find(keys, 4)
    assert numbers is not None
    assert numbers.tolist() == [0, 1, 3, 5]


def test_a_row_is_taken_from_its_row_group(tmp_path: Path) -> None:
    rows = pa.table({"k": np.arange(1000) % 7, "t": [str(n) for n in range(1000)]})
    found = values_of_t(eager(tmp_path), data_file(tmp_path, rows), 3)
    assert found == [str(n) for n in range(1000) if n % 7 == 3]
