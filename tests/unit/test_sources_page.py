"""The quick start of docs/sources.md, run as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.house.plan import ROOT


def test_the_quick_start_keeps_a_view_over_a_delta_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "sources.md").read_text(), flags=re.DOTALL)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    exec(compile(found[1], "docs/sources.md", "exec"), {})
    printed = capsys.readouterr().out
    assert sorted(re.findall(r"'shop': '(\w)', 'total': (\d)", printed)) == [("a", "5"), ("b", "7")]
