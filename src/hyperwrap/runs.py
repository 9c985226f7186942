"""The one run folder: who owns it, what decides the outcome, what a run leaves behind.

Every command that trains or measures claims a folder with a `Run`. ``config.json`` says what the
run is; a run that makes a table leaves ``table.md`` and ``results.json`` ::

    {"command": ..., "rows": [{"row", "column", "mean", "sd", "seeds", "paper"}, ...],
     "seconds": ..., "commit": ..., "device": ..., "versions": {...}, and the settings}
"""

import json
import platform
import subprocess
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from math import floor, log10
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from hyperwrap import __version__
from hyperwrap.errors import UserError
from hyperwrap.files import as_json, write_whole

__all__ = [
    "Row",
    "Run",
    "Table",
    "bullets",
    "commit",
    "device_name",
    "read_config",
    "require_same",
    "tables",
    "versions",
]


@dataclass(frozen=True)
class Row:
    """One number, ours beside the paper's: ``mean`` and ``sd`` over ``seeds`` seeds.

    ``mean`` is None where there is nothing finite to average, ``sd`` with one seed, ``paper``
    where the paper has no such number.
    """

    row: str
    column: str
    mean: float | None
    sd: float | None = None
    seeds: int = 1
    paper: float | None = None

    def cell(self) -> str:
        """The number as text.

        >>> Row("hyperbolic", "correlation", 0.7671, 0.0042, 5, 0.768).cell()
        '0.767 ± 0.004 (paper 0.768, −0.001)'
        """
        if self.mean is None:
            return "–"
        if self.sd is None and self.paper is None:
            return _number(self.mean)
        places = _places(self.mean)
        spread = "" if self.sd is None else f" ± {_fixed(self.sd, places)}"
        return f"{_fixed(self.mean, places)}{spread}{self._beside_paper(self.mean, places)}"

    def _beside_paper(self, mean: float, places: int) -> str:
        if self.paper is None:
            return ""
        apart = round(mean - self.paper, places)
        sign = "+" if apart > 0 else ""
        return f" (paper {_fixed(self.paper, places)}, {sign}{_fixed(apart, places)})"


def _number(x: float) -> str:
    """On its own: a whole number as it is, else three digits, log-likelihoods to two decimals.

    >>> [_number(x) for x in (0.76, -137.694, 5504.21, 0.0488, 2.43e-7, 1.13e36, 3.0)]
    ['0.760', '−137.69', '5,504.21', '0.0488', '2.43e-07', '1.13e+36', '3']
    """
    size = abs(x)
    if size % 1 == 0 and size < _LARGE:
        text = f"{size:,.0f}"
    elif 10 <= size < _LARGE:
        text = f"{size:,.2f}"
    else:
        text = f"{size:#.3g}"
    return f"−{text}" if x < 0 else text


def _fixed(x: float, places: int) -> str:
    """With this many decimals, so that numbers can be compared.

    >>> [_fixed(x, 3) for x in (0.76, -0.0235, 3.6e-5, 0.0)]
    ['0.760', '−0.024', '<0.001', '0.000']
    """
    if 0 < x < 0.5 * 10.0**-places:
        return f"<{10.0**-places:.{places}f}"
    text = f"{abs(x):,.{places}f}"
    return f"−{text}" if x < 0 else text


def _places(mean: float) -> int:
    """Decimals for a comparison: three below 1, and enough to show a small number at all.

    >>> [_places(x) for x in (0.989, -137.7, 4e-8, 0.0)]
    [3, 2, 9, 3]
    """
    size = abs(mean)
    if size >= 1:
        return 2
    return 1 - floor(log10(size)) if 0 < size < 0.01 else 3


_LARGE = 1e5  # beyond it a power of ten says more


# --- tables ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Cells as text; the first one names its line."""

    columns: list[str]
    lines: list[list[str]]

    def markdown(self) -> str:
        rule = ["---"] + ["---:"] * len(self.columns)
        lines = [["", *self.columns], rule, *self.lines]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def tables(rows: Iterable[Row]) -> list[Table]:
    """Rows by columns; where the columns change or get too many, a new table begins."""
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        cells.setdefault(row.row, {})[row.column] = row.cell()
    return [
        Table(list(some), [[name, *(line[column] for column in some)] for name, line in lines])
        for columns, group in groupby(cells.items(), key=lambda item: tuple(item[1]))
        for lines in [list(group)]
        for some in (columns[i : i + _WIDEST] for i in range(0, len(columns), _WIDEST))
    ]


_WIDEST = 4  # columns that a page has room for


def bullets(items: Iterable[str]) -> str:
    """A list in Markdown, in short lines; an item without text is left out.

    >>> print(bullets(["one", "", "two"]))
    - one
    - two
    """
    filled = (
        textwrap.fill(item, 79, initial_indent="- ", subsequent_indent="  ")
        for item in items
        if item
    )
    return "\n".join(filled)


# --- the folder ------------------------------------------------------------------------------


class Run:
    """A folder that one command owns, and the clock that runs from when it was claimed.

    A folder is claimed if it is new or empty. One that holds a run of the same command with the
    same ``config`` is claimed by ``resume=True``. Any other is refused, and nothing in it changes.

    Args:
        folder: where everything goes; it is created if needed.
        command: what owns it, such as ``hyperwrap embed``.
        config: all that decides the outcome, as JSON can hold it; written to ``config.json``.
        resume: whether to continue a run that is already there.
        about: more for ``config.json``, which a resumed run need not agree with.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        command: str,
        config: Mapping[str, Any],
        *,
        resume: bool = False,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder, self.command = Path(folder), command
        self.config: dict[str, Any] = json.loads(as_json(config))
        self._start = time.perf_counter()
        there = _visible(self.folder)
        if not there:
            origin = {"command": command, "commit": commit(), "versions": versions()}
            content = {**self.config, **(about or {}), **origin}
            write_whole(self.folder / "config.json", as_json(content))
            return
        found = read_config(self.folder)
        if found.get("command") != command:
            raise UserError(
                f"Expected a new or empty folder; {self.folder} holds {there[0]}. "
                "Choose another folder."
            )
        if not resume:
            raise UserError(
                f"Expected a new or empty folder; {self.folder} holds a run of `{command}`. "
                "Resume that run, or choose another folder."
            )
        require_same(self.folder, found, self.config)

    def write(self, name: str, content: bytes) -> Path:
        """Writes a file whole, so that a reader finds the old one or the new one."""
        write_whole(self.folder / name, content)
        return self.folder / name

    def add_seconds(self, seconds: float) -> None:
        """Counts the time an earlier part of this run spent on work that is not repeated."""
        self._start -= seconds

    def finish(self, rows: Sequence[Row], remark: str, device: str = "cpu") -> None:
        """Writes ``table.md``, with a remark, and last ``results.json``, which vouches for all."""
        made = f"Made by `{self.command}` of hyperwrap {__version__} on {device}."
        texts = [*(table.markdown() for table in tables(rows)), remark, made]
        self.write("table.md", ("\n\n".join(texts) + "\n").encode())
        results = {
            "command": self.command,
            **self.config,
            "rows": [asdict(row) for row in rows],
            "seconds": round(time.perf_counter() - self._start, 2),
            "commit": commit(),
            "device": device,
            "versions": versions(),
        }
        self.write("results.json", as_json(results))


def _visible(folder: Path) -> list[str]:
    """What is in the folder, except hidden files: a write that was killed may leave one."""
    try:
        return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(
            f"Expected {folder} to be a folder; it is not ({error.strerror}). "
            "Choose another folder."
        ) from None


def read_config(folder: Path) -> dict[str, Any]:
    """The ``config.json`` of a run; empty if there is none."""
    try:
        found = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def require_same(where: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raises a `UserError` that names the first setting in which a run differs from the one here.

    Both are as JSON returns them. Settings may be nested.
    """
    for name, value in here.items():
        found = there.get(name)
        if isinstance(value, dict) and isinstance(found, dict):
            require_same(where, found, value)
        elif found != value:
            raise UserError(
                f"Expected the settings of the run in {where}; there `{name}` is {found}, and "
                f"here {value}. Use the same, or choose another folder."
            )


# --- where the numbers come from -------------------------------------------------------------


def commit() -> str | None:
    """The commit of the checkout this package runs from; None outside a checkout."""
    package = Path(__file__).resolve().parent
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "--show-toplevel", "HEAD"],
            cwd=package,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    top, head = answer.stdout.splitlines()
    # An environment inside somebody's repository is not a checkout of hyperwrap.
    return head if Path(top).resolve() / "src" / "hyperwrap" == package else None


def device_name(device: torch.device) -> str:
    """The name of the device as a person would write it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def versions() -> dict[str, str]:
    """Versions of whatever can change a number or a picture."""
    found = {"hyperwrap": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "matplotlib", "mpmath"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
