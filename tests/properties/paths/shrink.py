"""Makes a failing example smaller, by what an example is made of: views, epochs, events, clauses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tests.properties.paths.check import Engines, failure
from tests.properties.paths.example import Example
from tests.properties.paths.views import Block, Having, Input, Query, SetOperation, ViewOf, relations_of

_PATIENCE_SECONDS: Final = 120.0
"""A check takes about half a second."""


def shrunk(example: Example, engines: Engines, seconds: float = _PATIENCE_SECONDS) -> Example:
    """A part of a failing example that still fails; the smallest that is found in so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        smaller = next((each for each in _parts(example) if time.monotonic() > until or failure(each, engines)), None)
        if smaller is None or time.monotonic() > until:
            break
        example = smaller
    return example


def _parts(example: Example) -> Iterator[Example]:
    """The example with one view, with one epoch, without some events, without a clause; large parts first."""
    if example.replaced is not None:
        yield replace(example, replaced=None)
    smaller = [each for each in (_with_what_it_reads(view, example) for view in example.views) if each != example]
    if smaller:
        yield from smaller
        if len(smaller) == len(example.views):
            return
    if len(example.epochs) > 1:
        yield replace(example, epochs=(tuple(example.events()),))
    *others, view = example.views
    used = set().union(*(relations_of(each.query) for each in example.views))
    if not {event.name for epoch in example.epochs for event in epoch} <= used:
        yield replace(example, epochs=tuple(tuple(e for e in epoch if e[0] in used) for epoch in example.epochs))
    for number, epoch in enumerate(example.epochs):
        before, after = example.epochs[:number], example.epochs[number + 1 :]
        if not epoch and len(example.epochs) > 1:
            yield replace(example, epochs=(*before, *after))
        size = len(epoch) // 2
        while size:
            for at in range(0, len(epoch), size):
                yield replace(example, epochs=(*before, (*epoch[:at], *epoch[at + size :]), *after))
            size //= 2
    yield from (replace(example, views=(*others, replace(view, query=query))) for query in _queries(view.query))


def _with_what_it_reads(view: ViewOf, example: Example) -> Example:
    read = {view.name}
    for each in reversed(example.views):
        read |= relations_of(each.query) if each.name in read else set()
    replaced = example.replaced if example.replaced is not None and example.replaced[1].name in read else None
    return replace(example, views=tuple(each for each in example.views if each.name in read), replaced=replaced)


def _queries(query: Query) -> Iterator[Query]:
    """The query without one of its clauses."""
    if isinstance(query, Having):
        yield query.outer
        return
    if isinstance(query, SetOperation):
        yield from (query.left, query.right)
        yield from (replace(query, left=each) for each in _conditions(query.left))
        yield from (replace(query, right=each) for each in _conditions(query.right))
        return
    yield from _conditions(query)
    if len(query.items) > 1:
        for place in range(len(query.items)):
            yield replace(query, items=(*query.items[:place], *query.items[place + 1 :]))


def _conditions(block: Block) -> Iterator[Block]:
    """The block without a condition."""
    if block.where is not None:
        yield replace(block, where=None)
    if block.first is not None:
        yield replace(block, first=None)
    if block.having:
        yield replace(block, having="")
    if block.qualify is not None:
        yield replace(block, qualify=None)
    if block.named:
        yield replace(block, named=False)
    if block.limit:
        yield replace(block, order=(), limit="", first_of=0)
    for place, each in enumerate(block.inputs):
        for smaller in _of_input(each):
            yield replace(block, inputs=(*block.inputs[:place], smaller, *block.inputs[place + 1 :]))


def _of_input(given: Input) -> Iterator[Input]:
    """The input with a smaller query."""
    match given.of:
        case Block():
            yield from (replace(given, of=each) for each in _conditions(given.of))
        case SetOperation():
            yield from (replace(given, of=each) for each in _queries(given.of) if not isinstance(each, Having))
