"""The quick proof of names: it takes all texts of the project's rules, and none that sqlglot would refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from random import Random

import pytest
import sqlglot
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify

from strandline.jobs.ivm.binding import BoundText
from strandline.jobs.ivm.spark_names import proved
from tests.properties.picker import Picker
from tests.properties.scenario import Tally, scenario
from tests.support.bound_texts import PIPELINES, all_texts, pipeline
from tests.support.memory_catalog import MemoryCatalog

RELATIONS = {"t": ["k", "n", "s"], "u": ["k", "m"]}


@pytest.fixture(scope="module")
def texts() -> list[BoundText]:
    """Of the pipelines that come with the project, and of random views."""
    found = [text for path in PIPELINES for text in all_texts(pipeline(path), "spark")]
    for seed in range(4):
        catalog = MemoryCatalog()
        scenario(Picker.seeded(seed), 8, Tally(), catalog=catalog)
        found += all_texts(catalog, "spark")
    return found


def names_of(text: BoundText) -> dict[str, list[str]]:
    return {name: [column for column, _ in columns] for name, columns in text.relations.items()}


def by_sqlglot(text: str, relations: Mapping[str, list[str]]) -> bool:
    """Whether sqlglot finds every name, as it writes all of them out."""
    schema: dict[str, object] = {name: dict.fromkeys(columns, "INT") for name, columns in relations.items()}
    try:
        tree = sqlglot.parse_one(text, dialect="spark")
        qualify(tree, schema=schema, dialect="spark", identify=False, quote_identifiers=False)
    except SqlglotError:
        return False
    return True


def misspelt(text: str, random: Random) -> Iterator[str]:
    """The text with one of its names, at one place, another one."""
    for place in random.sample([*re.finditer(r"`[^`]+`|\b__\w+", text)], 2):
        quote = "`" if place[0].startswith("`") else ""
        yield f"{text[: place.start()]}{quote}{place[0].strip('`')}x{quote}{text[place.end() :]}"


def test_the_texts_of_rules_are_proved(texts: list[BoundText]) -> None:
    assert len(texts) > 300
    assert [each.what for each in texts if not proved(each.text, names_of(each))] == []


def test_what_is_proved_sqlglot_takes_too(texts: list[BoundText]) -> None:
    """A name is misspelt: where it is used, where it is given, or where nothing comes of it."""
    random, refused = Random(11), 0
    for each in random.sample(texts, 60):
        for wrong in misspelt(each.text, random):
            taken = by_sqlglot(wrong, names_of(each))
            refused += not taken
            assert taken or not proved(wrong, names_of(each)), wrong
    assert refused > 40


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k FROM t",
        "SELECT `K`, N + 1 AS `m` FROM T ORDER BY m",
        "SELECT t.k, u.m FROM t JOIN u ON t.k = u.k",
        "SELECT k, n FROM t SEMI JOIN u ON t.k = u.k",
        "SELECT x.k.a.b, s.f FROM t AS x",
        "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND m = n)",
        "SELECT transform(s, each -> each.a + n) AS a FROM t",
        "SELECT a.* FROM (SELECT k AS `a)'` FROM t) AS a WHERE `a)'` > 0",
        "WITH a AS (SELECT ')' AS c, k FROM t), b AS (SELECT *, 1 AS d FROM a) SELECT c, d, k FROM b",
        "SELECT k, i.a FROM t LATERAL VIEW INLINE(s) i AS a, b",
    ],
)
def test_a_text_whose_names_are_there_is_proved(text: str) -> None:
    assert proved(text, RELATIONS)
    assert by_sqlglot(text, RELATIONS)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT m FROM t",
        "SELECT t.m FROM t JOIN u ON t.k = u.k",
        "SELECT k FROM t JOIN u ON t.k = u.k",
        "SELECT u.m FROM t SEMI JOIN u ON t.k = u.k",
        "SELECT k FROM v",
        "SELECT a FROM (SELECT k AS b FROM t) AS x",
        "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.n = t.k)",
        "SELECT transform(s, each -> every + n) AS a FROM t",
        "WITH a AS (SELECT k FROM t) SELECT n FROM a",
        "WITH a AS (SELECT k FROM b), b AS (SELECT 1 AS k) SELECT k FROM a",
        "WITH a AS (SELECT k FROM t SELECT k FROM a",
        "SELECT k FROM t WHERE",
        "SELECT k FROM t UNION ALL SELECT k FROM t ORDER BY m",
        "SELECT n AS a, n AS a FROM t ORDER BY b",
        "DROP TABLE t",
    ],
)
def test_whatever_is_not_there_is_not_proved(text: str) -> None:
    assert not proved(text, RELATIONS)
