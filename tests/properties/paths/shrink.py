"""Makes a failing example smaller, by what an example is made of: views, epochs, events, clauses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tests.properties.paths.check import Engines, failure
from tests.properties.paths.example import Example
from tests.properties.paths.views import Block, Query, SetOperation, relations_of

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
    if len(example.views) > 1:
        yield from (replace(example, views=(view,)) for view in example.views)
        return
    if len(example.epochs) > 1:
        yield replace(example, epochs=(tuple(example.events()),))
    used = relations_of(example.views[0].query)
    if not {name for epoch in example.epochs for name, _, _ in epoch} <= used:
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
    (view,) = example.views
    yield from (replace(example, views=(replace(view, query=query),)) for query in _queries(view.query))


def _queries(query: Query) -> Iterator[Query]:
    """The query without one of its clauses."""
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
