"""The command line: what to run, where its results go, and errors a person can act on."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from typer.core import TyperGroup

from hyperwrap import __version__
from hyperwrap.errors import UserError
from hyperwrap.experiments.results import Run, Table, tables

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
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the points scored.")]


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
    """Draw densities of wrapped normals and compare float32 with the exact values: seconds."""
    _run_density("hyperwrap demo", output, seed=0)


@reproduce.command()
def density(output: Output = Path("runs/density"), seed: Seed = 0) -> None:
    """Figure 3 and Appendix B: log-densities on the tangent plane and on the Poincaré disc."""
    _run_density("hyperwrap reproduce density", output, seed)


def _run_density(command: str, folder: Path, seed: int) -> None:
    # Imported here, so that the help needs neither matplotlib nor mpmath.
    from hyperwrap.experiments import density

    run = Run(folder, command, seed)
    with _console.status("Scoring and drawing"):
        rows, figures = density.reproduce(run)
    for table in tables(rows):
        _console.print(_rich(table))
    _console.print(density.REMARK, highlight=False)
    for path in (*figures, run.folder / "table.md", run.folder / "results.json"):
        _console.print(f"Wrote {path}", markup=False, highlight=False, soft_wrap=True)


def _rich(table: Table) -> RichTable:
    shown = RichTable("", box=SIMPLE_HEAD)
    for column in table.columns:
        shown.add_column(column, justify="right")
    for line in table.lines:
        shown.add_row(*line)
    return shown
