"""The program `hyperwrap`: the app that commands register with, shared options and errors."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from typer.core import TyperGroup

from hyperwrap import __version__
from hyperwrap.cli.show import errors, line
from hyperwrap.errors import UserError

__all__ = ["Device", "Output", "Resume", "Seed", "add_plugins", "main", "resumable", "the_device"]


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
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the run in DIR.")]
Device = Annotated[
    _Device | None, typer.Option(help="Where to run; by default a GPU if there is one.")
]


def the_device(name: str | None) -> torch.device:
    """The device of this name; without a name, a GPU if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("Expected a GPU for --device cuda; torch finds none. Use --device cpu.")
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


@contextmanager
def resumable(context: typer.Context) -> Iterator[None]:
    """Inside, Ctrl-C says how to resume: with the command as it was typed, and --resume."""
    try:
        yield
    except KeyboardInterrupt:
        line(f"Stopped. To resume: {_again(context)}", errors)
        raise typer.Exit(130) from None


def _again(context: typer.Context) -> str:
    words = ["hyperwrap", *context.command_path.split()[1:]]
    for parameter in context.command.params:
        value, option = context.params.get(parameter.name or ""), parameter.opts[0]
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif value is True or parameter.name == "resume":
            words.append(option)
        elif isinstance(value, list):
            words += [word for each in value for word in (option, str(each))]
        elif value not in (None, False) and str(value) != str(parameter.default):
            words += [option, str(value)]
    return shlex.join(words)


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


# --- commands of other packages ------------------------------------------------------------------

_ELSEWHERE = {
    "demo": "Train VAEs on a noisy tree and draw them.",
    "reproduce": "Reproduce a table or figure of the paper.",
    "breakout": "Play Atari Breakout and keep the frames.",
}
_PAPER = "hyperwrap-nagano2019"


def add_plugins() -> None:
    """Adds the commands that installed packages offer; those of the paper say what to install."""
    plugins = entry_points(group="hyperwrap.commands")
    for plugin in plugins:
        plugin.load()(main)
    if "nagano2019" not in plugins.names:
        for name, help in _ELSEWHERE.items():
            _add_missing(name, help)


def _add_missing(name: str, help: str) -> None:
    @main.command(
        name,
        help=f"{help} Needs the package {_PAPER}.",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        add_help_option=False,
    )
    def missing() -> None:
        raise UserError(
            f"Expected the package {_PAPER}, which provides `hyperwrap {name}`; it is not "
            "installed. In a checkout of hyperwrap, run: pip install ./reproductions/nagano2019"
        )
