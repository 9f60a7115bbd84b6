"""The classes of Protobuf messages, made from file descriptors at run time.

Each schema has a pool of its own: two schemas of a registry may declare different messages under one name. Files that
every installation has (`google/…`, `confluent/…`) are taken from the libraries that bring them; registries keep none of
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# Registers google/protobuf, google/type and confluent/… in the default pool, as the registry's clients know them.
import confluent_kafka.schema_registry.protobuf  # noqa: F401
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message_factory import GetMessageClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message


def message_class(files: Sequence[FileDescriptorProto], path: Sequence[int]) -> type[Message]:
    """The class of one message of a file.

    Args:
        files: the file, last, after those that it imports; files that every installation has may be left out.
        path: the place of the message in the file, then of the message in that one, …: what a record says before its
            bytes.

    Raises:
        ValueError: the file has no such message, or imports a file that nobody has.
    """
    pool, file = DescriptorPool(), files[-1]
    for each in files:
        _add(pool, each)
    try:
        found = file.message_type[path[0]]
        names = [found.name]
        for place in path[1:]:
            found = found.nested_type[place]
            names.append(found.name)
    except IndexError:
        raise ValueError(f"the schema has no message {'.'.join(map(str, path))}") from None
    full_name = ".".join([*([file.package] if file.package else []), *names])
    made: type[Message] = GetMessageClass(pool.FindMessageTypeByName(full_name))
    return made


def _add(pool: DescriptorPool, file: FileDescriptorProto) -> None:
    for name in file.dependency:
        if not _has(pool, name):
            _add(pool, _of_installation(name))
    try:
        pool.Add(file)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _has(pool: DescriptorPool, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


def _of_installation(name: str) -> FileDescriptorProto:
    try:
        found = Default().FindFileByName(name)
    except KeyError:
        raise ValueError(f"the schema imports '{name}', which it does not refer to") from None
    return FileDescriptorProto.FromString(found.serialized_pb)
