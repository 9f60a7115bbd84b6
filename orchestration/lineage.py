"""Column lineage: which columns of which inputs an output column of a query is made of.

    SELECT s.area, AVG(r.value) AS mean FROM readings r JOIN sensors s ON …

        area  <- sensors.area
        mean  <- readings.value

Only what makes the value counts: columns that merely filter, join or group a row are not among its origins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one
from sqlglot.optimizer.scope import Scope, build_scope

from jobs.sql.dialect import Strandline, fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


@dataclass(frozen=True, order=True)
class Origin:
    """A column of an input."""

    input: str
    column: str


def of_query(text: str, columns: Mapping[str, Sequence[str]]) -> dict[str, tuple[Origin, ...]]:
    """The lineage of a SELECT in our dialect; see `lineage`."""
    query = parse_one(text, dialect=Strandline)
    assert isinstance(query, exp.Query), "a definition's query is a SELECT"
    fold(query)
    return lineage(query, columns)


def lineage(query: exp.Query, columns: Mapping[str, Sequence[str]]) -> dict[str, tuple[Origin, ...]]:
    """{output column: its origins, in order}, in the order of the SELECT list.

    Subqueries, CTEs and set operations are followed down to the inputs. A constant has no origins, and neither has
    COUNT(*).

    Args:
        columns: the columns of each input, to expand `*` and to place a column that names no input.
    """
    scope = build_scope(query)
    if scope is None:
        return {}
    return {name: tuple(sorted(set(origins))) for name, origins in _outputs(scope, columns)}


def _outputs(scope: Scope, columns: Mapping[str, Sequence[str]]) -> list[tuple[str, list[Origin]]]:
    """Every output column of a scope with its origins."""
    if scope.set_operation_scopes:
        # A set operation lines its branches up by position, under the names of the first.
        branches = [_outputs(branch, columns) for branch in scope.set_operation_scopes]
        return [
            (aligned[0][0], [origin for _, origins in aligned for origin in origins])
            for aligned in zip(*branches, strict=False)
        ]
    found: list[tuple[str, list[Origin]]] = []
    assert isinstance(scope.expression, exp.Query)
    for projection in scope.expression.selects:
        if projection.is_star:
            found.extend(_star(scope, projection, columns))
        else:
            origins = [o for c in _value_columns(projection) for o in _origins(scope, c, columns)]
            found.append((projection.alias_or_name, origins))
    return found


def _value_columns(projection: exp.Expr) -> Iterator[exp.Column]:
    """The columns a value is computed from; FILTER (WHERE …) only chooses rows."""
    for node in projection.walk(prune=lambda n: isinstance(n, exp.Where)):
        if isinstance(node, exp.Column):
            yield node


def _star(scope: Scope, star: exp.Expr, columns: Mapping[str, Sequence[str]]) -> list[tuple[str, list[Origin]]]:
    wanted = star.table if isinstance(star, exp.Column) else ""
    found: list[tuple[str, list[Origin]]] = []
    for alias in scope.sources:
        if wanted in ("", alias):
            found.extend((name, _in_source(scope, alias, name, columns)) for name in _names(scope, alias, columns))
    return found


def _origins(scope: Scope, column: exp.Column, columns: Mapping[str, Sequence[str]]) -> list[Origin]:
    if column.table:
        candidates = [column.table]
    elif len(scope.sources) == 1:
        candidates = list(scope.sources)
    else:
        candidates = [alias for alias in scope.sources if column.name in _names(scope, alias, columns)]
    return [o for alias in candidates[:1] for o in _in_source(scope, alias, column.name, columns)]


def _in_source(scope: Scope, alias: str, name: str, columns: Mapping[str, Sequence[str]]) -> list[Origin]:
    source = scope.sources.get(alias)
    if isinstance(source, exp.Table):
        return [Origin(source.name, name)]
    if isinstance(source, Scope):
        return dict(_outputs(source, columns)).get(name, [])
    return []


def _names(scope: Scope, alias: str, columns: Mapping[str, Sequence[str]]) -> Sequence[str]:
    source = scope.sources[alias]
    if isinstance(source, Scope):
        return [name for name, _ in _outputs(source, columns)]
    return columns.get(source.name, ())
