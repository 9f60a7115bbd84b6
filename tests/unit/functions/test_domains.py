"""No function fails on a row without saying so: at the ends of all types, DuckDB's lenient text has a value or NULL."""

from __future__ import annotations

import duckdb
from duckdb import DuckDBPyConnection

from jobs.functions.failing import failing, lenient, strict
from jobs.functions.render import lower
from tests.support.function_domains import ROWS, calls, table


def test_what_fails_on_a_row_says_so_and_is_null_instead(duck: DuckDBPyConnection) -> None:
    """All rows at once; row by row only where that fails."""
    duck.register("cases", table())
    wrong = []
    for text, typed in calls().items():
        condition = failing(typed.expression)
        guard = lower(condition, "duckdb") if condition is not None else "FALSE"
        instead, own = lower(lenient(typed.expression), "duckdb"), lower(strict(typed.expression), "duckdb")
        if _fault(duck, f"({instead}), ({guard})", "TRUE") is not None:
            wrong.append((text, "the guard itself fails", _fault(duck, f"({instead}), ({guard})", "TRUE")))
        elif _fault(duck, own, "TRUE") is not None:
            unsaid = [
                fault
                for nr in range(1, len(ROWS) + 1)
                if (fault := _fault(duck, own, f"nr = {nr} AND ({guard}) IS NOT TRUE"))
            ]
            wrong += [(text, "fails unsaid", fault) for fault in unsaid[:1]]
    duck.unregister("cases")
    assert not wrong, "\n".join(map(str, wrong))


def _fault(duck: DuckDBPyConnection, values: str, where: str) -> str | None:
    """What DuckDB says of an expression over some rows; None when it has values for all."""
    try:
        # Filtered first: a condition beside an expression does not keep a row from it.
        duck.execute(
            f"WITH chosen AS MATERIALIZED (SELECT * FROM cases WHERE {where}) SELECT {values} FROM chosen"
        ).fetchall()
    except (duckdb.Error, OverflowError, ValueError) as error:
        return str(error).splitlines()[0]
    return None
