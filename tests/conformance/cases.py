"""Reading ksqlDB's query validation cases: one JSON file holds `{"tests": [case, …]}`.

A case is some statements, the records that go in, and the records that must come out, or an exception that must be
raised. One that lists formats or configurations stands for one case each.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

CLASSES = (
    "table-aggregate",
    "table-window",
    "table-join",
    "table-plain",
    "stream-plain",
    "stream-join",
    "negative",
)
"""What a case is about, by its last statement; `negative`: its statements must be refused."""


@dataclass(frozen=True)
class Case:
    """One case, its placeholders filled in.

    Attributes:
        inputs, outputs: records as in the file: topic, key, value, and perhaps timestamp, window and headers. Numbers
            with a fraction are Decimals, so that no digit is lost.
        refused: the statements must be refused; `message` is what ksqlDB says then.
        at_run_time: the statements are taken, and a record makes the query fail.
        topics: topics that are described with a schema.
        properties: settings of ksqlDB under which the case runs.
        responses: what ksqlDB's server answers to each statement, of cases for its REST interface.
        skip: why the file itself says that it is not to be run.
    """

    file: str
    name: str
    kind: str
    statements: tuple[str, ...]
    inputs: tuple[dict[str, Any], ...] = ()
    outputs: tuple[dict[str, Any], ...] = ()
    refused: bool = False
    message: str = ""
    at_run_time: bool = False
    topics: tuple[dict[str, Any], ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    responses: tuple[dict[str, Any], ...] = ()
    skip: str | None = None

    @property
    def text(self) -> str:
        """All statements as one text."""
        return "\n".join(self.statements)


def read_cases(place: Path, kind: str = "query") -> list[Case]:
    """The cases below `place`: a folder with `query/` (or another `kind`) in it, or a folder of the files themselves.

    Raises:
        FileNotFoundError: there is no such file.
    """
    folder = place / kind if (place / kind).is_dir() else place
    files = sorted(folder.glob("*.json"))
    if not files:
        raise FileNotFoundError(f"no *.json in {folder}")
    return [case for file in files for case in read_file(file)]


def read_file(file: Path) -> list[Case]:
    """The cases of one file. A line that starts with `//` is a comment."""
    text = "\n".join("" if line.lstrip().startswith("//") else line for line in file.read_text("utf-8").splitlines())
    tests = json.loads(text, parse_float=Decimal)["tests"]
    return [case for test in tests for case in _expanded(file.name, test)]


def _expanded(file: str, test: dict[str, Any]) -> list[Case]:
    formats, configs = test.get("format") or [None], test.get("config") or [None]
    return [_case(file, test, form, config) for form, config in product(formats, configs)]


def _case(file: str, test: dict[str, Any], form: str | None, config: str | None) -> Case:
    fill = {"{FORMAT}": form, "{CONFIG}": config}

    def filled(value: Any) -> Any:
        match value:
            case str():
                for mark, text in fill.items():
                    value = value.replace(mark, text) if text is not None else value
                return value
            case list():
                return [filled(item) for item in value]
            case dict():
                return {name: filled(item) for name, item in value.items()}
            case _:
                return value

    suffix = "".join(f" - {text}" for text in (form, config) if text is not None)
    expected = test.get("expectedException", test.get("expectedError"))
    statements = tuple(filled(test["statements"]))
    return Case(
        file=file,
        name=test["name"] + suffix,
        kind=test.get("class") or _class_of(statements, refused=expected is not None),
        statements=statements,
        inputs=tuple(filled(test.get("inputs") or [])),
        outputs=tuple(filled(test.get("outputs") or [])),
        responses=tuple(filled(test.get("responses") or [])),
        refused=expected is not None,
        message=str((expected or {}).get("message", "")),
        at_run_time="kafka.streams.errors" in str((expected or {}).get("type", "")),
        topics=tuple(t for t in filled(test.get("topics") or []) if isinstance(t, dict)),
        properties={name: str(filled(value)) for name, value in (test.get("properties") or {}).items()},
        skip=_skip(test),
    )


def _skip(test: dict[str, Any]) -> str | None:
    if test.get("enabled") is False:
        return "disabled in the file itself"
    if "max" in (test.get("versions") or {}):
        return "describes an earlier version of ksqlDB only"
    return None


def _class_of(statements: tuple[str, ...], *, refused: bool) -> str:
    """The class of a case that does not say it, by the last statement that reads something."""
    if refused:
        return "negative"
    reading = [s for s in statements if re.search(r"\bSELECT\b", s, re.IGNORECASE)]
    last = reading[-1] if reading else ""
    table = re.match(r"\s*CREATE\s+(OR\s+REPLACE\s+)?TABLE\b", last, re.IGNORECASE) is not None
    if re.search(r"\bJOIN\b", last, re.IGNORECASE):
        return "table-join" if table else "stream-join"
    if table and re.search(r"\bWINDOW\s+(TUMBLING|HOPPING|SESSION)\b", last, re.IGNORECASE):
        return "table-window"
    if table and re.search(r"\bGROUP\s+BY\b", last, re.IGNORECASE):
        return "table-aggregate"
    return "table-plain" if table else "stream-plain"
