"""The models of the experiment: how they are trained, and how good they are."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.backends import cudnn

from hyperwrap.errors import DivergedError, UserError
from hyperwrap.runs import device_name
from hyperwrap.training import Progress, seeded
from hyperwrap.vae import VAE, EuclideanLatent, HyperbolicLatent, dcgan
from hyperwrap.vae.likelihoods import Gaussian
from hyperwrap.vae.train import Shuffled, Training, trainer
from nagano2019.atari.frames import FRAMES, Frames, read
from nagano2019.breakout import screen, sweep
from nagano2019.breakout.correlation import pearson
from nagano2019.grid import Cell, Outcome

__all__ = [
    "FULL",
    "GEOMETRIES",
    "MIN_SCALE",
    "QUICK",
    "Lab",
    "Model",
    "Scale",
    "groups",
    "scale_label",
]

GEOMETRIES = ("vanilla", "hyperbolic")
MIN_SCALE = Gaussian().min_scale
"""The paper's smallest scale of a pixel."""

_N = 20
_BETA_FROM, _BETA = 0.1, 4.0
_LAST_SLOPE = 0.2  # with the paper's 0 both channels before the last layer can die
_REPORTS = 50  # at least, of a training


@dataclass(frozen=True)
class Scale:
    """How much of everything: the paper's values, unless time is short."""

    frames: int = FRAMES
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
    further: int = 4
    """Keep one in this many frames of the further games: those between look alike."""
    comparable: bool = True
    """Whether the paper's numbers belong beside these."""


FULL = Scale()
QUICK = Scale(
    frames=5_000,
    epochs=5,
    seeds=1,
    warm_up=0,  # there is no time to come back from the radii that a small β allows
    batch=32,
    samples=20,
    directions=100,
    comparable=False,
)


@dataclass(frozen=True)
class Lab:
    """What all models of a run share.

    Frames are megabytes in a file and hundreds in memory: they are read when they are needed, and
    a process that is sent a lab reads them itself.
    """

    frames: Path
    further: Path
    """Frames of games that are none of those trained, selected or tested on."""
    scale: Scale
    device: torch.device

    def __reduce__(self) -> tuple[type["Lab"], tuple[Any, ...]]:
        return Lab, tuple(getattr(self, f.name) for f in fields(self))

    @cached_property
    def played(self) -> Frames:
        frames, batch = read(self.frames), self.scale.batch
        if len(frames.split()[0]) < batch:
            raise UserError(
                f"Expected at least {batch * 10 // 8} frames, 80 % of which are a batch of {batch} "
                f"to train on; got {len(frames)}. Collect more."
            )
        return frames

    @property
    def validation(self) -> Frames:
        return self.played.split()[1]

    @property
    def test(self) -> Frames:
        return self.played.split()[2]

    @cached_property
    def others(self) -> Frames:
        """Some frames of the further games."""
        return read(self.further).every(self.scale.further)

    @cached_property
    def train(self) -> Tensor:
        return self.screens(self.played.split()[0])

    def screens(self, frames: Frames) -> Tensor:
        """On the device, uint8 ``(T, 1, 80, 80)``."""
        return torch.from_numpy(frames.screens).unsqueeze(1).to(self.device)


# --- a model -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model(Cell):
    """One training run: a geometry and a seed, with the smallest scale that a pixel may have."""

    geometry: str
    seed: int
    min_scale: float
    lab: Lab = field(compare=False, repr=False)

    @property
    def row(self) -> str:
        """What its rows in the tables begin with."""
        return f"{self.geometry}{scale_label(self.min_scale)}"

    @property
    def name(self) -> str:
        return f"{self.row}, seed {self.seed}"

    def settings(self) -> dict[str, Any]:
        own = {"geometry": self.geometry, "seed": self.seed, "min_scale": self.min_scale}
        return {"model": own}

    def vae(self) -> VAE:
        """An untrained model, the same for the same seed."""
        latent = EuclideanLatent(_N) if self.geometry == "vanilla" else HyperbolicLatent(_N)
        with seeded(self.seed):
            networks = dcgan(latent, last_slope=_LAST_SLOPE)
        return VAE(*networks, latent, Gaussian(self.min_scale), _BETA)

    def trained(self, outcome: Outcome) -> VAE:
        """The model with this outcome, on the CPU."""
        vae, kept = self.vae(), outcome.tensors
        vae.load_state_dict({name: kept[f"model.{name}"] for name in vae.state_dict()})
        return vae.eval()

    def measure(self, folder: Path) -> Generator[Progress, None, Outcome]:
        """Trains, then measures: numbers by the columns of the table, and distances of frames."""
        # Of the ways to convolve on a GPU, the fastest; but what is measured in float32, really so:
        # scales of .01 see the rounding to 10 bits.
        with cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
            vae = self.vae().to(self.lab.device)
            yield from self._training(vae, folder)
        with cudnn.flags(enabled=True, allow_tf32=False), torch.no_grad():
            return self._measured(vae.eval())

    def _training(self, vae: VAE, folder: Path) -> Generator[Progress]:
        """Without looks at validation frames: one draw far out, without a finite density, would
        end it all.
        """
        lab, scale = self.lab, self.lab.scale
        epoch = len(lab.train) // scale.batch
        training = Training(
            steps=scale.epochs * epoch,
            learning_rate=scale.learning_rate,
            warm_up=min(scale.warm_up * epoch, scale.epochs * epoch // 2),
            warm_up_from=_BETA_FROM,
            seed=self.seed,
            precision="bfloat16" if lab.device.type == "cuda" else "float32",
        )
        order = Shuffled(lab.train, scale.batch, self.seed)
        every = max(1, min(1_000, training.steps // _REPORTS))
        loop = trainer(
            vae, lambda step: screen.scaled(order(step)), training, folder, report_every=every
        )
        try:
            yield from loop.run()
        except DivergedError as diverged:
            raise UserError(f"{self.name}: {diverged.seen} Use another seed.") from None

    def _measured(self, vae: VAE) -> Outcome:
        lab, first = self.lab, self.lab.train[:1]
        test, others = lab.screens(lab.test), lab.screens(lab.others)
        hidden, others_hidden = (screen.with_score_of(first[0, 0], x) for x in (test, others))
        h = tangents(vae, test)
        distances = {
            "radii": _radii(h),
            "from_first": _apart(vae, h, tangents(vae, first)),
            "further": _radii(tangents(vae, others)),
            "further_hidden": _radii(tangents(vae, others_hidden)),
        }
        hidden, validation = (
            _radii(tangents(vae, x)).numpy() for x in (hidden, lab.screens(lab.validation))
        )
        norms = sweep.norms(self.geometry)
        swept = sweep.measure(vae, norms, lab.scale.directions, self.seed)
        elbo, log_likelihood = self._scores(vae, test)
        scores = {
            "score hidden": pearson(hidden, lab.test.points),
            "validation": pearson(validation, lab.validation.points),
            **sweep.columns(norms, swept["blocks"]),
            "ELBO": elbo.mean().item(),
            "LL": log_likelihood.mean().item(),
            "LL, median": log_likelihood.median().item(),
            "radius": distances["radii"].mean().item(),
        }
        weights = {f"model.{name}": t for name, t in vae.state_dict().items()}
        return Outcome(scores, {**distances, **swept, **weights}, device_name(lab.device))

    def _scores(self, vae: VAE, screens: Tensor) -> tuple[Tensor, Tensor]:
        """ELBO and log-likelihood of each frame, with the noise of the seed."""
        with seeded(self.seed, screens.device):
            parts = [
                vae.score(screen.scaled(part), self.lab.scale.samples)
                for part in screens.split(_at_once(screens))
            ]
        elbo, log_likelihood = (torch.cat(each).double() for each in zip(*parts, strict=True))
        return elbo, log_likelihood


def scale_label(min_scale: float) -> str:
    """What the names of models with this smallest scale have; nothing if it is the paper's.

    >>> scale_label(1.0), scale_label(1e-3)
    (', σ≥1', '')
    """
    return "" if min_scale == MIN_SCALE else f", σ≥{min_scale:g}"


def groups(found: Mapping[Model, Outcome]) -> dict[float, dict[str, dict[Model, Outcome]]]:
    """Models that can be compared: by smallest scale, those of each geometry, by seed."""
    sets: dict[float, dict[str, dict[Model, Outcome]]] = {}
    for model in sorted(found, key=_place):
        group = sets.setdefault(model.min_scale, {})
        group.setdefault(model.geometry, {})[model] = found[model]
    return sets


def _place(model: Model) -> tuple[float, int, int]:
    return model.min_scale, GEOMETRIES.index(model.geometry), model.seed


# --- where frames lie ----------------------------------------------------------------------------


def tangents(vae: VAE, screens: Tensor) -> Tensor:
    """``h`` of the posterior's centre ``exp₀(h)`` or ``h`` itself, ``(T, n)``, on the CPU."""
    parts = screens.split(4 * _at_once(screens))
    return torch.cat([vae.encoder(screen.scaled(part))[:, : vae.latent.n] for part in parts]).cpu()


def _radii(h: Tensor) -> Tensor:
    """How far the points with these `tangents` are from the origin, ``(T, n) → (T,)``."""
    return h.double().norm(dim=1)


def _apart(vae: VAE, a: Tensor, b: Tensor) -> Tensor:
    """How far the points with these `tangents` are from each other, ``(..., n) → (...)``."""
    return vae.latent.distance(*(vae.latent.centre(h.double()) for h in (a, b)))


def _at_once(screens: Tensor) -> int:
    """How many frames are scored at once, each with all its samples."""
    return 500 if screens.is_cuda else 50
