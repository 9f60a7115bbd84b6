"""A view's query without the rows that break an expectation with quarantine: one more SELECT around it.

    CREATE TABLE v WITH (EXPECT = '[{expect_column_values_to_be_between: {column: fare, min_value: 0},
                                     quarantine: true}]') AS SELECT id, fare FROM rides

    SELECT id, fare FROM (SELECT id, fare FROM rides) AS rows
    WHERE MEETS(fare IS NULL OR fare >= 0, 'expect_column_values_to_be_between__fare')

Everything is made from this query: the plan, the rules of both engines, the recomputation, the fingerprint. A filter
or a join takes the condition into its own WHERE; of groups the inner stage keeps all, as with HAVING.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.functions.scalars.guards import meets
from strandline.jobs.model.stage import Output
from strandline.jobs.query.expressions.infer import condition
from strandline.jobs.query.expressions.row_conditions import row_condition
from strandline.jobs.query.logical.conditions import conjoined
from strandline.jobs.query.logical.inputs import Inputs, Part
from strandline.jobs.query.logical.keys import outputs_of
from strandline.jobs.query.logical.query import Block, From, Query

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.model.stewardship import Expectation

_ALIAS = "rows"
"""The names in a dead letter of a group begin so: `rows_total`."""


def guarded_query(query: Query, expectations: Iterable[Expectation]) -> Query:
    """The query with a guard for each of these expectations; the same query when there are none.

    Raises:
        NotSupported, OptionRefused: no condition on a row stands for one, as `row_condition` says.
        UnknownName, TypeMismatch: one does not fit the query's columns.
    """
    wanted = tuple(expectations)
    if not wanted:
        return query
    part = Part(_ALIAS, _ALIAS, query, outputs_of(query), {})
    guards = [meets(condition(row_condition(each), Inputs((part,)), f"'{each.type}'"), each.name) for each in wanted]
    outputs = tuple(Output(name, part.column(name), sql_type) for name, sql_type in part.columns)
    return Block((From(_ALIAS, query),), conjoined(guards), outputs, key=query.key)
