"""The places of a query that name relations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Iterator

_WINDOWED: Final = ("TUMBLE", "HOP", "SESSION")


def relations_in(query: exp.Expr) -> Iterator[tuple[exp.Table, exp.Identifier]]:
    """The places of a query that name relations: the table of FROM, and the name in it. Parts of WITH are left out.

    That of TUMBLE and its like is their first argument; UNNEST has none.
    """
    for table in query.find_all(exp.Table):
        name = table.this
        if isinstance(name, exp.Anonymous) and name.name in _WINDOWED and name.expressions:
            name = name.expressions[0].this
        if isinstance(name, exp.Identifier) and not table.args.get("db") and name.name not in parts_of_with(table):
            yield table, name


def parts_of_with(table: exp.Table) -> set[str]:
    """The parts of WITH that a table in FROM could name: of a query around it, and before the part that it is in."""
    found: set[str] = set()
    node: exp.Expr | None = table
    inside: exp.Expr | None = None
    while node is not None:
        if isinstance(node, exp.CTE):
            inside = node
        with_ = node.args.get("with_")
        if isinstance(with_, exp.With):
            for each in with_.expressions:
                if each is inside:
                    break
                found.add(each.alias)
        node = node.parent
    return found
