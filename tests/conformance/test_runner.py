"""The runner itself: how cases are read, records understood, and runs judged. No case of ksqlDB is in here."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column
from strandline.jobs.model.types import SqlType
from tests.conformance.cases import Case, read_cases
from tests.conformance.compare import ComparedRelation, Expected, Unreadable
from tests.conformance.differences import skipped
from tests.conformance.proto import with_defaults
from tests.conformance.report import Outcome, closing, table
from tests.conformance.run_case import ways_to_cut
from tests.conformance.times import joins_out_of_order
from tests.conformance.verdicts import changelog_order, final_state
from tests.conformance.wire import Wire


def compared(
    *columns: tuple[str, SqlType], wire: Wire | None = None, table: bool = True, taken_back: bool = False
) -> ComparedRelation:
    """The first column is the key."""
    described = [Column(name, kind, key=place == 0) for place, (name, kind) in enumerate(columns)]
    return ComparedRelation("totals", tuple(described[:1]), tuple(described[1:]), wire or Wire(), table, taken_back)


def case(*statements: str, **more: Any) -> Case:
    return Case("own.json", "own", "table-plain", statements, **more)


TOTALS = compared(("id", t.INT), ("total", t.DOUBLE))
EVENTS = compared(("id", t.INT), ("total", t.DOUBLE), table=False)


def records(*pairs: tuple[int, float | None]) -> list[Expected]:
    return [TOTALS.expected({"key": k, "value": None if v is None else {"TOTAL": v}}) for k, v in pairs]


def rows(*pairs: tuple[int, float]) -> list[dict[str, Any]]:
    return [{"id": k, "total": v} for k, v in pairs]


def test_a_case_stands_for_one_case_per_format_and_configuration(tmp_path: Path) -> None:
    test = {
        "name": "n",
        "statements": ["CREATE STREAM s (a INT) WITH (value_format='{FORMAT}');"],
        "format": ["A", "B"],
    }
    (tmp_path / "own.json").write_text("// a comment\n" + json.dumps({"tests": [{**test, "config": ["x"]}]}))
    found = read_cases(tmp_path)
    assert [each.name for each in found] == ["n - A - x", "n - B - x"]
    assert "value_format='B'" in found[1].text


def test_numbers_with_a_fraction_keep_their_digits(tmp_path: Path) -> None:
    record = '{"topic": "t", "value": {"a": 1.10000000000000000001}}'
    (tmp_path / "own.json").write_text('{"tests": [{"name": "n", "statements": [], "inputs": [' + record + "]}]}")
    assert read_cases(tmp_path)[0].inputs[0]["value"]["a"] == Decimal("1.10000000000000000001")


@pytest.mark.parametrize(
    ("wire", "key", "value"),
    [
        (Wire(), 7, {"TEXT": "a,b", "Cost": "005.40"}),
        (Wire(value_format="DELIMITED"), 7, '"a,b",5.4'),
        (Wire(key_format="PROTOBUF"), {"ID": 7}, {"TEXT": "a,b", "COST": Decimal("5.4")}),
    ],
)
def test_one_row_is_read_from_every_way_to_write_it(wire: Wire, key: object, value: object) -> None:
    columns = compared(("id", t.INT), ("text", t.VARCHAR), ("cost", t.decimal(6, 2)), wire=wire)
    found = columns.expected({"key": key, "value": value})
    assert found.row == {"id": 7, "text": "a,b", "cost": Decimal("5.40")}


def test_a_field_that_the_view_has_not_is_a_difference() -> None:
    with pytest.raises(Unreadable, match="SUM"):
        TOTALS.expected({"key": 1, "value": {"SUM": 3}})


def test_the_last_record_of_a_key_is_the_final_state_of_a_table() -> None:
    wanted = records((1, 1.0), (2, 5.0), (1, 3.0), (2, None))
    assert final_state(TOTALS, wanted, rows((1, 3.0)), one_by_one=True) is None
    problem = final_state(TOTALS, wanted, rows((1, 3.0), (2, 5.0)), one_by_one=True)
    assert problem is not None
    assert "too much [(id=2, total=5.0)]" in problem


def test_all_records_of_a_stream_count() -> None:
    wanted = records((1, 1.0), (1, 1.0))
    assert final_state(EVENTS, wanted, rows((1, 1.0), (1, 1.0)), one_by_one=True) is None
    assert final_state(EVENTS, wanted, rows((1, 1.0)), one_by_one=True) is not None


def test_doubles_may_differ_in_their_last_digits_only() -> None:
    wanted = records((1, 0.3))
    assert final_state(TOTALS, wanted, rows((1, 0.1 + 0.2)), one_by_one=True) is None
    assert final_state(TOTALS, wanted, rows((1, 0.300001)), one_by_one=True) is not None


def test_a_group_that_comes_and_goes_within_an_epoch_leaves_no_zero() -> None:
    counts = replace(TOTALS, keeps_empty=True)
    wanted = records((1, 1.0), (1, 0.0))
    assert final_state(counts, wanted, [], one_by_one=False) is None
    assert final_state(counts, wanted, [], one_by_one=True) is not None
    assert final_state(TOTALS, wanted, [], one_by_one=False) is not None


def test_a_padded_row_may_be_taken_back_when_its_partner_comes() -> None:
    joined = compared(("id", t.INT), ("l", t.INT), ("r", t.INT), table=False, taken_back=True)
    values: list[dict[str, int | None]] = [{"L": 1, "R": None}, {"L": 1, "R": 2}, {"L": 3, "R": None}]
    wanted = [joined.expected({"key": 1, "value": value}) for value in values]
    kept: list[dict[str, Any]] = [{"id": 1, "l": 1, "r": 2}, {"id": 1, "l": 3, "r": None}]
    assert final_state(joined, wanted, kept, one_by_one=True) is None


def test_what_a_padded_row_joins_further_on_is_passed_over() -> None:
    joined = compared(("id", t.INT), ("l", t.INT), ("r", t.INT), table=False, taken_back=True)
    sent: list[dict[str, Any]] = [{"id": 1, "l": 1, "r": None}, {"id": 1, "l": None, "r": 2}, {"id": 1, "l": 1, "r": 2}]
    wanted = [Expected("1", row) for row in sent]
    assert changelog_order(joined, wanted, [[sent[0]], [sent[2]]]) is None
    assert changelog_order(joined, wanted, [[sent[0]], [sent[0], {"id": 2, "l": None, "r": 2}]]) is not None
    assert changelog_order(joined, wanted, [[sent[0]]]) is not None


def test_with_a_grace_a_padded_row_may_be_there_before_ksqldb_sends_it() -> None:
    joined = replace(compared(("id", t.INT), ("l", t.INT), ("r", t.INT), table=False, taken_back=True), held_back=True)
    padded: dict[str, Any] = {"id": 1, "l": 1, "r": None}
    full: dict[str, Any] = {"id": 2, "l": 1, "r": 2}
    wanted = [Expected("2", full), Expected("1", padded)]
    assert changelog_order(joined, wanted, [[padded], [padded, full]]) is None
    assert final_state(joined, wanted[:1], [padded, full], one_by_one=False) is None
    assert final_state(replace(joined, held_back=False), wanted[:1], [padded, full], one_by_one=False) is not None


def test_records_whose_times_are_in_another_order_than_their_arrival() -> None:
    sources = (
        "CREATE STREAM s (id INT KEY, at BIGINT) WITH (kafka_topic='s', timestamp='at');",
        "CREATE TABLE t (id INT PRIMARY KEY) WITH (kafka_topic='t');",
        "CREATE STREAM o AS SELECT s.id, at FROM s JOIN t ON s.id = t.id;",
    )
    table_row, event = {"topic": "t", "timestamp": 5, "value": {}}, {"topic": "s", "timestamp": 9, "value": {"AT": 3}}
    assert joins_out_of_order(case(*sources, inputs=(table_row, event)))
    assert not joins_out_of_order(case(*sources, inputs=(event, table_row)))


def test_protobuf_cannot_tell_null_from_a_default() -> None:
    plain = compared(("id", t.INT), ("text", t.VARCHAR), ("day", t.DATE), wire=Wire(value_format="PROTOBUF"))
    wanted = [plain.expected({"key": 1, "value": {"TEXT": "", "DAY": None}})]
    stored: list[dict[str, Any]] = [{"id": 1, "text": None, "day": None}]
    assert final_state(plain, wanted, stored, one_by_one=True) is None
    assert with_defaults({"DAY": None}, plain.values) == {"text": "", "day": None}


def test_every_state_must_be_gone_through_in_order() -> None:
    wanted = records((1, 1.0), (1, 2.0), (1, 2.0), (1, 3.0))
    told = [rows((1, 1.0)), rows((1, 2.0)), rows((1, 2.0)), rows((1, 3.0))]
    assert changelog_order(TOTALS, wanted, told) is None
    turned = [rows((1, 2.0)), rows((1, 1.0)), rows((1, 3.0))]
    assert changelog_order(TOTALS, wanted, turned) is not None
    assert changelog_order(TOTALS, wanted, told[:2]) is not None


def test_cuts_keep_the_order_and_are_the_same_in_every_run() -> None:
    inputs = tuple({"topic": "t", "value": {"a": number}} for number in range(9))
    found = ways_to_cut(case(inputs=inputs), "A", 3)
    assert found == ways_to_cut(case(inputs=inputs), "A", 3)
    assert all([record for batch in batches for record in batch] == list(inputs) for batches in found)
    assert len(found[0]) == 1
    assert all(len(batches) > 1 for batches in found[1:])


def test_a_case_is_skipped_for_a_listed_reason_only() -> None:
    assert skipped(case("CREATE STREAM s WITH (kafka_topic='t');")) is not None
    assert skipped(case("CREATE STREAM s (a INT) WITH (kafka_topic='t');")) is None
    assert skipped(case("CREATE STREAM s WITH (kafka_topic='t');", refused=True)) is None


def test_the_last_line_counts_everything() -> None:
    outcomes = [Outcome("f", str(place), "table-plain", "A", "passed") for place in range(3)]
    outcomes.append(Outcome("f", "x", "table-plain", "A", "failed", "why"))
    assert closing(outcomes)[-1] == "3 passed, 1 failed, 0 skipped"
    assert table(outcomes)[2] == "| table-plain | A | 3 | 1 | 0 | 75.0% |"
