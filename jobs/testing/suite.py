"""A suite: the tests in one `NAME.test.yaml` beside `NAME.sql`, read and checked.

    tests:
      - name: a visit that is taken back no longer counts
        steps:
          - given:
              info: [{product: leek, category: Vegetable}, {product: beet, category: Vegetable}]
              visit: [{product: leek, visitor: ann, length: 60}, {product: beet, visitor: bob, length: 50}]
            expect:
              longest: {rows: [{category: Vegetable, max_length: 60}]}
          - given:
              visit: [!delete {product: leek, visitor: ann}]
            expect:
              longest:
                retracted: [{category: Vegetable, max_length: 60}]
                inserted: [{category: Vegetable, max_length: 50}]

A test of one step may leave `steps` out. The rows of a step are events, in the order in which they stand in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from strandline.jobs.model.errors import InvalidQuery

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX: Final = ".test.yaml"

Row = dict[str, Any]
"""{column: value}, as YAML gives it; a number with a point is a Decimal."""


@dataclass(frozen=True)
class Deletion:
    """`!delete {key column: value, …}`: the event that deletes a key of a table."""

    key: Row


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Expected(_Strict):
    """What a stream, table or view must be after a step; what is left out is not compared.

    Attributes:
        rows: all of its rows, in any order.
        inserted: the rows that the step brought, net of those that it took away again.
        retracted: the rows that the step took away, net of those that it brought again.
        dead_letters: the rows on which an expression of the view fails: the columns of its inputs, as `alias_column`.
    """

    rows: list[Row] | None = None
    inserted: list[Row] | None = None
    retracted: list[Row] | None = None
    dead_letters: list[Row] | None = None


class Step(_Strict):
    """Events, and what must be true once they are taken in.

    Attributes:
        given: {stream or table: its events}.
        expect: {stream, table or view: what it must be}.
    """

    given: dict[str, list[Row | Deletion]] = Field(default_factory=dict)
    expect: dict[str, Expected] = Field(default_factory=dict)


class Case(_Strict):
    """One test: steps over tables that are empty at its start.

    Attributes:
        name: one line, different from those of the suite's other tests.
    """

    name: str = Field(min_length=1, pattern=r"^[^\n]*$")
    steps: list[Step] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _one_step(cls, value: Any) -> Any:
        """A test without `steps` is its only step."""
        if not isinstance(value, dict) or "steps" in value:
            return value
        step = {key: value[key] for key in ("given", "expect") if key in value}
        return {**{key: each for key, each in value.items() if key not in step}, "steps": [step] if step else []}

    @model_validator(mode="after")
    def _expects(self) -> Case:
        if not any(step.expect for step in self.steps):
            raise ValueError("it expects nothing, so it could not fail")
        return self


class _File(_Strict):
    files: list[str] = Field(default_factory=list)
    tests: list[Case] = Field(min_length=1)


@dataclass(frozen=True)
class Suite:
    """The tests of one file.

    Attributes:
        path: of the file.
        files: the `.sql` files that define what is tested, in the order in which they are applied.
        cases: with different names.
    """

    path: Path
    files: tuple[Path, ...]
    cases: tuple[Case, ...]


def read_suite(path: Path) -> Suite:
    """Read the suite of a file: `NAME.test.yaml`, or `NAME.sql`, which stands for the suite beside it.

    Raises:
        InvalidQuery: there is no such file, it is no YAML, or not of the form above; the message says where.
    """
    own = path if path.name.endswith(SUFFIX) else path.with_name(path.stem + SUFFIX)
    try:
        entries = yaml.load(own.read_text(encoding="utf-8-sig"), _Loader)  # noqa: S506 - a safe loader, with one tag more
    except FileNotFoundError:
        hint = f"write the tests of {path.name} there: docs/testing.md shows how"
        raise InvalidQuery(f"there is no file '{own}'", hint=hint) from None
    except (yaml.YAMLError, UnicodeDecodeError) as fault:
        raise InvalidQuery(f"'{own}' is no YAML: {' '.join(str(fault).split())}") from fault
    try:
        read = _File.model_validate(entries)
    except ValidationError as error:
        raise _refused(own, error) from None
    names = [case.name for case in read.tests]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise InvalidQuery(f"'{own}' has two tests of the name '{twice}'", hint="give each a name of its own")
    beside = own.with_name(own.name.removesuffix(SUFFIX) + ".sql")
    files = [own.parent / name for name in read.files] or [beside]
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None:
        raise InvalidQuery(
            f"'{own}' tests '{missing}', which is not there",
            hint="name the files under `files:`, relative to the file of tests",
        )
    return Suite(own, tuple(files), tuple(read.tests))


def _refused(path: Path, error: ValidationError) -> InvalidQuery:
    """The first fault, with the way to its place: `tests[0].steps[1].expect.longest`."""
    first = error.errors()[0]
    place = ""
    for part in first["loc"]:
        # Pydantic names the alternative of a union that it tried; it is no part of the file.
        if isinstance(part, int):
            place += f"[{part}]"
        elif part not in ("Deletion", "dict[str,any]"):
            place += f".{part}" if place else str(part)
    said = {"extra_forbidden": "is not known here", "missing": "is missing"}
    what = said.get(first["type"], first["msg"].removeprefix("Value error, "))
    return InvalidQuery(f"'{path}': {place or 'the file'}: {what}", hint="docs/testing.md shows the form")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML comes without types
    """YAML's safe types, numbers with a point as they are written, and `!delete`."""


def _number(loader: _Loader, node: yaml.ScalarNode) -> Decimal | float:
    text = str(loader.construct_scalar(node)).replace("_", "")
    plain = text.lower().lstrip("+-")
    # Infinity, NaN and numbers to the base 60 are YAML's own.
    return loader.construct_yaml_float(node) if plain in (".inf", ".nan") or ":" in plain else Decimal(text)


def _deletion(loader: _Loader, node: yaml.MappingNode) -> Deletion:
    return Deletion({str(name): value for name, value in loader.construct_mapping(node, deep=True).items()})


_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.add_constructor("!delete", _deletion)
