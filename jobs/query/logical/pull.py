"""The logical query of a pull query: what is asked once, and need not be maintained.

SELECT a, (SELECT MAX(x) FROM t WHERE t.k = s.k) AS m FROM s ORDER BY b DESC OFFSET 2

query    SELECT s.a AS a, __q0(s.k) AS m, s.b AS __o0 FROM s      shown  a, m
nested   __q0: SELECT MAX(t.x) FROM t WHERE t.k = __q0.0          order  __o0 DESC        offset  2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.jobs.model.relation import Relation
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.logical.keys import outputs_of
from strandline.jobs.query.logical.query import Query, relations_of


@dataclass
class NestedFound:
    """The queries that are found in expressions while a pull query is read, by the names of their nodes."""

    queries: dict[str, Query] = field(default_factory=dict)
    _named: int = 0

    def name(self) -> str:
        """A name for one more."""
        self._named += 1
        return f"__q{self._named - 1}"


@dataclass(frozen=True)
class OrderItem:
    """One item of ORDER BY: a column of the query, shown or not."""

    column: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class PullQuery:
    """A pull query, read.

    Attributes:
        query: the SELECT, with the columns behind those shown that only ORDER BY reads.
        shown: the number of columns of the answer.
        order: ORDER BY; empty without one.
        offset: the rows that are left out first.
        nested: the queries inside its expressions, and inside theirs, by the names of their nodes.
    """

    query: Query
    shown: int
    order: tuple[OrderItem, ...]
    offset: int
    nested: Mapping[str, Query]

    @property
    def outputs(self) -> tuple[tuple[str, SqlType], ...]:
        """The names and types of the columns of the answer; no name is there twice."""
        return outputs_of(self.query)[: self.shown]

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The relations that it reads, each once."""
        found = [each for query in (self.query, *self.nested.values()) for each in relations_of(query)]
        return tuple({each.name: each for each in found}.values())
