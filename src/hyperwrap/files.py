"""Files of a training run: written whole or not at all; a broken one gives a clear error."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hyperwrap.errors import UserError

__all__ = ["Metrics", "as_json", "read_tensors", "write_tensors", "write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Writes beside the old file and moves over it: a reader finds the old one or the new one.

    Whatever a process that was killed halfway left behind is removed.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with _writing(path):
        for left in path.parent.glob(f".{escape(path.name)}.*.part"):
            left.unlink()
        try:
            part.write_bytes(content)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """In the folder of the path, which is created if needed; a failure becomes a `UserError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(
            f"Expected to write {path}; it failed ({error.strerror or error})."
        ) from None


def as_json(content: Mapping[str, Any]) -> bytes:
    """JSON for a file that people may read, too."""
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
    """A safetensors file of copies of the tensors, with texts about them."""
    copies = {name: t.detach().contiguous().cpu() for name, t in tensors.items()}
    write_whole(path, save(copies, dict(about)))


def read_tensors(path: Path, what: str, advice: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and texts of a safetensors file; if it cannot be read, an error that says so."""
    if path.is_dir():
        raise UserError(f"Expected {what} in {path}; it is a folder. {advice}")
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"Expected {what} in {path}; it cannot be read ({error}). {advice}"
        ) from None


@dataclass
class Metrics:
    """A file with a line of JSON for each report, ``{"step": ..., ...}``."""

    path: Path

    def rewind(self, step: int) -> None:
        """Drops what a killed run wrote after this step, which is about to be redone."""
        if not self.path.exists():
            return
        # A line without its end was cut off by the kill, so it came after the last checkpoint.
        found = self.path.read_text().splitlines(keepends=True)
        kept = [line for line in found if line.endswith("\n") and self._step(line) <= step]
        if kept != found:
            write_whole(self.path, "".join(kept).encode())

    def append(self, report: Mapping[str, Any]) -> None:
        with _writing(self.path), self.path.open("a") as file:
            file.write(json.dumps(report, allow_nan=False) + "\n")

    def _step(self, line: str) -> int:
        try:
            return int(json.loads(line)["step"])
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"Expected a training log in {self.path}; it holds something else. "
                "Choose another folder."
            ) from None
