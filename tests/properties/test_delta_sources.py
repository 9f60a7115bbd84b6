"""Views over Delta tables that others write: read while these grow, cut and broken off at random, they are their own
SELECTs over the foreign table's newest version, every row once.

`STRANDLINE_FOREIGN_EXAMPLES` says how many histories are run: 60 unless it says so, 2,000 in `make nightly`, of new
seeds. The seed stands in what fails; `STRANDLINE_SEED` says which to run.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest

from strandline.jobs.model.settings import IngestSettings, Settings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from tests.support.broken_drains import broken_drain
from tests.support.foreign_table import ForeignHistory

EXAMPLES: Final = int(os.environ.get("STRANDLINE_FOREIGN_EXAMPLES", "60"))
_EACH: Final = 10

_VIEWS: Final = {
    "sums": "SELECT cat, COUNT(*) AS rows, CAST(SUM(n) AS BIGINT) AS total, MAX(v) AS most FROM orders GROUP BY cat",
    "kinds": "SELECT DISTINCT n, v FROM orders",
    "chosen": "SELECT id, v FROM orders WHERE n > 0",
    "pairs": "SELECT a.id, b.cat FROM orders a JOIN orders b ON a.n = b.n WHERE a.v > 0",
}


def _seed() -> int:
    said = os.environ.get("STRANDLINE_SEED", "0")
    return random.SystemRandom().randrange(1 << 30) if said == "anew" else int(said)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(-(-EXAMPLES // _EACH)))
def test_views_over_a_foreign_table_are_their_selects_over_it(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _seed() * 1_000_003 + part * _EACH
    drains = 0
    for seed in range(first, first + _EACH):
        drains += _Example(seed, tmp_path / str(seed), monkeypatch).run()
    assert drains >= _EACH, "an example drains once at least"


class _Example:
    """One history, and one lake that reads it."""

    def __init__(self, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pick = random.Random(seed)
        self._seed = seed
        self._form = self._pick.choice(["bag", "bag", "keyed", "stream"])
        only_adds = self._form == "stream"
        self._foreign = ForeignHistory(folder / "theirs", self._pick, self._form == "keyed", only_adds)
        ingest = IngestSettings(max_rows_per_epoch=self._pick.choice([1, 3, 1_000_000]))
        self._settings = Settings(lake=folder / "lake", ingest=ingest)
        self._views = {name: _VIEWS[name] for name in self._pick.sample(sorted(_VIEWS), 2)}
        self._monkeypatch = monkeypatch

    def run(self) -> int:
        """Grow, read, compare; the number of times that it was read to the end."""
        self._foreign.begin()
        for _ in range(self._pick.randrange(3)):
            self._foreign.step()
        self._create()
        drains = 0
        for _ in range(self._pick.randrange(1, 4)):
            for _ in range(self._pick.randrange(4)):
                self._foreign.step()
            self._drain()
            drains += 1
            self._compare()
            if self._pick.random() < 0.3:
                self._foreign.vacuum()
        if self._pick.random() < 0.3:
            wrong = [check for check in verify(self._settings, deep=True) if check.ok is False]
            assert not wrong, self._about(str(wrong))
        return drains

    def _create(self) -> None:
        kind = "STREAM" if self._form == "stream" else "TABLE"
        key = ", KEY = 'id'" if self._form == "keyed" else ""
        text = f"CREATE {kind} orders WITH (DELTA = '{self._foreign.path}'{key});"
        text += "".join(f"CREATE MATERIALIZED VIEW {name} AS {query};" for name, query in self._views.items())
        for _ in Interpreter(self._settings, "p").run(text):
            pass

    def _drain(self) -> None:
        if self._pick.random() < 0.3:
            self._break_off()
        drain(self._settings, "p", in_driver=True)

    def _break_off(self) -> None:
        place = broken_drain(self._settings, "p", self._pick, self._monkeypatch)
        if place is not None:
            self._foreign.told.append(f"broken off {place}")

    def _compare(self) -> None:
        names = [column for column in ("id", "cat", "n", "v", "tags", "at", "note") if column in self._columns()]
        theirs = self._foreign.rows(names)
        version = self._foreign.table.version()
        self._foreign.told.append(f"compared at {version}")
        assert _bag(self._ours(f"SELECT {', '.join(names)} FROM orders")) == _bag(theirs), self._about("orders")
        with duckdb.connect() as connection:
            connection.register("orders", theirs)
            for name, query in self._views.items():
                expected = connection.sql(query).to_arrow_table()
                assert _bag(self._ours(f"SELECT * FROM {name}")) == _bag(expected), self._about(name)

    def _columns(self) -> list[str]:
        catalog = Interpreter(self._settings, "p").catalog
        return [column.name for column in catalog.get("orders").columns]  # type: ignore[union-attr]

    def _ours(self, query: str) -> pa.Table:
        (found,) = Interpreter(self._settings, "p").run(query)
        rows: Any = found
        return pa.table({name: [row[at] for row in rows.rows] for at, name in enumerate(rows.names)})

    def _about(self, what: str) -> str:
        return f"seed {self._seed}, {self._form}: {what}\n" + "\n".join(self._foreign.told)


def _bag(rows: pa.Table) -> Counter[str]:
    return Counter(repr(list(row.values())) for row in rows.to_pylist())
