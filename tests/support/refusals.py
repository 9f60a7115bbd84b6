"""What the language refuses because it is not there yet, read from the code and written into docs/sql.md.

    python -m tests.support.refusals write      the list between its markers, anew
    python -m tests.support.refusals check      fails when the page says something else

A refusal is a `NotSupported` that is raised, and the words of statements, clauses and options that are kept in tables.
Messages with a part that depends on the query show … in its place.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from strandline.jobs.session.define.options import KSQL_OPTIONS
from strandline.jobs.sql.dialect import NO_ALIASES
from strandline.jobs.sql.from_text import refused_words
from strandline.jobs.sql.parser import ABSENT

PAGE = Path("docs/sql.md")
BEGIN, END = "<!-- refused: written by `python -m tests.support.refusals write` -->", "<!-- end of refused -->"
_ROOMS = ("jobs/sql", "jobs/query", "jobs/ivm/plan", "jobs/functions", "jobs/session")
# A message of little more than what is put into it says nothing here.
_FEWEST_LETTERS = 20
_RAISES = ("NotSupported", "_refuse")


def listing() -> str:
    """The list as Markdown: words first, then sentences, each once and in order."""
    words = {
        "Statements": sorted(ABSENT),
        "Clauses": sorted({*refused_words(), *NO_ALIASES}, key=str.lower),
        "Options of a source": sorted(KSQL_OPTIONS),
    }
    lines = [f"- **{title}**: {', '.join(listed)}" for title, listed in words.items()]
    return "\n".join([*lines, *(f"- {each}" for each in sorted(set(_messages()), key=str.lower))])


def _messages() -> Iterator[str]:
    for room in _ROOMS:
        for path in sorted(Path(room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and _name(node.func) in _RAISES and node.args:
                    text = _text(node.args[0])
                    if sum(letter.isalpha() for letter in text) >= _FEWEST_LETTERS:
                        yield text


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _text(node: ast.expr) -> str:
    """The text of a message, with … for what is put into it."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) for part in parts)
        case ast.Call(func=ast.Name(id="sentence"), args=[ast.Constant(value=str(template)), *_]):
            return template.replace("{}", "…")
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
        case ast.IfExp(body=body):
            return _text(body)
        case _:
            return "…"


def page_with(text: str) -> str:
    """The page with the list in it."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{listing()}\n\n{END}{after}"


def main(arguments: list[str]) -> int:
    """`write` the list into the page, or `check` it: 1 when it is not the code's."""
    text = PAGE.read_text()
    made = page_with(text)
    if arguments == ["write"]:
        PAGE.write_text(made)
    elif made != text:
        print(f"{PAGE} does not list what the code refuses: python -m tests.support.refusals write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
