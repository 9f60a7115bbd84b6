"""The sockets of a server: bound before anything is started. A port that is taken is an error with a way out."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack

from strandline.state_store.errors import SettingsError


def bound(host: str, port: int, option: str) -> list[socket.socket]:
    """A socket for each address that the host stands for, which accepts nobody yet.

    Args:
        option: that the port was given by, for the message.

    Raises:
        SettingsError: the host is unknown or not of this machine, or the port is taken or reserved.
    """
    with ExitStack() as opened:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            addresses = dict.fromkeys((family, address) for family, _, _, _, address in found)
            made = [opened.enter_context(socket.create_server(address, family=family)) for family, address in addresses]
        except OSError as error:
            known = error.errno if isinstance(error.errno, int) and error.errno > 0 else 0
            why = (os.strerror(known) if known else error.strerror or str(error)).lower()
            raise SettingsError(
                f"the server cannot listen on {host}, port {port}: {why}",
                hint=f"take another with {option}, or end what listens there: ss -ltnp 'sport = :{port}'",
            ) from error
        opened.pop_all()
        return made
