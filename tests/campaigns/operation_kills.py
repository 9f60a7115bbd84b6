"""Operations that are killed anywhere, and said again: compact, backup, restore, replace, rebuild, drill, publish,
retention, and ALTER by a column, a name and two names in exchange.

    python -m tests.campaigns.operation_kills [--seed 1] [--kills 300]

Before each operation come new events. Its process is killed by SIGKILL at a place that is drawn: the n-th time that it
gives a file its name, begins or ends a commit, copies, removes or publishes. Then it is said again, until it is done:
all that `strandline verify --deep` looks at must be right, and views must be what DuckDB makes of their events. A view
whose events retention has taken must be what its twin is, whose source keeps them. What holds is asked of the whole
history, which grows: after so many kills another lake is begun.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Final

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.operate.maintenance import execute_maintenance, plan_maintenance
from strandline.jobs.operate.rebuild import execute_rebuild, plan_rebuilds
from strandline.jobs.operate.recovery.backup import execute_backup, plan_backup
from strandline.jobs.operate.recovery.restore import execute_restore, plan_restore
from strandline.jobs.operate.recovery.scenarios import plan_drills, run_drill
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.delta.compaction import FANOUT
from strandline.state_store.delta.log import now_ms
from strandline.state_store.files import remove_folder
from strandline.state_store.layout import LakeLayout
from tests.support import oracle
from tests.support.invariants import assert_correct
from tests.support.warm_process import exit_code

DEFINITIONS: Final = """
CREATE STREAM sales (shop VARCHAR KEY, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 2);
CREATE TABLE shops (shop VARCHAR PRIMARY KEY, town VARCHAR) WITH (KAFKA_TOPIC = 'shops');
CREATE MATERIALIZED VIEW by_shop WITH (KAFKA_TOPIC = 'by_shop') AS
    SELECT shop, COUNT(*) AS n, MAX(qty) AS most FROM sales GROUP BY shop;
CREATE MATERIALIZED VIEW by_town AS
    SELECT town, SUM(n) AS n FROM by_shop JOIN shops ON by_shop.shop = shops.shop GROUP BY town;
CREATE MATERIALIZED VIEW best AS SELECT shop, MAX(qty) AS qty FROM sales GROUP BY shop;
CREATE MATERIALIZED VIEW worst AS SELECT shop, MIN(qty) AS qty FROM sales GROUP BY shop;
CREATE MATERIALIZED VIEW gap AS SELECT b.shop, b.qty - w.qty AS gap FROM best b JOIN worst w ON b.shop = w.shop;
CREATE STREAM visits (shop VARCHAR KEY, n INT) WITH (KAFKA_TOPIC = 'visits', RETENTION_MS = 60000);
CREATE STREAM all_visits (shop VARCHAR KEY, n INT) WITH (KAFKA_TOPIC = 'visits');
CREATE MATERIALIZED VIEW visited AS SELECT shop, COUNT(*) AS times, SUM(n) AS n FROM visits GROUP BY shop;
CREATE MATERIALIZED VIEW all_visited AS SELECT shop, COUNT(*) AS times, SUM(n) AS n FROM all_visits GROUP BY shop;
"""
_TRIMMED, _TWIN = "visited", "all_visited"
"""A view whose events go, and the same of a source that keeps them."""
_LATER_MS: Final = 3_600_000
"""Retention comes an hour after the events, by the time that it is told."""
OPERATIONS: Final = (
    *("compact", "backup", "restore", "replace", "rebuild", "drill", "publish", "retention"),
    *("column", "rename", "swap"),
)
_PLACES: Final[dict[str, tuple[str, ...]]] = {
    "compact": ("after-compaction-staged",),
    "backup": ("inside-backup", "before-backup-manifest"),
    "restore": ("inside-restore",),
    "replace": ("after-standby-build", "before-replacement-swap", "after-replacement-swap", "after-replacement-intent"),
    "rebuild": ("inside-refresh", "after-refresh-commit", "before-log-commit", "after-log-commit"),
    "drill": ("inside-restore", "inside-refresh"),
    "publish": ("before-publish", "after-publish"),
    "retention": ("after-trim-digest",),
    "column": ("before-source-columns", "after-source-columns", "after-columns-seen"),
    "rename": ("before-called", "after-called"),
    "swap": ("before-swap-intent", "after-swap-intent", "after-swap-file", "after-swap-end"),
}
_COMPACTED: Final = ("sales", "by_shop")
_ANYWHERE: Final = (
    "before-link",
    "after-link",
    "before-rename",
    "before-log-entry",
    "after-log-entry",
    "after-staging",
)
_AGAIN: Final = 3
"""Kills of one operation at most, before it is left to end."""
KILLS_PER_LAKE: Final = 30


def operate(root: Path, name: str, number: int) -> None:
    """One operation, in this process."""
    settings, beside = settings_of(root), root.parent
    match name:
        case "compact" | "retention":
            names = _COMPACTED if name == "compact" else ("visits",)
            at = now_ms() + (0 if name == "compact" else _LATER_MS)
            execute_maintenance(settings, plan_maintenance(settings, names, now=at), at)
        case "backup":
            execute_backup(settings, plan_backup(settings, beside / "backup"))
        case "restore":
            execute_restore(plan_restore(beside / "backup", beside / "restored"))
        case "replace":
            others = ("MAX(qty)", "MIN(qty)", "MAX(-qty)")
            text = f"SELECT shop, COUNT(*) AS n, {others[number % 3]} AS most FROM sales GROUP BY shop"
            list(
                Interpreter(settings, "shop").run(
                    f"CREATE OR REPLACE MATERIALIZED VIEW by_shop WITH (KAFKA_TOPIC = 'by_shop') AS {text};"
                )
            )
        case "rebuild":
            for plan in plan_rebuilds(settings, [["sales", "shops"], ["by_shop"], ["by_town", "sales"]][number % 3]):
                execute_rebuild(settings, plan)
        case "drill":
            for each in plan_drills(settings, ["by_shop"], ["changelog", "local-state", "backup"]):
                assert run_drill(settings, each).passed is not False
        case "publish":
            list(Interpreter(settings, "shop").run(f"INSERT INTO sales (shop, qty) VALUES ('a', {number % 9});"))
            drain(settings, "shop", in_driver=True)
        case _:
            alter(settings, name, number)


def alter(settings: Settings, name: str, number: int) -> None:
    """One ALTER, unless it was executed before its kill."""
    catalog, session = Catalog(LakeLayout(settings.lake)), Interpreter(settings, "shop")
    match name:
        case "column":
            sales = catalog.get("sales")
            assert isinstance(sales, Source)
            if all(each.name != f"c{number}" for each in sales.columns):
                list(session.run(f"ALTER STREAM sales ADD COLUMN c{number} INT;"))
            drain(settings, "shop", in_driver=True)
        case "rename":
            now, wanted = catalog.name_map.of("gap"), ("gap", "distance")[number % 2]
            if now != wanted:
                list(session.run(f"ALTER VIEW {now} RENAME TO {wanted};"))
        case "swap":
            if catalog.name_map.of("best") != ("best", "worst")[number % 2]:
                list(session.run("ALTER VIEW best SWAP WITH worst;"))


def settings_of(root: Path) -> Settings:
    """Without Spark."""
    return load_settings(lake=root).model_copy(update={"engine": "duckdb"})


def feed(root: Path, seed: int) -> None:
    """Some events, taken in."""
    draw, settings = random.Random(seed), settings_of(root)
    sales = ", ".join(f"('{draw.choice('abcdef')}', {draw.randrange(9)})" for _ in range(5))
    shops = f"('{draw.choice('abcdef')}', '{draw.choice(('Rome', 'Oslo'))}')"
    visits = f"('{draw.choice('abc')}', {draw.randrange(9)})"
    list(
        Interpreter(settings, "shop").run(
            f"INSERT INTO sales (shop, qty) VALUES {sales}; INSERT INTO shops VALUES {shops};"
            f"INSERT INTO visits (shop, n) VALUES {visits};"
        )
    )
    drain(settings, "shop", in_driver=True)


@dataclass
class Campaign:
    """Operations on one lake, one after the other.

    Attributes:
        kills: by operation.
    """

    folder: Path
    draw: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    _number: int = 0

    @property
    def root(self) -> Path:
        return self.folder / "lake"

    def begin(self) -> None:
        """The lake, with a backup of it."""
        list(Interpreter(settings_of(self.root), "shop").run(DEFINITIONS))
        feed(self.root, 0)
        operate(self.root, "backup", 0)

    def operation(self, name: str, first: str | None = None) -> None:
        """New events; the operation, killed some times; what must hold then.

        Args:
            first: the place of its first kill; default: drawn, as those of the others.
        """
        self._number += 1
        for epoch in range(2 * FANOUT):
            feed(self.root, 100 * self._number + epoch)
            if name != "compact" or self._has_to_merge():
                break
        if (self.folder / "restored").exists():
            remove_folder(self.folder / "restored")
        for number in range(self.draw.randint(1, _AGAIN)):
            places = (*_PLACES[name], *_PLACES[name], *_ANYWHERE)
            # Many places are passed once: the first pass is the likeliest, and none up to the sixth is left out.
            drawn = f"{self.draw.choice(places)}:{self.draw.randint(1, self.draw.randint(1, 6))}"
            place = first if first is not None and number == 0 else drawn
            code = exit_code(operate, self.root, name, self._number, failpoint=place)
            assert code in (0, -signal.SIGKILL), (name, place, code)
            if code == 0:
                break
            self.kills[name] += 1
        else:
            assert exit_code(operate, self.root, name, self._number) == 0, f"{name} does not end after its kills"
        self._check(name)

    def _has_to_merge(self) -> bool:
        """True if a compaction has something to do, which a run does by itself when there is twice as much."""
        return any(each.merges.merges for each in plan_maintenance(settings_of(self.root), _COMPACTED).tables)

    def _check(self, name: str) -> None:
        settings, lake = settings_of(self.root), LakeLayout(self.root)
        drain(settings, "shop", in_driver=True)
        wrong = [each for each in verify(settings, deep=True) if each.ok is False]
        assert not wrong, (name, wrong)
        assert_correct(lake, "shop", trimmed=(_TRIMMED,))
        kept, twin = (oracle.visible(lake, each, ["shop", "times", "n"]) for each in (_TRIMMED, _TWIN))
        assert kept == twin, (name, kept, twin)
        if name == "retention":
            visits = reader.head(lake.table("visits"))
            assert visits is not None
            assert visits.record.gone > 0, "retention took nothing"
        if name == "restore":
            for table in ("by_shop", "by_town", "sales"):
                head = reader.head(LakeLayout(self.folder / "restored").table(table))
                assert head is not None, table
                assert reader.read_rows(LakeLayout(self.folder / "restored").table(table)).num_rows == head.record.rows


def campaign(folder: Path, seed: int, kills: int) -> Counter[str]:
    """Operations in turn until there were so many kills, on one lake after the other; the kills by operation."""
    draw, found, turns = random.Random(seed), Counter[str](), cycle(OPERATIONS)
    began, lakes = time.monotonic(), 0
    while found.total() < kills:
        lakes += 1
        found += _on_a_lake(folder / f"{lakes}", draw, turns, min(KILLS_PER_LAKE, kills - found.total()))
        tally = ", ".join(f"{name} {found[name]}" for name in OPERATIONS)
        seconds = time.monotonic() - began
        print(f"{found.total()} kills so far, {lakes} lakes, {seconds:.0f} s: {tally}", file=sys.stderr, flush=True)
    return found


def _on_a_lake(folder: Path, draw: random.Random, turns: Iterator[str], kills: int) -> Counter[str]:
    folder.mkdir()
    made = Campaign(folder, draw)
    made.begin()
    while made.kills.total() < kills:
        made.operation(next(turns))
    remove_folder(folder)
    return made.kills


def main() -> int:
    """Kill, print what was tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.operation_kills", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=300)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="operations-") as folder:
        found = campaign(Path(folder), asked.seed, asked.kills)
    for name in OPERATIONS:
        print(f"{name}: {found[name]} kills")
    print(f"seed {asked.seed}: {found.total()} kills, nothing wrong; {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
