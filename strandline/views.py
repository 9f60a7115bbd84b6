"""Views in Python: a function from streams, tables and views, as tables of Ibis, to a table.

    from ibis import _
    from strandline.views import view

    @view(owner="team:shop")
    def largest(orders, customers):
        return orders.join(customers, "customer_id").group_by("customer").agg(largest=_.amount.max())

    lake.apply(largest)

Needs `strandline[views]`, but only where a view is applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from strandline import arguments
from strandline.jobs.session.python_views import PythonView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("PythonView", "view")


@overload
def view(function: Callable[..., Any], /) -> PythonView: ...


@overload
def view(
    *, name: str | None = None, key: Sequence[str] | None = None, **options: object
) -> Callable[[Callable[..., Any]], PythonView]: ...


def view(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    key: Sequence[str] | None = None,
    **options: object,
) -> PythonView | Callable[[Callable[..., Any]], PythonView]:
    """Make a function a view, which `Lake.apply` registers.

    Args:
        function: its parameters are the names of what it reads; it returns a table of Ibis.
        name: default: the function's.
        key: the columns by which its rows are told apart. It is checked, and nothing follows from it.
        options: those of WITH, as in docs/sql.md: `freshness="5 seconds"`, `state="shared"`, `tags={"domain": "shop"}`,
            `expect=[{"expect_column_values_to_not_be_null": {"column": "customer"}}]`.

    Raises:
        ArgumentRefused: it is no function, or the name is no text, or the key no list of texts.
    """
    if name is not None:
        arguments.checked(name, str, "the name of a view", "write it as text: name='sales'")
    if key is not None:
        arguments.check_names(key, "the key of a view")

    def made(function: Callable[..., Any]) -> PythonView:
        if not hasattr(function, "__code__"):
            raise arguments.refused(
                function, "what should be a view", "write @view before a function: def sales(orders)"
            )
        return PythonView(function, name or function.__name__, None if key is None else tuple(key), options)

    return made if function is None else made(function)
