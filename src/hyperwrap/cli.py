"""The command line: what to run, where its results go, and errors a person can act on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bars
from rich.table import Table as RichTable
from rich.text import Text
from typer.core import TyperGroup

from hyperwrap import __version__
from hyperwrap.errors import UserError
from hyperwrap.experiments.results import Row, Run, Table, tables
from hyperwrap.vae.train import Progress as Training

__all__ = ["main"]

_console = Console()
_errors = Console(stderr=True)


class _Commands(TyperGroup):
    """The one place where an expected error becomes a sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            _errors.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(1) from None


main = typer.Typer(
    cls=_Commands,
    help="Probability on hyperbolic space.",
    no_args_is_help=True,
    add_completion=False,
)
reproduce = typer.Typer(help="Make a table or figure of the paper anew.", no_args_is_help=True)
main.add_typer(reproduce, name="reproduce")

Output = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for results.")]
Seed = Annotated[
    int, typer.Option(min=0, max=2**32 - 1, help="Seed of all that is drawn at random.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hyperwrap {__version__}")
        raise typer.Exit


@main.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@main.command()
def demo(output: Output = Path("runs/demo")) -> None:
    """Embed a noisy tree, hyperbolic beside Euclidean, and draw it: Table 1, a minute or two."""
    _run_tree("hyperwrap demo", output, seed=0)


@reproduce.command()
def density(output: Output = Path("runs/density"), seed: Seed = 0) -> None:
    """Figure 3 and Appendix B: log-densities on the tangent plane and on the Poincaré disc."""
    # Imported here, so that the help needs neither matplotlib nor mpmath.
    from hyperwrap.experiments import density

    run = Run(output, "hyperwrap reproduce density", seed)
    with _console.status("Scoring and drawing"):
        rows, figures = density.reproduce(run)
    _show(run, rows, density.REMARK, figures)


@reproduce.command()
def tree(output: Output = Path("runs/tree"), seed: Seed = 0) -> None:
    """Table 1, Figure 1 and Appendix C.1: VAEs of a noisy binary tree, six models, five seeds."""
    _run_tree("hyperwrap reproduce tree", output, seed)


def _run_tree(command: str, folder: Path, seed: int) -> None:
    from hyperwrap.experiments import tree

    run = Run(folder, command, seed)
    with _bars({model.name: tree.PROTOCOL.steps for model in tree.MODELS}) as watch:
        rows, figures = tree.reproduce(run, watch)
    _show(run, rows, tree.REMARK, figures)


class _Device(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


class _Protocol(StrEnum):
    OURS = "ours"
    PAPER = "paper"
    BOTH = "both"


@reproduce.command()
def mnist(
    output: Output = Path("runs/mnist"),
    seed: Seed = 0,
    device: Annotated[
        _Device | None, typer.Option(help="Where to train; a GPU, if there is one.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A short look, minutes on a CPU; not the table.")
    ] = False,
    protocol: Annotated[
        _Protocol,
        typer.Option(help="Selection on validation images (ours), or the last model (paper)."),
    ] = _Protocol.OURS,
) -> None:
    """Tables 2 and 4, samples and the disc of §5.2: VAEs of MNIST, n=2 to 20, five seeds."""
    from hyperwrap.data import mnist as data
    from hyperwrap.experiments import mnist

    where = mnist.the_device(device)
    chosen = {"ours": [mnist.OURS], "paper": [mnist.PAPER], "both": [mnist.OURS, mnist.PAPER]}
    protocols, scale = chosen[protocol], mnist.FULL
    if quick:
        protocols, scale = [mnist.quick(each) for each in protocols], mnist.QUICK
    run = Run(output, "hyperwrap reproduce mnist", seed)
    with _console.status("Reading MNIST"):
        images = data.load()
    steps = {group.name: group.protocol.steps for group in mnist.groups(protocols, scale)}
    with _bars(steps) as watch:
        rows, figures = mnist.reproduce(
            run, images, watch, protocols=protocols, scale=scale, device=where
        )
    _show(run, rows, mnist.remark(protocols, scale), figures)


# --- while it runs -----------------------------------------------------------------------------


@contextmanager
def _bars(steps: Mapping[str, int]) -> Iterator[Callable[[str, Training], None]]:
    """A progress bar for each name, and what to call with a name and how its training stands."""
    numbers = TextColumn("{task.fields[numbers]}")
    with Bars("{task.description}", BarColumn(20), numbers, _Speed(), console=_console) as bars:
        tasks = {
            name: bars.add_task(name, start=False, total=total, numbers="")
            for name, total in steps.items()
        }

        def watch(name: str, progress: Training) -> None:
            task = tasks[name]
            bars.start_task(task)
            bars.update(task, completed=progress.step, numbers=_numbers(progress))

        yield watch


def _numbers(progress: Training) -> str:
    """ELBO and its parts, averaged over the stack."""
    elbo, reconstruction, kl = map(fmean, (progress.elbo, progress.reconstruction, progress.kl))
    return f"ELBO {elbo:.2f} = {reconstruction:.2f} − {kl:.2f} KL"


class _Speed(ProgressColumn):
    """Steps a second and seconds left."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        left = "" if task.finished else f", {task.time_remaining or 0:.0f} s left"
        return Text(f"{speed:.0f} steps/s{left}")


# --- at the end --------------------------------------------------------------------------------


def _show(run: Run, rows: Sequence[Row], remark: str, figures: Sequence[Path]) -> None:
    for table in tables(rows):
        _console.print(_rich(table))
    _console.print(remark, highlight=False)
    for path in (*figures, run.folder / "table.md", run.folder / "results.json"):
        _console.print(f"Wrote {path}", markup=False, highlight=False, soft_wrap=True)


def _rich(table: Table) -> RichTable:
    shown = RichTable("", box=SIMPLE_HEAD)
    for column in table.columns:
        shown.add_column(column, justify="right")
    for line in table.lines:
        shown.add_row(*line)
    return shown
