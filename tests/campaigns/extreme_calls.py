"""The campaign of extreme arguments: `python -m tests.campaigns.extreme_calls --kinds 3 --seed 1`.

Every scalar function, operator and CAST in a pull, of literals at the ends of their types. An answer is right, and so
is an error that names the expression; an error in the engine's words, one that has no code, and a call that takes
longer than it may, are printed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlglot import exp

from strandline.jobs.model.settings import load_settings
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.dialect import sql_of
from strandline.state_store.errors import StrandlineError
from tests.support.function_calls import calls
from tests.support.function_values import COLUMNS, SMALL
from tests.support.parsed import parse_expression

RAW: Final = ("the query cannot be answered", "Error: ")
"""How an error begins that has the engine's words."""
MOST_SECONDS: Final = 30.0
"""On a machine with other work; what builds all that it is asked for takes minutes, and all memory."""

_INTS = ("0", "1", "-1", "7", "2147483647", "CAST(-2147483648 AS INT)")
_TEXTS = (
    *(
        "''",
        "'a'",
        "'ß😀'",
        "'é%_\\\\'",
        "'2147483648'",
        "'-1e400'",
        "'NaN'",
        "'2024-02-30'",
        "'9999-12-31T23:59:59.999'",
    ),
    *(
        "'('",
        "'[a-'",
        "'$['",
        "'{\"a\":'",
        "'yyyy-bb'",
        "'Nowhere/Town'",
        "'%zz'",
        "LPAD('', 70000, 'x')",
        "'0001-01-01'",
    ),
)
_LITERALS: Final[dict[str, tuple[str, ...]]] = {
    "INT": _INTS,
    "BIGINT": (
        "CAST(0 AS BIGINT)",
        "9223372036854775807",
        "-9223372036854775807 - 1",
        "40000000000",
        "CAST(-1 AS BIGINT)",
    ),
    "DOUBLE": (
        "0e0",
        "-0e0",
        "1e308",
        "-1e308",
        "5e-324",
        "CAST('NaN' AS DOUBLE)",
        "CAST('-Infinity' AS DOUBLE)",
        "0.285e0",
    ),
    "VARCHAR": _TEXTS,
    "BYTES": ("TO_BYTES('', 'hex')", "TO_BYTES('ff00', 'hex')", "TO_BYTES('616263', 'hex')"),
    "BOOLEAN": ("TRUE", "FALSE"),
    "DATE": ("CAST('0001-01-01' AS DATE)", "CAST('9999-12-31' AS DATE)", "CAST('2024-02-29' AS DATE)"),
    "TIME": ("CAST('00:00' AS TIME)", "CAST('23:59:59.999' AS TIME)"),
    "TIMESTAMP": (
        "CAST('0001-01-01' AS TIMESTAMP)",
        "CAST('9999-12-31T23:59:59.999' AS TIMESTAMP)",
        "FROM_UNIXTIME(0)",
    ),
    "ARRAY": ("ARRAY[{0}]", "ARRAY[{0}, NULL, {0}]"),
    "MAP": ("MAP('' := {0})", "MAP('a' := {0}, 'b' := NULL)"),
}


@dataclass(frozen=True)
class Finding:
    """A pull that answered as none may."""

    text: str
    what: str


def statements(kinds: int, seed: int) -> Iterator[str]:
    """The calls of the engines' campaign, of literals in place of columns."""
    chance = random.Random(seed)
    kinds_of = dict(COLUMNS)
    for text in calls(kinds, seed):
        tree = parse_expression(text)
        for column in list(tree.find_all(exp.Column)):
            if column is not tree and column.name in kinds_of and not column.find_ancestor(exp.Lambda):
                literal = _literal(str(kinds_of[column.name]), chance, large=column.name == SMALL)
                column.replace(parse_expression(literal))
        yield sql_of(tree)


def _literal(kind: str, chance: random.Random, *, large: bool = False) -> str:
    if large:
        return chance.choice(("2147483647", "1000000000", "CAST(-2147483648 AS INT)", "20000000", "3"))
    if chance.random() < 0.05:
        return f"CAST(NULL AS {kind})"
    base = kind.partition("<")[0].partition("(")[0]
    if base == "STRUCT":
        return "STRUCT(name := 'ß', age := 2147483647)"
    if base == "DECIMAL":
        digits, _, scale = kind[8:-1].partition(", ")
        whole = "9" * (int(digits) - int(scale or 0)) or "0"
        number = f"{chance.choice(('', '-'))}{chance.choice((whole, '0'))}.{'9' * int(scale or 0)}".rstrip(".")
        return f"CAST('{number}' AS {kind})"
    found = chance.choice(_LITERALS[base])
    if base in ("ARRAY", "MAP"):
        inner = kind[len(base) + 1 : -1]
        item = inner.partition(", ")[2] if base == "MAP" else inner
        return f"CAST({found.format(_literal(item, chance))} AS {kind})"
    return f"CAST({found} AS {kind})" if base in ("INT", "BIGINT") else found


def asked(session: Interpreter, text: str) -> Finding | None:
    """What is wrong with the answer of a pull."""
    begun = time.monotonic()
    try:
        list(session.run(f"SELECT {text} AS v;"))
    except StrandlineError as error:
        if any(word in error.message for word in RAW):
            return Finding(text, error.message)
    except Exception as error:  # whatever it is, it is what the campaign looks for
        return Finding(text, f"{type(error).__name__}: {error}")
    took = time.monotonic() - begun
    return Finding(text, f"takes {took:.0f} s") if took > MOST_SECONDS else None


def campaign(kinds: int, seed: int, most: int | None = None) -> tuple[int, list[Finding]]:
    """The number of pulls, and the findings.

    Args:
        most: at most so many, drawn by the seed.
    """
    texts = list(dict.fromkeys(statements(kinds, seed)))
    if most is not None:
        texts = random.Random(seed).sample(texts, min(most, len(texts)))
    with tempfile.TemporaryDirectory() as folder:
        session = Interpreter(load_settings(lake=Path(folder)), "extremes")
        return len(texts), [found for found in (asked(session, text) for text in texts) if found is not None]


def main() -> int:
    """Run the campaign as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int)
    given = parser.parse_args()
    begun = time.monotonic()
    count, found = campaign(given.kinds, given.seed, given.most)
    for each in found:
        print(f"{each.text[:300]}\n    {each.what[:300]}")
    print(f"STRANDLINE_SEED={given.seed}: {count:,} pulls, {len(found):,} wrong, {time.monotonic() - begun:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
