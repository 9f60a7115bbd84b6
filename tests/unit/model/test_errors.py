"""The error tree as an interface: stable codes, an action for each, and texts that come back as their class."""

from __future__ import annotations

import sys

import pytest

from strandline.jobs.model import errors
from strandline.jobs.model.errors import OffsetsVanished, RefreshFailed, UnknownName, revive
from strandline.jobs.publish.topic import PublishError
from strandline.jobs.serve.errors import ServeError
from strandline.state_store.errors import Action, StrandlineError, WriterBusy


def _classes(root: type[StrandlineError]) -> list[type[StrandlineError]]:
    return [root, *(found for child in root.__subclasses__() for found in _classes(child))]


def test_every_error_has_a_code_of_its_own() -> None:
    """Scripts match on the code: two classes with one code could not be told apart."""
    codes = [cls.code for cls in _classes(StrandlineError)]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("cls", [c for c in _classes(StrandlineError) if not c.__subclasses__()])
def test_every_leaf_says_what_it_means(cls: type[StrandlineError]) -> None:
    assert cls.__doc__ is not None
    assert cls.action in Action


def test_the_text_names_code_place_and_next_step() -> None:
    error = WriterBusy("someone writes", where="lake/locks/x", hint="wait")
    assert str(error) == "[store.writer_busy] someone writes (lake/locks/x)\n  hint: wait"
    assert error.attrs()["action"] == "retry"


def test_unknown_names_propose_the_nearest() -> None:
    error = UnknownName.among("column", "titel", ["title", "ticket_total_value"], line=2, column=8)
    assert "did you mean 'title'?" in str(error)
    assert "line 2, column 8" in str(error)


def test_an_error_that_crossed_a_process_as_text_gets_its_class_back() -> None:
    """Spark hands errors of its Python workers back inside a stack trace."""
    original = OffsetsVanished("records 0 to 41 of partition 1 are gone", hint="raise retention.ms")
    trace = f"[STREAM_FAILED] Query failed\nTraceback …\njobs.errors.OffsetsVanished: {original}\nat org.apache…"
    revived = revive(trace)
    assert isinstance(revived, OffsetsVanished)
    assert revived.hint == "raise retention.ms"
    assert "records 0 to 41" in revived.message


def test_an_error_of_any_room_comes_back() -> None:
    for cls in (each for each in _classes(StrandlineError) if each is not errors.ViewsStopped):
        revived = revive(f"Traceback …\nsomewhere.Error: [{cls.code}] it is so\n  hint: type this\nat org.apache…")
        assert revived.code == cls.code
        assert (revived.message, revived.hint) == ("it is so", "type this")


def test_a_text_without_a_code_keeps_its_cause() -> None:
    revived = revive("Py4JError\nTraceback\nValueError: no such luck\n more")
    assert isinstance(revived, RefreshFailed)
    assert "ValueError: no such luck" in revived.message


@pytest.mark.parametrize(
    "branch", [errors.SqlError, errors.SourceError, errors.PipelineError, PublishError, ServeError]
)
def test_the_tree_drawn_in_the_module_is_the_tree(branch: type[StrandlineError]) -> None:
    """The drawing is what readers trust, so that of its module must name every class."""
    for cls in _classes(branch):
        assert cls.__name__ in (sys.modules[cls.__module__].__doc__ or "")
