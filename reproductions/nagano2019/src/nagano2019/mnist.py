r"""Tables 2 and 4 and the figures of §5.2: VAEs of MNIST, vanilla and hyperbolic.

The data are images in two colours (`data.mnist`). Encoder and decoder have one hidden layer of 500
and tanh, ``784 → 500 → (h, s)`` and ``z → 500 → 784``; diagonal ``Σ``, Bernoulli likelihood,
``β = 1``, one sample; Adam 1e-3, batches of 100; ``n = 2, 5, 10, 20``; 5 seeds.

Two protocols, each the same for both geometries:

- *as in the paper*: 150,000 steps at a constant learning rate, and the last model is evaluated.
- *ours*: 50,000 steps, the learning rate falling linearly to 0 over the second half. Every 2,500
  steps the log-likelihood of the validation images is estimated with 20 samples, and for each seed
  the model that did best there is evaluated.

ELBO and log-likelihood of the test images come from the same 500 samples of ``q(z|x)``:
``mean log w`` and ``log mean w``, ``w = p(x|z)p(z)/q(z|x)``.

A third column, *more*, is ours with a full ``Σ`` and the importance-weighted bound of 8 samples,
again for both geometries, and with the tangent vector at the origin as input to the hyperbolic
decoder.

All seeds of one geometry and dimension train stacked in one program. Each has its own order of the
images in each epoch, which depends on the seed and the epoch alone.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hyperwrap import charts
from hyperwrap.runs import Row, Run, device_name
from hyperwrap.training import Loop, Progress, seeded
from hyperwrap.vae import VAE, EuclideanLatent, HyperbolicLatent, mlp
from hyperwrap.vae.latent import Coordinates, Covariance
from hyperwrap.vae.train import Shuffled, Training, trainer
from nagano2019.data.mnist import Mnist
from nagano2019.figures import Array, Figure, image_grid, images_on_disc
from nagano2019.grid import Cell, Outcome, Result, finish, row, run_cells

__all__ = [
    "FULL",
    "MORE",
    "OURS",
    "PAPER",
    "QUICK",
    "REMARK",
    "Group",
    "Lab",
    "Protocol",
    "Scale",
    "evaluate",
    "places",
    "quick",
    "remark",
    "reproducing",
]

REMARK = """\
- ELBO, LL: nats per test image, both from the same 500 samples of the posterior
- vanilla, hyperbolic: 50,000 steps, the learning rate falling to 0 in the second half; for each
  seed, the model with the best LL on the validation images (20 samples, every 2,500 steps)
- as in the paper: 150,000 steps at a constant learning rate, the last model
- more: like the first, but with what the paper does not have: a full covariance of the posterior
  and 8 samples of it in training; the decoder of the hyperbolic model sees the tangent vector
- mean ± standard deviation over seeds; in brackets the paper's mean, and ours less the paper's"""

_QUICK_REMARK = """\
- a quick look: {steps} steps, {seeds} seeds, {points} test images; these numbers are not those of
  the paper's protocol and say nothing about its tables
- ELBO, LL: nats per test image, both from the same {samples} samples of the posterior"""


@dataclass(frozen=True)
class Protocol:
    """How long to train, and which model to keep."""

    label: str
    """What is added to the names of the rows."""
    steps: int
    decay: bool
    select_every: int | None
    """Steps between two looks at the validation images; None keeps the last model."""
    num_samples: int = 1
    """Of the posterior; with several the importance-weighted bound is what is trained."""
    covariance: Covariance = "diagonal"
    coordinates: Coordinates = "hyperboloid"
    """What the decoder of the hyperbolic model is given."""
    largest_n: int | None = None
    """Up to which dimension it is tried; None for all."""

    @property
    def report_every(self) -> int:
        return gcd(self.select_every or self.steps, 100)


OURS = Protocol("", 50_000, decay=True, select_every=2_500)
PAPER = Protocol(", as in the paper", 150_000, decay=False, select_every=None)
MORE = replace(
    OURS, label=", more", num_samples=8, covariance="full", coordinates="tangent", largest_n=5
)


@dataclass(frozen=True)
class Scale:
    """What all protocols share: the paper's values, unless time is short."""

    dims: tuple[int, ...] = (2, 5, 10, 20)
    seeds: int = 5
    hidden: int = 500
    batch: int = 100
    learning_rate: float = 1e-3
    test_samples: int = 500
    validation_samples: int = 20
    points: int | None = None
    """How many images to validate and to test on; None takes all."""
    comparable: bool = True
    """Whether the paper's numbers belong beside these."""


FULL = Scale()
QUICK = Scale(dims=(2, 5), seeds=2, test_samples=100, points=1_000, comparable=False)


def quick(protocol: Protocol) -> Protocol:
    """The same kind of protocol, taking minutes on a CPU."""
    every = None if protocol.select_every is None else 250
    return replace(protocol, label=f"{protocol.label}, quick", steps=1_000, select_every=every)


_GEOMETRIES = ("vanilla", "hyperbolic")
_ELBO_AND_LL = {  # Table 4; Table 2 is part of it
    ("vanilla", 2): (-145.53, -140.45),
    ("vanilla", 5): (-111.32, -105.78),
    ("vanilla", 10): (-92.49, -86.25),
    ("vanilla", 20): (-85.17, -77.89),
    ("hyperbolic", 2): (-143.23, -138.61),
    ("hyperbolic", 5): (-111.09, -105.38),
    ("hyperbolic", 10): (-93.10, -86.40),
    ("hyperbolic", 20): (-88.28, -79.23),
}


@dataclass(frozen=True)
class Lab:
    """What all groups of a run share; the images are on the device that trains."""

    data: Mnist
    scale: Scale = FULL
    seed: int = 0

    @classmethod
    def on(cls, device: torch.device, data: Mnist, scale: Scale, seed: int) -> "Lab":
        points = scale.points
        parts = (data.train, data.validation[:points], data.test[:points])
        return cls(Mnist(*(part.to(device) for part in parts)), scale, seed)

    @property
    def device(self) -> torch.device:
        return self.data.train.device

    def config(self) -> dict[str, Any]:
        """What all groups in a folder have in common."""
        sizes = [len(part) for part in self.data]
        return {"seed": self.seed, "scale": asdict(self.scale), "images": sizes}

    def groups(self, protocols: Sequence[Protocol]) -> "list[Group]":
        """The groups in the order of the table."""
        return [
            Group(p, geometry, n, self)
            for p in protocols
            for geometry in _GEOMETRIES
            for n in self.scale.dims
            if n <= (p.largest_n or n)
        ]


def reproducing(
    run: Run, lab: Lab, protocols: Sequence[Protocol] = (OURS,)
) -> Generator[Progress, None, Result]:
    """Trains, scores and draws into the folder of the run, which has the config of the lab.

    The table and figures cover all groups in the folder.
    """

    def stored(settings: Mapping[str, Any]) -> Group:
        return Group(Protocol(**settings["protocol"]), settings["geometry"], settings["n"], lab)

    with _tensor_cores(lab.device):
        every = yield from run_cells(run, lab.groups(protocols), others=stored)
    found = {group: every[group] for group in sorted(every, key=_place)}
    text = remark([group.protocol for group in found], lab.scale)
    return finish(run, table(found), text, figures(found), found.values())


def _place(group: "Group") -> tuple[str, int, int]:
    return group.protocol.label, _GEOMETRIES.index(group.geometry), group.n


@contextmanager
def _tensor_cores(device: torch.device) -> Iterator[None]:
    """On a GPU, matrix products round their factors to 10 bits, as is usual in training."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if device.type == "cuda" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


# --- one group -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group(Cell):
    """What trains in one program: all seeds of one geometry and dimension."""

    protocol: Protocol
    geometry: str
    n: int
    lab: Lab = field(compare=False, repr=False)

    @property
    def row(self) -> str:
        return f"{self.geometry}{self.protocol.label}"

    @property
    def name(self) -> str:
        return f"{self.row}, n={self.n}"

    def settings(self) -> dict[str, Any]:
        return {"protocol": asdict(self.protocol), "geometry": self.geometry, "n": self.n}

    def latent(self) -> EuclideanLatent | HyperbolicLatent:
        p = self.protocol
        if self.geometry == "vanilla":
            return EuclideanLatent(self.n, covariance=p.covariance)
        return HyperbolicLatent(self.n, covariance=p.covariance, coordinates=p.coordinates)

    def vae(self, stack: Sequence[int] = ()) -> VAE:
        latent, hidden = self.latent(), self.lab.scale.hidden
        pixels = self.lab.data.train.shape[-1]
        encoder = mlp([pixels, hidden, latent.encoder_outputs], stack=stack)
        decoder = mlp([latent.decoder_inputs, hidden, pixels], stack=stack)
        return VAE(encoder, decoder, latent)

    def measure(self, folder: Path) -> Generator[Progress, None, Outcome]:
        """How well the selected model of each seed does on the test images; the first model."""
        lab, scale, p = self.lab, self.lab.scale, self.protocol
        with seeded(lab.seed, lab.device):
            model = self.vae(stack=(scale.seeds,)).to(lab.device)
        loop = self._loop(model, folder)
        yield from loop.run()
        loop.best.restore()
        elbo, log_likelihood = evaluate(model, lab.data.test, scale.test_samples, lab.seed)
        chosen = loop.best.steps.tolist() if p.select_every else [p.steps] * scale.seeds
        scores = {"elbo": elbo, "log_likelihood": log_likelihood, "steps": chosen}
        first = {name: t.detach()[0] for name, t in model.named_parameters()}
        return Outcome(scores, first, device_name(lab.device))

    def _loop(self, model: VAE, folder: Path) -> Loop:
        lab, scale, p = self.lab, self.lab.scale, self.protocol
        order = Shuffled(lab.data.train, scale.batch, range(lab.seed, lab.seed + scale.seeds))
        training = Training(
            p.steps, scale.learning_rate, decay=p.decay, num_samples=p.num_samples, seed=lab.seed
        )

        def score(validation: Tensor) -> list[float]:
            return evaluate(model, validation, scale.validation_samples, lab.seed)[1]

        looking: dict[str, Any] = {}
        if p.select_every:
            data = lab.data.validation
            looking = {"validation": data, "score": score, "validate_every": p.select_every}
        return trainer(model, order, training, folder, report_every=p.report_every, **looking)


def evaluate(
    model: VAE, images: Tensor, num_samples: int, seed: int, at_once: int = 1_000
) -> tuple[list[float], list[float]]:
    """ELBO and log-likelihood of each model of a stack, averaged over the images.

    The noise is that of the seed: the same at every call, and training does not notice.
    """
    stack = next(model.parameters()).shape[0]
    with seeded(seed, images.device):
        scores = [
            model.score(part.float().expand(stack, -1, -1), num_samples)
            for part in images.split(at_once)
        ]
    elbo, log_likelihood = (
        torch.cat(parts, -1).mean(-1).tolist() for parts in zip(*scores, strict=True)
    )
    return elbo, log_likelihood


# --- the table -----------------------------------------------------------------------------------


def table(found: Mapping[Group, Outcome]) -> list[Row]:
    """ELBO and log-likelihood of every group, mean and standard deviation over the seeds."""
    return [
        row(group.row, f"{column} n={group.n}", outcome.scores[name], theirs)
        for group, outcome in found.items()
        for (column, name), theirs in zip(
            {"ELBO": "elbo", "LL": "log_likelihood"}.items(), _paper(group), strict=True
        )
    ]


def _paper(group: Group) -> tuple[float, float] | tuple[None, None]:
    known = _ELBO_AND_LL if group.lab.scale.comparable else {}
    return known.get((group.geometry, group.n), (None, None))


def remark(protocols: Sequence[Protocol], scale: Scale) -> str:
    """What the numbers in the table are."""
    if scale.comparable:
        return REMARK
    steps = " or ".join(sorted({f"{protocol.steps:,}" for protocol in protocols}))
    return _QUICK_REMARK.format(
        steps=steps, seeds=scale.seeds, points=scale.points or "all", samples=scale.test_samples
    )


# --- figures -----------------------------------------------------------------------------------

_SAMPLES_N, _DISC_N = 5, 2
_ACROSS = 21  # digits on a diameter of the disc


def figures(found: Mapping[Group, Outcome]) -> dict[str, Figure]:
    """Samples at n=5 and the disc at n=2, of the first hyperbolic models and their first seed."""
    drawn: dict[str, Figure] = {}
    for n, name, draw in ((_SAMPLES_N, "samples", _samples), (_DISC_N, "disc", _disc)):
        group = next((g for g in found if (g.geometry, g.n) == ("hyperbolic", n)), None)
        if group is not None:
            model = group.vae()
            model.load_state_dict(found[group].tensors, strict=False)  # β is no parameter, and 1
            drawn[name] = draw(model, group.lab.seed)
    return drawn


def _samples(model: VAE, seed: int) -> Figure:
    with seeded(seed):
        z = model.latent.prior().sample((100,))
    return image_grid(_images(model, z), columns=10)


def _disc(model: VAE, seed: int) -> Figure:
    y = places(_ACROSS)
    z = charts.from_poincare(y)
    return images_on_disc(_images(model, z), y.numpy().astype(np.float64), side=2 / _ACROSS)


def places(across: int) -> Tensor:
    """Centres of those squares of ``[−1, 1]²``, ``across²`` in all, that lie inside the disc."""
    side = 2 / across
    ticks = (torch.arange(across) + 0.5) * side - 1
    y = torch.cartesian_prod(ticks, ticks)
    return y[(y.abs() + side / 2).norm(dim=-1) <= 1]


@torch.no_grad()
def _images(model: VAE, z: Tensor) -> Array:
    pixels = model.generate(z)
    side = round(pixels.shape[-1] ** 0.5)
    return pixels.unflatten(-1, (side, side)).numpy().astype(np.float64)
