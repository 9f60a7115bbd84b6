"""How many files and hops one thing takes: `python -m infra.house.walk` follows three commands through the product.

    create     CREATE MATERIALIZED VIEW, from its text to the catalog
    commit     one record, from the log to the commit of its view (a drain that needs no JVM)
    epoch      the same by a run that is at work: what one more record takes
    pull       SELECT of one key, from its text to the row

Each command runs in a process of its own. A *file* is a module of the product in which a function ran, a *hop* a call
from one such file into another. What an import runs is not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from infra.house.plan import FACADE, ROOT, TOPS

_PIPELINE = """
CREATE TABLE info (product VARCHAR PRIMARY KEY, category VARCHAR) WITH (KAFKA_TOPIC = 'info', VALUE_FORMAT = 'JSON');
CREATE TABLE visit (product VARCHAR PRIMARY KEY, length INT) WITH (KAFKA_TOPIC = 'visit', VALUE_FORMAT = 'JSON');
"""
_VIEW = """
CREATE MATERIALIZED VIEW longest AS
  SELECT category, MAX(length) AS longest FROM info JOIN visit ON info.product = visit.product GROUP BY category;
"""
_ROWS = "INSERT INTO info VALUES ('a', 'x'); INSERT INTO visit VALUES ('a', 1);"

_FOLLOWED = """
import json, os, sys, threading
files, hops, calls, root, tops = set(), 0, 0, sys.argv[1], tuple(sys.argv[2].split(","))
known = {}

def place(code):
    found = known.get(code.co_filename)
    if found is None:
        path = os.path.realpath(code.co_filename)
        inside = path.startswith(root + os.sep) and path[len(root) + 1 :].split(os.sep)[0] in tops
        found = known[code.co_filename] = path[len(root) + 1 :] if inside else ""
    return found

def follow(frame, event, argument):
    global hops, calls
    if event != "call" or frame.f_code.co_name == "<module>":
        return
    here = place(frame.f_code)
    if not here:
        return
    caller, back = None, frame.f_back
    while back is not None:
        there = place(back.f_code)
        if there and back.f_code.co_name == "<module>":
            return  # an import runs it: the body of a class, an entry in a registry
        caller, back = caller or there, back.f_back
    files.add(here)
    calls += 1
    if caller and caller != here:
        hops += 1

out, leave = sys.argv[3], os._exit

def end(code):
    sys.setprofile(None)
    with open(out, "w") as written:
        json.dump({"files": sorted(files), "hops": hops, "calls": calls}, written)
    leave(code)

def begin():
    threading.setprofile(follow)
    sys.setprofile(follow)
"""

_COMMAND = """
from strandline.jobs.cli.main import main
sys.argv, os._exit = ["strandline", *sys.argv[4:]], end  # a run that is done leaves so
begin()
try:
    main()
except SystemExit as ended:
    end(ended.code or 0)
end(0)
"""

_EPOCH = """
import subprocess
from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.pipeline import opened

insert = [sys.executable, "-m", "strandline.jobs.cli.main", "sql", "-e"]
with opened(load_settings(), "default", None, in_driver=True) as (stream, _):
    for length in range(10, 14):
        statement = f"INSERT INTO visit VALUES ('a', {length});"
        subprocess.run([*insert, statement], check=True, stdout=subprocess.DEVNULL)
        if length == 13:
            begin()
        stream.drain(in_driver=True)
    end(0)
"""
"""The fourth epoch of a run: what is made once for all of them is made by then."""


def followed(lake: Path, *arguments: str, program: str = _COMMAND) -> dict[str, object]:
    """Run `strandline ARGUMENTS` on a lake and count.

    Args:
        program: what is run in its place, which calls `begin` and `end`.

    Raises:
        CalledProcessError: the command failed; its output is on standard error.
    """
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [
            sys.executable,
            "-c",
            _FOLLOWED + program,
            str(ROOT),
            ",".join((*TOPS, *FACADE)),
            out.name,
            *arguments,
        ]
        env = {**os.environ, "STRANDLINE_LAKE": str(lake)}
        subprocess.run(command, check=True, cwd=lake.parent, env=env, stdout=subprocess.DEVNULL)
        found: dict[str, object] = json.loads(Path(out.name).read_text())
        return found


def walks() -> dict[str, dict[str, object]]:
    """The three walks, by name."""
    found: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder, "lake")
        followed(lake, "sql", "-e", _PIPELINE)
        found["create"] = followed(lake, "sql", "-e", _VIEW)
        for rows in (_ROWS, "INSERT INTO visit VALUES ('a', 2);"):
            followed(lake, "sql", "-e", rows)
            found["commit"] = followed(lake, "run", "default", "--mode", "drain")
        found["epoch"] = followed(lake, program=_EPOCH)
        found["pull"] = followed(lake, "sql", "-e", "SELECT * FROM longest WHERE category = 'x';")
    return found


if __name__ == "__main__":
    for name, walk in walks().items():
        files = walk["files"]
        assert isinstance(files, list)
        sys.stdout.write(f"{name:8} {len(files):>4} files {walk['hops']:>6} hops {walk['calls']:>7} calls\n")
