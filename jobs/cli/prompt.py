"""The interactive prompt: history, completion, statements over several lines up to their semicolon."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory

from strandline.jobs.cli.completion import CatalogCompleter
from strandline.jobs.cli.exits import as_ours
from strandline.jobs.cli.output import say
from strandline.jobs.model.errors import SqlSyntaxError
from strandline.jobs.sql.from_text import tokenize

if TYPE_CHECKING:
    from strandline.jobs.cli.output import Output
    from strandline.jobs.session.interpreter import Interpreter

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


def converse(interpreter: Interpreter, output: Output) -> None:
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


def answer(interpreter: Interpreter, output: Output, text: str) -> None:
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
