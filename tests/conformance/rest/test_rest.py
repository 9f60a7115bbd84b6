"""The runner of pull and push cases, with cases of our own; ksqlDB's where they are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.rest.__main__ import main
from tests.conformance.rest.answers import RestAnswer, pulled, pushed

DEFINED = [
    "CREATE STREAM LAPS (RUNNER STRING KEY, M INT) WITH (kafka_topic='laps', value_format='JSON');",
    "CREATE TABLE TOTALS AS SELECT RUNNER, MAX(M) AS M FROM LAPS GROUP BY RUNNER;",
]
LAPS = [
    {"topic": "laps", "timestamp": number, "key": runner, "value": {"m": m}}
    for number, (runner, m) in enumerate((("ida", 400), ("otto", 400), ("ida", 600)))
]
TOTALS = "`RUNNER` STRING KEY, `M` INTEGER"
CREATED = {"admin": {"@type": "currentStatus"}}


def answer(schema: str, *rows: list[Any], end: str | None = None) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"header": {"schema": schema}}, *({"row": {"columns": row}} for row in rows)]
    return {"query": [*parts, *([] if end is None else [{"finalMessage": end}])]}


def case(name: str, query: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "statements": [*DEFINED, query], "inputs": LAPS, "class": "table-aggregate", **more}


CASES = [
    case(
        "pull",
        "SELECT * FROM TOTALS;",
        responses=[CREATED, CREATED, answer(TOTALS, ["ida", 600], ["otto", 400])],
    ),
    case(
        "push, every state of a key",
        "SELECT * FROM TOTALS EMIT CHANGES LIMIT 3;",
        responses=[
            *(CREATED, CREATED),
            answer("`RUNNER` STRING, `M` INTEGER", ["ida", 400], ["otto", 400], ["ida", 600], end="Limit Reached"),
        ],
    ),
    case("refused", "SELECT NOTHING FROM TOTALS;", expectedError={"message": "Column 'NOTHING' cannot be resolved."}),
    case("grouped", "SELECT COUNT(*) FROM LAPS EMIT CHANGES LIMIT 1;", responses=[CREATED, CREATED, answer("", [1])]),
    case("another answer", "SELECT M FROM TOTALS;", responses=[CREATED, CREATED, answer("`M` INTEGER", [1], [2])]),
]


def test_each_case_comes_out_as_it_should(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "laps.json").write_text(json.dumps({"tests": CASES}))
    outcomes = tmp_path / "outcomes.json"
    assert main([str(tmp_path), "--json", str(outcomes)]) == 0
    found = {each["name"]: each["outcome"] for each in json.loads(outcomes.read_text())}
    assert found == {
        **dict.fromkeys(("pull", "push, every state of a key", "refused"), "passed"),
        **{"grouped": "skipped", "another answer": "failed"},
    }
    assert capsys.readouterr().out.endswith("3 passed, 1 failed, 1 skipped\n")


def test_without_cases_it_says_so(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 2


def read(*rows: tuple[list[Any], bool], schema: str = "`A` INTEGER", end: str | None = None) -> RestAnswer:
    parts = [{"row": {"columns": columns, "tombstone": deleted}} for columns, deleted in rows]
    return RestAnswer.read([{"header": {"schema": schema}}, *parts, *([{"finalMessage": end}] if end else [])])


def test_rows_of_a_pull_query_have_no_order_and_their_values_count() -> None:
    one, two, other = ([1], False), ([2], False), ([3], False)
    assert pulled(read(one, two), read(two, one), limited=False) is None
    assert pulled(read(one, two), read(one, other), limited=False) is not None
    assert pulled(read(one), read(one, two), limited=True) is not None
    assert pulled(read(one), read(one, schema="`A` BIGINT"), limited=False) is not None
    assert pulled(read(one, end="Limit Reached"), read(one, end="Query Completed"), limited=True) is not None
    assert pulled(read(([{"A": 1.0}], False)), read(([{"a": 1}], False)), limited=False) is None
    assert pulled(read(([True], False)), read(([1], False)), limited=False) is not None


def test_rows_of_a_push_query_have_an_order_and_equal_neighbours_count_once() -> None:
    one, two, gone = ([1], False), ([2], False), ([None], True)
    assert pushed(read(one, one, two, end="Limit Reached"), read(one, two)) is None
    assert pushed(read(one, two), read(two, one)) is not None
    assert pushed(read(one, gone), read(one, ([None], False))) is not None
    assert pushed(read(one, two, end="Limit Reached"), read(one, two)) is not None
