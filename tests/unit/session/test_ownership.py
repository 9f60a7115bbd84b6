"""Owner, tags, freshness and expectations of a definition: from WITH, or from the YAML beside the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.model.definitions import Expectation, Ownership
from strandline.jobs.model.errors import InvalidQuery, NotSupported, OptionRefused, SqlError, UnknownName
from strandline.jobs.model.settings import Settings
from strandline.jobs.session.apply import apply, run_file
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout
from tests.support.lake_tables import events
from tests.unit.session.statements import STREAM, VIEW, message

SIDECAR = """
v:
  owner: [team:shop, ann@example.org]
  tags: {domain: sales, internal: ""}
  freshness: 5 seconds
  expect:
    - expect_column_values_to_not_be_null: {column: id}
    - expect_table_row_count_to_be_between: {min_value: 1}
      severity: warn
      blocking: true
"""
OWNERSHIP = Ownership(
    owners=("team:shop", "ann@example.org"),
    tags={"domain": "sales", "internal": ""},
    freshness_seconds=5.0,
    expectations=(
        Expectation("expect_column_values_to_not_be_null", {"column": "id"}),
        Expectation("expect_table_row_count_to_be_between", {"min_value": 1}, "warn", True),
    ),
)


def options_of(settings: Settings, name: str) -> Ownership:
    found = Interpreter(settings).catalog.get(name)
    assert not hasattr(found, "target")
    return Ownership.read(found.options)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "shop.sql"
    made.write_text(STREAM + VIEW)
    return made


def test_the_yaml_beside_a_file_says_what_with_says(file: Path, settings: Settings) -> None:
    file.with_suffix(".yaml").write_text(SIDECAR)
    apply(file, settings)
    assert options_of(settings, "v") == OWNERSHIP
    assert options_of(settings, "s") == Ownership()


def test_a_description_may_change_at_any_time_and_describe_shows_it(settings: Settings) -> None:
    session = Interpreter(settings)
    view = VIEW.replace(" AS ", " WITH (DESCRIPTION = 'What is {}') AS ", 1)
    list(session.run(STREAM + view.format("sold")))
    (said,) = session.run(view.format("sold, and ''where''"))
    assert "replaced" in str(said)
    (shown,) = session.run("DESCRIBE v EXTENDED;")
    assert "What is sold, and 'where'" in str(shown)
    with pytest.raises(OptionRefused, match="ORIGIN is empty"):
        list(session.run(view.replace("DESCRIPTION = 'What is {}'", "ORIGIN = ''")))


def test_with_says_it_in_sql(settings: Settings) -> None:
    message(
        Interpreter(settings),
        STREAM.replace("WITH (", "WITH (OWNER = 'team:feeds', ")
        + """CREATE TABLE v WITH (OWNER = 'team:shop,ann@example.org', TAGS = 'domain=sales, internal',
            FRESHNESS = '5 seconds', EXPECT = '[expect_column_values_to_not_be_null: {column: id},
              {expect_table_row_count_to_be_between: {min_value: 1}, severity: warn, blocking: true}]')
          AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;""",
    )
    assert options_of(settings, "v") == OWNERSHIP
    assert options_of(settings, "s").owners == ("team:feeds",)


def test_it_changes_where_rows_are_in_the_lake_and_the_rows_definition_does_not(
    file: Path, settings: Settings, lake: LakeLayout
) -> None:
    """No row depends on it, so neither OR REPLACE nor a stopped stream is asked for."""
    apply(file, settings)
    events(lake, "s", [{"id": 1}])
    file.with_suffix(".yaml").write_text(SIDECAR)
    changes = {change.definition.name: change.outcome for change in apply(file, settings).changes}
    assert changes == {"s": "unchanged", "v": "replaced"}
    assert options_of(settings, "v") == OWNERSHIP
    file.with_suffix(".yaml").unlink()
    apply(file, settings)
    assert options_of(settings, "v") == Ownership()


def test_executing_the_file_reads_its_yaml_too(file: Path, settings: Settings) -> None:
    """Else a file that is applied, and then executed for its INSERTs, would lose what the YAML says."""
    file.with_suffix(".yaml").write_text(SIDECAR)
    apply(file, settings)
    said = [str(result) for result in run_file(file, Interpreter(settings, "shop"))]
    assert all("unchanged" in each for each in said)
    assert options_of(settings, "v") == OWNERSHIP


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (
            "v: {expect: [{expect_column_values_to_be_nul: {column: id}}]}",
            UnknownName,
            "expect_column_values_to_be_null",
        ),
        ("v: {expect: [{expect_column_values_to_be_null: {column: nope}}]}", UnknownName, "unknown column 'nope'"),
        (
            "v: {expect: [{expect_column_values_to_be_unique: {column: id}, quarantine: true}]}",
            NotSupported,
            "quarantine is for expectations about single rows",
        ),
        (
            "v: {expect: [{expect_column_values_to_be_null: {column: id}, quarantine: 1}]}",
            OptionRefused,
            "no value of quarantine",
        ),
        ("v: {expect: [{expect_column_to_exist: {column: id}, severity: loud}]}", OptionRefused, "no severity"),
        (
            "v: {expect: [{expect_column_to_exist: {column: id}, blocking: maybe}]}",
            OptionRefused,
            "no value of blocking",
        ),
        ("v: {expect: [{severity: warn}]}", OptionRefused, "names 0 expectations"),
        (
            "v: {expect: [{expect_column_to_exist: {column: id}}, expect_column_to_exist: {column: id}]}",
            OptionRefused,
            "expected twice",
        ),
        ("v: {expect: 7}", OptionRefused, "no list"),
        ("v: {freshness: soon}", OptionRefused, "no length of time"),
        ("v: {freshness: 0 seconds}", OptionRefused, "no length of time"),
        ("v: {owner: shop}", OptionRefused, "no owner"),
        ("v: {tags: {a b: c}}", OptionRefused, "no tag"),
        ("v: {partitions: 3}", OptionRefused, "no option of shop.yaml"),
        ("w: {owner: team:x}", UnknownName, "unknown name in shop.yaml: 'w'"),
        ("[1]", InvalidQuery, "does not map names"),
        ("a: [", InvalidQuery, "no YAML"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_registered(
    text: str, error: type[SqlError], said: str, file: Path, settings: Settings
) -> None:
    file.with_suffix(".yaml").write_text(text)
    with pytest.raises(error) as found:
        apply(file, settings)
    assert said in str(found.value)
    assert Interpreter(settings).catalog.names() == ()
