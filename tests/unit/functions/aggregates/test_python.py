"""Aggregate functions written in Python, inside rules: with and without a way to take values back."""

from __future__ import annotations

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.functions.aggregates.registry import function_of
from strandline.jobs.functions.python import Library
from tests.support.examples import examples
from tests.support.python_function_stage import LONGEST, MODULE, WEIGHTED, WORDS_STAGE, call
from tests.support.rule_harness import RuleBench, multiset

WORDS = st.sampled_from(["fig", "kiwi", "pear", "banana", None])
STATES = st.lists(
    st.dictionaries(st.integers(1, 6), st.tuples(st.integers(1, 2), WORDS, st.integers(-3, 3) | st.none())),
    min_size=1,
    max_size=5,
)


# Each example runs Python for each group, some hundred times.
@settings(max_examples=examples(10))
@given(states=STATES)
def test_aggregates_follow_rows_that_change_and_go(
    duck: duckdb.DuckDBPyConnection, states: list[dict[int, tuple[int, str | None, int | None]]]
) -> None:
    """With and without `retract`, beside functions of the language, filtered or not."""
    bench = RuleBench(duck, WORDS_STAGE)
    Library([LONGEST, WEIGHTED], [MODULE]).register_duckdb(duck, bench.rule(["s"]))
    word = "arg_min(word, (-length(word), word)) FILTER (WHERE word IS NOT NULL AND {})"
    asked = (
        f"SELECT k, {word.format('TRUE')}, sum(v * 2), {word.format('v > 0')}, sum(v * k) FILTER (WHERE v > 0)"
        " FROM new_s GROUP BY k"
    )
    for state in states:
        bench.state([{"id": key, "k": k, "word": w, "v": v} for key, (k, w, v) in sorted(state.items())])
        assert bench.visible() == multiset(bench.query(asked))


def test_a_bound_call_says_by_itself_how_it_is_maintained() -> None:
    bound = call("__a0", WEIGHTED, "v", "k")
    assert function_of(bound).lost_type(bound) is None
    other = call("__a0", LONGEST, "word")
    assert function_of(other).lost_type(other) is not None
