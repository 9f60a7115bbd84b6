"""By what a row fails: a mark on each condition under which an operation fails, and the message that says it.

    a / b                b = 0 AND a IS NOT NULL                          division_by_zero
    CAST(t AS INT)       TRY_CAST(t AS INT) IS NULL AND t IS NOT NULL     bad_text, or out_of_range where t is a number
    CAST(t AS INT) + 1   the sum is NULL and t is not                     as the CAST, or else out_of_range

Where a query can fail in several ways, its message asks for each of them in turn, of the row that fails. That makes a
text half as long again, so nothing is marked but where somebody asks for it (`marking`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sqlglot import exp

from strandline.jobs.functions.registry import find
from strandline.jobs.model.row_faults import RowFault, with_fault
from strandline.jobs.sql.trees import any_of, call, conjuncts

_FAULT = "fault"
_EARLIER = "earlier"
"""Marks of a condition: its fault, and `[(fault, condition)]` that are asked before it."""

_MARKING = ContextVar("marking", default=False)

Fault = tuple[RowFault, exp.Expression]

_OF_TEXTS = frozenset({"WHOLE_TEXT", "FRACTION_TEXT"})
_OF_TIMES = frozenset({"DATE_TEXT", "INSTANT_TEXT"})
_READING = {"TEXT_TIME": RowFault.BAD_TIME, "TEXT_BYTES": RowFault.BAD_TEXT}


@contextmanager
def marking() -> Iterator[None]:
    """Mark the conditions that are made inside the block."""
    before = _MARKING.set(True)
    try:
        yield
    finally:
        _MARKING.reset(before)


def by_fault(condition: exp.Expression, node: exp.Expression, below: Iterable[exp.Expression] = ()) -> None:
    """Mark the condition under which a node fails itself.

    Args:
        below: the conditions of operations below, which it holds for as well.
    """
    if not _MARKING.get():
        return
    earlier = [found for each in below for found in _faults_of(each)]
    # What is joined by AND is taken apart, and joined again: a mark on all of it would be lost.
    first = conjuncts(condition)[0]
    first.meta[_FAULT] = _fault_of(node)
    text = _text_of_number(node)
    if text is not None:
        # '99999999999' is a number, and no INT.
        double = exp.TryCast(this=text.copy(), to=exp.DataType.build("DOUBLE"), safe=True)
        earlier.append((RowFault.BAD_TEXT, exp.Is(this=exp.Paren(this=double), expression=exp.Null())))
    first.meta[_EARLIER] = earlier


def of_faults(condition: exp.Expression, faults: Collection[RowFault], cause: exp.Expression) -> exp.Expression:
    """Mark a condition that a query below computes.

    Args:
        faults: those that it can hold for; none: nothing is marked.
        cause: which of them it was, where it can be several.
    """
    in_order = [each for each in RowFault if each in faults]
    if not in_order:
        return condition
    *asked, last = in_order
    condition.meta[_FAULT] = last
    is_it = (exp.EQ(this=cause.copy(), expression=exp.Literal.string(each)) for each in asked)
    condition.meta[_EARLIER] = list(zip(asked, is_it, strict=True))
    return condition


def cause_of(fails: exp.Expression) -> exp.Expression | None:
    """The name of the fault by which a condition holds; None where it can be only one, or is not marked."""
    faults = faults_in(fails)
    if len(faults) < 2:
        return None
    *asked, last = faults
    ifs = [exp.If(this=_only(fails, each), true=exp.Literal.string(each)) for each in asked]
    return exp.Case(ifs=ifs, default=exp.Literal.string(last))


def faults_in(condition: exp.Expression | None) -> list[RowFault]:
    """The faults of a condition under which something fails, in the order in which they are asked."""
    if condition is None:
        return []
    found = {fault for each in _marked(condition) for fault, _ in _faults_of(each)}
    return [each for each in RowFault if each in found]


def words_of(words: str, fails: exp.Expression) -> exp.Expression:
    """The words of an error, with the fault of the row in front.

    Args:
        fails: the condition under which it is raised.
    """
    cause = cause_of(fails)
    if cause is None:
        only = next(iter(faults_in(fails)), None)
        return exp.Literal.string(words if only is None else with_fault(only, words))
    return call("CONCAT", cause, exp.Literal.string(with_fault("", words)))


def _only(condition: exp.Expression, fault: RowFault) -> exp.Expression:
    """The condition under which it fails by this fault."""

    def of(node: exp.Expr) -> exp.Expr:
        if _FAULT not in node.meta or not isinstance(node, exp.Expression):
            return node
        held = any_of(each.copy() for own, each in _faults_of(node) if own is fault)
        return exp.false() if held is None else exp.Paren(this=held)

    made = condition.copy().transform(of)
    assert isinstance(made, exp.Expression)
    return made


def _marked(condition: exp.Expression) -> Iterator[exp.Expression]:
    yield from (each for each in condition.walk() if _FAULT in each.meta and isinstance(each, exp.Expression))


def _faults_of(condition: exp.Expression) -> list[Fault]:
    """The faults of what was marked, each with its condition; of any other one those inside."""
    if _FAULT not in condition.meta:
        return [found for each in _marked(condition) for found in _faults_of(each)]
    plain = condition.copy()
    for mark in (_FAULT, _EARLIER):
        plain.meta.pop(mark, None)
    return [*condition.meta.get(_EARLIER, ()), (condition.meta[_FAULT], plain)]


def _fault_of(node: exp.Expression) -> RowFault:
    if isinstance(node, exp.Div | exp.Mod) or (isinstance(node, exp.Anonymous) and node.name == "DIV"):
        return RowFault.DIVISION_BY_ZERO
    if isinstance(node, exp.Anonymous):
        function = find(node.name)
        return _READING.get(node.name) or (function.fault if function is not None else RowFault.OUT_OF_RANGE)
    if isinstance(node, exp.TryCast) and _wraps(node.this, _OF_TIMES) is not None:
        return RowFault.BAD_TIME
    return RowFault.OUT_OF_RANGE


def _text_of_number(node: exp.Expression) -> exp.Expression | None:
    """What a conversion of a text to a number converts, in the form that the number has."""
    return _wraps(node.this, _OF_TEXTS) if isinstance(node, exp.TryCast) else None


def _wraps(node: exp.Expr, names: frozenset[str]) -> exp.Expression | None:
    return node if isinstance(node, exp.Anonymous) and node.name in names else None
