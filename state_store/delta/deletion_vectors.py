"""Deletion vectors: the deleted rows of a data file, as Delta's protocol stores them.

A vector is a set of row positions in a 64-bit Roaring bitmap, in a file beside the data or in the log itself:

    deletion_vector_<uuid>.bin      0x01 | for each vector: size (4 bytes) | content | CRC-32 of the content
    content                         magic (4 bytes) | the bitmap in Roaring's portable form

Sizes and checksums are big-endian, the content little-endian.
"""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import numpy as np
from pyroaring import BitMap64

from strandline.state_store.errors import CorruptState, VersionGone
from strandline.state_store.files import Unchanged, write_new
from strandline.state_store.layout import table_at
from strandline.state_store.paths import open_file
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from strandline.state_store.paths import LakePath

_MAGIC: Final = struct.pack("<i", 1681511377)
"""The mark of Delta's 64-bit bitmap in Roaring's portable form."""
_FILE_FORMAT: Final = b"\x01"

_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85: Final = str.maketrans(_Z85, _B85)
_TO_Z85: Final = str.maketrans(_B85, _Z85)

_VECTORS: Final = Unchanged[BitMap64](16 << 20)
"""An epoch asks up to three times for the vectors of a table, and the next one asks for them again."""


@dataclass(frozen=True)
class VectorFile:
    """A file of vectors that no commit names yet.

    Attributes:
        descriptors: {data file: the `deletionVector` of its action}.
    """

    path: LakePath
    descriptors: Mapping[str, Mapping[str, Any]]


def write_vectors(table: LakePath, vectors: Mapping[str, BitMap64]) -> VectorFile:
    """Write the vectors of several data files into one file below the table, and flush it."""
    name = uuid4()
    data, descriptors = bytearray(_FILE_FORMAT), {}
    for file, positions in vectors.items():
        content = _MAGIC + positions.serialize()
        descriptors[file] = {
            "storageType": "u",
            "pathOrInlineDv": base64.b85encode(name.bytes).decode().translate(_TO_Z85),
            "offset": len(data),
            "sizeInBytes": len(content),
            "cardinality": len(positions),
        }
        data += struct.pack(">i", len(content)) + content + struct.pack(">I", zlib.crc32(content))
    path = table / f"deletion_vector_{name}.bin"
    write_new(path, bytes(data))
    return VectorFile(path, descriptors)


def deleted_rows(table: LakePath, descriptor: Mapping[str, Any] | None) -> BitMap64:
    """The positions of the rows that a vector deletes. Several readers may get the same ones, and must not change them.

    Args:
        descriptor: the `deletionVector` of an action in the log; None: there is no vector, and no row is deleted.

    Raises:
        VersionGone: the vector's file is gone.
        CorruptState: the vector is broken, or lies outside the table.
    """
    if descriptor is None:
        return BitMap64()
    try:
        positions = _read(table, descriptor)
        expected = int(descriptor["cardinality"])
    except FileNotFoundError as error:
        raise VersionGone(sentence("a deletion vector of '{}' is gone", table_at(table)), where=str(table)) from error
    except (struct.error, ValueError, KeyError, TypeError, OSError, MemoryError) as error:
        raise CorruptState(
            sentence("a deletion vector of '{}' does not read back", table_at(table)), where=str(table)
        ) from error
    if len(positions) != expected:
        raise CorruptState(sentence("a deletion vector of '{}' has lost rows", table_at(table)), where=str(table))
    return positions


def deleted_positions(table: LakePath, descriptor: Mapping[str, Any] | None, rows: int) -> NDArray[np.int64]:
    """The positions of `deleted_rows`, ascending; none without a vector.

    Args:
        rows: of the data file, deleted ones included.

    Raises: as `deleted_rows`; CorruptState: the vector names a row that the file does not have.
    """
    gone = deleted_rows(table, descriptor)
    if gone and gone.max() >= rows:
        raise CorruptState(
            sentence("a deletion vector of '{}' names rows that are not there", table_at(table)), where=str(table)
        )
    return np.array(gone.to_array(), np.int64)


def vector_file(table: LakePath, descriptor: Mapping[str, Any]) -> LakePath | None:
    """The file that holds a vector; None for one that is in the log itself."""
    if descriptor["storageType"] == "i":
        return None
    text = str(descriptor["pathOrInlineDv"])
    prefix, name = text[:-20], UUID(bytes=_z85(text[-20:]))
    folder = table / prefix if prefix.isalnum() else table
    return folder / f"deletion_vector_{name}.bin"


def _read(table: LakePath, descriptor: Mapping[str, Any]) -> BitMap64:
    file = vector_file(table, descriptor) if descriptor["storageType"] == "u" else None
    if file is None:
        return _decoded(_bytes(table, descriptor))
    part = (int(descriptor.get("offset") or 0), int(descriptor["sizeInBytes"]))
    return _VECTORS.read(file, lambda: _decoded(_bytes(table, descriptor)), part)


def _bytes(table: LakePath, descriptor: Mapping[str, Any]) -> bytes:
    size = int(descriptor["sizeInBytes"])
    match descriptor["storageType"]:
        case "i":
            return _z85(str(descriptor["pathOrInlineDv"]))[:size]
        case "u":
            file = vector_file(table, descriptor)
            assert file is not None
            with open_file(file) as opened:
                opened.seek(int(descriptor.get("offset") or 0))
                (stored,) = struct.unpack(">i", opened.read(4))
                if stored != size:
                    raise CorruptState(
                        sentence("a deletion vector of '{}' has another size", table_at(table)), where=str(file)
                    )
                content, checksum = opened.read(size), opened.read(4)
            if struct.unpack(">I", checksum)[0] != zlib.crc32(content):
                raise CorruptState(
                    sentence("a deletion vector of '{}' fails its checksum", table_at(table)), where=str(file)
                )
            return content
        case other:
            raise CorruptState(
                sentence("a deletion vector of '{}' lies elsewhere (type '{}')", table_at(table), other),
                where=str(table),
            )


def _z85(text: str) -> bytes:
    return base64.b85decode(text.translate(_TO_B85))


def _decoded(content: bytes) -> BitMap64:
    if content[:4] != _MAGIC:
        raise ValueError(content[:4])
    return BitMap64.deserialize(content[4:])
