"""What a person sees: progress bars while a command runs, tables and paths at its end."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bars
from rich.table import Table as RichTable
from rich.text import Text

from hyperwrap.runs import Row, Run, Table, tables
from hyperwrap.vae.train import Progress as Training

__all__ = ["bars", "console", "errors", "line", "pace", "results", "table", "wrote"]

console = Console()
errors = Console(stderr=True)


# --- while it runs -----------------------------------------------------------------------------


@contextmanager
def bars(steps: Mapping[str, int]) -> Iterator[Callable[[str, Training], None]]:
    """A progress bar for each name, and what to call with a name and how its training stands."""
    numbers = TextColumn("{task.fields[numbers]}")
    with Bars("{task.description}", BarColumn(20), numbers, _Speed(), console=console) as shown:
        tasks = {
            name: shown.add_task(name, start=False, total=total, numbers="")
            for name, total in steps.items()
        }

        validated: dict[str, str] = {}

        def watch(name: str, progress: Training) -> None:
            task = tasks[name]
            if progress.validation is not None and console.width >= 100:
                validated[name] = f", validation {fmean(progress.validation):.2f}"
            numbers = _numbers(progress) + validated.get(name, "")
            shown.start_task(task)
            shown.update(task, completed=progress.step, numbers=numbers)

        yield watch


def _numbers(progress: Training) -> str:
    """ELBO and its parts, averaged over the stack."""
    elbo, reconstruction, kl = map(fmean, (progress.elbo, progress.reconstruction, progress.kl))
    return f"ELBO {elbo:.2f} = {reconstruction:.2f} − {kl:.2f} KL"


class _Speed(ProgressColumn):
    """Steps a second and time left."""

    def render(self, task: Task) -> Text:
        return pace(task, lambda speed: f"{speed:.{0 if speed >= 10 else 1}f} steps/s")


def pace(task: Task, said: Callable[[float], str]) -> Text:
    """The speed of a task as it is said, and the time left."""
    speed = task.finished_speed or task.speed
    if not speed:
        return Text("")
    left = "" if task.finished else f", {_duration(task.time_remaining or 0)} left"
    return Text(f"{said(speed)}{left}")


def _duration(seconds: float) -> str:
    """In the unit that a person thinks of it in.

    >>> [_duration(s) for s in (7, 150, 20_000)]
    ['7 s', '2.5 min', '5.6 h']
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# --- at the end --------------------------------------------------------------------------------


def results(run: Run, rows: Sequence[Row], remark: str, figures: Sequence[Path]) -> None:
    """The numbers of a run, what they are, and where everything is."""
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
