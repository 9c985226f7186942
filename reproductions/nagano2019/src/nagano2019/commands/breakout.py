"""`hyperwrap breakout …`: a player and the frames of its games; `hyperwrap reproduce breakout`."""

from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Annotated

import typer

from hyperwrap.cli import show
from hyperwrap.cli.app import Device, Output, Resume, Seed, resumable, the_device
from hyperwrap.runs import Run, Table
from hyperwrap.threads import one_thread
from nagano2019.atari import frames as data
from nagano2019.atari.learn import Learner, Learning
from nagano2019.atari.learn import learn as learning
from nagano2019.atari.player import Player, playing
from nagano2019.commands.reproduce import reproduce

__all__ = ["breakout"]

breakout = typer.Typer(help="Play Atari Breakout and keep the frames.", no_args_is_help=True)

_Player = Annotated[
    Path | None,
    typer.Option(
        "--player",
        metavar="FILE",
        help="Player that `hyperwrap breakout learn` wrote. By default, the one that comes with "
        "the package.",
    ),
]
_Epsilon = Annotated[
    float, typer.Option(min=0, max=1, help="Probability of pressing a random key instead.")
]


@breakout.command()
def collect(
    context: typer.Context,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="File for the frames.")
    ] = Path("runs/frames.safetensors"),
    frames: Annotated[int, typer.Option(min=10, help="Number of frames.")] = data.FRAMES,
    seed: Seed = 0,
    player: _Player = None,
    epsilon: _Epsilon = data.EPSILON,
) -> None:
    """Play games and keep every frame: 100,000 take minutes on 2 cores, and 2 MB.

    If it was stopped, run the same command again to play the missing games.
    """
    who = Player.load(player)
    with resumable(context), one_thread():
        work = data.collecting(output, who, frames, seed=seed, epsilon=epsilon)
        new = show.follow(work, unit="frames")
    if not new:
        show.line(f"{output} already has these frames; nothing was changed.")
        return
    show.table(_score(data.about(output)["points"]))
    show.wrote(output)


@breakout.command()
def play(
    games: Annotated[int, typer.Option(min=1, help="Number of games.")] = 30,
    seed: Annotated[int, typer.Option(min=0, max=2**30, help="Seed of the first game.")] = 0,
    player: _Player = None,
    epsilon: _Epsilon = 0.0,
) -> None:
    """Play whole games and show the points."""
    who = Player.load(player)
    with one_thread():
        points = show.follow(playing(who, games, seed, epsilon), unit="games")
    show.table(_score(points))


def _score(points: list[int]) -> Table:
    """The points of games."""
    cells = {
        "mean": f"{fmean(points):.1f}",
        "sd": f"{stdev(points):.1f}" if len(points) > 1 else "–",
        "median": f"{median(points):g}",
        "least": f"{min(points)}",
        "most": f"{max(points)}",
        "games": f"{len(points)}",
    }
    return Table(["points"], [list(cell) for cell in cells.items()])


@breakout.command()
def learn(
    context: typer.Context,
    output: Output = Path("runs/player"),
    minutes: Annotated[
        float, typer.Option(min=0.01, help="Time limit of this call, in minutes.")
    ] = 25,
    steps: Annotated[
        int, typer.Option(min=1, help="Total steps, over all games.")
    ] = Learning.steps,
    games: Annotated[int, typer.Option(min=1, help="Games played side by side.")] = Learning.games,
    length: Annotated[
        int, typer.Option(min=64, help="Screens kept in memory per game, 7 KB each.")
    ] = Learning.length,
    seed: Seed = 0,
    device: Device = None,
    resume: Resume = False,
) -> None:
    """Learn to play, on a GPU."""
    where = the_device(device)
    if where.type == "cpu":
        show.line("Note: on a CPU this takes too long to be useful.", show.errors)
    settings = Learning(steps=steps, games=games, length=length, seed=seed)
    run = Run(output, "hyperwrap breakout learn", asdict(settings), resume=resume)
    with resumable(context):
        points = show.follow(learning(Learner(settings, where), run.folder, minutes))
    show.table(_score(points))
    names = ("config.json", "metrics.jsonl", "checkpoint.safetensors", "player.safetensors")
    show.wrote(*(output / name for name in names))


# --- the experiment ------------------------------------------------------------------------------

_Frames = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Frames that `hyperwrap breakout collect` wrote. By default, the player that comes "
        "with the package plays first.",
    ),
]
_Further = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Frames of further games, played with another seed, to measure correlations: the "
        "test frames come from only a few games. By default, these are played too.",
    ),
]


@reproduce.command("breakout")
def reproduce_breakout(
    context: typer.Context,
    output: Output = Path("runs/breakout"),
    seed: Seed = 0,
    device: Device = None,
    resume: Resume = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A quick look, minutes on a CPU; not the full run.")
    ] = False,
    frames: _Frames = None,
    further: _Further = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Models per geometry; 3 by default.")
    ] = None,
    min_scale: Annotated[
        float,
        typer.Option(
            min=1e-6,
            help="Smallest scale of a pixel in the Gaussian likelihood. The authors' code has "
            "0.001; with 1 the radius follows the points about as closely as in the paper.",
        ),
    ] = 1e-3,
    processes: Annotated[
        int, typer.Option(min=1, help="Models to train at once, each in its own process.")
    ] = 1,
) -> None:
    """§5.3 and Appendix C.3: VAEs of Breakout frames; radius and points.

    With --resume, only the models missing from the folder are trained; the number of seeds and the
    smallest scale may change. Tables and figures cover all models in the folder.
    """
    from nagano2019 import breakout as experiment

    where, scale = the_device(device), experiment.QUICK if quick else experiment.FULL
    files = {"frames": frames, "further": further}
    given = {name: path for name, path in files.items() if path is not None}
    config = experiment.config(seed, scale, given)
    run = Run(output, "hyperwrap reproduce breakout", config, resume=resume)
    if where.type == "cpu" and not quick:
        show.line("Note: on a CPU this takes days; use --quick for a short run.", show.errors)
    work = experiment.reproducing(
        run, scale, given, min_scale=min_scale, seeds=seeds, device=where, processes=processes
    )
    with resumable(context):
        found = show.follow(work)
    show.results(run, *found)
