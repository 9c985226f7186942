"""The explorer as one page: script, style and data in a single file, or the data beside it.

The page allows itself only what it needs. Its Content-Security-Policy names the one script and the
one style by their SHA-256; nothing is loaded from a network, and no text of the data is markup.
"""

import re
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path

from hyperwrap.files import write_whole

__all__ = ["LARGEST_INLINED", "page", "policy", "script", "style", "write_page"]

LARGEST_INLINED = 128 * 2**20
"""Bytes of compressed data that are written into the page; more go into a file beside it.

A browser lets no page that was opened from disk read another file, so a page that holds its data
is one that always opens.
"""
_SLICE = 3 * 2**20  # bytes of data per element: browsers are slow with very long texts


@cache
def script() -> str:
    """The explorer: its modules as one, with the exports of the last, ``mount`` and ``default``.

    They are put one after another, each after those that it imports, so a name at the top of one
    is at the top of all. A test sees to it that none is there twice.
    """
    found: dict[str, str] = {}
    _gather("main.js", found)
    *parts, main = found.values()
    return "\n".join([*(_EXPORT.sub("", part) for part in parts), main])


_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=const|class|function|async)", re.MULTILINE)


def _gather(name: str, found: dict[str, str]) -> None:
    """A module without its imports, after those that it imports."""
    text = _read(f"js/{name}")
    for each in _IMPORT.findall(text):
        if each not in found:
            _gather(each, found)
    found[name] = _IMPORT.sub("", text)


@cache
def style() -> str:
    return _read("style.css")


def _read(name: str) -> str:
    return (files("hyperwrap.view") / name).read_text(encoding="utf-8")


def policy(scripts: str, styles: str, *, fetches: bool) -> str:
    """The Content-Security-Policy of a page with these contents and no others."""
    allowed = {
        "default-src": "'none'",
        "script-src": _digest(scripts),
        "style-src": _digest(styles),
        "img-src": "data: blob:",
        "connect-src": "'self'" if fetches else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {sources}" for name, sources in allowed.items())


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def page(data: bytes | str, title: str) -> str:
    """The page around its data: a compressed pack, or the address of a file that holds one.

    >>> "&lt;b&gt;" in page(b"", "<b>")
    True
    """
    beside = isinstance(data, str)
    run = f"{script()}\nstart();\n"
    parts = {
        "policy": policy(run, style(), fetches=beside),
        "title": escape(title),
        "style": style(),
        "script": run,
        "data": _source(data) if beside else "\n".join(_elements(data)),
    }
    return re.sub(r"\{(\w+)\}", lambda part: parts[part[1]], _read("page.html"))


def _source(address: str) -> str:
    return f'<script type="text/plain" class="data" data-src="{escape(address)}"></script>'


def _elements(data: bytes) -> Iterator[str]:
    for start in range(0, len(data), _SLICE):
        text = b64encode(data[start : start + _SLICE]).decode()
        yield f'<script type="text/plain" class="data">{text}</script>'


def write_page(path: Path, data: bytes, title: str) -> list[Path]:
    """Writes the page, and beside it ``….data`` if that is too large to go into it."""
    if len(data) <= LARGEST_INLINED:
        write_whole(path, page(data, title).encode())
        return [path]
    beside = path.with_suffix(".data")
    write_whole(beside, data)
    write_whole(path, page(beside.name, title).encode())
    return [path, beside]
