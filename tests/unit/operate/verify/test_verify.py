"""A whole lake passes; each kind of damage is found by the check that is there for it, in that table alone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from strandline.jobs.ivm.compiled import keep_compiled
from strandline.jobs.model.errors import UnknownName
from strandline.jobs.operate.verify.findings import Check, Outcome
from strandline.jobs.operate.verify.verify import _outcome, verify
from strandline.state_store.delta import log
from strandline.state_store.delta.checkpoint import as_rows, write_checkpoint
from strandline.state_store.delta.commit import make_checkpoint
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.errors import VersionGone
from strandline.state_store.stored_state import MARK, sealed
from tests.support.on_disk import on_disk
from tests.unit.operate.verify.damage import data_file, flip, head_of, record_of, rewritten, said
from tests.unit.operate.verify.lakes import TABLES, MadeLake

COMMON = {"log", "checkpoint", "sums", "definition", "files", "deletion_vectors", "digest", "row_count", "feed"}


def failures(checks: Sequence[Check]) -> dict[str, set[str]]:
    """{table: the checks that failed}."""
    found: dict[str, set[str]] = {}
    for check in checks:
        if check.ok is False:
            found.setdefault(check.table, set()).add(check.check)
    return found


def test_what_may_not_be_read_is_not_to_be_rebuilt() -> None:
    """Nothing is wrong with the table; and `rebuild --all-broken` goes by the hint."""

    def denied() -> Outcome:
        raise PermissionError(13, "Permission denied", "/lake/tables/totals/_delta_log")

    found = _outcome(denied)
    assert (found.ok, found.where) == (False, "/lake/tables/totals/_delta_log")
    assert (found.hint or "").startswith("check the owner and mode")


def test_whoever_reads_rows_without_a_commit_is_told_what_makes_them_anew(made: MadeLake) -> None:
    path = made.lake.table("totals")
    _lost_commit(made)
    with pytest.raises(VersionGone) as gone:
        read_snapshot(path, 2)
    assert gone.value.hint == "type: strandline rebuild totals"
    newest = log.newest_version(path)
    assert newest is not None
    with pytest.raises(VersionGone) as never:
        log.read_commit(path, newest + 1)
    assert never.value.hint == "read the table anew"


def test_a_healthy_lake_passes_every_check(made: MadeLake) -> None:
    checks = verify(made.settings, deep=True)
    assert [check for check in checks if check.ok is not True] == []
    found = {table: {check.check for check in checks if check.table == table} for table in TABLES}
    assert list(dict.fromkeys(check.table for check in checks)) == [*TABLES[:6], "spread", "spread__stage_1"]
    events = COMMON | {"topic", "offsets"}
    assert found["visits"] == found["visits__dead_letters"] == found["pages__log"] == events
    assert found["spread__stage_1"] == COMMON | {"vector"}
    for computed in ("pages", "totals", "owned", "spread"):
        assert found[computed] == COMMON | {"plan", "vector", "recompute"}


def test_a_table_with_checkpoints_passes(made: MadeLake) -> None:
    for table in TABLES:
        make_checkpoint(made.lake.table(table), head_of(made.lake.table(table)))
    assert [check for check in verify(made.settings, deep=True) if check.ok is not True] == []


# --- damage -------------------------------------------------------------------------------------------------------


def _flipped_commit(made: MadeLake) -> None:
    flip(log.commit_file(made.lake.table("visits"), 1))


def _lost_commit(made: MadeLake) -> None:
    on_disk(log.commit_file(made.lake.table("totals"), 1)).unlink()


def _lost_first_commits(made: MadeLake) -> None:
    on_disk(log.commit_file(made.lake.table("owned"), 0)).unlink()


def _foreign_rows(made: MadeLake) -> None:
    rows = pa.table({"owner": ["Eve"], "n": pa.array([1], pa.int64())})
    write_deltalake(on_disk(made.lake.table("owned")), rows, mode="append", schema_mode="merge")


def _commit_of_another_table(made: MadeLake) -> None:
    said(made.lake.table("spread"), 1, table="another")


def _flipped_checkpoint(made: MadeLake) -> None:
    path = made.lake.table("spread")
    make_checkpoint(path, 2)
    flip(log.checkpoint_file(path, 2))


def _untrue_checkpoint(made: MadeLake) -> None:
    path = made.lake.table("visits")
    live = [action for action in read_snapshot(path, 2).actions if "txn" not in action]
    write_checkpoint(log.checkpoint_file(path, 2), log.hint_file(path), 2, live, as_rows([]))


def _lost_file(made: MadeLake) -> None:
    data_file(made.lake.table("totals")).unlink()


def _flipped_file(made: MadeLake) -> None:
    flip(data_file(made.lake.table("visits")))


def _short_file(made: MadeLake) -> None:
    file = data_file(made.lake.table("owned"))
    file.write_bytes(file.read_bytes()[:-1])


def _flipped_vector(made: MadeLake) -> None:
    (file,) = on_disk(made.lake.table("pages")).glob("deletion_vector_*.bin")
    flip(file, 20)


def _lost_vector(made: MadeLake) -> None:
    (file,) = on_disk(made.lake.table("pages")).glob("deletion_vector_*.bin")
    file.unlink()


def _wrong_digest(made: MadeLake) -> None:
    path = made.lake.table("spread__stage_1")
    digest = record_of(path)["digest"]
    said(path, digest=("1" if digest[0] == "0" else "0") + digest[1:])


def _wrong_count(made: MadeLake) -> None:
    path = made.lake.table("totals")
    said(path, digest=record_of(path)["digest"].partition(":")[0] + ":4")


def _lost_history(made: MadeLake) -> None:
    data_file(made.lake.table("totals"), 1).unlink()


def _untrue_history(made: MadeLake) -> None:
    """The commit before the last says that it brought nothing, and the last takes its rows away."""

    def change(actions: list[dict[str, object]]) -> None:
        actions[:] = [action for action in actions if "add" not in action]

    rewritten(made.lake.table("spread"), 1, change)


def _event_twice(made: MadeLake) -> None:
    event = made.tables["visits"].stored(1)[0]
    made.tables["visits"].apply([event])


def _event_beyond(made: MadeLake) -> None:
    said(made.lake.table("pages__log"), offsets={"pages": {"0": 4}})


def _event_missing(made: MadeLake) -> None:
    said(made.lake.table("visits"), offsets={"clicks": {"0": 3, "1": 5}})


def _first_event_missing(made: MadeLake) -> None:
    table = made.tables["visits"]
    table.apply((), lambda row: (row["_partition"], row["_offset"]) == (0, 0))


def _dead_letter_missing(made: MadeLake) -> None:
    shutil.rmtree(on_disk(made.lake.table("visits__dead_letters")))


def _other_topic(made: MadeLake) -> None:
    said(made.lake.table("pages__log"), topics={"pages": "f" * 32})


def _input_went_back(made: MadeLake) -> None:
    vector = record_of(made.lake.table("owned"))["vector"]
    vector["totals"]["version"] += 1
    said(made.lake.table("owned"), vector=vector)


def _input_of_another_commit(made: MadeLake) -> None:
    vector = record_of(made.lake.table("owned"))["vector"]
    vector["totals"]["nonce"] = "0" * 16
    said(made.lake.table("owned"), vector=vector)


def _input_made_anew(made: MadeLake) -> None:
    vector = record_of(made.lake.table("spread"))["vector"]
    vector["spread__stage_1"]["table"] = "another"
    said(made.lake.table("spread"), vector=vector)


def _other_definition(made: MadeLake) -> None:
    said(made.lake.table("totals"), fingerprint="0" * 16)


def _wrong_rows(made: MadeLake) -> None:
    """A table that is whole in itself, and is not what its SQL says."""
    made.refresh("totals", [{"page": "z", "n": 1, "seconds": 1.0}], None, ["visits"])
    made.refresh("owned", [], None, ["pages", "totals"])


def _other_plan(made: MadeLake) -> None:
    """What a fault in the compiler would leave: whole, of this definition and compiler, and another plan."""
    _rewritten_plan(made, b'"SUM"', b'"MAX"')


def _rewritten_plan(made: MadeLake, old: bytes, new: bytes) -> None:
    file = on_disk(made.lake.compiled("totals"))
    data = file.read_bytes()
    assert old in data
    file.write_bytes(sealed(data.replace(old, new), MARK))


DAMAGES: list[tuple[Callable[[MadeLake], None], str, str]] = [
    (_flipped_commit, "visits", "log"),
    (_lost_commit, "totals", "log"),
    (_lost_first_commits, "owned", "log"),
    (_foreign_rows, "owned", "log"),
    (_commit_of_another_table, "spread", "log"),
    (_flipped_checkpoint, "spread", "checkpoint"),
    (_untrue_checkpoint, "visits", "checkpoint"),
    (_lost_file, "totals", "files"),
    (_flipped_file, "visits", "files"),
    (_short_file, "owned", "files"),
    (_flipped_vector, "pages", "deletion_vectors"),
    (_lost_vector, "pages", "deletion_vectors"),
    (_wrong_digest, "spread__stage_1", "digest"),
    (_wrong_count, "totals", "row_count"),
    (_lost_history, "totals", "feed"),
    (_untrue_history, "spread", "feed"),
    (_event_twice, "visits", "offsets"),
    (_event_beyond, "pages__log", "offsets"),
    (_event_missing, "visits", "offsets"),
    (_first_event_missing, "visits", "offsets"),
    (_dead_letter_missing, "visits", "offsets"),
    (_other_topic, "pages__log", "topic"),
    (_input_of_another_commit, "owned", "vector"),
    (_input_made_anew, "spread", "vector"),
    (_other_definition, "totals", "definition"),
    (_wrong_rows, "totals", "recompute"),
    (_other_plan, "totals", "plan"),
]


@pytest.mark.parametrize(("damage", "table", "check"), DAMAGES, ids=[each[0].__name__ for each in DAMAGES])
def test_damage_is_found_where_it_is_and_nowhere_else(
    made: MadeLake, damage: Callable[[MadeLake], None], table: str, check: str
) -> None:
    damage(made)
    checks = verify(made.settings, deep=True)
    found = failures(checks)
    assert set(found) == {table}
    assert check in found[table]
    for each in checks:
        assert each.what
        if each.ok is False:
            assert each.where
            assert each.hint


def test_an_input_that_went_back_is_told_of_itself_and_of_its_reader(made: MadeLake) -> None:
    _input_went_back(made)
    found = failures(verify(made.settings, deep=True))
    assert set(found) == {"owned", "totals"}
    assert "vector" in found["owned"]
    assert "log" in found["totals"]


def test_a_check_that_stands_on_a_broken_one_says_so(made: MadeLake) -> None:
    _lost_file(made)
    found = {check.check: check for check in verify(made.settings, ["totals"])}
    assert [name for name, check in found.items() if check.ok is None] == ["digest", "row_count", "feed"]
    assert "broken" in found["feed"].what
    assert found["files"].hint == "type: strandline rebuild totals"
    assert str(found["files"].where).endswith(".parquet")


def test_the_way_out_of_a_broken_event_log_is_its_topic(made: MadeLake) -> None:
    _flipped_file(made)
    (broken,) = (check for check in verify(made.settings, ["visits"]) if check.ok is False)
    assert "topic 'clicks'" in str(broken.hint)


def test_definitions_and_tables_can_be_named(made: MadeLake) -> None:
    assert {check.table for check in verify(made.settings, ["spread"])} == {"spread", "spread__stage_1"}
    assert {check.table for check in verify(made.settings, ["pages__log"])} == {"pages__log"}
    with pytest.raises(UnknownName, match="'total'"):
        verify(made.settings, ["total"])


def test_another_plan_is_mended_by_what_its_hint_says(made: MadeLake) -> None:
    _other_plan(made)
    (fault,) = [check for check in verify(made.settings, ["totals"]) if check.ok is False]
    assert (fault.check, fault.where) == ("plan", str(made.lake.compiled("totals")))
    assert fault.hint is not None
    typed = re.search(r"rm '(.*?)'", fault.hint)
    assert typed is not None
    Path(typed[1]).unlink()
    (plan,) = [check for check in verify(made.settings, ["totals"]) if check.check == "plan"]
    assert (plan.ok, plan.what) == (None, "none is stored: it is compiled anew, and the next run stores it")
    keep_compiled(made.catalog.definitions(), made.catalog)
    assert [check for check in verify(made.settings, ["totals"]) if check.ok is not True] == []


@pytest.mark.parametrize(
    ("old", "new", "sealed_again", "why"),
    [
        (b'"SUM"', b'"MAX"', False, "it fails its checksum"),
        (b'"AggregateStage"', b'"NoSuchStage"', True, "it does not read back: 'NoSuchStage'"),
        (b'"compiler":"', b'"compiler":"0 of ', True, "it is of a former definition, or of another compiler"),
    ],
)
def test_a_plan_that_is_not_used_is_noticed_and_no_fault(
    made: MadeLake, old: bytes, new: bytes, sealed_again: bool, why: str
) -> None:
    if sealed_again:
        _rewritten_plan(made, old, new)
    else:
        file = on_disk(made.lake.compiled("totals"))
        file.write_bytes(file.read_bytes().replace(old, new))
    before = on_disk(made.lake.compiled("totals")).read_bytes()
    (plan,) = [check for check in verify(made.settings, ["totals"]) if check.check == "plan"]
    assert (plan.ok, plan.what) == (None, f"{why}: it is compiled anew, and the next run stores it")
    assert on_disk(made.lake.compiled("totals")).read_bytes() == before  # verify changes nothing
