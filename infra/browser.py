"""A headless Chromium, driven over its DevTools protocol: what a page shows, keys pressed, pictures taken.

Tests and benchmarks drive it alike; `bash infra/browser.sh` installs one.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
)
_POLL_SECONDS = 0.05
_PATIENCE_SECONDS: Final = 300.0
"""The limit of a wait, which only a fault reaches: a busy machine may stand still for seconds."""
_CODES = {"Enter": 13, "Tab": 9, " ": 32}
"""The virtual codes by which Chromium acts on a key, beside its name."""


class Page:
    """One page of a browser."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._sent = 0
        self.problems: list[str] = []
        """What the browser reported: errors of the script, breaches of the policy, requests that failed."""
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=_PATIENCE_SECONDS))
            if message.get("id") == self._sent:
                assert "error" not in message, (method, message)
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def open(self, url: str, width: int = 1200, height: int = 900) -> None:
        """Open an address in a window of that size."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def value(self, script: str) -> Any:
        """What an expression comes to. It is run by the debugger, so the page's policy does not bind it."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str, seconds: float = _PATIENCE_SECONDS) -> None:
        """Wait until an expression is true.

        Raises:
            TimeoutError: it does not become true.
        """
        _wait(
            lambda: self.value(f"Boolean({script})"),
            lambda: f"{script}: {self.problems} {self.value('document.body.innerText')}",
            seconds,
        )

    def shows(self, *words: str, seconds: float = _PATIENCE_SECONDS) -> None:
        """Wait until all of these are among the words of the page. Raises TimeoutError: they are not."""
        self.until(f"{json.dumps(words)}.every(each => document.body?.innerText.includes(each))", seconds)

    def click(self, words: str) -> None:
        """Click the first button or link with exactly these words, as soon as there is one that may be clicked."""
        found = f"""[...document.querySelectorAll('button, a')].find(
            each => each.innerText.trim() === {json.dumps(words)} && !each.disabled)"""
        self.until(found)
        self.value(f"{found}.click()")

    def text(self, selector: str) -> str:
        """The text of an element."""
        return str(self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    def press(self, key: str, *, ctrl: bool = False) -> None:
        """Press a key where the focus is."""
        text = {"text": "\r" if key == "Enter" else key} if key != "Tab" and not ctrl else {}
        about = {"key": key, "windowsVirtualKeyCode": _CODES[key], "modifiers": 2 if ctrl else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """The window as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def _note(self, message: dict[str, Any]) -> None:
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(str(message["params"]["exceptionDetails"]))
            case "Log.entryAdded" if message["params"]["entry"]["level"] == "error":
                self.problems.append(str(message["params"]["entry"]["text"]))


def _wait(condition: Callable[[], object], what: Callable[[], str], seconds: float = _PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise TimeoutError(what())
        time.sleep(_POLL_SECONDS)


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A browser with an empty profile in `folder`, and its one page."""
    assert CHROMIUM is not None
    arguments = [CHROMIUM, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait(lambda: _pages(folder), lambda: "Chromium shows no page")
            # No pings: a browser that stands still for a while is not gone.
            with connect(
                _pages(folder)[0], max_size=None, open_timeout=_PATIENCE_SECONDS, ping_interval=None
            ) as socket:
                yield Page(socket)
        finally:
            process.kill()


def _pages(folder: Path) -> list[str]:
    """The addresses of the pages that Chromium shows, at the port that it writes into its profile when it listens."""
    try:
        port = int((folder / "DevToolsActivePort").read_text().splitlines()[0])
        pages = httpx.get(f"http://127.0.0.1:{port}/json/list", timeout=_PATIENCE_SECONDS).json()
    except (FileNotFoundError, IndexError, httpx.TransportError):
        return []
    return [each["webSocketDebuggerUrl"] for each in pages if each["type"] == "page"]
