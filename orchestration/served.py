"""The HTTP server beside Dagster: how `make up` starts it, with a token of its own, and where asset pages link to.

DAGSTER_HOME/server/    tokens.json (hashes), token (readable by its owner alone), replicas, idempotency keys
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from strandline.jobs.model.settings import load_settings
from strandline.jobs.server.access.tokens import make_token
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import disk_errors, sync_file, sync_folder

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
    return [
        "-m",
        "strandline.jobs.cli",
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
