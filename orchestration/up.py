"""`python -m strandline.orchestration.up [--port N] [--serve-port N]`: Dagster and the server, on
loopback, until Ctrl-C.

State lies in DAGSTER_HOME, by default `.dagster` in the working directory. Dagster reads its settings from there, so
the package's dagster.yaml is linked into it: one file to edit, whatever the home.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from strandline.jobs.model.settings import load_settings
from strandline.jobs.server.state.access import make_token
from strandline.orchestration.launch import ProcessGroup, last_lines, signals_held_back
from strandline.state_store.errors import SettingsError, StrandlineError
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import disk_errors, make_folder, sync_file, sync_folder
from strandline.state_store.layout import LakeLayout

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence
    from types import FrameType


# The HTTP server beside Dagster: how `make up` starts it, with a token of its own, and where asset pages link to.
#
# DAGSTER_HOME/server/    tokens.json (hashes), token (readable by its owner alone), replicas, idempotency keys

HOST: Final = "127.0.0.1"
_NAME: Final = "make-up"
_SCOPES: Final = ("read:*", "write:*", "operate:*")
_URL: Final = "STRANDLINE_SERVER__URL"


def server_command(home: Path, port: int) -> list[str]:
    """The arguments of the Python that runs us, for a server on loopback."""
    folder = home / "server"
    listen = ["--listen", f"{HOST}:{port}"]
    return [
        "-m",
        "strandline.jobs.cli.main",
        "serve",
        *listen,
        "--folder",
        str(folder),
        "--tokens",
        str(folder / "tokens.json"),
    ]


def token_file(home: Path) -> Path:
    """The file with the server's token; both are made when they are missing.

    Raises:
        CorruptState: the file of the hashes does not read back.
        DiskFailed: the disk is full or broken.
    """
    folder = home / "server"
    tokens, file = folder / "tokens.json", folder / "token"
    if not (tokens.exists() and file.exists()):
        # The order for a kill: never a token whose hash is another's, nor a file without its token.
        file.unlink(missing_ok=True)
        text = make_token(tokens, _NAME, _SCOPES, None)
        failpoint("before-token-file")
        _write_private(file, f"{text}\n")
    return file


def _write_private(file: Path, text: str) -> None:
    """Write a file in one step; nobody else can read it at any moment."""
    temporary = file.with_name(f".{file.name}.tmp")
    with disk_errors(file):
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as made:
            failpoint("inside-token-file")
            made.write(text)
        sync_file(temporary)
        os.replace(temporary, file)
    sync_folder(file.parent)


def link_assets(environment: MutableMapping[str, str], port: int) -> None:
    """Let Dagster's asset pages link to the server, unless the settings name another place.

    Args:
        environment: of the processes that load the pipelines.
    """
    if load_settings().server.url is None:
        environment[_URL] = f"http://{HOST}:{port}"


# The processes behind `make up`, each kept alive: one that ends by itself is started again.
#
# Runs and streams do not depend on them; without the daemon nothing is scheduled, and without the webserver nothing
# is shown; without the server nobody reads over HTTP.

# The webserver and the daemon each stop a code server of their own first; they need 2–5 s.
GRACE_SECONDS: Final = 20.0
RESTARTS: Final = 5
"""A service that ends as often within `SETTLED_SECONDS` of each start will not stay: the reason is in its log."""
SETTLED_SECONDS: Final = 300.0
_LOG_TAIL_LINES: Final = 20


@dataclass
class Service:
    """One service: its command, the file its output goes to, and its process.

    Args:
        name: as messages call it.
        arguments: of the Python that runs us.
    """

    name: str
    arguments: Sequence[str]
    log: Path
    process: ProcessGroup = field(init=False)
    _began: float = field(init=False, default=0.0)
    _ends: int = field(init=False, default=0)
    _former: list[ProcessGroup] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.log.parent.mkdir(exist_ok=True)
        self.log.write_text("")
        self._start()

    def tail(self) -> str:
        """The last lines of its output."""
        return "\n".join(last_lines(self.log, _LOG_TAIL_LINES))

    def stop(self) -> None:
        """End it with all that it started, also before it was last started again."""
        for process in (self.process, *self._former):
            process.stop(GRACE_SECONDS)

    def revive(self) -> bool:
        """Start it again if it has ended; false when it has ended too often."""
        if self.process.poll() is None:
            return True
        self._ends = self._ends + 1 if time.monotonic() - self._began < SETTLED_SECONDS else 1
        if self._ends > RESTARTS:
            return False
        print(f"{self.name} ended by itself and is started again; see {self.log}", file=sys.stderr)
        # What it started is left alone: runs are among it. Its code server ends by itself, once they have ended.
        self._former.append(self.process)
        self._start()
        return True

    def _start(self) -> None:
        self._began = time.monotonic()
        with self.log.open("a") as output, signals_held_back():
            self.process = ProcessGroup([sys.executable, *self.arguments], stdout=output, stderr=output)


_HOST = "127.0.0.1"
_PORT = 3000
_SERVE_PORT = 8088
_HERE = Path(__file__).resolve().parent
# Measured: the webserver answers after 17 s on two busy cores; it waits for a process that loads the code location.
_READY_WITHIN_SECONDS = 180.0
# Of one look. The first answer of a webserver that has just begun to listen takes seconds on a slow machine, and a look
# that gives up before it would never see it.
_ANSWER_SECONDS = 30.0
_POLL_SECONDS = 0.5
_LOCATIONS = """
{ workspaceOrError { ... on Workspace { locationEntries {
    locationOrLoadError { ... on PythonError { message causes { message } } }
} } } }
"""


def main(arguments: list[str] | None = None) -> int:
    """Start all three, print the URLs, wait for Ctrl-C or SIGTERM, stop them with all that they started.

    Returns:
        0 after Ctrl-C; 1 when one of them ends again and again; 2 when they cannot be started.
    """
    parser = argparse.ArgumentParser(prog="python -m strandline.orchestration.up", description=__doc__)
    parser.add_argument("--port", type=int, default=_PORT, help=f"port of the webserver on {_HOST} (default {_PORT})")
    parser.add_argument("--serve-port", type=int, default=_SERVE_PORT, help=f"of the server (default {_SERVE_PORT})")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        home = prepare_home(os.environ)
        _require_free(options.port, "--port 3001")
        _require_free(options.serve_port, "--serve-port 8089")
        token = token_file(home)
        link_assets(os.environ, options.serve_port)
        create_storage(home)
        make_folder(
            LakeLayout(load_settings().lake).catalog
        )  # a first lake may be made from Dagster: the server waits for it
        return _serve(home, options.port, options.serve_port, token)
    except StrandlineError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 0


def prepare_home(environment: Mapping[str, str]) -> Path:
    """Make DAGSTER_HOME and link dagster.yaml into it. A file of the user's own at that place is kept.

    Returns:
        Its absolute path; Dagster refuses a relative one.
    """
    home = Path(environment.get("DAGSTER_HOME", ".dagster")).expanduser().absolute()
    home.mkdir(parents=True, exist_ok=True)
    link = home / "dagster.yaml"
    if link.is_symlink():
        link.unlink()
    if not link.exists():
        link.symlink_to(_HERE / "dagster.yaml")
    return home


def create_storage(home: Path) -> None:
    """Create or upgrade Dagster's databases before its processes start: two that do so at once disturb each other.

    Dagster is imported only here: that takes some seconds.
    """
    os.environ["DAGSTER_HOME"] = str(home)
    from dagster import DagsterInstance

    with DagsterInstance.from_config(str(home)):
        pass


def _serve(home: Path, port: int, serve_port: int, token: Path) -> int:
    workspace = str(_HERE / "workspace.yaml")
    commands = {
        "Dagster's webserver": ["-m", "dagster_webserver", "-h", _HOST, "-p", str(port), "-w", workspace],
        "Dagster's daemon": ["-m", "dagster._daemon", "run", "-w", workspace],
        "the server": server_command(home, serve_port),
    }
    with ExitStack() as stack:
        services = []
        for name, arguments in commands.items():
            with signals_held_back():
                services.append(Service(name, arguments, _logs(home) / f"{name.split()[-1]}.log"))
                stack.callback(services[-1].stop)
        print(f"starting Dagster (home {home}, logs {_logs(home)}) …", file=sys.stderr)
        url, served = f"http://{_HOST}:{port}", f"http://{_HOST}:{serve_port}"
        _wait_until_ready(f"{served}/health", services)
        _wait_until_ready(f"{url}/server_info", services)
        fault = load_fault(url)
        if fault is not None:
            print(f"Dagster could not load the pipelines; correct this and reload in the UI:\n{fault}", file=sys.stderr)
        print(f"rows, changes and queries: {served}   (the token is in {token})")
        print(f"Dagster is up: {url}   (Ctrl-C stops it)", flush=True)
        return _watch(services)


def _logs(home: Path) -> Path:
    # Not `logs`: that folder of DAGSTER_HOME is Dagster's own, and it empties it.
    return home / "output"


def _wait_until_ready(url: str, services: list[Service]) -> None:
    deadline = time.monotonic() + _READY_WITHIN_SECONDS
    while not _answers(url):
        _require_alive(services)
        if time.monotonic() > deadline:
            raise SettingsError(
                f"{url} does not answer after {_READY_WITHIN_SECONDS:g} s",
                hint=f"see the logs in {services[0].log.parent}",
            )
        time.sleep(_POLL_SECONDS)


def load_fault(url: str) -> str | None:
    """The cause of the webserver's failure to load the code location, without Dagster's wrapping; None on success."""
    request = urllib.request.Request(  # noqa: S310 - the operator's own setting, checked to be http(s)
        f"{url}/graphql", json.dumps({"query": _LOCATIONS}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_READY_WITHIN_SECONDS) as answer:  # noqa: S310
        entries = json.load(answer)["data"]["workspaceOrError"].get("locationEntries", [])
    for entry in entries:
        error = entry["locationOrLoadError"] or {}
        if "message" in error:
            return str([*error["causes"], error][0]["message"]).strip()
    return None


def _watch(services: list[Service]) -> int:
    while all(service.revive() for service in services):
        time.sleep(_POLL_SECONDS)
    ended = next(service for service in services if service.process.poll() is not None)
    print(f"{ended.name} ends again and again; its last lines:\n{ended.tail()}", file=sys.stderr)
    return 1


def _require_alive(services: list[Service]) -> None:
    for service in services:
        code = service.process.poll()
        if code is not None:
            raise SettingsError(
                f"{service.name} ended with code {code}", where=str(service.log), hint=f"\n{service.tail()}"
            )


def _require_free(port: int, other: str) -> None:
    with socket.socket() as probe:
        # A port that is only waiting for old connections to time out is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise SettingsError(
                f"port {port} is taken",
                where=_HOST,
                hint=f"choose another: python -m strandline.orchestration.up {other}",
            ) from error


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310 - our own loopback address
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
