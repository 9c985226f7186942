"""What a person sees: progress bars while a command runs, tables and paths at its end."""

from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar, overload

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bars
from rich.table import Table as RichTable
from rich.text import Text

from hyperwrap.runs import Row, Run, Table, tables
from hyperwrap.training import Progress

__all__ = ["console", "errors", "follow", "line", "pace", "results", "table", "wrote"]

console = Console()
errors = Console(stderr=True)
T = TypeVar("T")


# --- while it runs -----------------------------------------------------------------------------


@overload
def follow(work: Generator[Progress, None, T], *, unit: str = "steps") -> T: ...
@overload
def follow(work: Iterator[Progress], *, unit: str = "steps") -> Any: ...
def follow(work: Iterator[Progress], *, unit: str = "steps") -> Any:
    """Runs work to its end under progress bars, one for each name, and returns its result.

    A bar shows as many of the last numbers reported as there is room for, averaged over a
    stack, then the speed and the time left.
    """
    columns = "{task.description}", BarColumn(16), TextColumn("{task.fields[numbers]}")
    with Bars(*columns, _Speed(unit), console=console, speed_estimate_period=_MEMORY) as shown:
        # Before the first report all we know is that something is happening.
        bars, numbers = {"": shown.add_task("", total=None, numbers="")}, {}
        while True:
            try:
                progress = next(work)
            except StopIteration as end:
                return end.value
            name = progress.name
            if name not in bars:
                first = bars.pop("", None) if not numbers else None
                bars[name] = shown.add_task(name, numbers="") if first is None else first
            numbers[name] = {**numbers.get(name, {}), **progress.numbers}
            shown.update(
                bars[name],
                description=name,
                completed=progress.done,
                total=progress.total,
                numbers=_fitting(numbers[name], console.width - _REST - len(name)),
            )


_MEMORY = 300.0  # seconds that the speed is an average over
_REST = 48  # columns for the bar, the speed and the time left


def _fitting(numbers: dict[str, Any], width: int) -> str:
    """The first numbers, as many as fit, but at least one.

    >>> _fitting({"elbo": [-11.0, -13.0], "kl": 0.01234, "validation_elbo": -12.5}, 25)
    'elbo -12.00, kl 0.0123'
    """
    texts = [
        f"{name.replace('_', ' ')} {_number(fmean(x) if isinstance(x, list) else x)}"
        for name, x in numbers.items()
        if x is not None
    ]
    while len(texts) > 1 and len(", ".join(texts)) > width:
        texts.pop()
    return ", ".join(texts)


def _number(x: float) -> str:
    """Three digits or so.

    >>> [_number(x) for x in (1200, -137.694, 0.5, 0.01234)]
    ['1,200', '-137.69', '0.500', '0.0123']
    """
    if isinstance(x, int):
        return f"{x:,}"
    return f"{x:.2f}" if abs(x) >= 10 else f"{x:.3f}" if abs(x) >= 0.1 else f"{x:.3g}"


class _Speed(ProgressColumn):
    """Speed, in a unit per second, and time left."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        super().__init__()

    def render(self, task: Task) -> Text:
        return pace(task, lambda speed: f"{_rounded(speed)} {self.unit}/s")


def _rounded(x: float) -> str:
    """Two or three digits.

    >>> [_rounded(x) for x in (0.31, 3.2, 950, 61_234, 12_345_678)]
    ['0.3', '3.2', '950', '61k', '12M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if x >= 10 * size:
            return f"{x / size:.0f}{letter}"
    return f"{x:.{0 if x >= 10 else 1}f}"


def pace(task: Task, said: Callable[[float], str]) -> Text:
    """The speed of a task, as ``said`` words it, and the time left."""
    speed = task.finished_speed or task.speed
    if not speed:
        return Text("")
    left = "" if task.finished else f", {_duration(task.time_remaining or 0)} left"
    return Text(f"{said(speed)}{left}")


def _duration(seconds: float) -> str:
    """In the unit that a person would use.

    >>> [_duration(s) for s in (7, 150, 20_000)]
    ['7 s', '2.5 min', '5.6 h']
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# --- at the end --------------------------------------------------------------------------------


def results(run: Run, rows: Sequence[Row], remark: str, figures: Sequence[Path]) -> None:
    """The numbers of a run, what they mean, and where everything is."""
    for each in tables(rows):
        table(each)
    console.print(remark, highlight=False)
    wrote(*figures, run.folder / "table.md", run.folder / "results.json")


def table(table: Table) -> None:
    shown = RichTable("", box=SIMPLE_HEAD)
    for column in table.columns:
        shown.add_column(column, justify="right")
    for line in table.lines:
        shown.add_row(*line)
    console.print(shown)


def wrote(*paths: Path) -> None:
    for path in paths:
        line(f"Wrote {path}")


def line(text: str, to: Console = console) -> None:
    """One line as it is, however long."""
    to.print(text, markup=False, highlight=False, soft_wrap=True)
