#!/usr/bin/env bash
# Installs Chromium by the system's package manager, for the tests of pages and for their pictures. Ends with 1, and the
# reason, where it cannot: those tests are skipped then. At most three minutes.
set -uo pipefail

say() {
  echo "strandline: no browser, so the tests of pages are skipped: $1" >&2
  exit 1
}

command -v chromium >/dev/null && exit 0
command -v apt-get >/dev/null || say "install chromium"
root=()
if [ "$(id -u)" -ne 0 ]; then
  sudo -n true 2>/dev/null || say "apt-get install chromium, as root"
  root=(sudo -n)
fi
apt() {
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive timeout "$1" apt-get -qq -o DPkg::Lock::Timeout=20 \
    -o Acquire::Retries=1 -o Acquire::http::Timeout=10 -o Acquire::https::Timeout=10 "${@:2}" >/dev/null 2>&1
}
# The lists that are there may do; a container often has none.
apt 90 install --yes --no-install-recommends chromium ||
  { apt 30 update && apt 60 install --yes --no-install-recommends chromium; } ||
  say "apt-get has no chromium for this system"
command -v chromium >/dev/null || say "what apt-get installed is no command chromium"
