"""Each project: what ours refuses is what is known, and everything else has the rows of dbt-duckdb's full refresh."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.outside.dbt_projects.projects import PROJECTS
from tests.outside.dbt_projects.run import compared, difference, without_incremental_logic
from tests.outside.sqllogic.suites import PLACE
from tests.support.dbt_project import installed_adapter


@pytest.mark.parametrize("name", PROJECTS)
def test_models_are_those_of_a_full_refresh(name: str, tmp_path: Path) -> None:
    project = PROJECTS[name]
    absent = project.missing(PLACE)
    if absent:
        pytest.skip(
            f"{', '.join(absent)} absent from {PLACE}: tests/outside/dbt_projects/projects.py says how to get it"
        )
    (tmp_path / "adapter").mkdir()
    came = compared(project, PLACE, tmp_path / name, installed_adapter(tmp_path / "adapter"), deleted=False)
    assert {each.model for each in came.unchanged if each.kind == "refused"} == set(project.refused)
    assert not [each for each in came.unchanged if each.kind == "differs" and each.model not in project.undecided]
    assert any(each.kind == "equal" and each.incremental for each in came.unchanged)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a {% if is_incremental() %} b {% endif %} c", "a  c"),
        ("a {%- if is_incremental() -%} b {% else %} d {%- endif %} c", "a  d  c"),
        ("{% if is_incremental() %} {% if x %} b {% else %} e {% endif %} {% endif %}c", "c"),
        (
            "{% if x %} b {% if is_incremental() %} d {% endif %}{% else %} e {% endif %}",
            "{% if x %} b {% else %} e {% endif %}",
        ),
        (
            "{{ config(materialized='incremental', unique_key=['a', 'b'], sort='c') }}",
            "{{ config(materialized='table',  sort='c') }}",
        ),
    ],
)
def test_incremental_logic_is_deleted_and_nothing_else(text: str, found: str) -> None:
    assert without_incremental_logic(text) == found


def test_a_difference_says_which_columns_differ() -> None:
    one = [("a", "b"), (1.0, "x"), (2.0, "y")]
    assert not difference(one, [("a", "b"), (2.0, "y"), (1.0, "x")])
    assert difference(one, [("a", "b"), (2.0, "z"), (1.0, "x")]) == "1 rows of 2 instead of 1: b: 'y' instead of 'z'"
    assert difference(one, [("a",), (1.0,)]) == "columns ['b'] instead of []"
    assert difference([*one, (2.0, "y")], one) == "1 rows of 3 instead of 0"
