"""The environment in which the tests run dbt: `python -m infra.dbt_environment` makes it, in `dbt` below this one.

dbt-core 1.11 asks for an older pathspec than the checker of types, so the two have no environment together; what users
install has no such conflict. This one has dbt's packages from their own lock file; everything else it finds in the
environment beside it, but no checkout: whoever starts Python there names one by PYTHONPATH.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from infra.house.plan import ROOT

DISTRIBUTION = ROOT / "infra" / "dbt-strandline"
LOCK = DISTRIBUTION / "requirements.lock"


def prepare() -> Path:
    """Make the environment, unless it is there as the lock file says; its interpreter.

    Raises:
        CalledProcessError: pip cannot install something; its output is on standard error.
    """
    home = Path(sys.prefix) / "dbt"
    python, made_of = home / "bin" / "python", home / LOCK.name
    if made_of.is_file() and made_of.read_bytes() == LOCK.read_bytes():
        return python
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--require-hashes", "-r", str(LOCK)], check=True)
    purelib = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    # A path in a .pth file is searched; the .pth files that lie there, the editable install's among them, are not read.
    (purelib / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    shutil.copy(LOCK, made_of)
    return python


if __name__ == "__main__":
    prepare()
