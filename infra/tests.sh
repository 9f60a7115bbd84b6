#!/usr/bin/env bash
# infra/tests.sh NAME PYTEST-ARGUMENTS…: one group of tests.
#
# Of at most three tests that fail, each is run once more when the group has ended, and the output says so: tests that
# kill processes and wait for them lose now and then against a machine that stands still for seconds. A fault fails
# twice. More than three are a fault of the tree, and fail at once. `make nightly` runs nothing twice.
set -uo pipefail
FEW=3
name=$1
shift
python="${VENV:-.venv}/bin/python"
cache="$PWD/.pytest_cache/$name"

"$python" -m pytest -o cache_dir="$cache" "$@"
code=$?
# 1 says that tests failed; every other code is of pytest itself.
[ "$code" -eq 1 ] || exit "$code"
failed=$("$python" -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$cache/v/cache/lastfailed")
[ -n "$failed" ] && [ "$(wc -l <<<"$failed")" -le "$FEW" ] || exit "$code"
printf '\n%s: FAILED ONCE, run again:\n%s\n\n' "$name" "$failed"
exec "$python" -m pytest -o cache_dir="$cache" --last-failed --last-failed-no-failures none "$@"
