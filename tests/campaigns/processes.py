"""Child processes that read damaged lakes, each a copy of its own: one that aborts or hangs is seen, and replaced."""

from __future__ import annotations

import logging
import multiprocessing
import shutil
import tempfile
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from strandline.state_store.layout import LakeLayout
from tests.campaigns.flips import Flip, Outcome, flipped, judged

if TYPE_CHECKING:
    from collections.abc import Iterable
    from multiprocessing.process import BaseProcess

SECONDS = 120.0
"""A set of answers takes a tenth of a second; what takes this long on a busy machine hangs."""
_STARTING_SECONDS = 180.0

Found = Callable[[Flip, Outcome, str], None]


def run(lake: Path, flips: Iterable[Flip], workers: int, found: Found) -> None:
    """Try each flip on a copy of the lake. `found` gets the outcome and the question that shows it, one at a time."""
    waiting: SimpleQueue[Flip] = SimpleQueue()
    for flip in flips:
        waiting.put(flip)
    told, failures = threading.Lock(), list[BaseException]()

    def tell(flip: Flip, outcome: Outcome, why: str) -> None:
        with told:
            found(flip, outcome, why)

    def work() -> None:
        try:
            _work(lake, waiting, tell)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _work(lake: Path, waiting: SimpleQueue[Flip], tell: Found) -> None:
    reader: _Reader | None = None
    try:
        while True:
            flip = waiting.get_nowait()
            reader = reader or _Reader(lake)
            outcome, why = reader.tried(flip)
            tell(flip, outcome, why)
            if outcome in (Outcome.ABORT, Outcome.HANG):
                reader.close()
                reader = None
    except Empty:
        pass
    finally:
        if reader is not None:
            reader.close()


class _Reader:
    """One child over one copy of the lake."""

    def __init__(self, lake: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="flips-"))
        # In the same place below every copy, since hints and errors may name the place.
        shutil.copytree(lake, self._folder / "lake")
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._child: BaseProcess = context.Process(target=_read, args=(self._folder / "lake", theirs), daemon=True)
        self._child.start()
        theirs.close()
        ready = self._answer(_STARTING_SECONDS)
        if ready != "ready":
            self.close()
            raise RuntimeError(f"the reader of the undamaged lake fails: {ready}")

    def tried(self, flip: Flip) -> tuple[Outcome, str]:
        self._ours.send(flip)
        answer = self._answer(SECONDS)
        return (answer[0], answer[1])

    def close(self) -> None:
        self._child.kill()
        self._child.join()
        self._ours.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answer(self, seconds: float) -> Any:
        try:
            return self._ours.recv() if self._ours.poll(seconds) else (Outcome.HANG, f"no answer in {seconds:g} s")
        except (EOFError, ConnectionError):
            self._child.join()
            return (Outcome.ABORT, f"exit code {self._child.exitcode}")


def _read(root: Path, conn: Connection) -> None:
    from tests.campaigns.beside import BESIDE
    from tests.campaigns.readers import answers, part_of

    logging.disable()
    lake = LakeLayout(root)
    expected = {
        part: answers(part, lake) for part in ("averages", "readings", "catalog", "topics", "registry", *BESIDE)
    }
    broken = [name for part in expected.values() for name, answer in part.items() if ":" in answer]
    conn.send(f"{broken}" if broken else "ready")
    while True:
        try:
            flip = conn.recv()
        except EOFError:
            return
        file = root / flip.file
        part = part_of(file, lake)
        with flipped(file, flip.bit):
            found = answers(part, lake)
        conn.send(judged(expected[part], found))
