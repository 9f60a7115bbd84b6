"""A wrong folder: commands about names and listings say which lake they looked into, or that there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.jobs.cli.main import app


def invoke(lake: Path, *arguments: str) -> tuple[int, str, str]:
    done = CliRunner(env={"STRANDLINE_LAKE": str(lake)}).invoke(app, [*arguments], catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--listen", "127.0.0.1:0"),
        ("sql", "-e", "SHOW TABLES"),
        ("sql", "-e", "SHOW TOPICS"),
        ("sql", "-e", "SELECT * FROM by_shop"),
        ("sql", "-e", "SELECT * FROM by_shop EMIT CHANGES"),
        ("sql", "-e", "DESCRIBE by_shop"),
        ("sql", "-e", "EXPLAIN by_shop"),
        ("sql", "-e", "INSERT INTO by_shop VALUES (1)"),
        ("sql", "-e", "PRINT by_shop"),
        ("sql", "-e", "DROP TABLE by_shop"),
    ],
    ids=lambda arguments: " ".join(arguments[:3]),
)
def test_a_lake_that_is_not_there(arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = invoke(tmp_path / "wrong", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"[store.object_missing] there is no lake yet ({tmp_path / 'wrong'})\n  hint: ")
    assert list(tmp_path.iterdir()) == []


def test_a_lake_that_is_another_one(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    assert invoke(lake, "sql", "-e", "CREATE STREAM s (a INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1)")[0] == 0
    looked = f"\n  lake: {lake} (STRANDLINE_LAKE)\n"
    for arguments in (("sql", "-e", "SELECT * FROM by_shop"), ("run", "shop"), ("sql", "-e", "PRINT by_shop")):
        code, out, err = invoke(lake, *arguments)
        assert (code, out) == (2, "")
        assert looked in err
    assert looked not in invoke(lake, "sql", "-e", "SELECT b FROM s")[2]
    code, out, err = invoke(lake, "sql", "-e", "SHOW TABLES")
    assert (code, err) == (0, f"there are none in the lake {lake}\n")
    assert invoke(lake, "sql", "--json", "-e", "SHOW VIEWS") == (0, "", f"there are none in the lake {lake}\n")
    assert invoke(lake, "sql", "-e", "SHOW STREAMS")[2] == ""
