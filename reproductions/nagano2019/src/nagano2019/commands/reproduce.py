"""`hyperwrap demo` and `hyperwrap reproduce …`: the tables and figures of the paper."""

from collections.abc import Generator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import torch
import typer

import hyperwrap as hw
from hyperwrap.cli import show
from hyperwrap.cli.app import Device, Output, Resume, Seed, resumable, the_device
from hyperwrap.runs import Run
from hyperwrap.training import Progress

if TYPE_CHECKING:
    from nagano2019.grid import Result

__all__ = ["Quick", "demo", "followed", "note_on_speed", "reproduce"]

# Commands import their experiment when they run, so that the help needs neither matplotlib nor
# mpmath.
reproduce = typer.Typer(help="Reproduce a table or figure of the paper.", no_args_is_help=True)

Quick = Annotated[
    bool,
    typer.Option("--quick", help="A quick look, minutes on a CPU; not the full run."),
]


def followed(
    context: typer.Context, run: Run, work: "Generator[Progress, None, Result]", unit: str = "steps"
) -> None:
    """Runs an experiment under progress bars and shows the result."""
    with resumable(context):
        found = show.follow(work, unit=unit)
    show.results(run, *found)


def note_on_speed(device: torch.device, quick: bool) -> None:
    """Says what to expect when there is no GPU for work that needs one."""
    if device.type == "cpu" and not quick:
        show.line("Note: on a CPU this takes days; use --quick for a short run.", show.errors)


def demo(
    context: typer.Context, output: Output = Path("runs/demo"), resume: Resume = False
) -> None:
    """Table 1 on a noisy tree, and WordNet's mammals to explore: in a minute or two."""
    _reproduce_tree(context, "hyperwrap demo", output, 0, resume)
    mammals = hw.embed("wordnet-mammals", dim=2, epochs=0)
    page = hw.view(mammals, title="The mammals of WordNet").save(output / "mammals.html")
    show.wrote(*page)
    show.line(f"To look at the mammals, open {output / 'mammals.html'} in a browser.")


@reproduce.command()
def tree(
    context: typer.Context,
    output: Output = Path("runs/tree"),
    seed: Seed = 0,
    resume: Resume = False,
) -> None:
    """Table 1, Figure 1 and Appendix C.1: VAEs of a noisy binary tree, six models, five seeds."""
    _reproduce_tree(context, "hyperwrap reproduce tree", output, seed, resume)


def _reproduce_tree(
    context: typer.Context, command: str, output: Path, seed: int, resume: bool
) -> None:
    from nagano2019 import tree

    run = Run(output, command, tree.config(seed, tree.PROTOCOL), resume=resume)
    followed(context, run, tree.reproducing(run, tree.PROTOCOL))


@reproduce.command()
def density(
    context: typer.Context,
    output: Output = Path("runs/density"),
    seed: Seed = 0,
    resume: Resume = False,
) -> None:
    """Figure 3 and Appendix B: log-densities on the tangent plane and on the Poincaré disc."""
    from nagano2019 import density

    run = Run(output, "hyperwrap reproduce density", {"seed": seed}, resume=resume)
    followed(context, run, density.reproducing(run), "radii")


@reproduce.command()
def cells(
    context: typer.Context,
    output: Output = Path("runs/cells"),
    seed: Seed = 0,
    resume: Resume = False,
) -> None:
    """Embryos, myoblasts and blood: which map keeps the stages and the neighbours?"""
    from nagano2019 import cells
    from nagano2019.data import cells as data

    tables = data.mouse_embryo(), data.myoblasts(), data.blood()
    config = cells.config(seed, cells.PROTOCOL)
    run = Run(output, "hyperwrap reproduce cells", config, resume=resume)
    followed(context, run, cells.reproducing(run, *tables, cells.PROTOCOL), "models")


@reproduce.command()
def counts(
    context: typer.Context,
    output: Output = Path("runs/counts"),
    seed: Seed = 0,
    resume: Resume = False,
) -> None:
    """Counts of cells from three batches: scVI and its hyperbolic twin on a tree that is known."""
    from nagano2019 import counts

    config = counts.config(seed, counts.PROTOCOL)
    run = Run(output, "hyperwrap reproduce counts", config, resume=resume)
    followed(context, run, counts.reproducing(run, counts.PROTOCOL), "maps")


class _Protocol(StrEnum):
    OURS = "ours"
    PAPER = "paper"
    MORE = "more"
    ALL = "all"


@reproduce.command()
def mnist(
    context: typer.Context,
    output: Output = Path("runs/mnist"),
    seed: Seed = 0,
    device: Device = None,
    resume: Resume = False,
    quick: Quick = False,
    protocol: Annotated[
        _Protocol,
        typer.Option(
            help="Selection on validation images (ours), the last model (paper), or ours with a "
            "full covariance and 8 samples (more)."
        ),
    ] = _Protocol.OURS,
) -> None:
    """Tables 2 and 4, samples and the disc of §5.2: VAEs of MNIST, n=2 to 20, five seeds."""
    from nagano2019 import mnist
    from nagano2019.data import mnist as data

    where, scale = the_device(device), mnist.QUICK if quick else mnist.FULL
    each = {"ours": mnist.OURS, "paper": mnist.PAPER, "more": mnist.MORE}
    protocols = list(each.values()) if protocol == "all" else [each[protocol]]
    protocols = [mnist.quick(each) for each in protocols] if quick else protocols
    with show.console.status("Reading MNIST"):
        lab = mnist.Lab.on(where, data.load(), scale, seed)
    run = Run(output, "hyperwrap reproduce mnist", lab.config(), resume=resume)
    followed(context, run, mnist.reproducing(run, lab, protocols))


class _Family(StrEnum):
    HYPERBOLIC = "hyperbolic"
    EUCLIDEAN = "euclidean"
    POINT = "point"


class _Covariance(StrEnum):
    DIAGONAL = "diagonal"
    SCALAR = "scalar"


@reproduce.command()
def wordnet(
    context: typer.Context,
    output: Output = Path("runs/wordnet"),
    seed: Seed = 0,
    device: Device = None,
    resume: Resume = False,
    quick: Quick = False,
    dim: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Dimension of the space; all by default. Can be repeated."),
    ] = None,
    kind: Annotated[
        list[_Family] | None,
        typer.Option(help="Kind of node: Gaussians in either space, or points. Can be repeated."),
    ] = None,
    covariance: Annotated[
        list[_Covariance] | None,
        typer.Option(help="Covariance: Tables 3 and 5 (diagonal) or 6 (scalar). Can be repeated."),
    ] = None,
    recipe: Annotated[
        Literal["ours", "paper", "both"],
        typer.Option(help="Recipe for training: the one we found to work best, or the paper's."),
    ] = "ours",
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of seeds; by default 3 up to n=20, then 1, and 1 for the paper's recipe.",
        ),
    ] = None,
) -> None:
    """Tables 3, 5 and 6: the nouns of WordNet as distributions and as points, n=5 to 100."""
    from nagano2019 import wordnet

    where, scale = the_device(device), wordnet.QUICK if quick else wordnet.FULL
    note_on_speed(where, quick)
    with show.console.status("Reading WordNet"):
        lab = wordnet.Lab.of(scale, seed, seeds, where)
    wanted = lab.groups(
        dims=dim,
        families=kind or list(_Family),
        tables=covariance or list(_Covariance),
        recipes=("ours", "paper") if recipe == "both" else (recipe,),
    )
    run = Run(output, "hyperwrap reproduce wordnet", lab.config(), resume=resume)
    followed(context, run, wordnet.reproducing(run, lab, wanted), "epochs")
