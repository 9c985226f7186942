"""Training a VAE: what `training.Loop` needs to know about it.

`trainer` gives a loop that can be killed at any moment and resumed. A stack of models (see
`networks.Linear`) trains in one program: the loss is the sum over the stack, so each model gets
the gradient it would get alone, and Adam works element by element.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from math import ceil
from os import PathLike
from statistics import fmean
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.backends import cudnn
from torch.nn.modules.batchnorm import _BatchNorm

from hyperwrap.errors import UserError
from hyperwrap.training import Loop, Progress, Task, adam, optimizer_state, recorded, seeded
from hyperwrap.vae.model import VAE

__all__ = ["Precision", "Shuffled", "Training", "mean_elbo", "trainer"]

Precision = Literal["float32", "bfloat16"]
Batches = Callable[[int], Tensor]
Score = Callable[[Any], list[float]]


class Splittable(Protocol):
    """A tensor, or rows that are read as they are needed."""

    def split(self, size: int, /) -> Iterable[Tensor]: ...


class Table(Protocol):
    """What `Shuffled` draws from: a tensor, or rows that are read as they are needed."""

    @property
    def device(self) -> Any: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: Tensor, /) -> Tensor: ...


_ROWS_AT_ONCE = 1_000  # of validation data
_SETTLING = 100  # batches


@dataclass(frozen=True)
class Training:
    """How to train; a checkpoint can only be resumed with the same settings."""

    steps: int
    learning_rate: float = 1e-3
    decay: bool = False
    """Whether the learning rate, constant for the first half, then falls linearly to 0."""
    num_samples: int = 1
    warm_up: int = 0
    """Steps over which β rises linearly from ``warm_up_from`` to its value."""
    warm_up_from: float = 0.0
    seed: int = 0
    precision: Precision = "float32"
    """Of the networks' matrix products and convolutions; the geometry is float32 in any case, and
    so is what a network does in float32 by itself (see `networks.Network.exact`).

    In use a model is in float32. So the last hundredth of a training in bfloat16 is, too, but no
    more than 400 steps: weights that fit one rounding do not fit the other, but soon do."""

    def __post_init__(self) -> None:
        if self.precision not in ("float32", "bfloat16"):
            raise UserError(f"Expected `precision` float32 or bfloat16; got {self.precision!r}.")

    @property
    def float32_from(self) -> int:
        """The step from which on everything is in float32."""
        return 0 if self.precision == "float32" else self.steps - min(ceil(self.steps / 100), 400)


def trainer(
    model: VAE,
    batches: Batches,
    training: Training,
    folder: str | PathLike[str] | None = None,
    *,
    report_every: int = 100,
    validation: Splittable | None = None,
    score: Score | None = None,
    validate_every: int = 1000,
) -> Loop[Any]:
    """A loop that trains a model in place, on the device where the model is.

    Each report has the means since the last one of ``elbo``, ``reconstruction`` and ``kl``: a
    number for one model, a list for a stack. At a report, and after training, the model is in
    evaluation mode (`nn.Module.eval`).

    Args:
        model: what to train.
        batches: the batch of a step, ``(*stack, batch, *event)``. What it draws at random comes
            from the loop's own stream.
        training: the settings.
        folder: where the checkpoint and the metrics go; see `training.Loop`.
        report_every: steps between two reports.
        validation: data held out, ``(rows, *event)``. They are scored in the first report after
            each ``validate_every`` steps, and ``loop.best.restore()`` brings back the model that
            did best: each model of a stack on its own, or all together if they share a parameter.
        score: what is best, from the validation data to a number for each model; by default the
            ELBO, always with the same noise.
        validate_every: steps between two looks at the validation data.

    >>> encoder, decoder = hw.vae.mlp([5, 8, 4]), hw.vae.mlp([3, 8, 5])
    >>> vae = hw.VAE(encoder, decoder, hw.HyperbolicLatent(2))
    >>> batches = Shuffled(torch.rand(20, 5).round(), batch=10, seed=0)
    >>> loop = trainer(vae, batches, Training(steps=200))
    >>> [progress.done for progress in loop.run()]
    [100, 200]
    """
    looks = None if validation is None else _Looks(validation, score, validate_every)
    task = _Fitting(model, batches, training, report_every, looks)
    return Loop(task, seed=training.seed, device=model.beta.device, folder=folder)


@dataclass(frozen=True)
class _Looks:
    """The validation data, how to score them, and how often."""

    data: Splittable
    score: Score | None
    every: int

    @property
    def name(self) -> str:
        return "validation_elbo" if self.score is None else "validation_score"


class _Fitting(Task):
    """A VAE in training."""

    def __init__(
        self,
        model: VAE,
        batches: Batches,
        training: Training,
        report_every: int,
        looks: _Looks | None,
    ) -> None:
        self.model, self.batches, self.training = model, batches, training
        self.report_every, self.looks = report_every, looks
        beta, stack = model.beta, model.stack
        self._beta = beta.clone()
        self._rate = torch.tensor(training.learning_rate, device=beta.device)
        self._optimizer = adam(model.parameters(), self._rate)
        self._sums = beta.new_zeros(2, *stack)  # of reconstruction and KL
        self._graph: torch.cuda.CUDAGraph | None = None
        apart = len(stack) == 1 and all(t.shape[:1] == stack for t in self.kept().values())
        self.models = stack[0] if apart else 1
        model.eval()

    @property
    def steps(self) -> int:
        return self.training.steps

    def identity(self) -> dict[str, Any]:
        model = f"{self.model.latent!r}, {self.model.extra_repr()}"
        return {"model": model, **asdict(self.training)}

    def state(self) -> dict[str, Tensor]:
        weights = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        return weights | optimizer_state(self._optimizer)

    def kept(self) -> dict[str, Tensor]:
        if self.looks is None:
            return {}
        return {name: t for name, t in self.model.state_dict().items() if name != "beta"}

    def advance(self) -> Progress:
        first = self.step
        self._sums.zero_()
        self.model.train()
        while self.step == first or (self.step % self.report_every and self.step < self.steps):
            self._schedule()
            x = self.batches(self.step)
            if self.step == 0:
                self._require_data(x)
            self._train_on(x)
            self.step += 1
        if self.step == self.steps:
            self._settle()
        self.model.eval()
        return self._report(self.step - first)

    def _require_data(self, x: Tensor) -> None:
        """Raises a `UserError` if the first batch cannot be data of the model."""
        if not x.numel():
            raise UserError(f"Expected data; got a batch of shape {tuple(x.shape)}.")
        if not torch.isfinite(x).all():
            raise UserError("Expected finite data; got NaN or inf.")
        self.model.likelihood.require(x)

    # --- one step --------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Sets β and the learning rate of the coming step."""
        t = self.training
        if self.step <= t.warm_up and t.warm_up:
            rise = self.step / t.warm_up
            self._beta.copy_(t.warm_up_from + rise * (self.model.beta - t.warm_up_from))
        if t.decay:
            rate = t.learning_rate * min(1.0, 2 * (1 - self.step / t.steps))
            self._rate.fill_(rate)
            if not self._rate.is_cuda:
                self._optimizer.param_groups[0]["lr"] = rate

    def _train_on(self, x: Tensor) -> None:
        """One step; on a GPU a replay of the graph recorded at the first in this precision."""
        if not x.is_cuda:
            return self._one_step(x)
        if self._graph is None or self.step == self.training.float32_from:
            self._x = x.clone()
            tensors = [*self.state().values(), self._sums]
            self._graph = recorded(lambda: self._one_step(self._x), tensors)
        self._x.copy_(x)
        return self._graph.replay()

    def _one_step(self, x: Tensor) -> None:
        with self._convolutions(x):
            with self._autocast(x):
                bound = self.model.objective(x, self.training.num_samples, beta=self._beta)
            self._optimizer.zero_grad(set_to_none=True)
            (-bound.elbo.mean(-1).sum()).backward()
        self._optimizer.step()
        self._sums += torch.stack([bound.reconstruction, bound.kl]).detach().mean(-1)

    def _autocast(self, x: Tensor) -> AbstractContextManager[object]:
        if self.step >= self.training.float32_from:
            return nullcontext()
        # A cache of weights would outlive the graph that they were cast in.
        return torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False)

    def _convolutions(self, x: Tensor) -> AbstractContextManager[object]:
        """While steps are in bfloat16, convolutions that are in float32 nevertheless may use TF32;
        the last steps really are in float32.

        TF32 rounds what goes into a convolution to 10 bits; what comes out has 24, in bfloat16 8.
        """
        if not x.is_cuda or self.training.precision == "float32":
            return nullcontext()
        return cudnn.flags(
            cudnn.enabled,
            cudnn.benchmark,
            cudnn.benchmark_limit,
            cudnn.deterministic,
            allow_tf32=self.step < self.training.float32_from,
        )

    @torch.no_grad()
    def _settle(self) -> None:
        """Measures the statistics of batch normalisation again, as means over the first batches.

        Until now they were running means, of weights that changed and, in bfloat16, of other
        roundings than those of the model in use. A channel that hardly varies shows both.
        """
        norms = [m for m in self.model.modules() if isinstance(m, _BatchNorm)]
        before = [(m.momentum, copy.deepcopy(m.state_dict())) for m in norms]
        for m in norms:
            m.reset_running_stats()
            m.momentum = None  # a plain mean
        if norms:
            with seeded(self.training.seed, self.model.beta.device):
                for step in range(min(_SETTLING, self.steps)):
                    self.model.elbo(self.batches(step))
        # One draw so far out that nothing is finite must not cost the whole training.
        finite = all(torch.isfinite(t).all() for m in norms for t in m.state_dict().values())
        for m, (momentum, state) in zip(norms, before, strict=True):
            m.momentum = momentum
            if not finite:
                m.load_state_dict(state)

    # --- reports ---------------------------------------------------------------------------------

    def _report(self, steps: int) -> Progress:
        reconstruction, kl = self._sums.cpu().double() / steps
        means = {"elbo": reconstruction - kl, "reconstruction": reconstruction, "kl": kl}
        numbers = {name: self._each(mean.flatten().tolist()) for name, mean in means.items()}
        score, looks = None, self.looks
        if looks and (self.step % looks.every < steps or self.step == self.steps):
            score = (looks.score or self._elbo)(looks.data)
            numbers[looks.name] = self._each(score)
            score = score if len(score) == self.models else [fmean(score)]
        return Progress(self.step, self.steps, numbers, score)

    def _each(self, numbers: list[float]) -> list[float] | float:
        return numbers if self.model.stack else numbers[0]

    def _elbo(self, data: Splittable) -> list[float]:
        return mean_elbo(self.model, data, self.training.seed)


@torch.no_grad()
def mean_elbo(model: VAE, data: Splittable, seed: int) -> list[float]:
    """The ELBO of the data for each model of a stack, with the same noise every time."""
    beta = model.beta
    with seeded(seed, beta.device):
        parts = data.split(_ROWS_AT_ONCE)
        elbo = torch.cat([model.elbo(part.to(beta)).elbo for part in parts], -1)
    return elbo.mean(-1).flatten().tolist()


@dataclass
class Shuffled:
    """Batches of the rows of ``data``, ``(batch, *event)``, in a new order every epoch.

    The order depends only on the seed and the epoch. Several seeds give ``(seeds, batch,
    *event)``, each in its own order. Rows left over at the end of an epoch are skipped.

    >>> batches = Shuffled(torch.arange(6.0).view(6, 1), batch=3, seed=0)
    >>> torch.cat([batches(0), batches(1)]).flatten().sort().values
    tensor([0., 1., 2., 3., 4., 5.])
    """

    data: Table
    batch: int
    seed: int | Sequence[int]
    _epoch: int = field(default=-1, init=False)

    def __call__(self, step: int) -> Tensor:
        batch = min(self.batch, len(self.data))
        epoch, i = divmod(step, len(self.data) // batch)
        if epoch != self._epoch:
            seeds = [self.seed] if isinstance(self.seed, int) else self.seed
            orders = torch.stack([self._permutation(seed, epoch) for seed in seeds])
            self._order = orders[0] if isinstance(self.seed, int) else orders
            self._epoch = epoch
        rows = self.data[self._order[..., i * batch : (i + 1) * batch]]
        return rows if rows.is_floating_point() else rows.float()

    def _permutation(self, seed: int, epoch: int) -> Tensor:
        mixed = np.random.SeedSequence((seed, epoch)).generate_state(1, np.uint64)
        device = self.data.device
        generator = torch.Generator(device).manual_seed(int(mixed[0]))
        return torch.randperm(len(self.data), generator=generator, device=device)
