"""`hyperwrap demo` and `hyperwrap reproduce …`: the tables and figures of the paper."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hyperwrap.cli import show
from hyperwrap.cli.app import Device, Output, Seed, main
from hyperwrap.experiments.results import Run

# Commands import their experiment when they run, so that the help needs neither matplotlib nor
# mpmath.
reproduce = typer.Typer(help="Make a table or figure of the paper anew.", no_args_is_help=True)
main.add_typer(reproduce, name="reproduce")


@main.command()
def demo(output: Output = Path("runs/demo")) -> None:
    """Embed a noisy tree, hyperbolic beside Euclidean, and draw it: Table 1, a minute or two."""
    _run_tree("hyperwrap demo", output, seed=0)


@reproduce.command()
def density(output: Output = Path("runs/density"), seed: Seed = 0) -> None:
    """Figure 3 and Appendix B: log-densities on the tangent plane and on the Poincaré disc."""
    from hyperwrap.experiments import density

    run = Run(output, "hyperwrap reproduce density", seed)
    with show.console.status("Scoring and drawing"):
        rows, figures = density.reproduce(run)
    show.results(run, rows, density.REMARK, figures)


@reproduce.command()
def tree(output: Output = Path("runs/tree"), seed: Seed = 0) -> None:
    """Table 1, Figure 1 and Appendix C.1: VAEs of a noisy binary tree, six models, five seeds."""
    _run_tree("hyperwrap reproduce tree", output, seed)


def _run_tree(command: str, folder: Path, seed: int) -> None:
    from hyperwrap.experiments import tree

    run = Run(folder, command, seed)
    with show.bars({model.name: tree.PROTOCOL.steps for model in tree.MODELS}) as watch:
        rows, figures = tree.reproduce(run, watch)
    show.results(run, rows, tree.REMARK, figures)


class _Protocol(StrEnum):
    OURS = "ours"
    PAPER = "paper"
    BOTH = "both"


@reproduce.command()
def mnist(
    output: Output = Path("runs/mnist"),
    seed: Seed = 0,
    device: Device = None,
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
    with show.console.status("Reading MNIST"):
        images = data.load()
    steps = {group.name: group.protocol.steps for group in mnist.groups(protocols, scale)}
    with show.bars(steps) as watch:
        rows, figures = mnist.reproduce(
            run, images, watch, protocols=protocols, scale=scale, device=where
        )
    show.results(run, rows, mnist.remark(protocols, scale), figures)
