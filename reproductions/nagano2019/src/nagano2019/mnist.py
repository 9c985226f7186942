r"""Tables 2 and 4 and the figures of §5.2: VAEs of MNIST, vanilla and hyperbolic.

The data are images of two colours (`data.mnist`). Encoder and decoder have one hidden layer of 500
and tanh, ``784 → 500 → (h, s)`` and ``z → 500 → 784``; diagonal ``Σ``, Bernoulli likelihood,
``β = 1``, one sample; Adam 1e-3, batches of 100; ``n = 2, 5, 10, 20``; 5 seeds.

Two protocols, each the same for both geometries:

- *as in the paper*: 150,000 steps at a constant learning rate, and the last model is evaluated.
- *ours*: 50,000 steps, the learning rate falling linearly to 0 over the second half. Every 2,500
  steps the log-likelihood of the validation images is estimated with 20 samples, and of each seed
  the model that did best there is evaluated.

ELBO and log-likelihood of the test images come from the same 500 samples of ``q(z|x)``:
``mean log w`` and ``log mean w``, ``w = p(x|z)p(z)/q(z|x)``.

A third column, *more*, is ours with a full ``Σ`` and the importance-weighted bound of 8 samples,
again for both geometries, and with the tangent vector at the origin as what the hyperbolic decoder
is given.

All seeds of one geometry and dimension train stacked in one program. Each has its own order of the
images in each epoch, which depends on the seed and the epoch alone.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import gcd
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hyperwrap import __version__, charts
from hyperwrap.errors import UserError
from hyperwrap.runs import Row, Run, device_name
from hyperwrap.vae import VAE, EuclideanLatent, HyperbolicLatent, mlp
from hyperwrap.vae.latent import Coordinates, Covariance
from hyperwrap.vae.train import Progress, Shuffled, Trainer, Training, seeded
from nagano2019.data.mnist import Mnist
from nagano2019.figures import Array, Figure, image_grid, images_on_disc, rendered

__all__ = [
    "FULL",
    "MORE",
    "OURS",
    "PAPER",
    "QUICK",
    "REMARK",
    "Best",
    "Group",
    "Protocol",
    "Scale",
    "evaluate",
    "groups",
    "quick",
    "remark",
    "reproduce",
]

REMARK = """\
- ELBO, LL: nats per test image, both from the same 500 samples of the posterior
- vanilla, hyperbolic: 50,000 steps, the learning rate falling to 0 in the second half; of each the
  model with the best LL on the validation images (20 samples, every 2,500 steps)
- as in the paper: 150,000 steps at a constant learning rate, the last model
- more: as the first, but with what the paper does not have: a full covariance of the posterior and
  8 samples of it in training; the decoder of the hyperbolic model sees the tangent vector
- mean ± standard deviation over seeds; in brackets the paper's mean, and ours less the paper's"""

_QUICK_REMARK = """\
- a quick look: {steps} steps, {seeds} seeds, {points} test images; these numbers are not those of
  the paper's protocol and say nothing about its tables
- ELBO, LL: nats per test image, both from the same {samples} samples of the posterior"""

Watch = Callable[[str, Progress], None]


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
    dims: tuple[int, ...] | None = None
    """Where it is tried, if not wherever the others are."""

    @property
    def report_every(self) -> int:
        return gcd(self.select_every or self.steps, 100)


OURS = Protocol("", 50_000, decay=True, select_every=2_500)
PAPER = Protocol(", as in the paper", 150_000, decay=False, select_every=None)
MORE = replace(
    OURS, label=", more", num_samples=8, covariance="full", coordinates="tangent", dims=(2, 5)
)


@dataclass(frozen=True)
class Scale:
    """What both protocols share: the paper's values, unless somebody is in a hurry."""

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
    """The same kind of protocol, minutes long on a CPU."""
    every = None if protocol.select_every is None else 250
    return replace(protocol, label=f"{protocol.label}, quick", steps=1_000, select_every=every)


def remark(protocols: Sequence[Protocol], scale: Scale) -> str:
    """What the numbers in the table are."""
    if scale.comparable:
        return REMARK
    steps = " or ".join(sorted({f"{protocol.steps:,}" for protocol in protocols}))
    return _QUICK_REMARK.format(
        steps=steps, seeds=scale.seeds, points=scale.points or "all", samples=scale.test_samples
    )


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
class Group:
    """What trains in one program: all seeds of one geometry and dimension."""

    protocol: Protocol
    geometry: str
    n: int

    @property
    def row(self) -> str:
        return f"{self.geometry}{self.protocol.label}"

    @property
    def name(self) -> str:
        return f"{self.row}, n={self.n}"

    @property
    def file(self) -> str:
        """The name in letters that any file system takes.

        >>> Group(MORE, "hyperbolic", 2).file
        'hyperbolic-more-n2'
        """
        return self.name.replace(", ", "-").replace(" ", "-").replace("=", "")

    def latent(self) -> EuclideanLatent | HyperbolicLatent:
        p = self.protocol
        if self.geometry == "vanilla":
            return EuclideanLatent(self.n, covariance=p.covariance)
        return HyperbolicLatent(self.n, covariance=p.covariance, coordinates=p.coordinates)


def groups(protocols: Sequence[Protocol], scale: Scale) -> list[Group]:
    """In the order of the table."""
    return [
        Group(p, geometry, n)
        for p in protocols
        for geometry in _GEOMETRIES
        for n in p.dims or scale.dims
    ]


def reproduce(
    run: Run,
    data: Mnist,
    watch: Watch = lambda name, progress: None,
    *,
    protocols: Sequence[Protocol] = (OURS,),
    scale: Scale = FULL,
    device: torch.device,
) -> tuple[list[Row], list[Path]]:
    """Trains, scores and draws into the folder of the run; returns the numbers and the pictures.

    What is killed resumes after the last group that was finished: those lie in ``checkpoints``,
    until the results do. ``watch`` is called with the name of a group and how it stands.
    """
    checkpoints = run.folder / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    parts = Mnist(*(part.to(device) for part in _shortened(data, scale)))
    found: dict[Group, Outcome] = {}
    with _tensor_cores(device):
        for group in groups(protocols, scale):
            job = _Job(group, scale, run.seed, parts)
            found[group] = _once(job, checkpoints, watch, run)
    rows = table(found, scale)
    files = {
        f"{name}.{form}": rendered(figure, form)
        for name, figure in figures(protocols[0], found, scale, run.seed).items()
        for form in ("png", "pdf")
    }
    paths = [run.write(name, content) for name, content in files.items()]
    run.write("groups.jsonl", "".join(map(_line, found.values())).encode())
    run.finish(rows, remark(protocols, scale), device_name(device))
    shutil.rmtree(checkpoints)
    return rows, paths


def _shortened(data: Mnist, scale: Scale) -> Mnist:
    return Mnist(data.train, data.validation[: scale.points], data.test[: scale.points])


@contextmanager
def _tensor_cores(device: torch.device) -> Iterator[None]:
    """On a GPU, matrix products round their factors to 10 bits, as is usual in training."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if device.type == "cuda" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


# --- the table -----------------------------------------------------------------------------------


def table(found: "Mapping[Group, Outcome]", scale: Scale) -> list[Row]:
    """ELBO and log-likelihood of every group, mean and standard deviation over the seeds."""
    return [
        _row(group, column, values, paper if scale.comparable else None)
        for group, outcome in found.items()
        for column, values, paper in zip(
            ("ELBO", "LL"),
            (outcome.elbo, outcome.log_likelihood),
            _ELBO_AND_LL.get((group.geometry, group.n), (None, None)),
            strict=True,
        )
    ]


def _row(group: Group, column: str, values: Tensor, paper: float | None) -> Row:
    sd = values.std().item() if len(values) > 1 else None
    name = f"{column} n={group.n}"
    return Row(group.row, name, values.mean().item(), sd, len(values), paper)


# --- one group -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What a trained group is worth on the test images, ``(seeds,)`` each, and its first model."""

    settings: dict[str, object]
    elbo: Tensor
    log_likelihood: Tensor
    steps: Tensor
    """After how many steps each model was taken."""
    first: dict[str, Tensor]
    """The parameters of the first seed's model."""
    last: Progress
    """How training stood at its end."""
    seconds: float


@dataclass(frozen=True)
class _Job:
    group: Group
    scale: Scale
    seed: int
    data: Mnist

    def settings(self) -> dict[str, object]:
        """All that the outcome depends on."""
        sizes = [len(part) for part in self.data]
        versions = {"hyperwrap": __version__, "torch": torch.__version__}
        device = device_name(self.data.train.device)
        what = {"group": asdict(self.group), "scale": asdict(self.scale), "seed": self.seed}
        # As it reads after a way through JSON, so that it can be compared with what was kept.
        return json.loads(json.dumps({**what, "images": sizes, "device": device, **versions}))

    def train(self, watch: Watch) -> Outcome:
        start, group, scale = time.perf_counter(), self.group, self.scale
        torch.manual_seed(self.seed)
        model = _vae(group.latent(), scale, self.data, stack=(scale.seeds,))
        model.to(self.data.train.device)
        best, last = self._trained(model, watch)
        best.restore()
        elbo, log_likelihood = evaluate(model, self.data.test, scale.test_samples, self.seed)
        first = {name: p.detach()[0].cpu() for name, p in model.named_parameters()}
        scores = {"elbo": elbo, "log_likelihood": log_likelihood, "steps": best.steps.cpu()}
        seconds = time.perf_counter() - start
        return Outcome(self.settings(), **scores, first=first, last=last, seconds=seconds)

    def _trained(self, model: VAE, watch: Watch) -> "tuple[Best, Progress]":
        protocol, scale = self.group.protocol, self.scale
        order = Shuffled(self.data.train, scale.batch, range(self.seed, self.seed + scale.seeds))
        training = Training(
            protocol.steps,
            scale.learning_rate,
            decay=protocol.decay,
            num_samples=protocol.num_samples,
            seed=self.seed,
        )
        best, every = Best(model), protocol.select_every
        progress = None
        for progress in Trainer(model, order, training).run(protocol.report_every):
            watch(self.group.name, progress)
            last = progress.step == protocol.steps
            if every is None and last:
                best.offer(torch.zeros(scale.seeds), progress.step)
            elif every is not None and (last or progress.step % every == 0):
                best.offer(self._validation(model), progress.step)
        assert progress is not None
        return best, progress

    def _validation(self, model: VAE) -> Tensor:
        samples = self.scale.validation_samples
        return evaluate(model, self.data.validation, samples, self.seed)[1]


def _vae(
    latent: EuclideanLatent | HyperbolicLatent, scale: Scale, data: Mnist, stack: Sequence[int] = ()
) -> VAE:
    pixels = data.train.shape[-1]
    encoder = mlp([pixels, scale.hidden, latent.encoder_outputs], stack=stack)
    decoder = mlp([latent.decoder_inputs, scale.hidden, pixels], stack=stack)
    return VAE(encoder, decoder, latent)


class Best:
    """For each model of a stack, the parameters with which it did best so far."""

    def __init__(self, model: VAE) -> None:
        self._own = dict(model.named_parameters())
        self._kept = {name: p.detach().clone() for name, p in self._own.items()}
        stack, device = next(iter(self._own.values())).shape[0], model.beta.device
        self.scores = torch.full((stack,), -torch.inf, device=device)
        self.steps = torch.zeros(stack, dtype=torch.long, device=device)

    def offer(self, scores: Tensor, step: int) -> None:
        """Keeps the parameters of those models whose score is higher than any before."""
        scores = scores.to(self.scores)
        better = scores > self.scores
        self.scores = torch.where(better, scores, self.scores)
        self.steps = torch.where(better, step, self.steps)
        for name, p in self._own.items():
            mask = better.view(-1, *[1] * (p.dim() - 1))
            self._kept[name] = torch.where(mask, p.detach(), self._kept[name])

    @torch.no_grad()
    def restore(self) -> None:
        """Puts what was kept back into the models."""
        for name, p in self._own.items():
            p.copy_(self._kept[name])


def evaluate(
    model: VAE, images: Tensor, num_samples: int, seed: int, at_once: int = 1_000
) -> tuple[Tensor, Tensor]:
    """ELBO and log-likelihood of each model of a stack, averaged over the images, on the CPU.

    The noise is that of the seed: the same at every call, and training does not notice.
    """
    stack = next(model.parameters()).shape[0]
    with seeded(seed, images.device):
        scores = [
            model.score(part.float().expand(stack, -1, -1), num_samples)
            for part in images.split(at_once)
        ]
    elbo, log_likelihood = (
        torch.cat(parts, -1).mean(-1).cpu() for parts in zip(*scores, strict=True)
    )
    return elbo, log_likelihood


# --- what a killed run has finished --------------------------------------------------------------


def _once(job: _Job, folder: Path, watch: Watch, run: Run) -> Outcome:
    """The outcome of a killed run before this one; if there is none, that of training now."""
    path = folder / f"{job.group.file}.safetensors"
    if path.exists():
        outcome = _read(path, job.settings())
        run.add_seconds(outcome.seconds)
        watch(job.group.name, outcome.last)
        return outcome
    outcome = job.train(watch)
    run.write(str(path.relative_to(run.folder)), _packed(outcome))
    return outcome


def _packed(outcome: Outcome) -> bytes:
    scores = {name: getattr(outcome, name).contiguous() for name in _SCORES}
    first = {f"first.{name}": t.contiguous() for name, t in outcome.first.items()}
    kept = {"settings": outcome.settings, "last": asdict(outcome.last), "seconds": outcome.seconds}
    return save({**scores, **first}, {name: json.dumps(value) for name, value in kept.items()})


_SCORES = ("elbo", "log_likelihood", "steps")


def _read(path: Path, settings: dict[str, object]) -> Outcome:
    try:
        with safe_open(path, "pt") as file:
            about = {name: json.loads(text) for name, text in (file.metadata() or {}).items()}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"Expected what a killed run finished in {path}; it cannot be read ({error}). "
            "Remove it to train anew."
        ) from None
    if about.get("settings") != settings:
        raise UserError(
            f"Expected {path.parent} to be of a killed run with the same options; it is of "
            "another. Remove it, or choose another folder with -o."
        )
    first = {n.removeprefix("first."): t for n, t in tensors.items() if n.startswith("first.")}
    scores = {name: tensors[name] for name in _SCORES}
    last, seconds = Progress(**about["last"]), about["seconds"]
    return Outcome(settings, **scores, first=first, last=last, seconds=seconds)


def _line(outcome: Outcome) -> str:
    """One group as a line of JSON: its settings, and what each seed came to."""
    scores = {name: getattr(outcome, name).tolist() for name in _SCORES}
    return json.dumps({**outcome.settings, **scores, "seconds": round(outcome.seconds, 2)}) + "\n"


# --- figures -----------------------------------------------------------------------------------

_SAMPLES_N, _DISC_N = 5, 2
_ACROSS = 21  # digits on a diameter of the disc


def figures(
    protocol: Protocol, found: Mapping[Group, Outcome], scale: Scale, seed: int
) -> dict[str, Figure]:
    """Samples at n=5 and the disc at n=2, of the first seed's hyperbolic models, by name."""
    drawn: dict[str, Figure] = {}
    for n, name, draw in ((_SAMPLES_N, "samples", _samples), (_DISC_N, "disc", _disc)):
        group = Group(protocol, "hyperbolic", n)
        if group in found:
            drawn[name] = draw(_restored(group.latent(), found[group], scale), seed)
    return drawn


def _restored(latent: EuclideanLatent | HyperbolicLatent, outcome: Outcome, scale: Scale) -> VAE:
    pixels = outcome.first["encoder.0.weight"].shape[0]
    blank = torch.empty(0, pixels)
    model = _vae(latent, scale, Mnist(blank, blank, blank))
    model.load_state_dict(outcome.first, strict=False)  # β is no parameter, and 1
    return model


def _samples(model: VAE, seed: int) -> Figure:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        z = model.latent.prior().sample((100,))
    return image_grid(_images(model, z), columns=10)


def _disc(model: VAE, seed: int) -> Figure:
    y = _places(_ACROSS)
    z = charts.from_poincare(y)
    return images_on_disc(_images(model, z), y.numpy().astype(np.float64), side=2 / _ACROSS)


def _places(across: int) -> Tensor:
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
