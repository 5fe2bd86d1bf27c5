"""Chromium, driven over WebDriver: what a person would see and click."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.unit.cli.processes import wait_until

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""What WebDriver calls an element."""
_OF_ANOTHER_PAGE = ("stale element reference", "does not belong to the document")
"""What the driver says of an element whose page has been left meanwhile."""
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1400")


def missing() -> str:
    """Which program is not installed; empty when a browser can be had."""
    return next((name for name in ("chromium", "chromedriver") if shutil.which(name) is None), "")


class Browser:
    """One browser with one page."""

    def __init__(self, profile: Path) -> None:
        """`profile`: a folder for what the browser remembers."""
        self._profile = profile

    def __enter__(self) -> Self:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={self._port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_until(self._is_there, "chromedriver serves")
        options = {"args": [*_FLAGS, f"--user-data-dir={self._profile}"], "binary": shutil.which("chromium")}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        said = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{said['sessionId']}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait(10)

    def _is_there(self) -> bool:
        try:
            return bool(self._ask("GET", "/status")["ready"])
        except OSError:
            return False

    def open(self, url: str) -> None:
        self._ask("POST", f"{self._session}/url", {"url": url})

    @property
    def url(self) -> str:
        found: str = self._ask("GET", f"{self._session}/url")
        return found

    def text(self, css: str = "body") -> str:
        while True:
            try:
                found: str = self._ask("GET", f"{self._element(css)}/text")
            except AssertionError as error:
                # Another page has come between the look for the element and the look at it, or it has no body yet.
                if not any(sign in str(error) for sign in _OF_ANOTHER_PAGE) and css != "body":
                    raise
            else:
                return found

    def style(self, css: str, name: str) -> str:
        found: str = self._ask("GET", f"{self._element(css)}/css/{name}")
        return found

    def resize(self, width: int, height: int) -> None:
        self._ask("POST", f"{self._session}/window/rect", {"width": width, "height": height})

    def width(self, css: str) -> float:
        """Of the first such element, with what overflows it."""
        found: float = self.value("return document.querySelector(arguments[0]).scrollWidth", css)
        return found

    def value(self, script: str, *arguments: str) -> Any:
        """What the body of a function returns that runs in the page."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, css: str) -> None:
        self._ask("POST", f"{self._element(css)}/click", {})

    def type(self, css: str, text: str) -> None:
        self._ask("POST", f"{self._element(css)}/value", {"text": text})

    def allow_scripts(self, allowed: bool) -> None:
        fields = {"cmd": "Emulation.setScriptExecutionDisabled", "params": {"value": not allowed}}
        self._ask("POST", f"{self._session}/goog/cdp/execute", fields)

    def complaints(self) -> list[str]:
        """What the browser's console says since the last call."""
        lines = self._ask("POST", f"{self._session}/se/log", {"type": "browser"})
        return [line["message"] for line in lines]

    def _element(self, css: str) -> str:
        found = self._ask("POST", f"{self._session}/element", {"using": "css selector", "value": css})
        return f"{self._session}/element/{found[_ELEMENT]}"

    def _ask(self, method: str, path: str, fields: dict[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request(method, path, None if fields is None else json.dumps(fields))
            said = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        assert not (isinstance(said, dict) and "error" in said), said
        return said
