"""The interactive prompt: history, completion, statements over several lines up to their semicolon."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory

from strandline.jobs.cli.command import as_ours
from strandline.jobs.cli.output import say
from strandline.jobs.model.definitions import InsertQuery
from strandline.jobs.model.errors import SqlSyntaxError
from strandline.jobs.model.types import BaseType
from strandline.jobs.session.language_functions import kinds
from strandline.jobs.sql.from_text import tokenize

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.cli.output import CommandOutput
    from strandline.jobs.session.interpreter import Interpreter


# The completions that the prompt proposes: words of the language, functions, and names in the catalog.

_TEXT = """
    ADD ALTER AND AS ASC BETWEEN BY CASE CHANGES COLUMN CREATE DESC DESCRIBE DISTINCT DROP ELSE EMIT END EXISTS
    EXPLAIN EXTENDED FORMAT FROM GROUP HAVING IN INSERT INTO IS JOIN KAFKA_TOPIC KEY KEY_FORMAT LEFT LIKE LIMIT LIST
    MATERIALIZED NOT NULL ON OR ORDER PARTITIONS PRIMARY QUERIES RENAME REPLACE SELECT SET SHOW STREAM STREAMS SWAP
    TABLE TABLES THEN TIMESTAMP TO TOPICS UNSET VALUES VALUE_FORMAT VIEW WHEN WHERE WITH exit help
"""
_WORDS = tuple(_TEXT.split())
_TYPES = tuple(base.value for base in BaseType if base is not BaseType.NULL)


class CatalogCompleter(Completer):
    """Completes the word before the cursor. Names come from the catalog at that moment."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Words that begin like the one before the cursor; names and columns first."""
        typed = document.get_word_before_cursor()
        if not typed:
            return
        for word in dict.fromkeys((*self._names(), *_WORDS, *_TYPES, *kinds())):
            if word.lower().startswith(typed.lower()) and word != typed:
                yield Completion(word, start_position=-len(typed))

    def _names(self) -> Iterator[str]:
        definitions = [d for d in self._catalog.definitions() if not isinstance(d, InsertQuery)]
        yield from self._catalog.relations()
        yield from (column.name for d in definitions for column in d.columns)


HELP = """Statements end with a semicolon:
  SHOW STREAMS; SHOW TABLES; SHOW QUERIES; SHOW TOPICS; SHOW FUNCTIONS; SHOW PROPERTIES;
  DESCRIBE name; DESCRIBE name EXTENDED; EXPLAIN view;
  SELECT … FROM …;                        what is there now
  SELECT … FROM … EMIT CHANGES;           and what comes; Ctrl-C ends it
  CREATE STREAM …; CREATE TABLE … AS SELECT …; INSERT INTO … VALUES (…); DROP …;
  ALTER STREAM name ADD COLUMN name TYPE;
  DELETE FROM table WHERE key = …; UPDATE table SET … WHERE key = …; PRINT topic;
New views are filled by `strandline run default` (or the pipeline of their file). `exit` or Ctrl-D leaves."""

_PROMPT, _CONTINUED = "strandline> ", "          > "
_LEAVING = ("exit", "quit")


def converse(interpreter: Interpreter, output: CommandOutput) -> None:
    """Read and execute statements until the user leaves. An error is shown, and the next statement awaited."""
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(_history_file())),
        completer=CatalogCompleter(interpreter.catalog),
        complete_while_typing=False,
        multiline=Condition(lambda: not complete(session.default_buffer.text)),
        prompt_continuation=_CONTINUED,
    )
    say(f"Strandline, lake {interpreter.lake.root}. Type help or exit.")
    while True:
        try:
            text = session.prompt(_PROMPT).strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        word = text.rstrip(";").strip().lower()
        if word in _LEAVING:
            return
        if word == "help":
            say(HELP)
        elif word:
            answer(interpreter, output, text)


def answer(interpreter: Interpreter, output: CommandOutput, text: str) -> None:
    """Execute the text typed. Ctrl-C ends the statement, not the prompt."""
    try:
        # Others may have defined things since the last statement.
        interpreter.catalog.reload()
        for result in interpreter.run(text):
            output.write(result)
    except KeyboardInterrupt:
        say("ended")
    except Exception as error:
        # Whatever one statement meets, the next one may be typed.
        say(str(as_ours(error)))


def complete(text: str) -> bool:
    """True if Enter should send the text: it is empty, one of the prompt's own words, or ends with a semicolon.

    A semicolon inside a string or a comment ends nothing.
    """
    stripped = text.strip()
    if not stripped or stripped.lower() in (*_LEAVING, "help"):
        return True
    if not stripped.endswith(";"):
        return False
    try:
        tokens = tokenize(stripped)
    except SqlSyntaxError:
        return False
    return bool(tokens) and tokens[-1].text == ";"


def _history_file() -> Path:
    """The history file, in the state directory of the XDG base directory specification. Only its owner can read it."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = Path(base) / "strandline"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "history"
    path.touch(mode=0o600)
    return path
