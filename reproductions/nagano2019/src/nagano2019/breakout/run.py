"""The run: trains what is missing, then makes tables and figures of all that is there."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from hyperwrap.runs import Row, Run
from hyperwrap.vae.latent import Coordinates
from hyperwrap.vae.objective import LEAST_SCALE
from hyperwrap.vae.train import Progress
from nagano2019.atari.frames import Frames
from nagano2019.breakout.figures import figures
from nagano2019.breakout.further import Further, require_other_games
from nagano2019.breakout.models import (
    BETA,
    FULL,
    GEOMETRIES,
    Data,
    Job,
    Model,
    Outcome,
    Scale,
    finished,
    last_report,
)
from nagano2019.breakout.tables import Found, remark, table
from nagano2019.figures import rendered

__all__ = ["Result", "Watch", "reproduce", "steps", "summary", "wanted_models"]


class Watch(NamedTuple):
    """Who is told how a run stands."""

    training: Callable[[str, Progress], None] = lambda name, progress: None
    finished: Callable[[Model, Outcome], None] = lambda model, outcome: None
    further: Callable[[int, int], None] = lambda done, total: None


class Result(NamedTuple):
    rows: list[Row]
    figures: list[Path]
    remark: str


def wanted_models(
    scale: Scale,
    seed: int,
    *,
    geometries: Sequence[str] = GEOMETRIES,
    seeds: int | None = None,
    epochs: int | None = None,
    beta: float = BETA,
    coordinates: Coordinates = "hyperboloid",
    least_scale: float = LEAST_SCALE,
) -> list[Model]:
    """What to train: of each seed one of each geometry, so that a part of a run can be compared.

    >>> [model.name for model in wanted_models(FULL, 0, seeds=2)]
    ['vanilla, seed 0', 'hyperbolic, seed 0', 'vanilla, seed 1', 'hyperbolic, seed 1']
    """
    charts: dict[str, Coordinates] = {"vanilla": "hyperboloid", "hyperbolic": coordinates}
    return [
        Model(geometry, epochs or scale.epochs, seed + i, beta, charts[geometry], least_scale)
        for i in range(seeds or scale.seeds)
        for geometry in GEOMETRIES
        if geometry in geometries
    ]


def steps(wanted: Sequence[Model], frames: Frames, scale: Scale) -> dict[str, int]:
    """How many each of the models takes, by name."""
    epoch = len(frames) * 8 // 10 // scale.batch
    return {model.name: model.epochs * epoch for model in wanted}


def reproduce(
    run: Run,
    frames: Frames,
    wanted: Sequence[Model],
    watch: Watch = Watch(),  # noqa: B008
    *,
    scale: Scale = FULL,
    device: torch.device | str = "cpu",
    further: Frames | None = None,
) -> Result:
    """Trains the wanted models that the folder of the run lacks; tables and figures are of all
    there.

    Models of other frames or settings are an error before anything is trained. With frames of
    ``further`` games the tables have the correlations in these as well.
    """
    data = Data.of(frames, scale, torch.device(device))
    if further is not None:
        require_other_games(further, data)
    folder = run.folder / "models"
    jobs = {model: Job(model, scale, data, folder / model.folder) for model in wanted}
    found = finished(folder, jobs)
    run.add_seconds(sum(outcome.numbers.seconds for outcome in found.values()))
    for model, job in jobs.items():
        if model not in found:
            found[model] = job.make(watch.training)
        watch.training(model.name, last_report(found[model]))
        watch.finished(model, found[model])
    seen = None
    if further is not None:
        seen = Further.of(further, found.values(), data, watch.further)
    return _finish(run, Found(found, data.test_frames, scale, run.seed, seen), frames)


def _finish(run: Run, found: Found, frames: Frames) -> Result:
    rows, text = table(found, frames), remark(found, frames)
    drawn = figures(found.groups()[0].by_kind, found.test, frames, run.seed)
    files = {
        f"{name}.{form}": rendered(figure, form)
        for name, figure in drawn.items()
        for form in ("png", "pdf")
    }
    paths = [run.write(name, content) for name, content in files.items()]
    devices = sorted({outcome.numbers.device for outcome in found.models.values()})
    run.finish(rows, text, ", ".join(devices))
    return Result(rows, paths, text)


def summary(model: Model, outcome: Outcome) -> str:
    """A finished model in a line."""
    n = outcome.numbers
    found = {"correlation": n.correlation, "ELBO": n.elbo, "LL": n.log_likelihood}
    said = [
        f"{name} –" if x is None else f"{name} {x:,.{1 if abs(x) > 10 else 3}f}"
        for name, x in found.items()
    ]
    what = f"{model.name}, {model.epochs} epochs, β={model.beta:g}"
    if model.least_scale != LEAST_SCALE:
        what += f", σ≥{model.least_scale:g}"
    return f"{what}: {', '.join(said)}, {n.seconds:.0f} s"
