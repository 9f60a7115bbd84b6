"""WINDOW w AS (…): named windows, written out where they are used.

SELECT SUM(x) OVER w, RANK() OVER (w ORDER BY x) FROM t WINDOW w AS (PARTITION BY k)
SELECT SUM(x) OVER (PARTITION BY k), RANK() OVER (PARTITION BY k ORDER BY x) FROM t
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery

_PARTS = ("partition_by", "order", "spec")


def with_windows_inside(select: exp.Select) -> None:
    """Write a SELECT's named windows out, in place. A name that it has not stays, and is refused where it is read.

    Raises:
        InvalidQuery: a window is named twice, or a part is given that the named one has.
    """
    named: dict[str, exp.Expr] = {}
    for window in select.args.get("windows") or ():
        name = window.this.name.lower()
        if name in named:
            raise InvalidQuery(f"two windows are named '{name}'")
        _write_out(window, named)
        named[name] = window
    select.set("windows", None)
    for window in list(select.find_all(exp.Window)) if named else ():
        if window.find_ancestor(exp.Select) is select:
            _write_out(window, named)


def _write_out(window: exp.Expr, named: dict[str, exp.Expr]) -> None:
    alias = window.args.get("alias")
    meant = named.get(alias.name.lower()) if alias is not None else None
    if alias is None or meant is None:
        return
    for part in _PARTS:
        given = meant.args.get(part)
        if not given:
            continue
        if window.args.get(part):
            raise InvalidQuery(f"the window '{alias.name}' has {part.replace('_', ' ').upper()} already")
        window.set(part, [each.copy() for each in given] if isinstance(given, list) else given.copy())
    window.set("alias", None)
