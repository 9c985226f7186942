"""The run: games are played, models trained, and tables and figures made from all in the folder."""

from collections.abc import Generator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from hyperwrap.errors import UserError
from hyperwrap.runs import Run
from hyperwrap.threads import one_thread
from hyperwrap.training import Progress
from nagano2019.atari.frames import about, collecting, origin
from nagano2019.atari.player import Player
from nagano2019.breakout.figures import figures
from nagano2019.breakout.models import FULL, GEOMETRIES, MIN_SCALE, Lab, Model, Scale
from nagano2019.breakout.tables import remark, table
from nagano2019.grid import Result, finish, run_cells

__all__ = ["config", "reproducing"]

_GAMES = ("frames", "further")  # files of frames; where we play, the second has the next seed


def config(
    seed: int, scale: Scale = FULL, given: Mapping[str, Path] | None = None
) -> dict[str, Any]:
    """What all models in a folder have in common; the arguments are those of `reproducing`.

    Further games that are the same as the others are a `UserError`.
    """
    origins = {}
    for i, name in enumerate(_GAMES):
        own = origin(Player.load(), scale.frames, seed=seed + i)
        path = (given or {}).get(name)
        origins[name] = own if path is None else {key: about(path)[key] for key in own}
    first, second = ({**each, "frames": None} for each in origins.values())
    if first == second:
        raise UserError(
            "Expected frames of further games; got games that the models are trained and tested "
            "on. Collect others with another seed."
        )
    return {"seed": seed, "scale": asdict(scale), **origins}


def reproducing(
    run: Run,
    scale: Scale = FULL,
    given: Mapping[str, Path] | None = None,
    *,
    min_scale: float = MIN_SCALE,
    seeds: int | None = None,
    device: torch.device | str = "cpu",
    processes: int = 1,
) -> Generator[Progress, None, Result]:
    """Trains what the folder of the run lacks: for each seed, one model of each geometry.

    Tables and figures cover all models in the folder.

    Args:
        run: has the `config` of the same arguments.
        scale: how much of everything.
        given: files of ``frames`` and of those of ``further`` games; without them the player that
            comes with the package plays first.
        min_scale: the smallest scale of a pixel.
        seeds: how many models of each geometry, if not as many as the scale says.
        device: where to train.
        processes: how many models to train at once, each in its own process.
    """
    seed, files = run.config["seed"], dict(given or {})
    for i, name in enumerate(_GAMES):
        if name not in files:
            files[name] = run.folder / f"{name}.safetensors"
            yield from _playing(files[name], scale.frames, seed + i)
    lab = Lab(**files, scale=scale, device=torch.device(device))
    wanted = [
        Model(geometry, seed + i, min_scale, lab)
        for i in range(seeds or scale.seeds)
        for geometry in GEOMETRIES
    ]

    def stored(settings: Mapping[str, Any]) -> Model:
        return Model(**settings["model"], lab=lab)

    found = yield from run_cells(run, wanted, others=stored, processes=processes)
    drawn = figures(found, lab, seed)
    return finish(run, table(found, lab, seed), remark(found, lab), drawn, found.values())


def _playing(path: Path, frames: int, seed: int) -> Generator[Progress]:
    """Frames of the player that comes with the package, unless they are there already."""
    with one_thread():
        for progress in collecting(path, Player.load(), frames, seed=seed):
            yield replace(progress, name=path.stem)
