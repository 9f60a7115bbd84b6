"""The commands of the server: serve, and token, which makes one of its tokens."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from strandline.jobs.cli.exits import exit_codes
from strandline.jobs.cli.name_map import load_settings
from strandline.jobs.cli.output import say


class ReplicaBackend(StrEnum):
    """The backends of replicas, as the option names them."""

    rocksdb = "rocksdb"
    memory = "memory"
    lmdb = "lmdb"
    dynamodb = "dynamodb"


def add_serving(app: typer.Typer) -> None:
    """Add the commands to the command `strandline`."""
    for command in (serve, token):
        app.command()(command)


def serve(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT")] = "127.0.0.1:8088",
    folder: Annotated[Path, typer.Option(help="for replicas and idempotency keys")] = Path("strandline-server"),
    tokens: Annotated[Path | None, typer.Option(help="file of tokens; see `strandline token`")] = None,
    certificate: Annotated[Path | None, typer.Option(help="of TLS, PEM")] = None,
    key: Annotated[Path | None, typer.Option(help="of TLS, PEM")] = None,
    postgres_port: Annotated[
        int | None, typer.Option(help="PostgreSQL's clients connect here, on the same host")
    ] = None,
    replica: Annotated[
        ReplicaBackend | None,
        typer.Option(help="what holds the replicas; default: the setting server.replica, rocksdb"),
    ] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="a name by which browsers reach the server, or a proxy's")
    ] = None,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="a line of JSON for each request")] = False,
) -> None:
    """Answer pull and push queries and inserts over HTTP, until Ctrl-C or SIGTERM."""
    from strandline.jobs.server.access.options import ServerOptions
    from strandline.jobs.server.app import listen as answer

    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal():
        raise typer.BadParameter("--listen is HOST:PORT")
    with exit_codes():
        settings = load_settings()
        if replica is not None:
            server = settings.server.model_copy(update={"replica": replica.value})
            settings = settings.model_copy(update={"server": server})
        options = ServerOptions(
            *(folder.absolute(), host.strip("[]"), int(port), tokens, certificate, key, postgres_port),
            allowed_hosts=tuple(allowed_host or ()),
        )

        def ready(bound: int) -> None:
            say(f"serving the lake {settings.lake}")
            say(f"listening on http{'s' if certificate else ''}://{host}:{bound}")
            if postgres_port is not None:
                say(f"listening on postgresql://{host}:{postgres_port}")

        answer(settings, options, log_requests=log_requests, ready=ready)


def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="whose it is; one of that name is replaced")],
    scope: Annotated[
        list[str] | None, typer.Option(help="read:VIEW, write:STREAM or operate:*; VIEW may hold *")
    ] = None,
    file: Annotated[Path, typer.Option(help="the file of tokens, made if it is not there")] = Path("tokens.json"),
    days: Annotated[int | None, typer.Option(help="it expires after so many")] = None,
    revoke: Annotated[bool, typer.Option("--revoke", help="remove the token of that name")] = False,
) -> None:
    """Make a token for the server and print it, once: the file keeps a hash of it. Or remove one."""
    from strandline.jobs.server.access.options import make_token, revoke_token

    if bool(scope) == revoke:
        raise typer.BadParameter("give --scope for a new token, or --revoke, and not both")
    with exit_codes():
        if revoke:
            revoke_token(file, name)
            say(f"the token '{name}' is not valid any more")
        else:
            print(make_token(file, name, tuple(scope or ()), days))
