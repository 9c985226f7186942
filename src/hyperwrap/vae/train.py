"""Training that can be killed at any moment and resumed as if it had not been.

A `Trainer` owns a model, its optimiser and a source of batches. Everything that the next step
depends on, the state of the random number generator included, goes into one checkpoint, written
beside the old one and moved over it: there is always a whole one. On CPU a resumed run ends with
the same bits as one that was never stopped, and with the same lines in ``metrics.jsonl``.

A stack of models (see `networks.Linear`) trains in one program: the loss is the sum over the
stack, so each model gets the gradient it would get alone, and Adam works element by element.
"""

import copy
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from math import ceil
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.backends import cudnn
from torch.nn.modules.batchnorm import _BatchNorm

from hyperwrap.errors import DivergedError, UserError
from hyperwrap.files import Metrics, read_tensors, write_tensors
from hyperwrap.vae.model import VAE, Bound
from hyperwrap.vae.objective import LEAST_SCALE

__all__ = ["Progress", "Shuffled", "Trainer", "Training", "seeded"]

Batches = Callable[[int], Tensor]


@dataclass(frozen=True)
class Training:
    """How to train; all of it is part of what a checkpoint belongs to."""

    steps: int
    learning_rate: float = 1e-3
    decay: bool = False
    """Whether the learning rate, constant for the first half, then falls linearly to 0."""
    num_samples: int = 1
    warm_up: int = 0
    """Steps over which β rises linearly from ``warm_up_from`` to its value."""
    warm_up_from: float = 0.0
    seed: int = 0
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the networks' matrix products and convolutions; the geometry is float32 in any case, and
    so is what a network does in float32 by itself (see `networks.Network.exact`).

    In use a model is in float32. So of a training in bfloat16 the last hundredth is, too, but no
    more than 400 steps: weights that fit one rounding do not fit the other, but soon do."""

    @property
    def float32_from(self) -> int:
        """The step from which on all is float32."""
        return 0 if self.precision == "float32" else self.steps - min(ceil(self.steps / 100), 400)

    def __post_init__(self) -> None:
        if self.precision not in ("float32", "bfloat16"):
            raise ValueError(f"Expected `precision` float32 or bfloat16; got {self.precision!r}.")


@dataclass(frozen=True)
class Progress:
    """Means over the steps since the last report, one number a model of the stack."""

    step: int
    elbo: list[float]
    reconstruction: list[float]
    kl: list[float]
    validation: list[float] | None = None
    """The ELBO of the validation data, where it was measured."""


@dataclass
class Trainer:
    """Trains ``model`` on ``batches(step)``, data shaped ``(*stack, batch, *event)``.

    While steps are taken the model is in the mode for that (`nn.Module.train`), and whenever
    somebody else may look at it, at a report and at the end, in that for use (`eval`). After the
    last step the statistics of batch normalisation are taken anew, see `_settle`.

    Args:
        folder: where ``checkpoint.safetensors`` and ``metrics.jsonl``, a line a report, go; without
            one there are none. A checkpoint that is there already is resumed.
        validation: data held out, ``(rows, *event)``; reports give their ELBO every so often. It
            is measured with noise of its own, and training does not notice.
    """

    model: VAE
    batches: Batches
    training: Training
    folder: str | PathLike[str] | None = None
    validation: Tensor | None = None
    step: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        device = self.model.beta.device
        self._rate = torch.tensor(self.training.learning_rate, device=device)
        self._beta = self.model.beta.clone()
        self._sums = torch.zeros(())  # of reconstruction and KL, since the last report
        self._since = 0  # steps that these are of
        self._graph: torch.cuda.CUDAGraph | None = None
        on_gpu = device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            self.model.parameters(),
            lr=self._rate if on_gpu else self.training.learning_rate,
            fused=True,
            capturable=on_gpu,
        )
        if self.folder is not None and self._path.exists():
            self._resume()
        else:
            # A GPU's generator takes 64 bits of seed: there the noise does not repeat the stream
            # that may have made the weights. The CPU's takes 32, and does; it does no harm.
            torch.manual_seed(self.training.seed + 2**32)
        self.model.eval()

    # --- the loop -------------------------------------------------------------------------------

    def run(
        self, report_every: int = 100, save_every: int = 1000, validate_every: int = 1000
    ) -> Iterator[Progress]:
        """Trains to the end, yielding a report every so often.

        The validation data are scored in the first report after each ``validate_every`` steps.
        """
        if self._metrics is not None:
            self._metrics.rewind(self.step)
        self.model.train()
        while self.step < self.training.steps:
            self._schedule()
            x = self.batches(self.step)
            if self.step == 0:
                self._require_data(x)
            self._advance(x)
            self.step, self._since = self.step + 1, self._since + 1
            last = self.step == self.training.steps
            if last:
                self._settle()
            if last or self.step % report_every == 0:
                self.model.eval()
                yield self._report(validate_every)
                self.model.train()
            if last or self.step % save_every == 0:
                self.save()
        self.model.eval()

    def _schedule(self) -> None:
        """Sets β and the learning rate of the coming step."""
        t = self.training
        if self.step <= t.warm_up and t.warm_up:
            rise = min(self.step / t.warm_up, 1.0)
            self._beta.copy_(t.warm_up_from + rise * (self.model.beta - t.warm_up_from))
        if t.decay:
            rate = t.learning_rate * min(1.0, 2 * (1 - self.step / t.steps))
            self._rate.fill_(rate)
            if not self._rate.is_cuda:
                self.optimizer.param_groups[0]["lr"] = rate

    def _advance(self, x: Tensor) -> None:
        """One step, on a GPU as the replay of a graph captured at the first in this precision."""
        if not x.is_cuda:
            return self._one_step(x)
        if self._graph is None or self.step == self.training.float32_from:
            self._capture(x)
        assert self._graph is not None
        self._x.copy_(x)
        self._graph.replay()
        return None

    def _one_step(self, x: Tensor) -> None:
        with self._convolutions(x):
            with self._autocast(x):
                bound = self.model.objective(x, self.training.num_samples, beta=self._beta)
            self.optimizer.zero_grad(set_to_none=True)
            (-bound.elbo.mean(-1).sum()).backward()
        self.optimizer.step()
        means = _means(bound)
        if self._sums.dim() == 0:
            self._sums = torch.zeros_like(means)
        self._sums += means

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

    def _capture(self, x: Tensor) -> None:
        """Records a step as a CUDA graph; the warm-up that this takes leaves no trace."""
        self._x = x.clone()
        tensors = [*self.model.parameters(), *self.model.buffers()]
        before = [t.detach().clone() for t in tensors]
        sums = self._sums.clone()
        moments = copy.deepcopy(self.optimizer.state_dict()["state"])
        random = torch.cuda.get_rng_state(x.device)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._one_step(self._x)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._one_step(self._x)
        with torch.no_grad():
            for t, old in zip(tensors, before, strict=True):
                t.copy_(old)
            for index, state in self.optimizer.state_dict()["state"].items():
                for name, t in state.items():
                    t.copy_(moments[index][name]) if index in moments else t.zero_()
        self._sums.copy_(sums)
        torch.cuda.set_rng_state(random, x.device)

    @torch.no_grad()
    def _settle(self) -> None:
        """Takes the statistics of batch normalisation anew, as means over the first batches.

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
                for step in range(min(_SETTLING, self.training.steps)):
                    self.model.elbo(self.batches(step))
        # One draw so far out that nothing is finite must not cost the whole training.
        finite = all(torch.isfinite(t).all() for m in norms for t in m.state_dict().values())
        for m, (momentum, state) in zip(norms, before, strict=True):
            m.momentum = momentum
            if not finite:
                m.load_state_dict(state)

    # --- reports ---------------------------------------------------------------------------------

    def _report(self, validate_every: int) -> Progress:
        means = self._sums / self._since
        if not torch.isfinite(means).all():
            raise DivergedError(
                f"Expected a finite objective; step {self.step} gave reconstruction "
                f"{means[0].min().item():.4g} and KL {means[1].max().item():.4g}.",
                self._checkpoint,
            )
        reconstruction, kl = means.reshape(2, -1).tolist()
        elbo = [r - d for r, d in zip(reconstruction, kl, strict=True)]
        due = self.step % validate_every < self._since or self.step == self.training.steps
        validation = self._validate() if due else None
        self._sums.zero_()
        self._since = 0
        progress = Progress(self.step, elbo, reconstruction, kl, validation)
        if self._metrics is not None:
            self._metrics.append(_line(progress, bool(self.model.stack)))
        return progress

    @torch.no_grad()
    def _validate(self) -> list[float] | None:
        """The ELBO of the validation data, with the same noise every time."""
        if self.validation is None:
            return None
        beta = self.model.beta
        with seeded(self.training.seed, beta.device):
            parts = self.validation.split(_ROWS_AT_ONCE)
            elbo = torch.cat([self.model.elbo(part.to(beta)).elbo for part in parts], -1).mean(-1)
        if not torch.isfinite(elbo).all():
            raise DivergedError(
                f"Expected a finite ELBO of the validation data; step {self.step} gave "
                f"{elbo.min().item():.4g}.",
                self._checkpoint,
            )
        return elbo.flatten().tolist()

    def _require_data(self, x: Tensor) -> None:
        """Raises a `UserError` if the first batch cannot be data of the model."""
        if not x.numel():
            raise UserError(f"Expected data; got a batch of shape {tuple(x.shape)}.")
        if not torch.isfinite(x).all():
            raise UserError("Expected finite data; got NaN or inf.")
        if self.model.likelihood == "bernoulli" and (x.min() < 0 or x.max() > 1):
            raise UserError(
                "Expected values in [0, 1], as the likelihood is bernoulli; "
                f"got {x.min().item():.4g} to {x.max().item():.4g}."
            )

    def _require_finite_parameters(self) -> None:
        moments = [t for state in self.optimizer.state.values() for t in state.values()]
        if not all(torch.isfinite(t).all() for t in (*self.model.state_dict().values(), *moments)):
            raise DivergedError(
                f"Expected finite parameters; step {self.step} left NaN or inf.",
                self._checkpoint,
            )

    # --- the folder ------------------------------------------------------------------------------

    @property
    def _metrics(self) -> Metrics | None:
        return None if self.folder is None else Metrics(Path(self.folder) / "metrics.jsonl")

    @property
    def _checkpoint(self) -> Path | None:
        return None if self.folder is None else Path(self.folder) / "checkpoint.safetensors"

    @property
    def _path(self) -> Path:
        assert self._checkpoint is not None
        return self._checkpoint

    def _identity(self) -> dict[str, str]:
        """What a checkpoint has to agree in, besides names and shapes of the parameters."""
        m = self.model
        scale = "" if m.least_scale == LEAST_SCALE else f" ≥ {m.least_scale:g}"
        model = f"{m.latent!r}, {m.likelihood}{scale}, beta={m.beta.tolist()}"
        return {"model": model, "training": json.dumps(asdict(self.training))}

    def save(self) -> None:
        """Writes the checkpoint, if there is a folder; parameters that are not finite raise."""
        self._require_finite_parameters()
        if self.folder is None:
            return
        tensors = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{index}.{name}": t for name, t in state.items()}
        tensors |= {"random": torch.get_rng_state(), "sums": self._sums}
        if self._rate.is_cuda:
            tensors["random_cuda"] = torch.cuda.get_rng_state(self._rate.device)
        about = {"step": str(self.step), "since": str(self._since), **self._identity()}
        write_tensors(self._path, tensors, about)

    def _resume(self) -> None:
        tensors, metadata = read_tensors(self._path, "a checkpoint", "Remove it to start anew.")
        for what, own in self._identity().items():
            found = metadata.get(what, "something else")
            if found != own:
                raise UserError(
                    f"Expected {self._path} to be of this {what}, {_shown(own)}; it is of "
                    f"{_shown(found)}. Choose another folder, or the same options."
                )
        own = self.model.state_dict()
        found = {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
        same = {n: t.shape for n, t in found.items()} == {n: t.shape for n, t in own.items()}
        if not same or not {"random", "sums"} <= tensors.keys():
            raise UserError(
                f"Expected {self._path} to be of this model; its parameters have other names or "
                "shapes. Choose another folder."
            )
        self.model.load_state_dict(found)
        parameters, state = list(self.model.parameters()), defaultdict[int, dict[str, Tensor]](dict)
        for name, t in tensors.items():
            if name.startswith("adam."):
                _, index, key = name.split(".")
                state[int(index)][key] = _laid_out(t, parameters[int(index)])
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": dict(state)})
        torch.set_rng_state(tensors["random"])
        if self._rate.is_cuda and "random_cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random_cuda"], self._rate.device)
        self._sums = tensors["sums"].to(self._rate.device)
        self.step, self._since = int(metadata["step"]), int(metadata["since"])


@dataclass
class Shuffled:
    """Batches of the rows of ``data``, ``(batch, *event)``, in a new order every epoch.

    The order depends on nothing but the seed and the epoch. Several seeds give ``(seeds, batch,
    *event)``, each in its own order. What is left over at the end of an epoch waits for another.

    >>> batches = Shuffled(torch.arange(6.0).view(6, 1), batch=3, seed=0)
    >>> torch.cat([batches(0), batches(1)]).flatten().sort().values
    tensor([0., 1., 2., 3., 4., 5.])
    """

    data: Tensor
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


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """With the noise of this seed; what is drawn later does not notice."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


_ROWS_AT_ONCE = 1_000  # of validation data
_SETTLING = 100  # batches


def _laid_out(t: Tensor, like: Tensor) -> Tensor:
    """In memory as Adam wants it: in the order of the parameter that it belongs to."""
    return torch.empty_like(like).copy_(t) if t.dim() > 1 else t


def _means(bound: Bound) -> Tensor:
    """Reconstruction and KL, averaged over the batch, ``(2, *stack)``."""
    return torch.stack([bound.reconstruction, bound.kl]).detach().mean(-1)


def _line(progress: Progress, stacked: bool) -> dict[str, Any]:
    """A report for ``metrics.jsonl``: a number of one model, a list of a stack."""
    numbers = {
        "elbo": progress.elbo,
        "reconstruction": progress.reconstruction,
        "kl": progress.kl,
        "validation_elbo": progress.validation,
    }
    return {"step": progress.step} | {
        name: values if stacked else values[0] for name, values in numbers.items() if values
    }


def _shown(identity: str) -> str:
    """A training as it is written in Python, anything else as it is."""
    try:
        return repr(Training(**json.loads(identity)))
    except (ValueError, TypeError):
        return identity
