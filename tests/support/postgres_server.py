"""A server with a port for PostgreSQL's clients, in a thread of this process."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from infra.ports import free_port
from strandline.jobs.model.settings import Settings
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions
from tests.support.listening import listening


@contextmanager
def postgres_server(settings: Settings, options: ServerOptions) -> Iterator[str]:
    """How a client connects to it, as libpq reads it, while it runs."""
    port = free_port()
    with listening(application(settings, replace(options, postgres_port=port))):
        yield f"host=127.0.0.1 port={port} user=me dbname=lake"


def certificate_in(folder: Path) -> tuple[Path, Path]:
    """The files of a certificate for this machine, signed by itself, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "server.crt", folder / "server.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private
