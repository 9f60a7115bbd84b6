"""Upper and lower case: each letter becomes one letter, whatever stands beside it, as DuckDB and Unicode 15 have it.

Spark asks ICU, which makes several letters of some (`ß` is SS there), looks at the neighbours of `Σ`, and knows letters
that are younger. Where a text has a letter of those, Spark's text of a call takes the letters one by one.
"""

from __future__ import annotations

from strandline.jobs.functions.scalars.literals import quoted

_UNCHANGED_UPPER = (
    *(0x149, 0x19B, 0x1F0, 0x264, 0x390, 0x3B0, 0x587, 0x1C8A, *range(0x1E96, 0x1E9B)),
    *(0x1F50, 0x1F52, 0x1F54, 0x1F56, *range(0x1F88, 0x1F90), *range(0x1F98, 0x1FA0), *range(0x1FA8, 0x1FB0)),
    *(0x1FB2, 0x1FB4, 0x1FB6, 0x1FB7, 0x1FBC, 0x1FC2, 0x1FC4, 0x1FC6, 0x1FC7, 0x1FCC, 0x1FD2, 0x1FD3, 0x1FD6, 0x1FD7),
    *(0x1FE2, 0x1FE3, 0x1FE4, 0x1FE6, 0x1FE7, 0x1FF2, 0x1FF4, 0x1FF6, 0x1FF7, 0x1FFC),
    *(0xA7CD, 0xA7CF, 0xA7D3, 0xA7D5, 0xA7DB, *range(0xFB00, 0xFB07), *range(0xFB13, 0xFB18)),
    *(*range(0x10D70, 0x10D86), *range(0x16EBB, 0x16ED4)),
)
_OTHER_UPPER = {
    0xDF: 0x1E9E,
    **{small: small + 8 for first in (0x1F80, 0x1F90, 0x1FA0) for small in range(first, first + 8)},
    **{0x1FB3: 0x1FBC, 0x1FC3: 0x1FCC, 0x1FF3: 0x1FFC},
}
_UNCHANGED_LOWER = (
    *(0x1C89, 0xA7CB, 0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA, 0xA7DC),
    *(*range(0x10D50, 0x10D66), *range(0x16EA0, 0x16EB9)),
)
_OTHER_LOWER = {0x130: 0x69, 0x3A3: 0x3C3}


def _by_letter(function: str, text: str, unchanged: tuple[int, ...], other: dict[int, int]) -> str:
    special = "".join(map(chr, (*unchanged, *other)))
    any_special = "[" + "".join(f"\\x{{{ord(each):x}}}" for each in special) + "]"
    source, target = ("".join(map(chr, codes)) for codes in (other, other.values()))
    one = (
        f"CASE WHEN contains({quoted(special, 'spark')}, __l)"
        f" THEN translate(__l, {quoted(source, 'spark')}, {quoted(target, 'spark')}) ELSE {function}(__l) END"
    )
    each = f"array_join(transform(regexp_extract_all({text}, '(?s).', 0), __l -> {one}), '')"
    return f"CASE WHEN regexp_like({text}, {quoted(any_special, 'spark')}) THEN {each} ELSE {function}({text}) END"


def upper_spark(text: str) -> str:
    """The text in capital letters, as Spark writes it; DuckDB's is `upper`."""
    return _by_letter("upper", text, _UNCHANGED_UPPER, _OTHER_UPPER)


def lower_spark(text: str) -> str:
    """The text in small letters, as Spark writes it; DuckDB's is `lower`."""
    return _by_letter("lower", text, _UNCHANGED_LOWER, _OTHER_LOWER)
