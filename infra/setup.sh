#!/usr/bin/env bash
# Makes the virtual environment from the lock file and fetches the jars. What is missing on the machine is said in one
# line, with exit code 2.
set -euo pipefail

venv=${1:-.venv}
cd "$(dirname "$0")/.."

# The environment with its jars takes 1.6 GB; pip unpacks beside it.
needed_mb=3000

missing() {
  echo "strandline: $1" >&2
  exit 2
}

find_python() {
  local name
  for name in "${STRANDLINE_PYTHON:-}" python3.13 python3.12 python3.11 python3 python; do
    [ -n "$name" ] || continue
    if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1; then
      echo "$name"
      return
    fi
  done
}

find_java() {
  local java=java
  [ -z "${JAVA_HOME:-}" ] || java="$JAVA_HOME/bin/java"
  "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

python=$(find_python)
[ -n "$python" ] || missing "Python 3.11, 3.12 or 3.13 is needed: install it (Debian: apt install python3 python3-venv)"

java=$(find_java || true)
case "$java" in
  17 | 21) ;;
  "") missing "Java 17 or 21 is needed: install it (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME" ;;
  *) missing "Java 17 or 21 is needed, found $java: set JAVA_HOME to one (Debian: apt install openjdk-17-jre-headless)" ;;
esac

free_mb=$(df -Pm . | awk 'NR == 2 {print $4}')
if [ ! -x "$venv/bin/python" ] && [ "$free_mb" -lt "$needed_mb" ]; then
  missing "$needed_mb MB of free disk are needed here, found $free_mb MB: free some space"
fi

"$python" -c 'import venv, ensurepip' 2>/dev/null ||
  missing "Python's venv module is needed: install it (Debian: apt install python3-venv)"

# A link, or a copied environment, belongs to another checkout: pip would write this one's paths into the other's scripts.
if [ -L "$venv" ]; then
  missing "$venv is a link to $(readlink "$venv"), the environment of another checkout: remove the link, then try again"
fi
if [ -e "$venv/pyvenv.cfg" ]; then
  made=$(sed -nE 's/^command = .* -m venv (--[^ ]+ )*//p' "$venv/pyvenv.cfg")
  if [ -n "$made" ] && [ "$(realpath -m "$made")" != "$(realpath "$venv")" ]; then
    missing "$venv was made as $made, for another checkout: remove it, then try again"
  fi
fi

echo "strandline: preparing $venv (a few minutes, once)" >&2
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
# Each command is a process of its own: where Python may write no byte code later, it would compile 500 modules each time.
"$venv/bin/python" -m compileall -q jobs state_store orchestration
"$venv/bin/python" -m strandline.jobs.run.jars delta >/dev/null
"$venv/bin/python" -m strandline.jobs.run.spark >/dev/null 2>&1 ||
  echo "strandline: no class archive could be written; Spark starts, more slowly" >&2
touch "$venv/.ready"
