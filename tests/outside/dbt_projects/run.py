"""One project by both adapters: which of its models there are in the end, and whether their rows are the same.

    half    seeds with two rows of three; everything is built
    whole   all rows: `dbt seed`, `dbt build` again, as every day; dbt-duckdb once more with --full-refresh

A model is right if its rows after the second build of ours are those of dbt-duckdb's full refresh.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import duckdb
import yaml

import strandline
from strandline.state_store.errors import StrandlineError
from tests.outside.dbt_projects.projects import UNPARTITIONED, Project
from tests.support.dbt_project import run_dbt

Adapter = Literal["duckdb", "strandline"]
Kind = Literal["equal", "other keys", "differs", "refused", "not compared"]
_BLOCK = re.compile(r"\{%-?\s*(if|elif|else|endif)\b(.*?)-?%\}", re.DOTALL)
_ASKS = re.compile(r"\s*is_incremental\(\)\s*")
_INCREMENTAL = re.compile(r"(materialized\s*=\s*)['\"]incremental['\"]")
_KEY = re.compile(r"\bunique_key\s*=\s*(?:'[^']*'|\"[^\"]*\"|\[[^\]]*\])\s*,?")
_HASH = re.compile(r"[0-9a-f]{32}")
_OWN = "own"


@dataclass(frozen=True)
class Outcome:
    """What a model came to.

    Attributes:
        incremental: it has incremental logic.
        why: the refusal, or the first rows that differ.
    """

    model: str
    incremental: bool
    kind: Kind
    why: str = ""


@dataclass
class Came:
    """What a project came to.

    Attributes:
        unchanged: its models as they are.
        deleted: its models with the incremental logic deleted.
        stale: incremental models whose rows after dbt-duckdb's own incremental run are not those of its full refresh.
        tests: {what dbt-duckdb says of a test, what ours says of it: how many}.
    """

    name: str
    unchanged: list[Outcome] = field(default_factory=list)
    deleted: list[Outcome] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    tests: Counter[tuple[str, str]] = field(default_factory=Counter)


def compared(project: Project, place: Path, folder: Path, adapter: Path, *, deleted: bool = True) -> Came:
    """Run a project by both adapters, and compare.

    Args:
        place: the folder of the checkouts.
        folder: an empty one, to run in.
        adapter: where ours is installed.
        deleted: run it with the incremental logic deleted, too.
    """
    came = Came(project.name)
    theirs = _Run(project, place, folder / "theirs", adapter, "duckdb")
    theirs.build("half")
    theirs.build("whole")
    daily = theirs.rows()
    found = theirs.build("whole", "--full-refresh")
    refreshed = theirs.rows()
    incremental = {name for name, text in theirs.texts().items() if "is_incremental" in text}
    came.stale = sorted(
        name for name in incremental & set(refreshed) if difference(daily.get(name, []), refreshed[name])
    )

    ours = _Run(project, place, folder / "ours", adapter, "strandline")
    ours.build("half")
    said = ours.build("whole")
    came.unchanged = _outcomes(ours, said, refreshed, incremental)
    came.tests = Counter(
        (status, said[name][0]) for name, (status, _) in found.items() if name.startswith("test.") and name in said
    )
    if deleted:
        without = _Run(project, place, folder / "deleted", adapter, "strandline", without_incremental_logic)
        came.deleted = _outcomes(without, without.build("whole"), refreshed, incremental)
    return came


def _outcomes(
    run: _Run, said: dict[str, tuple[str, str]], wanted: dict[str, list[Any]], incremental: set[str]
) -> list[Outcome]:
    rows = run.rows()
    found = []
    for unique, (status, message) in sorted(said.items()):
        if not unique.startswith("model."):
            continue
        name = unique.split(".")[2]
        if status != "success":
            found.append(Outcome(name, name in incremental, "refused", message if status == "error" else status))
        elif name not in wanted:
            found.append(Outcome(name, name in incremental, "not compared", "dbt-duckdb has no rows of it"))
        else:
            found.append(_compared(name, rows.get(name, []), wanted[name], name in incremental))
    return found


def _compared(name: str, ours: list[Any], theirs: list[Any], incremental: bool) -> Outcome:
    why = difference(ours, theirs)
    if why and not difference(list(map(_without_keys, ours)), list(map(_without_keys, theirs))):
        return Outcome(name, incremental, "other keys", why)
    return Outcome(name, incremental, "differs" if why else "equal", why)


def _without_keys(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row without its hashed keys: they are of the text of a TIMESTAMP, too, which has another form here."""
    return tuple("#" if isinstance(each, str) and _HASH.fullmatch(each) else each for each in row)


class _Run:
    """A copy of a project for one adapter."""

    def __init__(
        self,
        project: Project,
        place: Path,
        folder: Path,
        adapter: Path,
        by: Adapter,
        changed: Callable[[str], str] = str,
    ) -> None:
        self._project, self._folder, self._adapter, self._by = project, folder, adapter, by
        package = place / project.checkout
        self._seeds = package / "integration_tests" / "seeds"
        shutil.copytree(package / "integration_tests", folder, ignore=shutil.ignore_patterns("seeds", "packages.yml"))
        for checkout in project.checkouts:
            into = folder / "dbt_packages" / checkout.partition("+")[2]
            shutil.copytree(place / checkout, into, ignore=shutil.ignore_patterns("integration_tests", ".git", "docs"))
            for listed in ("packages.yml", "package-lock.yml", "dependencies.yml"):
                (into / listed).unlink(missing_ok=True)
        own = folder / "dbt_packages" / project.checkout.partition("+")[2]
        for model in (own / "models").rglob("*.sql"):
            model.write_text(changed(model.read_text()))
        self._settle()

    def _settle(self) -> None:
        """The root project with the user's settings and macros, and the profile."""
        project, written = self._project, self._folder / "dbt_project.yml"
        root = yaml.safe_load(written.read_text())
        root["flags"] = {"send_anonymous_usage_stats": False}
        root["macro-paths"] = [*root.get("macro-paths", ["macros"]), _OWN]
        root |= {name: _in_root(each, root["name"]) for name, each in project.settings.items()}
        root["vars"] = _merged(root.get("vars", {}), project.variables)
        _quote(root.setdefault("seeds", {}))
        written.write_text(yaml.safe_dump(root))
        (self._folder / _OWN).mkdir()
        (self._folder / _OWN / "own.sql").write_text(UNPARTITIONED + project.macros)
        target: dict[str, object] = {"type": self._by, "schema": project.schema, "threads": 1}
        target |= {"path": "lake.duckdb"} if self._by == "duckdb" else {"lake": "lake", "clock": "1 HOUR"}
        profile = {root["profile"]: {"target": "dev", "outputs": {"dev": target}}}
        (self._folder / "profiles.yml").write_text(yaml.safe_dump(profile))

    def build(self, part: Literal["half", "whole"], *arguments: str) -> dict[str, tuple[str, str]]:
        """Seeds with a part of their rows, then all models and tests; what dbt says of each."""
        (self._folder / "seeds").mkdir(exist_ok=True)
        for file in sorted(self._seeds.rglob("*")):
            into = self._folder / "seeds" / file.relative_to(self._seeds)
            if file.is_dir() or file.suffix != ".csv":
                into.mkdir(exist_ok=True) if file.is_dir() else shutil.copy(file, into)
                continue
            _write(into, self._rows_of(file), part)
        seeded = run_dbt(self._folder, self._adapter, "seed", *arguments)
        assert all(status == "success" for status, _ in seeded.values()), seeded
        return run_dbt(self._folder, self._adapter, "build", "--exclude-resource-type", "seed", *arguments)

    def _rows_of(self, file: Path) -> list[dict[str, str]]:
        with file.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        made = self._project.seeds.get(file.stem)
        return made(rows) if made else rows

    def texts(self) -> dict[str, str]:
        """{model: its text}, of all packages."""
        return {each["name"]: each["raw_code"] for each in self._models()}

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """{model: its rows}, with columns in the order of their names; ephemeral models are left out."""
        models = [each for each in self._models() if each["config"]["materialized"] != "ephemeral"]
        if self._by == "strandline":
            return dict(_ours(self._folder / "lake", models))
        with duckdb.connect(str(self._folder / "lake.duckdb"), read_only=True) as db:
            db.execute("SET TimeZone = 'UTC'")
            return dict(_theirs(db, models))

    def _models(self) -> list[dict[str, Any]]:
        nodes = json.loads((self._folder / "target" / "manifest.json").read_text())["nodes"]
        return [each for each in nodes.values() if each["resource_type"] == "model"]


def _theirs(
    db: duckdb.DuckDBPyConnection, models: Iterable[dict[str, Any]]
) -> Iterable[tuple[str, list[tuple[Any, ...]]]]:
    for model in models:
        try:
            found = db.execute(f"SELECT * FROM {model['relation_name']}")
        except duckdb.CatalogException:  # it failed, or was not reached
            continue
        names = [each[0] for each in found.description or ()]
        yield model["name"], by_name(names, found.fetchall())


def _ours(lake: Path, models: Iterable[dict[str, Any]]) -> Iterable[tuple[str, list[tuple[Any, ...]]]]:
    opened = strandline.open_lake(str(lake))
    names_there, plain = opened.names(), opened.plain_views()
    for model in models:
        alias = model["alias"]
        if alias not in names_there:
            continue
        names = [each["name"] for each in opened.describe(alias)["columns"]]
        try:
            if alias in plain:
                rows = [tuple(row.values()) for row in opened.query(f'SELECT * FROM "{alias}"')]
            else:
                rows = [tuple(row[name] for name in names) for row in opened.arrow(alias).to_pylist()]
        except StrandlineError:  # it was applied, and could not be brought up to date
            continue
        yield model["name"], by_name(names, rows)


def _write(file: Path, rows: Sequence[dict[str, str]], part: Literal["half", "whole"]) -> None:
    # A column without any value would get another type, and be another column.
    first = [next((at for at, row in enumerate(rows) if row[name]), 0) for name in (rows[0] if rows else ())]
    kept = [row for at, row in enumerate(rows) if part == "whole" or at % 3 or at in first]
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(kept)


def _quote(seeds: dict[str, Any]) -> None:
    """Let dbt-duckdb quote the names of seeds' columns, some of which are words of its grammar, and read the files as
    dbt reads them for any other adapter, to which NULL is no text."""
    for name, each in list(seeds.items()):
        if isinstance(each, dict) and not name.startswith("+"):
            _quote(each)
    seeds.pop("quote_columns", None)
    seeds |= {"+quote_columns": True, "+fast": False}


def _merged(one: Any, other: Any) -> Any:
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return other
    return {**one, **{name: _merged(one.get(name), each) for name, each in other.items()}}


def _in_root(value: Any, root: str) -> Any:
    """The settings, with the root project's name in place of ours."""
    return json.loads(json.dumps(value).replace(f'"{_OWN}"', json.dumps(root)))


def without_incremental_logic(text: str) -> str:
    """A model's text without its blocks of `is_incremental()`, as a table without a key.

    Of `{% if is_incremental() %} a {% else %} b {% endif %}` b stays; blocks of other conditions stay.
    """
    kept: list[str] = []
    # Of each open block: whether it asks for incremental runs, and whether what is being read of it goes.
    open_blocks: list[tuple[bool, bool]] = []
    at = 0
    for found in _BLOCK.finditer(text):
        word, asks = found[1], _ASKS.fullmatch(found[2]) is not None
        if not any(goes for _, goes in open_blocks):
            kept.append(text[at : found.start()])
        at = found.end()
        if word == "if":
            open_blocks.append((asks, asks))
        own = open_blocks[-1][0]
        if word in ("else", "elif") and own:
            open_blocks[-1] = (True, False)
        if not own and not any(goes for _, goes in open_blocks):
            kept.append(found[0])
        if word == "endif":
            open_blocks.pop()
    made = "".join(kept) + text[at:]
    return _KEY.sub("", _INCREMENTAL.sub(r"\1'table'", made))


def by_name(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows with their columns in the order of their names, values comparable."""
    order = sorted(range(len(names)), key=lambda place: names[place].lower())
    return [
        tuple(names[place].lower() for place in order),
        *(tuple(_plain(row[place]) for place in order) for row in rows),
    ]


def difference(one: Sequence[tuple[Any, ...]], other: Sequence[tuple[Any, ...]]) -> str:
    """What differs between two tables, in a line; nothing if they have the same rows, each as often."""
    if one[:1] != other[:1]:
        mine, their = set(one[0] if one else ()), set(other[0] if other else ())
        return f"columns {sorted(mine - their)} instead of {sorted(their - mine)}"
    ours, theirs = Counter(one[1:]), Counter(other[1:])
    if ours == theirs:
        return ""
    extra, missing = list((ours - theirs).elements()), list((theirs - ours).elements())
    shown = ""
    if extra and missing:
        nearest = min(missing, key=lambda row: sum(a != b for a, b in zip(row, extra[0], strict=True)))
        pairs = [
            f"{name}: {a!r} instead of {b!r}" for name, a, b in zip(one[0], extra[0], nearest, strict=True) if a != b
        ]
        shown = ": " + ", ".join(pairs[:3])
    return f"{len(extra)} rows of {len(one) - 1} instead of {len(missing)}{shown}"


def _plain(value: Any) -> Any:
    """A value that is equal to that of the other engine: one kind of number, moments in UTC."""
    if isinstance(value, bool | str | bytes) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return float(f"{value:.9g}")
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, date):  # a day: DuckDB has its midnight as the sum of a DATE and days
        return datetime(value.year, value.month, value.day, tzinfo=UTC).isoformat()
    if isinstance(value, time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return str(value)
