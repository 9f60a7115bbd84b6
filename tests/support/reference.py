"""The pages of docs/reference, written from the code.

    python -m tests.support.reference write      both pages, anew
    python -m tests.support.reference check      fails when a page says something else

Commands are what the command line itself says with `--help`. A scalar function is shown by a call of
`tests.support.function_cases`, which both engines are tested to give that value for.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from infra.house.plan import ROOT
from strandline.jobs.cli.main import app
from strandline.jobs.functions.aggregates.registry import _SYNONYMS, FUNCTIONS
from strandline.jobs.functions.registry import SCALARS
from strandline.jobs.functions.scalars.arrays import ARRAYS, HIGHER_ORDER
from strandline.jobs.functions.scalars.bytes import BYTES, DIGESTS
from strandline.jobs.functions.scalars.contract import Scalar
from strandline.jobs.functions.scalars.json import JSON
from strandline.jobs.functions.scalars.maps import MAPS
from strandline.jobs.functions.scalars.numbers import NUMBERS
from strandline.jobs.functions.scalars.patterns import PATTERNS
from strandline.jobs.functions.scalars.text import TEXT, URLS
from strandline.jobs.functions.scalars.times import TIME_PARTS, TIME_SUMS, TIME_TEXTS, TIMES
from strandline.jobs.query.clauses.composed_aggregates import COMPOSED
from strandline.jobs.query.expressions.other_dialects import BY_TYPE, DEFINED
from tests.support.function_cases import EXPECTED, table

FOLDER: Final = ROOT / "docs" / "reference"
_GROUPS: Final[dict[str, Sequence[Scalar]]] = {
    "Text": TEXT,
    "Regular expressions": PATTERNS,
    "Bytes and digests": (*BYTES, *DIGESTS),
    "JSON": JSON,
    "URLs": URLS,
    "Numbers": NUMBERS,
    "Dates and times": (*TIMES, *TIME_SUMS, *TIME_PARTS, *TIME_TEXTS),
    "Arrays": ARRAYS,
    "Maps": MAPS,
    "Functions that take a lambda": HIGHER_ORDER,
}
"""What is in none of them stands under `Other` at the end."""
_AGGREGATES: Final[dict[str, str]] = {
    "COUNT, SUM, AVG and what adds up": "COUNT COUNT_DISTINCT SUM AVG SUM_LIST BOOL_AND EVERY BOOL_OR ANY",
    "Extremes": "MIN MAX MIN_BY MAX_BY ANY_VALUE TOPK TOPKDISTINCT",
    "By the order of events": "LATEST_BY_OFFSET EARLIEST_BY_OFFSET FIRST_VALUE LAST_VALUE",
    "Collections": "COLLECT_LIST COLLECT_SET ARRAY_AGG STRING_AGG HISTOGRAM ATTR",
    "Statistics": "STDDEV_SAMPLE STDDEV_SAMP STDDEV_POP VARIANCE VAR_SAMP VAR_POP CORRELATION MODE "
    "PERCENTILE_CONT PERCENTILE_DISC",
    "Bits": "BIT_AND BIT_OR BIT_XOR",
}
_LONGEST_EXAMPLE: Final = 90
"""Characters of an example: what fits into a column of a page."""


def functions_page() -> str:
    """The functions of the language, by kind."""
    aggregates = [name for name in FUNCTIONS if " " not in name]
    rest = [scalar for scalar in _listed(SCALARS.values()) if not any(scalar in group for group in _GROUPS.values())]
    parts = [
        "# Functions",
        "Written by `python -m tests.support.reference write`, from the code. Functions of your own: "
        "[functions.md](../functions.md); what differs between dialects: [the language](../sql.md#scalar-functions).",
        f"There are {len(_listed(SCALARS.values()))} scalar functions and {len(aggregates)} aggregates. Names in "
        "brackets mean the same function. An example is one of the tests, whose value both engines give; in examples "
        f"{_values()}.",
        "## Aggregates",
        "All of them take values back: a row that changes or goes is taken out of its group. `SELECT` with `FILTER "
        "(WHERE …)`, `DISTINCT` and `ORDER BY` inside the call: [views](../sql.md#views).",
        "\n".join(_aggregates()),
        "Aggregates that are made of these, with DISTINCT, FILTER and OVER as they have them:",
        "\n".join(_composed()),
    ]
    for title, group in {**_GROUPS, "Other": rest}.items():
        parts += [f"## {title}", "\n".join(_scalars(_listed(group)))]
    parts += ["## Functions of other dialects", "Each is defined by those above.", "\n".join(_defined())]
    return "\n\n".join(parts) + "\n"


def _values() -> str:
    """The values that the columns in examples have: the first row of the cases."""
    (first,) = table().slice(0, 1).to_pylist()
    return ", ".join(f"`{name}` is `{value}`" for name, value in first.items() if name != "nr")


def _listed(scalars: Sequence[Scalar] | object) -> list[Scalar]:
    """The functions that users call, each once, by name."""
    assert hasattr(scalars, "__iter__")
    return sorted({scalar.name: scalar for scalar in scalars if not scalar.hidden}.values(), key=lambda each: each.name)


def _aggregates() -> Iterator[str]:
    yield "| kind | functions |"
    yield "| --- | --- |"
    named: list[str] = []
    for kind, names in _AGGREGATES.items():
        named += names.split()
        yield f"| {kind} | {', '.join(map(_with_synonyms, names.split()))} |"
    rest = sorted(name for name in FUNCTIONS if name not in named and " " not in name)
    yield f"| Of pairs of numbers | {', '.join(map(_with_synonyms, rest))} |"


def _composed() -> Iterator[str]:
    yield "| call | means |"
    yield "| --- | --- |"
    for head, meaning in sorted(COMPOSED.items()):
        yield f"| `{head}` | {_code(meaning)} |"


def _with_synonyms(name: str) -> str:
    others = sorted(other for other, meant in _SYNONYMS.items() if meant == name)
    return f"`{name}`" + (f" ({', '.join(f'`{other}`' for other in others)})" if others else "")


def _scalars(group: Sequence[Scalar]) -> Iterator[str]:
    yield "| function | example | gives |"
    yield "| --- | --- | --- |"
    for scalar in group:
        aliases = f" ({', '.join(f'`{alias}`' for alias in sorted(scalar.aliases))})" if scalar.aliases else ""
        call, value = _example((scalar.name, *scalar.aliases))
        yield f"| `{scalar.name}`{aliases} | {_code(call)} | {_code(value)} |"


def _defined() -> Iterator[str]:
    """The functions of other dialects, with what each means."""
    yield "| call | means | example | gives |"
    yield "| --- | --- | --- | --- |"
    meanings = {
        **DEFINED,
        **{f"{name}(…)": " ".join((rewrite.__doc__ or "").split()) for name, rewrite in BY_TYPE.items()},
    }
    for head, meaning in sorted(meanings.items()):
        name = head.partition("(")[0]
        call, value = _example((name,))
        meant = _code(meaning) if head in DEFINED else meaning.partition(": ")[2].replace("|", "\\|") or meaning
        yield f"| `{head}` | {meant} | {_code(call)} | {_code(value)} |"


def _example(names: tuple[str, ...]) -> tuple[str, str]:
    """The shortest tested expression with a call of the function, best nothing else, and its value."""
    named = "|".join(map(re.escape, names))
    alone = re.compile(rf"(?:{named})\((?:[^()]|\([^()]*\))*\)", flags=re.IGNORECASE)
    within = re.compile(rf"\b(?:{named})\(", flags=re.IGNORECASE)
    found = [
        (text, shown)
        for text, value in EXPECTED.items()
        if within.search(text)
        and (shown := _literal(value)) is not None
        and text.isprintable()
        and len(text) + len(shown) <= _LONGEST_EXAMPLE
    ]

    def worth(example: tuple[str, str]) -> tuple[bool, bool, int]:
        """One that has a value says more than one that gives NULL."""
        text, shown = example
        return (shown == "NULL", alone.fullmatch(text) is None, len(text))

    return min(found, key=worth, default=("", ""))


def _literal(value: object) -> str | None:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case str():
            return f"'{value}'" if value.isprintable() else None
        case int() | float() | Decimal() | date() | datetime():
            return str(value)
        case list():
            items = [_literal(each) for each in value]
            return None if None in items else f"[{', '.join(map(str, items))}]"
        case _:
            return None


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def commands_page() -> str:
    """The commands, with their options, as `--help` has them."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    parts = [
        "# Commands",
        "Written by `python -m tests.support.reference write`, from the code: what `strandline COMMAND --help` says. "
        "Exit codes are 0 for done, 1 where something is not as it must be (`verify`, `drill`, `test`, and runs with "
        "views that failed), 2 for an error that the message explains, 130 for Ctrl-C. Settings come from the "
        "environment or `strandline.toml`: [settings](../settings.md).",
    ]
    for name, command in group.commands.items():
        assert isinstance(command, TyperCommand)
        parts += [f"## strandline {name}", " ".join((command.help or "").split()), "\n".join(_parameters(command))]
    return "\n\n".join(parts) + "\n"


def _parameters(command: TyperCommand) -> Iterator[str]:
    yield "| | default | |"
    yield "| --- | --- | --- |"
    for each in command.params:
        if "--help" in each.opts or getattr(each, "hidden", False):
            continue
        option = each.opts[0].startswith("-")
        many = " …" if each.nargs == -1 or getattr(each, "multiple", False) else ""
        metavar = (
            (each.metavar or _choices(each) or (each.name or "").upper())
            .replace("[", "")
            .replace("]", "")
            .removesuffix("…")
        )
        value = "" if getattr(each, "is_flag", False) else metavar
        names = ", ".join((*each.opts, *each.secondary_opts)) if option else ""
        default = each.default.value if isinstance(each.default, Enum) else each.default
        shown = "" if default in (None, False, [], ()) or callable(default) else f"`{default}`"
        about = " ".join((getattr(each, "help", "") or "").split()).replace("|", "\\|")
        required = " (required)" if each.required and option else ""
        yield f"| {_code(' '.join(filter(None, (names, value))) + many)}{required} | {shown} | {about} |"


def _choices(parameter: Any) -> str:
    """`drain|continuous` of an enumeration; nothing of other types."""
    annotation = parameter.type_descriptor.annotation
    is_enum = isinstance(annotation, type) and issubclass(annotation, Enum)
    return "|".join(str(each.value) for each in annotation) if is_enum else ""


def made() -> dict[str, str]:
    """{file: its text}."""
    return {"functions.md": functions_page(), "commands.md": commands_page()}


def main(arguments: list[str]) -> int:
    """`write` the pages, or `check` them: 1 when one is not the code's."""
    for name, text in made().items():
        page = FOLDER / name
        if arguments == ["write"]:
            page.parent.mkdir(exist_ok=True)
            page.write_text(text)
        elif page.read_text() != text:
            print(f"{page} is not what the code says: python -m tests.support.reference write")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
