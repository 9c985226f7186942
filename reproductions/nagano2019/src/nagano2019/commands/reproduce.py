"""`hyperwrap demo` and `hyperwrap reproduce …`: the tables and figures of the paper."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from hyperwrap.cli import show
from hyperwrap.cli.app import Device, Output, Seed, the_device
from hyperwrap.runs import Run

if TYPE_CHECKING:
    from nagano2019.wordnet import Cell, Outcome, Stage, Watch

# Commands import their experiment when they run, so that the help needs neither matplotlib nor
# mpmath.
reproduce = typer.Typer(help="Make a table or figure of the paper anew.", no_args_is_help=True)


def demo(output: Output = Path("runs/demo")) -> None:
    """Embed a noisy tree, hyperbolic beside Euclidean, and draw it: Table 1, a minute or two."""
    _run_tree("hyperwrap demo", output, seed=0)


@reproduce.command()
def density(output: Output = Path("runs/density"), seed: Seed = 0) -> None:
    """Figure 3 and Appendix B: log-densities on the tangent plane and on the Poincaré disc."""
    from nagano2019 import density

    run = Run(output, "hyperwrap reproduce density", seed)
    with show.console.status("Scoring and drawing"):
        rows, figures = density.reproduce(run)
    show.results(run, rows, density.REMARK, figures)


@reproduce.command()
def cells(output: Output = Path("runs/cells"), seed: Seed = 0) -> None:
    """Cells of mouse embryos and of blood: does distance from the origin follow the stage?"""
    from nagano2019 import cells
    from nagano2019.data import cells as data

    run = Run(output, "hyperwrap reproduce cells", seed)
    mouse, blood = data.mouse_embryo(), data.blood()
    with show.console.status("Training") as status:

        def watch(done: int, of: int) -> None:
            status.update(f"Trained and measured {done} of {of} models")

        rows, figures = cells.reproduce(run, mouse, blood, watch)
    show.results(run, rows, cells.REMARK, figures)


@reproduce.command()
def tree(output: Output = Path("runs/tree"), seed: Seed = 0) -> None:
    """Table 1, Figure 1 and Appendix C.1: VAEs of a noisy binary tree, six models, five seeds."""
    _run_tree("hyperwrap reproduce tree", output, seed)


def _run_tree(command: str, folder: Path, seed: int) -> None:
    from nagano2019 import tree

    run = Run(folder, command, seed)
    with show.bars({model.name: tree.PROTOCOL.steps for model in tree.MODELS}) as watch:
        rows, figures = tree.reproduce(run, watch)
    show.results(run, rows, tree.REMARK, figures)


class _Protocol(StrEnum):
    OURS = "ours"
    PAPER = "paper"
    MORE = "more"
    ALL = "all"


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
        typer.Option(
            help="Selection on validation images (ours), the last model (paper), or ours with a "
            "full covariance and 8 samples (more)."
        ),
    ] = _Protocol.OURS,
) -> None:
    """Tables 2 and 4, samples and the disc of §5.2: VAEs of MNIST, n=2 to 20, five seeds."""
    from nagano2019 import mnist
    from nagano2019.data import mnist as data

    where = the_device(device)
    each = {"ours": mnist.OURS, "paper": mnist.PAPER, "more": mnist.MORE}
    protocols, scale = list(each.values()) if protocol == "all" else [each[protocol]], mnist.FULL
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


class _Geometry(StrEnum):
    VANILLA = "vanilla"
    HYPERBOLIC = "hyperbolic"


@reproduce.command()
def breakout(
    output: Output = Path("runs/breakout"),
    seed: Seed = 0,
    device: Device = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A short look, minutes on a CPU; not the numbers.")
    ] = False,
    frames: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Frames that `hyperwrap breakout collect` wrote; if not given, the player that "
            "comes along plays first.",
        ),
    ] = None,
    further: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Frames of further games (`hyperwrap breakout collect --seed 1`), to have the "
            "correlations in these as well: the test frames are of few games.",
        ),
    ] = None,
    geometry: Annotated[
        list[_Geometry] | None, typer.Option(help="Of the latent space; both by default.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Models of each geometry; 3 by default.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="How long to train; 300 by default.")
    ] = None,
    beta: Annotated[
        float, typer.Option(min=0, help="Weight of the KL term after the warm-up.")
    ] = 4.0,
    coordinates: Annotated[
        Literal["hyperboloid", "tangent"],
        typer.Option(help="In which the decoder sees a hyperbolic latent; the paper: hyperboloid."),
    ] = "hyperboloid",
    least_scale: Annotated[
        float,
        typer.Option(
            min=1e-6,
            help="Of a pixel, in the Gaussian likelihood; the authors' code has 0.001, and with 1"
            " distance follows points about as closely as in the paper.",
        ),
    ] = 1e-3,
) -> None:
    """§5.3 and Appendix C.3: VAEs of the frames of Breakout; distance from the origin and points.

    Goes on with the models that the folder lacks; tables and figures are of all models there.
    """
    from nagano2019 import breakout
    from nagano2019.atari.frames import read

    where, scale = the_device(device), breakout.QUICK if quick else breakout.FULL
    wanted = breakout.wanted_models(
        scale,
        seed,
        geometries=geometry or list(_Geometry),
        seeds=seeds,
        epochs=epochs,
        beta=beta,
        coordinates=coordinates,
        least_scale=least_scale,
    )
    run = Run(output, "hyperwrap reproduce breakout", seed)
    if where.type == "cpu" and not quick:
        show.line("Note: on a CPU this takes days; --quick is a short look.", show.errors)
    more = read(further) if further else None  # a wrong file is better found before any work
    path = frames or _collected(output / "frames.safetensors", scale.frames, seed)
    with show.console.status("Reading the frames"):
        data = read(path)
    with show.bars(breakout.steps(wanted, data, scale)) as training:
        watch = breakout.Watch(
            training,
            lambda *done: show.line(breakout.summary(*done)),
            lambda done, total: show.line(f"Further games: {done} of {total} models"),
        )
        found = breakout.reproduce(
            run, data, wanted, watch, scale=scale, device=where, further=more
        )
    show.results(run, found.rows, found.remark, found.figures)


def _collected(path: Path, frames: int, seed: int) -> Path:
    """Frames of the player that comes along, played now unless they are there already."""
    from hyperwrap.threads import one_thread
    from nagano2019.atari.frames import collect
    from nagano2019.atari.player import Player
    from nagano2019.commands.breakout import frame_bar

    player = Player.load()
    with one_thread(), frame_bar(frames) as watch:
        collect(path, player, frames, seed=seed, watch=watch)
    return path


class _Kind(StrEnum):
    HYPERBOLIC = "hyperbolic"
    EUCLIDEAN = "euclidean"
    POINT = "point"


class _Covariance(StrEnum):
    DIAGONAL = "diagonal"
    SCALAR = "scalar"


@reproduce.command()
def wordnet(
    output: Output = Path("runs/wordnet"),
    seed: Seed = 0,
    device: Device = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Mammals only, minutes on a CPU; not the tables.")
    ] = False,
    dim: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Dimension of the space; can be given again. All by default."),
    ] = None,
    kind: Annotated[
        list[_Kind] | None,
        typer.Option(help="Gaussians in either space, or points; can be given again."),
    ] = None,
    covariance: Annotated[
        list[_Covariance] | None,
        typer.Option(help="Tables 3 and 5 (diagonal), or 6 (scalar); can be given again."),
    ] = None,
    recipe: Annotated[
        Literal["ours", "paper", "both"],
        typer.Option(help="How to train: what we found to work best, or as in the paper."),
    ] = "ours",
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Seeds of each cell; 3 up to n=20, then 1; the paper's recipe: 1."
        ),
    ] = None,
) -> None:
    """Tables 3, 5 and 6: the nouns of WordNet as distributions and as points, n=5 to 100."""
    from nagano2019 import wordnet

    where, scale = the_device(device), wordnet.QUICK if quick else wordnet.FULL
    wanted = wordnet.cells(
        scale,
        dims=dim,
        kinds=kind or list(_Kind),
        covariances=covariance or list(_Covariance),
        recipes=("ours", "paper") if recipe == "both" else (recipe,),
    )
    run = Run(output, "hyperwrap reproduce wordnet", seed)
    if where.type == "cpu" and not quick:
        show.line("Note: on a CPU this takes days; --quick is a short look.", show.errors)
    with show.console.status("Reading WordNet"):
        graph = wordnet.graph(scale)
    with _cell_bar() as watch:
        found = wordnet.reproduce(run, graph, wanted, watch, scale=scale, seeds=seeds, device=where)
    show.results(run, found.rows, found.remark, found.figures)


@contextmanager
def _cell_bar() -> "Iterator[Watch]":
    """A bar for what is being done; a cell that is finished leaves a line."""
    from nagano2019.wordnet import Watch, summary

    numbers = TextColumn("{task.fields[numbers]}")
    columns = "{task.description}", BarColumn(20), MofNCompleteColumn(), numbers
    with Bars(*columns, TimeRemainingColumn(compact=True), console=show.console) as bars:
        task, shown = bars.add_task("", visible=False, numbers=""), ""

        def stage(now: "Stage") -> None:
            nonlocal shown
            text = f"{now.cell.name}, {now.doing}"
            if text != shown:
                bars.reset(task, description=text, total=now.total, visible=True)
                shown = text
            loss = "" if now.loss is None else f"loss {now.loss:.3f},"
            bars.update(task, completed=now.done, numbers=loss)

        def finished(cell: "Cell", outcome: "Outcome") -> None:
            bars.update(task, visible=False)
            show.line(summary(cell, outcome))

        yield Watch(stage, finished)
