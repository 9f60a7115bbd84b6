"""A disk that fails at one of the steps by which the store writes: opening, writing, flushing, naming."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest


class BrokenDisk:
    """Fails the n-th step below a folder, and every one after it until it is mended.

    Attributes:
        failed: the step that failed first, `fsync <path>`; None while none has.
    """

    def __init__(self, root: Path, at: int, code: int) -> None:
        self._root, self._left, self._code = root, at, code
        self.failed: str | None = None

    @contextmanager
    def broken(self) -> Iterator[None]:
        """The block writes to the broken disk. What frees space, or is read, works."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("mkdir", "link", "replace"):
                patch.setattr(os, name, self._named(name, getattr(os, name)))
            patch.setattr(os, "fsync", self._flush(os.fsync))
            patch.setattr(io, "open", self._open(io.open))
            patch.setattr(pq, "write_table", self._parquet(pq.write_table))
            yield

    def _step(self, name: str, path: Any) -> None:
        if self._root not in Path(str(path)).parents and Path(str(path)) != self._root:
            return
        self._left -= 1
        if self._left <= 0:
            self.failed = self.failed or f"{name} {path}"
            raise OSError(self._code, os.strerror(self._code), str(path))

    def _named(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def named(*args: Any, **options: Any) -> Any:
            self._step(name, args[-1] if name == "link" else args[0])
            return call(*args, **options)

        return named

    def _flush(self, call: Callable[[int], None]) -> Callable[[int], None]:
        def flush(handle: int) -> None:
            self._step("fsync", os.readlink(f"/proc/self/fd/{handle}"))
            call(handle)

        return flush

    def _open(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def opened(path: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            writes = mode[0] in "xwa"
            if writes:
                self._step("open", path)
            file = call(path, mode, *args, **options)
            return _Written(file, lambda: self._step("write", path)) if writes else file

        return opened

    def _parquet(self, call: Callable[..., None]) -> Callable[..., None]:
        def write(table: Any, where: Path, **options: Any) -> None:
            call(table, where, **options)
            if self._left == 1:  # it breaks in the middle: half of the file is there
                os.truncate(where, where.stat().st_size // 2)
            self._step("write", where)

        return write


class _Written:
    """A file of which half of a write arrives before the disk fails."""

    def __init__(self, file: Any, step: Callable[[], None]) -> None:
        self._file, self._step = file, step

    def write(self, data: bytes) -> int:
        try:
            self._step()
        except OSError:
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            raise
        return int(self._file.write(data))

    def __enter__(self) -> _Written:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
