"""A compiled plan is loaded where it is that of the definition as it stands now, and made anew everywhere else."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.definitions import Definitions
from strandline.jobs.ivm import compiled as door
from strandline.jobs.ivm.compiled import compiled, keep_compiled, read_stored
from strandline.jobs.ivm.plan import plan as planner
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Column, Definition, Function, InsertQuery, Source, View
from strandline.jobs.model.settings import Settings
from strandline.jobs.model.stage import Plan
from strandline.jobs.model.types import INT
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout
from tests.support import compiled_plans
from tests.support.compiled_plans import corpus, planned, unlike
from tests.support.on_disk import on_disk

STATEMENTS = """
CREATE STREAM s (k VARCHAR KEY, n INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1);
CREATE STREAM r (k VARCHAR KEY, n INT) WITH (KAFKA_TOPIC = 'r', PARTITIONS = 1);
CREATE TABLE t (k VARCHAR PRIMARY KEY, m INT) WITH (KAFKA_TOPIC = 't', PARTITIONS = 1);
CREATE VIEW large AS SELECT k, n FROM s WHERE n > 10;
CREATE MATERIALIZED VIEW counts AS SELECT k, COUNT(*) AS c, SUM(n) AS n FROM s GROUP BY k;
CREATE MATERIALIZED VIEW whole AS SELECT * FROM t;
CREATE MATERIALIZED VIEW named AS SELECT k, n FROM large;
CREATE MATERIALIZED VIEW apart AS
    SELECT c, COUNT(DISTINCT n) AS d FROM (SELECT k, n, COUNT(*) AS c FROM s GROUP BY k, n) GROUP BY c;
CREATE MATERIALIZED VIEW both WITH (STATE = 'shared') AS
    SELECT s.k, MAX(m) AS m FROM s JOIN t ON s.k = t.k GROUP BY s.k;
CREATE STREAM fed AS SELECT k, n FROM s;
INSERT INTO fed SELECT k, n FROM r;
CREATE MATERIALIZED VIEW of_fed AS SELECT k, n FROM fed WHERE n > 1;
"""


@dataclass
class Compiling:
    """A lake whose plans are stored, and the names of what this process has compiled since."""

    settings: Settings
    lake: LakeLayout
    names: list[str]

    def catalog(self) -> Catalog:
        return Catalog(self.lake)

    def run(self, text: str) -> None:
        assert list(Interpreter(self.settings).run(text))

    def anew(self, name: str, catalog: Catalog | None = None) -> bool:
        """True if another process would compile the definition; its plan is right either way."""
        catalog = catalog or self.catalog()
        forget()
        self.names.clear()
        definition = catalog.get(name)
        found = compiled(definition, catalog)
        made = self.names == [name]
        assert made or self.names == []
        assert unlike(found, planner.plan(definition, catalog)) is None
        return made


def forget() -> None:
    """Know of plans what a process knows that has just begun."""
    for kept in (door._KNOWN, door._STORED, door._SAID):
        kept.clear()


@pytest.fixture
def compiling(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiling]:
    made = Compiling(settings, LakeLayout(settings.lake), [])
    forget()
    made.run(STATEMENTS)
    genuine = planner.plan

    def told(definition: Definition, catalog: Catalog) -> Plan:
        made.names.append(definition.name)
        return genuine(definition, catalog)

    monkeypatch.setattr(planner, "plan", told)
    yield made
    forget()


def test_create_stores_the_plan_of_all_that_has_one(compiling: Compiling) -> None:
    catalog = compiling.catalog()
    for definition in catalog.definitions():
        stored = read_stored(definition.name, compiling.lake)
        assert stored.state == ("none" if definition.name in ("s", "r") else "whole")
        if stored.state == "whole":
            assert not compiling.anew(definition.name)


def test_it_is_asked_for_once_and_gives_the_same_stages_from_then_on(compiling: Compiling) -> None:
    catalog = compiling.catalog()
    one = compiled(catalog.get("counts"), catalog)
    assert compiled(compiling.catalog().get("counts"), compiling.catalog()) is one


Change = Callable[[Compiling], Catalog | None]
"""What makes the stored plan one of a former definition; the catalog in which it is, unless that is the lake's."""


def _altered_input(compiling: Compiling) -> None:
    """The statement stores what it changes; here the plans of before are put back."""
    folder = on_disk(compiling.lake.compiled("t")).parent
    before = {file: file.read_bytes() for file in folder.iterdir()}
    compiling.run("ALTER TABLE t ADD COLUMN more INT;")
    for file, data in before.items():
        file.write_bytes(data)


def _replaced_view(compiling: Compiling) -> Catalog:
    return _supposed(compiling, "whole", query="SELECT k FROM t")


def _supposed(compiling: Compiling, name: str, **changes: object) -> Catalog:
    catalog = compiling.catalog()
    return catalog.supposing(replace(catalog.get(name), **changes))  # type: ignore[arg-type]


def _replaced_input(compiling: Compiling) -> Catalog:
    """The view that is read has another type of a column, and the same name."""
    catalog = compiling.catalog()
    found = catalog.get("fed")
    assert isinstance(found, View)
    return catalog.supposing(replace(found, columns=(found.columns[0], Column("n", INT, key=True))))


def _unidentified(compiling: Compiling) -> Catalog:
    """A query brings several rows of one event into what is read, which has no identity from then on."""
    return _supposed(compiling, "fed__insert_1", identified=False)


def _other_compiler(compiling: Compiling) -> None:
    door.__dict__["COMPILER"] += 1


def _clock(compiling: Compiling) -> None:
    compiling.run("CREATE TABLE clock (id INT PRIMARY KEY, now TIMESTAMP) WITH (TICK_EVERY = '1 MINUTE');")


CHANGES: list[tuple[str, Change]] = [
    ("whole", _replaced_view),
    ("t", _altered_input),
    ("whole", _altered_input),
    ("both", _altered_input),
    ("of_fed", _replaced_input),
    ("fed__insert_1", _replaced_input),
    ("of_fed", _unidentified),
    ("counts", _clock),
    ("named", lambda made: _supposed(made, "named", query="SELECT k, n FROM s WHERE n > 11")),
    ("apart", lambda made: _supposed(made, "apart", first_stage=3)),
    ("apart", lambda made: _supposed(made, "apart", by_value=0)),
    ("both", lambda made: _supposed(made, "both", pipeline="other")),
    ("both", lambda made: _supposed(made, "both", options={})),
    ("counts", lambda made: _supposed(made, "counts", plain_stars=True)),
    ("counts", lambda made: _supposed(made, "s", partitions=7)),
]


@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_a_plan_of_a_former_definition_is_not_used(compiling: Compiling, name: str, change: Change) -> None:
    assert not compiling.anew(name)
    try:
        assert compiling.anew(name, change(compiling))
    finally:
        door.__dict__["COMPILER"] = COMPILER


COMPILER = door.COMPILER


@pytest.mark.parametrize("name", ["counts", "whole", "both", "t"])
def test_a_plan_of_another_compiler_is_not_used_and_said_once(
    compiling: Compiling, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(door, "COMPILER", COMPILER + 1)
    with caplog.at_level(logging.INFO):
        assert compiling.anew(name)
        catalog = compiling.catalog()
        for each in catalog.definitions():
            if planned(each, catalog) is not None:
                compiled(each, catalog)
    (said,) = [each.getMessage() for each in caplog.records if "compiled plans are made anew" in each.getMessage()]
    assert f"'{name}' first: of compiler {COMPILER}, " in said


def test_a_release_is_a_compiler_of_its_own() -> None:
    assert door.compiler() == f"{COMPILER}, Strandline {version('strandline')}, sqlglot {version('sqlglot')}"


def test_other_names_leave_plans_as_they_are(compiling: Compiling) -> None:
    compiling.run("ALTER TABLE t RENAME TO towns; ALTER MATERIALIZED VIEW counts RENAME TO sums;")
    assert not compiling.anew("both")
    assert not compiling.anew("counts")
    compiling.run("ALTER MATERIALIZED VIEW whole SWAP WITH named;")
    assert not compiling.anew("whole")
    assert not compiling.anew("named")


def test_a_function_with_other_code_makes_another_plan(compiling: Compiling) -> None:
    double = Function("DOUBLED", (Column("x", INT),), INT, "m", "f", "one", "")
    catalog = compiling.catalog().supposing(double)
    counts = catalog.get("counts")
    assert isinstance(counts, View)
    calling = replace(counts, query="SELECT k, doubled(n) AS n FROM s", storage="append")
    catalog = catalog.supposing(calling)
    before = door.what_it_is_made_from(calling, catalog)
    after = door.what_it_is_made_from(calling, catalog.supposing(replace(double, source="two")))
    assert before != after
    uncalled = replace(double, name="UNCALLED")
    assert door.what_it_is_made_from(calling, catalog.supposing(uncalled)) == before
    one, other = (compiled(calling, each) for each in (catalog, catalog.supposing(replace(double, source="two"))))
    assert unlike(one, other) is not None


def test_statements_that_change_definitions_store_their_plans_and_their_readers(compiling: Compiling) -> None:
    changes = {
        "ALTER TABLE t ADD COLUMN more INT;": ("t", "whole", "both"),
        "CREATE OR REPLACE MATERIALIZED VIEW whole AS SELECT k FROM t;": ("whole",),
        "CREATE OR REPLACE MATERIALIZED VIEW counts WITH (OWNER = 'me@example.org') AS"
        " SELECT k, COUNT(*) AS c, SUM(n) AS n FROM s GROUP BY k;": ("counts",),
        "INSERT INTO fed SELECT k, n + 1 AS n FROM r;": ("fed__insert_2", "of_fed"),
    }
    for text, names in changes.items():
        before = {name: read_stored(name, compiling.lake).made_from for name in names}
        compiling.run(text)
        for name in names:
            assert not compiling.anew(name), text
            if name != "of_fed":  # one event still brings one row
                assert read_stored(name, compiling.lake).made_from != before[name]


def test_what_is_only_supposed_is_not_stored(compiling: Compiling) -> None:
    supposed = _supposed(compiling, "whole", query="SELECT k FROM t")
    before = on_disk(compiling.lake.compiled("whole")).read_bytes()
    keep_compiled(supposed.definitions(), supposed)
    keep_compiled([supposed.get("whole")], compiling.catalog())
    assert on_disk(compiling.lake.compiled("whole")).read_bytes() == before


@pytest.mark.parametrize("length", [0, 1, 400, -1])
def test_a_broken_file_is_made_anew_by_whoever_stores_plans(
    compiling: Compiling, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    file = on_disk(compiling.lake.compiled("counts"))
    whole = file.read_bytes()
    file.write_bytes(whole[:length])
    with caplog.at_level(logging.WARNING):
        assert compiling.anew("counts")
    assert "the compiled plan of 'counts' is made anew: it fails its checksum" in caplog.text
    keep_compiled(compiling.catalog().definitions(), compiling.catalog())
    assert file.read_bytes() == whole
    assert not compiling.anew("counts")


def test_a_flipped_bit_anywhere_is_noticed(compiling: Compiling) -> None:
    file = on_disk(compiling.lake.compiled("counts"))
    whole = file.read_bytes()
    for place in range(0, len(whole), 97):
        data = bytearray(whole)
        data[place] ^= 4
        file.write_bytes(data)
        assert read_stored("counts", compiling.lake).state == "damaged"


def test_a_lake_without_compiled_plans_gets_them_from_whoever_stores(compiling: Compiling) -> None:
    folder = on_disk(compiling.lake.compiled("t")).parent
    names = sorted(file.name for file in folder.iterdir())
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    assert compiling.anew("both")
    assert not folder.exists()
    keep_compiled(compiling.catalog().definitions(), compiling.catalog())
    assert sorted(file.name for file in folder.iterdir()) == names
    assert not compiling.anew("both")


def test_a_run_stores_the_plans_that_are_not(compiling: Compiling) -> None:
    """As in a lake of an older version, or after an input was changed by one."""
    folder = on_disk(compiling.lake.compiled("t")).parent
    before = {file: file.read_bytes() for file in folder.iterdir()}
    for number, file in enumerate(sorted(before)):
        if number % 2:
            file.unlink()
        else:
            file.write_bytes(before[file][:100])
    forget()
    drain(compiling.settings.model_copy(update={"engine": "duckdb"}), "default", in_driver=True)
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_where_nothing_can_be_stored_plans_are_made_all_the_same(compiling: Compiling) -> None:
    folder = on_disk(compiling.lake.compiled("t")).parent
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.write_text("no folder")
    forget()
    keep_compiled(compiling.catalog().definitions(), compiling.catalog())
    assert compiling.anew("both")
    assert folder.read_text() == "no folder"


def test_drop_takes_the_plan_along(compiling: Compiling) -> None:
    compiling.run("DROP VIEW named; DROP VIEW large; DROP STREAM of_fed; DROP STREAM fed;")
    for name in ("named", "of_fed", "fed", "fed__insert_1"):
        assert not compiling.lake.compiled(name).exists()
    assert compiling.lake.compiled("counts").exists()


def test_all_that_a_compile_asks_the_catalog_for_is_in_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    genuine = Definitions.find

    def find(self: Definitions, name: str) -> Definition | None:
        asked.add(name)
        return genuine(self, name)

    monkeypatch.setattr(Definitions, "find", find)
    count = 0
    for text, definition, catalog in corpus():
        if planned(definition, catalog) is None or isinstance(definition, Source):
            continue
        asked.clear()
        planner.plan(definition, catalog)
        inputs = {*definition.inputs, *map(tables.definition_of, definition.inputs)}
        named = inputs | ({definition.target} if isinstance(definition, InsertQuery) else set())
        there = {name for name in asked if genuine(catalog, name) is not None}
        assert there <= named, text
        count += 1
    assert count > 100


def test_the_compiler_has_a_number_of_its_own_for_its_plans() -> None:
    """Red: lakes would go on with plans that this compiler does not make. The message says what to do."""
    assert compiled_plans.faults() == []


def test_plans_that_changed_are_not_noted_without_another_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_plans, "FOLDER", tmp_path)
    monkeypatch.setattr(compiled_plans, "digests", lambda: {"one": "a", "other": "b"})
    compiled_plans.write()
    assert compiled_plans.faults() == []
    monkeypatch.setattr(compiled_plans, "digests", lambda: {"one": "a", "other": "c"})
    count, what, how, name = compiled_plans.faults()
    assert (count, name) == ("1 plans of 2 are others than before", "other")
    assert what.startswith("raise COMPILER")
    with pytest.raises(SystemExit, match="raise COMPILER"):
        compiled_plans.write()
    monkeypatch.setattr(compiled_plans, "COMPILER", COMPILER + 1)
    assert compiled_plans.faults()[1:3] == ["COMPILER was raised: rewrite", how]
    compiled_plans.write()
    assert compiled_plans.faults() == []


_OF_FRONT_END = """
import sys
front = ("strandline.jobs.query.", "strandline.jobs.ivm.plan.")
print(sorted(name for name in sys.modules if name.startswith(front)))
"""
_COMMAND = "from strandline.jobs.cli.main import app; app({!r}, standalone_mode=False)"
_LOADS: dict[str, str] = {
    "a drain": _COMMAND.format(["run", "default", "--mode", "drain"]),
    "status": _COMMAND.format(["status"]),
    "SHOW TABLES": _COMMAND.format(["sql", "-e", "SHOW TABLES"]),
    "a Dagster location": "import strandline.orchestration.definitions as d; assert d.defs().get_repository_def()",
}


@pytest.mark.parametrize("what", _LOADS)
def test_whoever_loads_plans_loads_no_front_end(compiling: Compiling, what: str) -> None:
    """Nothing is parsed, bound or planned where every plan was loaded."""
    compiling.run("INSERT INTO s VALUES ('a', 1); INSERT INTO t VALUES ('a', 2);")
    given = {**os.environ, "STRANDLINE_LAKE": str(compiling.lake.root), "STRANDLINE_ENGINE": "duckdb"}
    code = f"{_LOADS[what]}\n{_OF_FRONT_END}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
