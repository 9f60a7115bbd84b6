"""The HTTP server beside Dagster: how `make up` starts it, with a token of its own, and where asset pages link to.

DAGSTER_HOME/server/    tokens.json (hashes), token (readable by its owner alone), replicas, idempotency keys
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from jobs.model.settings import load_settings
from jobs.server.access.tokens import make_token

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from pathlib import Path

HOST: Final = "127.0.0.1"
_NAME: Final = "make-up"
_SCOPES: Final = ("read:*", "write:*", "operate:*")
_URL: Final = "STRANDLINE_SERVER__URL"


def server_command(home: Path, port: int) -> list[str]:
    """The arguments of the Python that runs us, for a server on loopback."""
    folder = home / "server"
    listen = ["--listen", f"{HOST}:{port}"]
    return ["-m", "jobs.cli", "serve", *listen, "--folder", str(folder), "--tokens", str(folder / "tokens.json")]


def token_file(home: Path) -> Path:
    """The file with the server's token; both are made when they are missing.

    Raises:
        CorruptState: the file of the hashes does not read back.
    """
    folder = home / "server"
    tokens, file = folder / "tokens.json", folder / "token"
    if not (tokens.exists() and file.exists()):
        text = make_token(tokens, _NAME, _SCOPES, None)
        file.unlink(missing_ok=True)
        # Made unreadable for others before there is anything to read.
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as made:
            made.write(f"{text}\n")
    return file


def link_assets(environment: MutableMapping[str, str], port: int) -> None:
    """Let Dagster's asset pages link to the server, unless the settings name another place.

    Args:
        environment: of the processes that load the pipelines.
    """
    if load_settings().server.url is None:
        environment[_URL] = f"http://{HOST}:{port}"
