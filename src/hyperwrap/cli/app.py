"""The program `hyperwrap`: the app that commands register with, their shared options, errors."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from typer.core import TyperGroup

from hyperwrap import __version__
from hyperwrap.cli.show import errors
from hyperwrap.errors import UserError

__all__ = ["Device", "Output", "Seed", "main", "the_device"]


class _Commands(TyperGroup):
    """The one place where an expected error becomes a sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            errors.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(1) from None


main = typer.Typer(
    cls=_Commands,
    help="Probability on hyperbolic space.",
    no_args_is_help=True,
    add_completion=False,
)


class _Device(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


Output = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for results.")]
Seed = Annotated[
    int, typer.Option(min=0, max=2**32 - 1, help="Seed of all that is drawn at random.")
]
Device = Annotated[_Device | None, typer.Option(help="Where to run; a GPU, if there is one.")]


def the_device(name: str | None) -> torch.device:
    """The device of this name; without one, a GPU if there is any."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("Expected a GPU for --device cuda; torch finds none. Take --device cpu.")
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


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
