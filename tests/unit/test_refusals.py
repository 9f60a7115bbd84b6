"""docs/sql.md lists what the code refuses."""

from __future__ import annotations

from tests.support.refusals import PAGE, listing, page_with


def test_the_page_lists_what_the_code_refuses() -> None:
    assert page_with(PAGE.read_text()) == PAGE.read_text(), "python -m tests.support.refusals write"


def test_the_list_has_words_and_sentences() -> None:
    made = listing()
    for found in ("TERMINATE", "TABLESAMPLE", "WINDOW_TYPE", "RANGE over months is not supported"):
        assert found in made
