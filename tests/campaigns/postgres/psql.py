"""psql: its commands, \\copy, several statements, variables, completion of names in a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from functools import partial

from tests.campaigns.postgres.checking import check, told

COMMANDS = (
    *(
        "\\d",
        "\\d by_town",
        "\\d+ by_town",
        "\\d everything",
        '\\d "Odd Name"',
        "\\d by_town_pkey",
        "\\d+",
        "\\dt",
        "\\dt+",
    ),
    *(
        "\\dm",
        "\\dm+",
        "\\dv",
        "\\di+",
        "\\ds",
        "\\dn+",
        "\\l+",
        "\\du+",
        "\\df+",
        "\\dT+",
        "\\dT *.*",
        "\\dx",
        "\\dp",
        "\\ddp",
    ),
    *(
        "\\da",
        "\\db+",
        "\\dc",
        "\\dC",
        "\\dd",
        "\\dD",
        "\\det",
        "\\des",
        "\\deu",
        "\\dew",
        "\\dF",
        "\\dFd",
        "\\dFp",
        "\\dFt",
    ),
    *(
        "\\dL+",
        "\\do",
        "\\dO",
        "\\dP",
        "\\drds",
        "\\dRp+",
        "\\dRs",
        "\\dX",
        "\\dy",
        "\\dA+",
        "\\dAc",
        "\\dAf",
        "\\dAo",
        "\\dAp",
    ),
    *("\\dconfig", "\\dl", "\\sv by_town", "\\conninfo", "\\encoding", "\\dt *.*"),
)
SCRIPTS = {
    "gdesc": ("SELECT id, price, numbers FROM everything \\gdesc", "numeric(12,2)"),
    "gset": ("SELECT town AS t FROM by_town ORDER BY town LIMIT 1 \\gset\n\\echo got :t", "got Lima"),
    "several statements": ("SELECT 1 AS a; SELECT 2 AS b \\; SELECT 37 AS c;", "37"),
    "expanded": ("SELECT town FROM by_town WHERE town = 'Rome' \\gx", "RECORD 1"),
    "crosstab": ("SELECT town, visits, n FROM by_town \\crosstabview", "Rome"),
    "timing": ("\\timing on\nSELECT 1;", "Time:"),
    "fetch count": ("\\set FETCH_COUNT 100\nSELECT id FROM by_id ORDER BY id;", "(1000 rows)"),
    "rollback on error": ("\\set ON_ERROR_ROLLBACK on\nBEGIN;\nSELECT nope FROM by_town;\nSELECT 41+1;\nCOMMIT;", "42"),
    "gexec": ("SELECT 'SELECT 40+2' \\gexec", "42"),
    "copy csv": (
        "\\copy (SELECT town, visits FROM by_town ORDER BY town) TO STDOUT CSV HEADER",
        "town,visits\nLima,250",
    ),
    "copy table": ("\\copy by_town TO STDOUT", "Rome\t250"),
    "show all": ("SHOW ALL;", "server_version"),
    "explain": ("EXPLAIN SELECT * FROM by_town;", "the query, as a view"),
    "connect again": ("\\c lake", "You are now connected"),
}


def psql(*arguments: str, text: str | None = None) -> str:
    """What psql prints. Raises RuntimeError with its errors."""
    done = subprocess.run(
        ["psql", "-X", "-v", "VERBOSITY=verbose", sys.argv[1], *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    errors = [line for line in done.stderr.splitlines() if "ERROR" in line and "nope" not in line]
    if errors:
        raise RuntimeError(errors[0])
    return done.stdout


def completed(begun: str, wanted: str) -> bool:
    """Whether a name is completed in a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "dumb"
        os.execvp("psql", ["psql", "-X", sys.argv[1]])
    shown, end, asked = "", time.monotonic() + 20, False
    while time.monotonic() < end and wanted not in shown:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 65536).decode("utf-8", "replace")
        if "=>" in shown and not asked:
            os.write(terminal, f"{begun}\t\t".encode())
            asked = True
    os.write(terminal, b"\x03\\q\n")
    os.close(terminal)
    os.waitpid(child, 0)
    return wanted in shown


def answered(text: str, wanted: str) -> bool:
    """True if the answers to a script hold that."""
    return wanted in psql(text=text)


def main() -> None:
    told(psql("--version"))
    for command in COMMANDS:
        check(command, partial(psql, "-c", command))
    for name, (text, wanted) in SCRIPTS.items():
        check(name, partial(answered, text, wanted), expected=True)
    check(
        "-c twice", lambda: psql("-At", "-c", "SELECT 1", "-c", "\\echo x", "-c", "SELECT 2; SELECT 3"), "1\nx\n2\n3\n"
    )
    check("-1", lambda: psql("-1At", "-c", "SELECT 1", "-c", "SELECT 2"), "1\n2\n")
    check("completion of a relation", lambda: completed("SELECT * FROM by_to", "by_town"), expected=True)
    check("completion of a column", lambda: completed("SELECT * FROM by_town WHERE vis", "visits"), expected=True)


if __name__ == "__main__":
    main()
