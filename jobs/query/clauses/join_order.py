"""The order in which the inputs of inner joins are joined: each after those that a condition links it with.

FROM a, z, b WHERE a.id = b.id AND z.v = b.n        a, b, z
FROM a JOIN z ON a.x = z.x, b                       a, z, b: what ON reads stands before it
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from strandline.jobs.query.logical.conditions import aliases, is_equality
from strandline.jobs.query.logical.query import From


def join_order(froms: Sequence[From], where: Sequence[exp.Expression]) -> list[int]:
    """The places of the inputs in the order in which they join; that of the text where an outer join is among them.

    Args:
        where: the conditions between the ANDs of WHERE.
    """
    places = list(range(len(froms)))
    if any(each.join != "inner" or each.frozen for each in froms):
        return places
    chosen, rest = places[:1], places[1:]
    while rest:
        known = {froms[place].alias for place in chosen}
        ready = [place for place in rest if _reads_only(froms[place], known)]
        linked = [place for place in ready if _is_linked(froms[place], known, where)]
        # What nothing links yet is joined with every row: it waits while another can go before it.
        following = (linked or ready)[0]
        chosen.append(following)
        rest.remove(following)
    return chosen


def _reads_only(each: From, known: set[str]) -> bool:
    return each.on is None or aliases(each.on) <= {*known, each.alias}


def _is_linked(each: From, known: set[str], where: Sequence[exp.Expression]) -> bool:
    return each.one_row or each.on is not None or any(is_equality(term, each.alias, known) for term in where)
