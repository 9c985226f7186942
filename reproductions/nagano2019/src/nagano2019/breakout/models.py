"""The models of the experiment: how they are trained, what they are worth, their files.

A model has a folder with ``settings.json`` (all that decides it but the machine), ``metrics.jsonl``
and, until it is finished, the checkpoint of its `Trainer`. Then ``model.safetensors`` (`VAE.load`),
``measured.safetensors`` (where the test frames lie, how far from the first frame of all, what the
norm sweep gave) and, last, ``numbers.json`` join them, and the checkpoint goes.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.backends import cudnn

from hyperwrap import __version__
from hyperwrap.errors import DivergedError, UserError
from hyperwrap.files import as_json, read_tensors, write_tensors, write_whole
from hyperwrap.runs import commit, device_name, versions
from hyperwrap.vae import VAE, EuclideanLatent, HyperbolicLatent, Score, dcgan
from hyperwrap.vae.latent import Coordinates
from hyperwrap.vae.objective import LEAST_SCALE
from hyperwrap.vae.train import Progress, Shuffled, Trainer, Training, seeded
from nagano2019.atari.frames import Frames
from nagano2019.breakout import screen
from nagano2019.breakout.correlation import pearson
from nagano2019.breakout.sweep import measure, norms

__all__ = ["FULL", "QUICK", "Data", "Job", "Model", "Numbers", "Outcome", "Scale", "finished"]

Geometry = Literal["vanilla", "hyperbolic"]
Array = NDArray[np.float64]
GEOMETRIES: tuple[Geometry, ...] = ("vanilla", "hyperbolic")
BETA = 4.0

_N = 20
_BETA_FROM = 0.1
_CODE = 4  # one more whenever the same settings make another model
_LAST_SLOPE = 0.2  # with the paper's 0 both channels before the last layer can die


@dataclass(frozen=True)
class Scale:
    """How much of everything: the paper's values, unless somebody is in a hurry."""

    frames: int = 100_000
    epochs: int = 300
    seeds: int = 3
    warm_up: int = 30
    """Epochs over which β rises; half of them all, if that is less."""
    learning_rate: float = 1e-4
    batch: int = 100
    samples: int = 100
    """Of the posterior, for ELBO and log-likelihood."""
    directions: int = 1_000
    """In which the norms are swept."""
    save_every: int = 2_000
    """Steps between two checkpoints, five times as many on a GPU: 20 seconds of work there."""
    comparable: bool = True
    """Whether the paper's numbers belong beside these."""

    def deciding(self) -> dict[str, Any]:
        """What all models of one folder have to agree in."""
        names = ("warm_up", "learning_rate", "batch", "samples", "directions")
        return {name: getattr(self, name) for name in names}


FULL = Scale()
QUICK = Scale(
    frames=5_000,
    epochs=5,
    seeds=1,
    warm_up=0,  # there is no time to come back from the radii that a small β allows
    batch=32,
    samples=20,
    directions=100,
    save_every=50,
    comparable=False,
)


@dataclass(frozen=True)
class Model:
    """One training."""

    geometry: Geometry
    epochs: int
    seed: int
    beta: float = BETA
    coordinates: Coordinates = "hyperboloid"
    """What the decoder of a hyperbolic model is given; vanilla ones have no choice."""
    least_scale: float = LEAST_SCALE
    """Of a pixel."""

    @property
    def kind(self) -> str:
        """What a row of the tables begins with.

        >>> Model("hyperbolic", 300, 0, coordinates="tangent").kind
        'hyperbolic, tangent'
        """
        usual = self.coordinates == "hyperboloid"
        return self.geometry if usual else f"{self.geometry}, {self.coordinates}"

    @property
    def name(self) -> str:
        return f"{self.kind}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """In letters that any file system takes.

        >>> Model("vanilla", 300, 0).folder
        'vanilla-300-epochs-beta-4-seed-0'
        """
        kind = self.kind.replace(", ", "-")
        scale = "" if self.least_scale == LEAST_SCALE else f"-scale-{self.least_scale:g}"
        return f"{kind}-{self.epochs}-epochs-beta-{self.beta:g}{scale}-seed-{self.seed}"

    def latent(self) -> EuclideanLatent | HyperbolicLatent:
        if self.geometry == "vanilla":
            return EuclideanLatent(_N)
        return HyperbolicLatent(_N, coordinates=self.coordinates)

    def vae(self) -> VAE:
        """Untrained, the same for the same seed."""
        torch.manual_seed(self.seed)
        latent = self.latent()
        networks = dcgan(latent, last_slope=_LAST_SLOPE)
        return VAE(*networks, latent, "gaussian", self.beta, least_scale=self.least_scale)


# --- the frames ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """The frames in three parts, and their screens on the device, uint8 ``(T, 1, 80, 80)``."""

    name: str
    """What tells them from others."""
    test_frames: Frames
    validation_points: NDArray[np.int32]
    train: Tensor
    validation: Tensor
    test: Tensor

    @classmethod
    def of(cls, frames: Frames, scale: Scale, device: torch.device) -> "Data":
        train, validation, test = frames.split()
        if len(train) < scale.batch:
            raise UserError(
                f"Expected at least {scale.batch * 10 // 8} frames, 80 % of which are a batch of "
                f"{scale.batch} to train on; got {len(frames)}. Collect more."
            )
        parts = (
            torch.from_numpy(part.screens).unsqueeze(1).to(device)
            for part in (train, validation, test)
        )
        return cls(named(frames), test, validation.points, *parts)

    @property
    def device(self) -> torch.device:
        return self.train.device


def named(frames: Frames) -> str:
    """What tells these frames from others."""
    digest = hashlib.sha256(frames.screens.tobytes())
    digest.update(frames.points.tobytes())
    games = len(np.unique(frames.game))
    return f"{len(frames):,} frames of {games} games ({digest.hexdigest()[:12]})"


# --- what a model comes to -----------------------------------------------------------------------


@dataclass(frozen=True)
class Numbers:
    """What a finished model is worth, as it lies in its file."""

    correlation: float | None
    """Pearson's, of distance from the origin and points, test frames.

    None here, and wherever it can be, stands for what is not defined or not finite.
    """
    scoreless_correlation: float | None
    """As the first, with the score of all frames made that of the first one of all."""
    validation_correlation: float | None
    """As the first, on the frames to select on."""
    elbo: float | None
    """Nats a test frame, whatever β is; from the same samples as the log-likelihood."""
    log_likelihood: float | None
    median_log_likelihood: float | None
    """Of the test frames: a few that show something new can outweigh all others in the mean."""
    radius: float
    """The mean distance from the origin, test frames."""
    steps: int
    steps_per_second: float | None
    """In the last call that trained it, without the first report."""
    evaluation_seconds: float
    device: str
    commit: str | None
    versions: dict[str, str]

    @property
    def seconds(self) -> float:
        """Of training and evaluation, as if it had gone through at one speed."""
        return self.evaluation_seconds + self.steps / (self.steps_per_second or np.inf)


class Outcome(NamedTuple):
    """A finished model."""

    numbers: Numbers
    tangent: NDArray[np.float32]
    """``(T, n)``: ``h`` of each test frame; ``|h|`` is its distance from the origin."""
    from_first: Array
    """``(T,)``: the distance of each test frame from the first frame of all."""
    blocks: NDArray[np.float32]
    """``(norms, directions)``: remaining-block ratio of what the model makes there."""
    field: NDArray[np.float32]
    """Likewise, how much of the field is as in the game."""
    folder: Path

    @property
    def radii(self) -> Array:
        return lengths(torch.from_numpy(self.tangent))

    def vae(self) -> VAE:
        return VAE.load(self.folder)


Watch = Callable[[str, Progress], None]


@dataclass(frozen=True)
class Job:
    """A model, what it is trained and tested on, and where it goes."""

    model: Model
    scale: Scale
    data: Data
    folder: Path

    @property
    def steps(self) -> int:
        return self.model.epochs * self._epoch

    @property
    def _epoch(self) -> int:
        return len(self.data.train) // self.scale.batch

    @property
    def _precision(self) -> Literal["float32", "bfloat16"]:
        return "bfloat16" if self.data.device.type == "cuda" else "float32"

    @property
    def _save_every(self) -> int:
        return self.scale.save_every * (5 if self.data.device.type == "cuda" else 1)

    def settings(self) -> dict[str, Any]:
        """All that decides the model but the machine; all but ``model`` is common to a folder."""
        common = {"frames": self.data.name, **self.scale.deciding(), "precision": self._precision}
        return {"model": asdict(self.model), **common, "hyperwrap": __version__, "code": _CODE}

    def make(self, watch: Watch) -> Outcome:
        """Trains, or goes on where a killed run stopped, and measures."""
        if not trained(self.folder):
            write_whole(self.folder / "settings.json", as_json(self.settings()))
        # Of the ways to convolve on a GPU, the fastest; but what is measured in float32, really so:
        # scales of .01 see the rounding to 10 bits.
        with cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
            vae, speed = self._train(watch)
        if not trained(self.folder):
            vae.save(self.folder / "model.safetensors")
        start = time.perf_counter()
        with cudnn.flags(enabled=True, allow_tf32=False), torch.no_grad():
            tangent = tangents(vae, self.data.test)
            from_first = distances(vae, tangent, tangents(vae, self.data.train[:1]))
            found = self._measured(vae, tangent)
            swept = norms(self.model.geometry)
            ratios = measure(vae, swept, self.scale.directions, self.model.seed)
        numbers = Numbers(
            **found,
            steps=self.steps,
            steps_per_second=speed,
            evaluation_seconds=round(time.perf_counter() - start, 2),
            device=device_name(self.data.device),
            commit=commit(),
            versions=versions(),
        )
        kept = {"tangent": tangent, "from_first": from_first.float(), **ratios._asdict()}
        kept["norms"] = torch.tensor(swept)
        write_tensors(self.folder / "measured.safetensors", kept, {})
        write_whole(self.folder / "numbers.json", as_json(asdict(numbers)))
        (self.folder / "checkpoint.safetensors").unlink(missing_ok=True)
        return _outcome(self.folder)

    def _measured(self, vae: VAE, tangent: Tensor) -> dict[str, Any]:
        """Those of the `Numbers` that say how good the model is."""
        points, radii = self.data.test_frames.points, lengths(tangent)
        validation = lengths(tangents(vae, self.data.validation))
        scoreless = screen.with_score_of(self.data.train[0, 0], self.data.test)
        elbo, log_likelihood = self._scores(vae)
        found = {
            "correlation": pearson(radii, points),
            "scoreless_correlation": pearson(lengths(tangents(vae, scoreless)), points),
            "validation_correlation": pearson(validation, self.data.validation_points),
            "elbo": elbo.mean().item(),
            "log_likelihood": log_likelihood.mean().item(),
            "median_log_likelihood": log_likelihood.median().item(),
            "radius": radii.mean().item(),
        }
        return {name: finite(x) for name, x in found.items()}

    def _train(self, watch: Watch) -> tuple[VAE, float | None]:
        """The trained model, and steps a second if it was not there already."""
        if trained(self.folder):
            return VAE.load(self.folder).to(self.data.device), None
        vae = self.model.vae().to(self.data.device)
        order = Shuffled(self.data.train, self.scale.batch, self.model.seed)
        training = Training(
            self.steps,
            self.scale.learning_rate,
            warm_up=min(self.scale.warm_up * self._epoch, self.steps // 2),
            warm_up_from=_BETA_FROM,
            seed=self.model.seed,
            precision=self._precision,
        )
        # No validation on the way: where one draw far out has no finite density, it would end all.
        trainer = Trainer(vae, lambda step: screen.scaled(order(step)), training, self.folder)
        reports: list[tuple[float, int]] = []
        every = max(1, min(1_000, self.steps // 50))
        try:
            for progress in trainer.run(report_every=every, save_every=self._save_every):
                watch(self.model.name, progress)
                reports.append((time.perf_counter(), progress.step))
        except DivergedError as diverged:
            raise UserError(f"{self.model.name}: {diverged.seen} {self._instead}") from None
        if len(reports) < 2:
            return vae, None
        (start, first), (end, last) = reports[0], reports[-1]
        return vae, (last - first) / (end - start)

    @property
    def _instead(self) -> str:
        """What to do if the training diverged; a checkpoint would only lead there again."""
        ambient = self.model.geometry == "hyperbolic" and self.model.coordinates == "hyperboloid"
        other = "Take --coordinates tangent, or another" if ambient else "Take another"
        return f"{other} --seed; models that are finished stay."

    def _scores(self, vae: VAE) -> Score:
        """ELBO and log-likelihood of each test frame, with the noise of the seed."""
        device = self.data.device
        with seeded(self.model.seed, device):
            parts = [
                vae.score(screen.scaled(part), self.scale.samples)
                for part in self.data.test.split(_at_once(device))
            ]
        return Score(*(torch.cat(each).double() for each in zip(*parts, strict=True)))


def tangents(vae: VAE, screens: Tensor) -> Tensor:
    """``h`` of the posterior's centre ``exp₀(h)`` or ``h`` itself, ``(T, n)``, on the CPU."""
    parts = screens.split(4 * _at_once(screens.device))
    return torch.cat([vae.encoder(screen.scaled(part))[:, : vae.latent.n] for part in parts]).cpu()


def distances(vae: VAE, a: Tensor, b: Tensor) -> Tensor:
    """Of the points with these `tangents`, ``(..., n), (..., n) → (...)``."""
    return vae.latent.distance(*(vae.latent.centre(h.double()) for h in (a, b)))


def _at_once(device: torch.device) -> int:
    """How many frames are scored at once, each with all its samples."""
    return 500 if device.type == "cuda" else 50


def lengths(tangent: Tensor) -> Array:
    """How far the points with these `tangents` are from the origin, ``(T, n) → (T,)``."""
    return tangent.double().norm(dim=1).numpy()


def finite(x: float) -> float | None:
    """The number, or None, as JSON has neither inf nor NaN."""
    return x if np.isfinite(x) else None


# --- what is finished ----------------------------------------------------------------------------


def trained(folder: Path) -> bool:
    """Whether there is a trained model in the folder, measured or not."""
    return (folder / "model.safetensors").exists()


def finished(folder: Path, jobs: Mapping[Model, Job]) -> dict[Model, Outcome]:
    """The models in the folder, if they may stand in one table with those of the jobs.

    Those that were begun with other settings than their jobs' are an error too. A GPU trains in
    bfloat16 and a CPU does not: a model may stand beside others, but not be trained on both.
    """
    found: dict[Model, Outcome] = {}
    anyone = next(iter(jobs.values())).settings()
    for path in sorted(folder.glob("*/settings.json")):
        settings = _read(path)
        try:
            model = Model(**settings["model"])
        except (KeyError, TypeError):
            raise _unreadable(path, "it is something else") from None
        expected = {**anyone, "model": settings["model"]}
        if trained(path.parent):
            expected["precision"] = settings.get("precision")
        _require_same(path.parent, settings, expected)
        if (path.parent / "numbers.json").exists():
            found[model] = _outcome(path.parent)
    return found


def _outcome(folder: Path) -> Outcome:
    tensors, _ = read_tensors(folder / "measured.safetensors", "what was measured", _ANEW)
    try:
        numbers = Numbers(**_read(folder / "numbers.json", _ANEW))
        from_first = tensors["from_first"].double().numpy()
        tangent, blocks, field = (tensors[name].numpy() for name in ("tangent", "blocks", "field"))
    except (KeyError, TypeError):
        raise _unreadable(folder, "something is missing", _ANEW) from None
    return Outcome(numbers, tangent, from_first, blocks, field, folder)


def last_report(outcome: Outcome) -> Progress:
    """How the training stood at its end."""
    line = json.loads((outcome.folder / "metrics.jsonl").read_text().splitlines()[-1])
    numbers = {name: [line[name]] for name in ("elbo", "reconstruction", "kl")}
    return Progress(line["step"], **numbers)


_REMOVE = "Remove its folder to train anew."
_ANEW = "Remove its numbers.json to measure anew."


def _read(path: Path, advice: str = _REMOVE) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(path, str(error), advice) from None


def _unreadable(path: Path, why: str, advice: str = _REMOVE) -> UserError:
    return UserError(f"Expected a model in {path}; it cannot be read ({why}). {advice}")


def _require_same(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    for name, value in here.items():
        if there.get(name) != value:
            raise UserError(
                f"Expected models of the same settings; in {path} {name} is {there.get(name)}, "
                f"and here {value}. Take the same, or choose another folder with -o."
            )
