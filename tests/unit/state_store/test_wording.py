"""Sentences in which names of tables are values, and every place where the product writes one."""

from __future__ import annotations

import ast
import copy
import json
import pickle
from pathlib import Path

import pytest

from strandline.state_store import wording
from strandline.state_store.commits import CommitRecord
from strandline.state_store.wording import Name, Text, joined, quoted, sentence

ROOT = Path(__file__).resolve().parents[3]


def test_names_are_values_until_the_sentence_is_printed() -> None:
    text = sentence("'{}' is read by {}", Name("a"), quoted(["a__x", "b"]))
    assert text == "'a' is read by 'a__x', 'b'"
    assert text.localized(str.upper) == "'A' is read by 'A__X', 'B'"
    assert wording.localized("a text of 'a'", str.upper) == "a text of 'a'"


def test_copies_keep_the_names() -> None:
    text = joined("; ", [sentence("stop: {}", sentence("'{}'", Name("a"))), "a"])
    for each in (copy.deepcopy(text), pickle.loads(pickle.dumps(text)), str(text), Text(text)):
        assert wording.localized(each, str.upper) == "stop: 'A'; a"


def test_the_reason_of_a_commit_keeps_its_names() -> None:
    record = CommitRecord(epoch=1, reason=sentence("changes of '{}', not of 'a'", Name("a")))
    stored = record.to_json()
    assert json.loads(stored)["strandline"]["reason"] == ["changes of '", {"table": "a"}, "', not of 'a'"]
    read = CommitRecord.from_json(stored)
    assert read == record
    assert wording.localized(read.reason, str.upper) == "changes of 'A', not of 'a'"
    plain = CommitRecord(epoch=1, reason="first use")
    assert CommitRecord.from_json(plain.to_json()) == plain


@pytest.mark.parametrize("room", ["jobs", "state_store", "orchestration", "strandline"])
def test_each_sentence_has_a_place_for_each_value(room: str) -> None:
    wrong, seen = [], 0
    for path in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sentence"):
                continue
            seen += 1
            template, *values = node.args
            text = template.value if isinstance(template, ast.Constant) else None
            if not isinstance(text, str) or text.count("{}") != len(values):
                wrong.append(f"{path}:{node.lineno}")
    assert not wrong
    assert seen or room in ("orchestration", "strandline")
