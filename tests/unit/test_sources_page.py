"""The quick starts of docs/sources.md, run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.house.plan import ROOT


@pytest.mark.parametrize(("place", "totals"), [(0, [("a", "5"), ("b", "7")]), (1, [("a", "6"), ("b", "7")])])
def test_the_quick_start_keeps_a_view_over_what_others_write(
    place: int,
    totals: list[tuple[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "sources.md").read_text(), flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(found[place], "docs/sources.md", "exec"), {})
    printed = capsys.readouterr().out
    assert sorted(re.findall(r"'shop': '(\w)', 'total': (\d)", printed)) == totals
