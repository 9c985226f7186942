"""`hyperwrap breakout …`: a player of Breakout, how well it plays, and the frames of its games."""

import shlex
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.text import Text

from hyperwrap.cli import show
from hyperwrap.cli.app import Device, Output, Seed, the_device
from hyperwrap.runs import Table
from hyperwrap.threads import one_thread
from nagano2019.atari import frames as data
from nagano2019.atari.frames import Progress
from nagano2019.atari.learn import Learner, Learning
from nagano2019.atari.learn import Progress as Curve
from nagano2019.atari.player import Player
from nagano2019.atari.player import play as play_games

breakout = typer.Typer(help="Play Atari Breakout and keep the frames.", no_args_is_help=True)

_Player = Annotated[
    Path | None,
    typer.Option("--player", metavar="FILE", help="Who plays; the player that comes along."),
]
_Epsilon = Annotated[
    float, typer.Option(min=0, max=1, help="How often a key is pressed at random instead.")
]


# --- collect -------------------------------------------------------------------------------------


@breakout.command()
def collect(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Where the frames go.")
    ] = Path("runs/breakout/frames.safetensors"),
    frames: Annotated[int, typer.Option(min=10, help="How many.")] = data.FRAMES,
    seed: Seed = 0,
    player: _Player = None,
    epsilon: _Epsilon = data.EPSILON,
) -> None:
    """Play games and keep every frame: 100,000 take minutes on 2 cores, and 2 MB."""
    who = Player.load(player)
    try:
        with one_thread(), frame_bar(frames) as watch:
            new = data.collect(output, who, frames, seed=seed, epsilon=epsilon, watch=watch)
    except KeyboardInterrupt:
        again = ["hyperwrap", "breakout", "collect", "-o", str(output), "--frames", str(frames)]
        again += ["--seed", str(seed), "--epsilon", str(epsilon)]
        again += ["--player", str(player)] if player else []
        show.line(f"Stopped; finished games are kept. To go on: {shlex.join(again)}", show.errors)
        raise typer.Exit(130) from None
    if not new:
        show.line(f"These very frames are in {output} already; it stays as it is.")
        return
    points = data.about(output)["points"]
    show.line(f"{frames:,} frames of {_games(points)}, {output.stat().st_size / 1e6:.2f} MB.")
    show.wrote(output)


def _games(points: list[int]) -> str:
    """How many games, and their points.

    >>> _games([3]), _games([10, 21])
    ('1 game with 3.0 points', '2 games with 15.5 points each')
    """
    mean = f"{statistics.fmean(points):.1f} points"
    return f"1 game with {mean}" if len(points) == 1 else f"{len(points)} games with {mean} each"


@contextmanager
def frame_bar(total: int) -> Iterator[Callable[[Progress], None]]:
    """A bar of frames; the first call says how many of them there are from before."""
    numbers = TextColumn("{task.fields[numbers]}")
    columns = BarColumn(16), MofNCompleteColumn(), numbers, _Pace()
    with Bars(*columns, console=show.console) as bars:
        task = None

        def watch(now: Progress) -> None:
            nonlocal task
            if task is None:
                task = bars.add_task("", total=total, completed=now.frames, numbers="")
            points = "" if now.points is None else f" of {now.points:.0f} points"
            bars.update(task, completed=now.frames, numbers=f"{now.games} games{points},")

        yield watch


class _Pace(ProgressColumn):
    """Frames a second and time left; at the end some games before the last may still go on."""

    def render(self, task: Task) -> Text:
        return show.pace(task, lambda speed: f"{speed:,.0f} frames/s")


# --- play ----------------------------------------------------------------------------------------


@breakout.command()
def play(
    games: Annotated[int, typer.Option(min=1, help="How many.")] = 30,
    seed: Annotated[int, typer.Option(min=0, max=2**30, help="Seed of the first game.")] = 0,
    player: _Player = None,
    epsilon: _Epsilon = 0.0,
) -> None:
    """Play whole games and say how many points there were."""
    who, steps = Player.load(player), 0
    columns = "Playing", BarColumn(20), MofNCompleteColumn(), TextColumn("{task.fields[numbers]}")
    with one_thread(), Bars(*columns, console=show.console) as bars:
        task = bars.add_task("", total=games, numbers="")

        def watch(over: int) -> None:
            nonlocal steps
            steps += 1
            bars.update(task, completed=over, numbers=f"games over, step {steps:,}")

        points = play_games(who, games, seed, epsilon, watch=watch)
    show.table(_score(points))
    show.line(f"The longest game had {steps:,} steps, each of four frames of the console.")


def _score(points: list[int]) -> Table:
    """The points of games."""
    cells = {
        "mean": f"{statistics.fmean(points):.1f}",
        "sd": f"{statistics.stdev(points):.1f}" if len(points) > 1 else "–",
        "median": f"{statistics.median(points):g}",
        "least": f"{min(points)}",
        "most": f"{max(points)}",
        "games": f"{len(points)}",
    }
    return Table(["points"], [list(cell) for cell in cells.items()])


# --- learn ---------------------------------------------------------------------------------------


@breakout.command()
def learn(
    output: Output = Path("runs/player"),
    minutes: Annotated[float, typer.Option(min=0.01, help="For how long, at most.")] = 25,
    steps: Annotated[
        int, typer.Option(min=1, help="Of all games together, until it is done.")
    ] = Learning.steps,
    games: Annotated[int, typer.Option(min=1, help="Played side by side.")] = Learning.games,
    length: Annotated[
        int, typer.Option(min=64, help="Screens of each game in memory; 7 KB each.")
    ] = Learning.length,
    seed: Seed = 0,
    device: Device = None,
) -> None:
    """Learn to play, on a GPU; goes on with what is in the folder."""
    where = the_device(device)
    if where.type == "cpu":
        show.line("Note: on a CPU this is only for a try; it takes too long.", show.errors)
    learning = Learning(steps=steps, games=games, length=length, seed=seed)
    learner = Learner(learning, output, where)
    if learner.step:
        show.line(f"Going on from step {learner.step:,}.")
    try:
        last = _learn(learner, minutes)
    except KeyboardInterrupt:
        show.line(_stopped(output, learning, minutes, device), show.errors)
        raise typer.Exit(130) from None
    if last.score:
        show.table(_score(last.score))
    show.wrote(*(output / name for name in _FILES))


_FILES = ("metrics.jsonl", "checkpoint.safetensors", "player.safetensors")


def _learn(learner: Learner, minutes: float) -> Curve:
    """Runs under a bar of seconds with the numbers of the learning curve; the last of them."""
    last, before = None, learner.seconds
    columns = BarColumn(16), TextColumn("{task.description}"), TimeRemainingColumn(compact=True)
    with Bars(*columns, console=show.console) as bars:
        task = bars.add_task("filling the memory", total=60 * minutes)
        for last in learner.run(minutes):
            bars.update(task, completed=last.seconds - before, description=_curve(last))
    assert last is not None
    return last


def _curve(now: Curve) -> str:
    """The newest point of the learning curve."""
    points = "–" if now.points is None else f"{now.points:.1f}"
    return (
        f"step {now.step:,}: {points} points, Q {now.value:.2f}, loss {now.loss:.4f}, "
        f"{now.steps_per_second:,.0f} steps/s"
    )


def _stopped(folder: Path, learning: Learning, minutes: float, device: str | None) -> str:
    if not (folder / "checkpoint.safetensors").exists():
        return "Stopped, before there was anything to keep."
    again = ["hyperwrap", "breakout", "learn", "-o", str(folder), "--minutes", f"{minutes:g}"]
    again += ["--steps", str(learning.steps), "--games", str(learning.games)]
    again += ["--length", str(learning.length)]
    again += ["--seed", str(learning.seed), *(["--device", str(device)] if device else [])]
    return f"Stopped; the last checkpoint is kept. To go on: {shlex.join(again)}"
