"""Pages as tests look at them: their elements, and what a browser makes of them."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

VOID = {"meta", "input", "rect", "br", "img", "link"}
needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")


class Page(HTMLParser):
    """Elements and their classes, text, and that every element is closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and "script" not in self.open:
            self.text += data

    def of(self, tag: str, name: str | None = None) -> list[dict[str, str | None]]:
        """The attributes of all elements of this tag (and class)."""
        return [
            own
            for found, own in self.elements
            if found == tag and (name is None or name in (own.get("class") or "").split())
        ]


def opened(path: Path) -> tuple[str, str]:
    """The document after a browser has loaded a page and run its script, and what the page wrote to the console."""
    quiet = ("gpu", "quic", "background-networking", "component-update", "sync")
    done = subprocess.run(
        [
            *("chromium", "--headless", "--no-sandbox", "--no-first-run", "--enable-logging=stderr"),
            f"--user-data-dir={path.parent / 'profile'}",
            *(f"--disable-{feature}" for feature in quiet),
            *("--dump-dom", path.as_uri()),
        ],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    return done.stdout, "".join(line for line in done.stderr.splitlines(keepends=True) if "CONSOLE" in line)
